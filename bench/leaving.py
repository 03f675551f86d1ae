#!/usr/bin/env python3
"""Measure how long a call takes to end when a rank on another node leaves, for which it waits.

usage: bench/leaving.py [--rounds N] [--build DIR]

Run it as root.

The nodes are two network namespaces joined by a veth pair, with one rank each. In each of --rounds rounds, each call takes a turn in a job of its own.
The time is from the call of ddp_finalize() on rank 1 to the return of the call on rank 0, with an error.
"""
import argparse
import os
import subprocess
import sys

import results
from collectives_net import LIMIT_S, Namespaces, store

CALLS = ["recv", "all_reduce"]
DELAY_MS = "200"  # until rank 1 leaves: the call of rank 0 waits by then


def run(spaces, args, call, job):
    """Milliseconds."""
    port = str(29400 + job % 500)
    with store(spaces, args, port):
        ranks = []
        try:
            for rank in range(2):
                env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": str(rank),
                       "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": spaces.addresses[0], "MASTER_PORT": port}
                ranks.append(subprocess.Popen(spaces.command(rank, [f"{args.build}/bench/leaving", call, DELAY_MS]), env=env,
                                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
            ended, left = [float(process.communicate(timeout=LIMIT_S)[0]) for process in ranks]
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
    return (ended - left) / 1000


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
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
