#!/usr/bin/env python3
"""Measure what DDP_SOCKET_LANES gains where the network limits each connection: an all-reduce between two nodes.

usage: bench/lanes.py [--lanes LIST] [--rate BYTES] [--bytes BYTES] [--rounds N] [--build DIR]

Run it as root.

The nodes are two network namespaces joined by a veth pair, with one rank each. A preloaded library sets SO_MAX_PACING_RATE
on each TCP connection (bench/programs/pacing.c), so that it sends no more than --rate bytes a second; 0 sets no limit. In
each of --rounds rounds, each number of lanes in turn makes 17 calls, or more for a second. An all-reduce between two ranks sends as
many bytes as its vector has, each way.
"""
import argparse
import os
import subprocess
import sys

import results
from collectives_net import LIMIT_S, Namespaces, store

MS = "1000"  # at least, of one run


def run(spaces, args, job, more):
    """Bytes a second, each way, with more variables in the environment of the ranks."""
    port = str(29400 + job % 500)
    command = [f"{args.build}/bench/collectives", "segment", "steady", MS, str(args.bytes)]
    with store(spaces, args, port):
        ranks = []
        try:
            for rank in range(2):
                env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                       "GROUP_RANK": str(rank), "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": spaces.addresses[0],
                       "MASTER_PORT": port, **more}
                ranks.append(subprocess.Popen(spaces.command(rank, command), env=env, stdin=subprocess.DEVNULL,
                                              stdout=subprocess.PIPE, text=True))
            figures = [float(process.communicate(timeout=LIMIT_S)[0].split()[3]) for process in ranks]
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
    return args.bytes / max(figures) * 1e6


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--lanes", default="1,2,4")
    parser.add_argument("--rate", type=int, default=20_000_000, help="of each connection, bytes a second (20 MB/s); 0: no limit")
    parser.add_argument("--bytes", type=int, default=32 << 20, help="of the vector (32 MiB)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    return parser.parse_args()


def main():
    args = read_options()
    if os.geteuid() != 0:
        sys.exit("lanes.py: making network namespaces takes root")
    load, numbers, job = results.load_average(), [int(n) for n in args.lanes.split(",")], os.getpid()
    rates = {n: [] for n in numbers}
    with Namespaces(2) as spaces:
        for _ in range(args.rounds):
            for n in numbers:
                job += 1
                rates[n].append(run(spaces, args, job, {"DDP_SOCKET_LANES": str(n), "PACING_BYTES": str(args.rate),
                                                        "LD_PRELOAD": f"{args.build}/bench/libpacing.so"}))
    first = results.spread(rates[numbers[0]])[1]
    rows = [[str(n), str(len(rates[n])), f"{min(rates[n]) / 1e6:.1f}", f"{results.spread(rates[n])[1] / 1e6:.1f}",
             f"{results.spread(rates[n])[1] / first:.2f}"] for n in numbers]
    limit = f"{args.rate / 1e6:g} MB/s for each connection" if args.rate else "no limit"
    results.report("lanes" if args.rate else "lanes_uncapped",
                   f"all_reduce of {args.bytes} bytes, {limit}. Rates each way:\n\n" +
                   results.table(["lanes", "runs", "min MB/s", "median MB/s", f"median / {numbers[0]} lane"], rows), load)


if __name__ == "__main__":
    main()
