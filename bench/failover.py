#!/usr/bin/env python3
"""Measure how a job continues when the node of its coordinator is lost, without an outside service (--rdzv-conf failover=majority).

usage: bench/failover.py [--runs N] [--lost-runs N] [--nodes MIN:MAX]... [--case CASE]... [--ranks RANKS]... [--host-timeout TIME]
                         [--python PYTHON] [--build DIR]

Three nodes on this host run one rank each. CASE is `killed` (SIGKILL of ddprun), `leaves` (SIGTERM), `silent` (SIGSTOP of ddprun), all of
these with a loopback address for each node; or `lost`: all processes of the node are killed and its link is cut, in network namespaces
(as root). RANKS are `shell` (a script that reports its start, started again), `gloo` (a PyTorch script, started again; PYTHON has torch)
or `libddp` (ranks that live on). TIME is that of --rdzv-conf host_timeout, by default none. By default all cases but `silent`, and all ranks that can run.

Times are in ms from the event. `coordinator`: until another node has taken over. `next`: until all ranks of the next generation have
started (`shell`) or completed a step; the least, the median, and the greatest of the runs. `continued`: runs in which the two other
nodes were in the next generation, `libddp` with the same processes. `lost` runs --lost-runs times, the others --runs times.
"""
import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time

import results

sys.path.insert(0, os.path.join(results.ROOT, "tests/system/lib"))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--lost-runs", type=int, default=20)
    parser.add_argument("--nodes", action="append")
    parser.add_argument("--case", action="append", choices=("killed", "leaves", "silent", "lost"))
    parser.add_argument("--ranks", action="append", choices=("shell", "gloo", "libddp"))
    parser.add_argument("--host-timeout", default="0")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    return parser.parse_args()


ARGS = parse()
for name, path in {"DDPRUN": "launcher/ddprun", "RANK_PROGRAM": "tests/support/rank", "RECOVERY_RANK": "tests/support/recovery_rank"}.items():
    os.environ[name] = os.path.join(os.path.abspath(ARGS.build), path)
for name in "ADDER_PROGRAM", "DDPCTL", "CHECKPOINTER_PROGRAM", "DDP_RENDEZVOUS":  # for tests that do not run here
    os.environ.setdefault(name, "")

# found by the path above; they need the path of ddprun
from failover_job import LEADS, ONCE, Group, LastingGroup  # noqa: E402
from harness import DEADLINE_S  # noqa: E402
from party import SHOW  # noqa: E402
from places import Loopback, Namespaces, NoPlace  # noqa: E402

CONF = f"{ONCE},host_timeout={ARGS.host_timeout}"
SIGNALS = {"killed": signal.SIGKILL, "leaves": signal.SIGTERM, "silent": signal.SIGSTOP}
TRAINS = os.path.join(results.HERE, "failover_rank.py")
POLL_S = 0.002


def ms_since(begin):
    return (time.monotonic() - begin) * 1000


def strike(case, place, job):
    """-> when"""
    begin = time.monotonic()
    if case != "lost":
        job.process.send_signal(SIGNALS[case])
        return begin
    pids = job.processes()
    place.cut(1)
    for pid in {job.process.pid, *pids}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return begin


def await_leader(said, begin):
    """ms until one of the nodes has printed that it is the coordinator"""
    while LEADS not in said():
        if ms_since(begin) > 1000 * DEADLINE_S:
            raise AssertionError("no other coordinator")
        time.sleep(POLL_S)
    return ms_since(begin)


def restart(case, nodes, place, script, window):
    """ms to the next coordinator and to the next generation, of ranks that are started again; None: it did not come"""
    with Group(nodes, CONF, place, script=script, window=window) as group:
        names, ranks = group.begin(3)
        begin = strike(case, place, group.nodes["a"])
        try:
            leads_ms = await_leader(lambda: "".join(group.nodes[name].said_so_far().decode() for name in names[1:]), begin)
            group.hear(ranks["b"].generation + 1, names[1:])
        except AssertionError:
            return None
        took_ms = ms_since(begin)
        group.nodes["a"].signal(signal.SIGKILL)
        group.nodes["a"].process.wait()
        group.drop("a")
        group.finish()
        return leads_ms, took_ms


def shell(case, nodes, place):
    return restart(case, nodes, place, SHOW, "0")


def gloo(case, nodes, place):
    return restart(case, nodes, place, (ARGS.python, TRAINS), "3s")


def libddp(case, nodes, place):
    """The same, of ranks that live on"""
    with LastingGroup(nodes, place, CONF) as job:
        before = job.begin()
        begin = strike(case, place, job.jobs[0])
        try:
            leads_ms = await_leader(job.told, begin)
            after = job.await_world(2, job.generation + 1)
        except AssertionError:
            return None
        took_ms = ms_since(begin)
        job.jobs[0].process.kill()
        job.finish([1, 2])
        return (leads_ms, took_ms) if all(after[node] == before[node] for node in (1, 2)) else None


def run_once(run, case, nodes):
    with (Namespaces(3) if case == "lost" else Loopback()) as place:
        return run(case, nodes, place)


def row(case, nodes, run):
    n_runs = ARGS.lost_runs if case == "lost" else ARGS.runs
    times = [run_once(run, case, nodes) for _ in range(n_runs)]
    done = [t for t in times if t is not None]
    leads, nexts = [t[0] for t in done], [t[1] for t in done]
    cells = [f"{f(x):.0f}" if done else "-" for f, x in ((statistics.median, leads), (max, leads), (min, nexts), (statistics.median, nexts),
                                                         (max, nexts))]
    found = (case, nodes, run.__name__, f"{len(done)} of {len(times)}", *cells)
    print(*found, flush=True)
    return found


def has_torch():
    return subprocess.run([ARGS.python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def can_cut():
    try:
        Namespaces(3)
        return True
    except NoPlace:
        return False


def main():
    cases = ARGS.case or ["killed", "leaves", *(["lost"] if can_cut() else [])]
    ranks = ARGS.ranks or ["shell", "libddp", *(["gloo"] if has_torch() else [])]
    load = results.load_average()
    rows = [row(case, nodes, globals()[name]) for case in cases for nodes in ARGS.nodes or ("1:3", "2:3") for name in ranks]
    head = ["the coordinator's node", "nodes", "ranks", "continued", "coordinator, median", "greatest", "next, least", "median", "greatest"]
    results.report("failover", results.table(head, rows), load)


if __name__ == "__main__":
    main()
