#!/usr/bin/env python3
"""Measure how long a call takes to end when a rank on another node leaves, for which it waits.

usage: bench/leaving.py [--rounds N] [--build DIR]

Run it as root.

The nodes are two network namespaces joined by a veth pair, with one rank each. In each of --rounds rounds, each call takes a turn in a job of its own.
The time is from the call of ddp_finalize() on rank 1 to the return of the call on rank 0, with an error.
"""
import argparse
import os
import sys

import results
from collectives_net import Namespaces
from lanes import add_options, outputs

CALLS = ["recv", "all_reduce"]
DELAY_MS = "200"  # until rank 1 leaves: the call of rank 0 waits by then


def run(spaces, args, call, job):
    """Milliseconds."""
    ended, left = map(float, outputs(spaces, args, [f"{args.build}/bench/leaving", call, DELAY_MS], {}, job))
    return (ended - left) / 1000


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add_options(parser, rounds=20)
    return parser.parse_args()


def main():
    args = read_options()
    if os.geteuid() != 0:
        sys.exit("leaving.py: making network namespaces takes root")
    load, job = results.load_average(), os.getpid()
    times = {call: [] for call in CALLS}
    with Namespaces(2) as spaces:
        for _ in range(args.rounds):
            for call in CALLS:
                job += 1
                times[call].append(run(spaces, args, call, job))
    rows = [[call, str(len(times[call])), f"{min(times[call]):.2f}", f"{results.spread(times[call])[1]:.2f}", f"{max(times[call]):.2f}"] for call in CALLS]
    results.report("leaving", results.table(["call", "runs", "min ms", "median ms", "max ms"], rows), load)


if __name__ == "__main__":
    main()
