#!/usr/bin/env python3
"""Measure how a job continues when the node of its coordinator is lost, without an outside service (--rdzv-conf failover=majority).

usage: bench/failover.py [--runs N] [--nodes MIN:MAX] [--case CASE] [--build DIR]

Three nodes on this host, each with a loopback address of its own, run one rank each. CASE is `killed` (kill -9 of ddprun), `leaves`
(SIGTERM), or `silent` (SIGSTOP of ddprun: as a machine that is lost, since nothing of it answers, except that its ranks are killed by
their lease); by default all. Times are in ms from the event until the last rank of the next generation has started: the least, the
median and the greatest of the runs. `continued`: runs in which the other nodes were in the next generation. `in place` counts runs with
ranks that recover (libddp); there the time is until all of them have completed a step.
"""
import argparse
import os
import signal
import statistics
import sys
import time

import results

sys.path.insert(0, os.path.join(results.ROOT, "tests/system/lib"))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--nodes", default="2:3")
    parser.add_argument("--case", choices=("killed", "leaves", "silent"))
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    return parser.parse_args()


ARGS = parse()
for name, path in {"DDPRUN": "launcher/ddprun", "RANK_PROGRAM": "tests/support/rank", "RECOVERY_RANK": "tests/support/recovery_rank"}.items():
    os.environ[name] = os.path.join(os.path.abspath(ARGS.build), path)
for name in "ADDER_PROGRAM", "DDPCTL", "CHECKPOINTER_PROGRAM", "DDP_RENDEZVOUS":  # for tests that do not run here
    os.environ.setdefault(name, "")

# found by the path above; they need the path of ddprun
import failover_job as cases  # noqa: E402

SIGNALS = {"killed": signal.SIGKILL, "leaves": signal.SIGTERM, "silent": signal.SIGSTOP}


def ms_since(begin):
    return (time.monotonic() - begin) * 1000


def restart(case):
    """ms to the next generation of ranks that are started again; None: it did not come"""
    with cases.Group(ARGS.nodes, cases.ONCE) as group:
        names, ranks = group.begin(3)
        begin = time.monotonic()
        group.nodes["a"].signal(SIGNALS[case])
        try:
            group.hear(ranks["b"].generation + 1, names[1:])
        except AssertionError:
            return None
        took_ms = ms_since(begin)
        group.nodes["a"].signal(signal.SIGKILL)
        group.nodes["a"].process.wait()
        group.drop("a")
        group.finish()
        return took_ms


def in_place(case):
    """The same, of ranks that live on"""
    with cases.LastingGroup() as nodes:
        before = nodes.begin()
        begin = time.monotonic()
        nodes.jobs[0].process.send_signal(SIGNALS[case])
        try:
            after = nodes.await_world(2, nodes.generation + 1)
        except AssertionError:
            return None
        took_ms = ms_since(begin)
        nodes.jobs[0].process.kill()
        nodes.finish([1, 2])
        return took_ms if all(after[node] == before[node] for node in (1, 2)) else None


def row(case, how, run):
    times = [run(case) for _ in range(ARGS.runs)]
    done = [t for t in times if t is not None]
    cells = [f"{f(done):.0f}" if done else "-" for f in (min, statistics.median, max)]
    return (case, how, f"{len(done)} of {len(times)}", *cells)


def main():
    load = results.load_average()
    rows = [row(case, how, run) for case in ([ARGS.case] if ARGS.case else SIGNALS)
            for how, run in (("restart", restart), ("in place", in_place))]
    results.report("failover", results.table(["the coordinator's node", "ranks", "continued", "least, ms", "median, ms", "greatest, ms"],
                                             rows), load)


if __name__ == "__main__":
    main()
