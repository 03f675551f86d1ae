#!/usr/bin/env python3
"""Measure the time of an all-reduce while other processes keep every core busy.

usage: bench/collectives_busy.py [-n RANKS] [--rounds N] [--seconds S] [--build DIR]

Calls follow each other for --seconds, once on idle cores and once with a busy loop bound to each core. All libraries and
both settings take turns, --rounds times. The result is the median of the rounds' means.
"""
import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager

import contestants
import results

SIZES = (4, 1 << 20)
GOAL = 4  # at most so many times libddp's own mean on idle cores


@contextmanager
def busy_cores():
    """Run a process that never sleeps on each core."""
    loops = []
    try:
        for core in os.sched_getaffinity(0):
            loops.append(subprocess.Popen(["taskset", "-c", str(core), "sh", "-c", "while :; do :; done"]))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(args, libraries):
    """{(name, bytes, is busy): [means in microseconds]}"""
    means = {}

    def take_turns(is_busy):
        for name, contestant in libraries.items():
            for size in SIZES:
                try:
                    mean = contestants.steady(contestant, int(args.seconds * 1e3), size)
                    means.setdefault((name, size, is_busy), []).append(mean)
                except (OSError, subprocess.SubprocessError) as error:
                    print(f"{name}: {error}", file=sys.stderr)

    for _ in range(args.rounds):
        take_turns(False)
        with busy_cores():
            take_turns(True)
    return {key: results.spread(values)[1] for key, values in means.items()}


def rows_of(means, libraries):
    rows = []
    for size in SIZES:
        for name in libraries:
            idle, busy = means.get((name, size, False)), means.get((name, size, True))
            if idle is None or busy is None:
                continue
            ratio = busy / idle
            goal = f" ({'' if ratio <= GOAL else 'not '}{GOAL})" if name.startswith("libddp") else ""
            rows.append([name, size, f"{idle:.2f}", f"{busy:.2f}", f"{ratio:.3g}{goal}"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()

    load = results.load_average()
    with tempfile.TemporaryDirectory(prefix="ddp-bench-") as folder:
        libraries = contestants.contestants(args.n, args.build, folder)
        means = measure(args, libraries)
    head = ["library", "bytes", "idle us", "busy us", "busy / idle"]
    text = f"{args.n} ranks; means of calls one after the other for {args.seconds:g} s. In brackets the goal.\n\n"
    results.report("collectives_busy", text + results.table(head, rows_of(means, libraries)), load)


if __name__ == "__main__":
    main()
