#!/usr/bin/env python3
"""Compare two builds of ddprun: does a change cost speed?

usage: bench/compare.py [--rounds N] [--only WORD[,WORD]...] OLD_BUILD NEW_BUILD

OLD_BUILD and NEW_BUILD are release builds with tests and benches. In each round both builds take a turn at each measurement; the build
that is first changes from round to round. The table shows the median of each build, and the ratio of the medians: above 1, the new
build is slower. Measurements:

  launch       start N short programs until all have ended, N = 2, 64, 256
  restart      kill -9 of one of two workers until both new workers are in main()
  recovery     kill -9 of one of 2 and 4 ranks until all ranks hold the state of the next generation (in-place recovery)
  collectives  an all-reduce on one node, 2 ranks, at 4 B, 1 KiB, 64 KiB and 16 MiB
  net          the same between two network namespaces, one rank each; needs root
  model        a step of ddp_model: sync, commit, overlap
"""
import argparse
import contextlib
import math
import os
import re
import statistics
import subprocess
import sys

import collectives_net
import contestants
import launch
import recovery
import restart
import results

SIZES = [4, 1 << 10, 64 << 10, 16 << 20]
N_KILLS = 4  # in one job


def measure_launch(build):
    for n in (2, 64, 256):
        took = launch.time_once(f"{build}/bench/timeit", 10, [f"{build}/launcher/ddprun", "-n", str(n), "/bin/true"], dict(os.environ))
        if took is not None:
            yield f"launch of {n} ranks, ms", took


def measure_restart(build):
    command = [f"{build}/launcher/ddprun", "--standalone", "--max-restarts", "1", "--nproc-per-node", "2", "--no-python",
               f"{build}/tests/support/rank", "tell", "up", "wait"]
    yield "restart of 2 workers, ms", restart.time_once(command, dict(os.environ))


def measure_recovery(build):
    for n in (2, 4):
        _, _, states = recovery.measure(build, n, 1, N_KILLS, 0)
        yield f"recovery of 1 of {n} ranks, ms", statistics.median(states)


def measure_collectives(build):
    for kind in ("segment", "plain"):
        contestant = ([f"{build}/launcher/ddprun", "-n", "2", f"{build}/bench/collectives", kind], dict(os.environ))
        times = contestants.sweep(contestant, 10, max(SIZES))
        for size in SIZES:
            yield f"all-reduce of {size} B, {kind} memory, us", times[size][1]


class Net:
    """Measures between two network namespaces, which exist while the object is open."""

    def __init__(self):
        self.spaces = collectives_net.Namespaces(2)
        self.job = 0

    def __enter__(self):
        self.spaces.__enter__()
        return self.measure

    def __exit__(self, *_):
        self.spaces.__exit__()

    def measure(self, build):
        self.job += 1
        args = argparse.Namespace(build=build, nodes=2, p=1)
        command = [f"{build}/bench/collectives", "segment", "10", str(max(SIZES))]
        times = collectives_net.parse(collectives_net.run_by_hand(self.spaces, args, command, dict(os.environ), self.job, True))
        for size in SIZES:
            yield f"all-reduce of {size} B between 2 nodes, us", times[size][1]


def measure_model(build):
    for what, repeats in (("sync", 21), ("commit", 51), ("overlap", 101)):
        out = subprocess.run([f"{build}/launcher/ddprun", "-n", "2", f"{build}/bench/model_steps", what, str(repeats)],
                             stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
        for name, median in re.findall(r"^(.*?) +fastest .* median +([\d.]+)$", out, re.M):
            if name != "ratio":
                yield f"model: {name}, us", float(median)


def measure(args):
    """-> {what: ([old], [new])}"""
    figures = {}
    with contextlib.ExitStack() as stack:
        ways = {"launch": measure_launch, "restart": measure_restart, "recovery": measure_recovery,
                "collectives": measure_collectives, "model": measure_model}
        if "net" in args.only:
            ways["net"] = stack.enter_context(Net())
        for number in range(-1, args.rounds):  # round -1 warms the caches
            for word in args.only:
                for which in (0, 1) if number % 2 else (1, 0):
                    for what, took in ways[word](args.builds[which]):
                        if number >= 0:
                            figures.setdefault(what, ([], []))[which].append(took)
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    return figures


def main():
    words = ["launch", "restart", "recovery", "collectives", "net", "model"]
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2], allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--only", type=lambda text: text.split(","), default=words)
    parser.add_argument("builds", nargs=2, metavar="BUILD")
    args = parser.parse_args()
    for word in args.only:
        if word not in words:
            parser.error(f"invalid value '{word}' for --only: expected {', '.join(words)}")
    args.builds = [os.path.abspath(build) for build in args.builds]
    for build in args.builds:
        if not os.access(f"{build}/launcher/ddprun", os.X_OK):
            parser.error(f"no launcher/ddprun in {build}: build it first")
    load = results.load_average()
    figures = measure(args)
    rows, logs = [], []
    for what, (old, new) in figures.items():
        medians = statistics.median(old), statistics.median(new)
        logs.append(math.log(medians[1] / medians[0]))
        rows.append([what, len(old), f"{min(old):.3f}", f"{min(new):.3f}", *(f"{m:.3f}" for m in medians), f"{medians[1] / medians[0]:.3f}"])
    mean = math.exp(sum(logs) / len(logs))
    head = ["measurement", "runs", "old min", "new min", "old median", "new median", "new / old"]
    results.report("compare", f"{results.table(head, rows)}\n\nGeometric mean of the ratios: {mean:.3f}.", load)


if __name__ == "__main__":
    main()
