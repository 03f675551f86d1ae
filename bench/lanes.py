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
from collectives_net import LIMIT_S, Namespaces, ranks_environment, store

MS = "1000"  # at least, of one run


def outputs(spaces, args, command, env, job):
    """What each of the ranks has printed."""
    with store(spaces, args, ranks_environment(spaces, 0, args, job, True)["MASTER_PORT"]):
        ranks = []
        try:
            for rank in range(args.nodes):
                ranks.append(subprocess.Popen(spaces.command(rank, command), env={**os.environ, **ranks_environment(spaces, rank, args, job, True), **env},
                                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
            return [process.communicate(timeout=LIMIT_S)[0] for process in ranks]
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.communicate()


def run(spaces, args, job, more):
    """Bytes a second, each way, with more variables in the environment of the ranks."""
    command = [f"{args.build}/bench/collectives", "segment", "steady", MS, str(args.bytes)]
    return args.bytes / max(float(text.split()[3]) for text in outputs(spaces, args, command, more, job)) * 1e6


def add_options(parser, rounds):
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.set_defaults(nodes=2, p=1)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--lanes", default="1,2,4,auto")
    parser.add_argument("--rate", type=int, default=20_000_000, help="of each connection, bytes a second (20 MB/s); 0: no limit")
    parser.add_argument("--bytes", type=int, default=32 << 20, help="of the vector (32 MiB)")
    add_options(parser, rounds=3)
    return parser.parse_args()


def main():
    args = read_options()
    if os.geteuid() != 0:
        sys.exit("lanes.py: making network namespaces takes root")
    load, numbers, job = results.load_average(), args.lanes.split(","), os.getpid()
    rates = {n: [] for n in numbers}
    with Namespaces(2) as spaces:
        for _ in range(args.rounds):
            for n in numbers:
                job += 1
                rates[n].append(run(spaces, args, job, {"DDP_SOCKET_LANES": n, "PACING_BYTES": str(args.rate),
                                                        "LD_PRELOAD": f"{args.build}/bench/libpacing.so"}))
    first = results.spread(rates[numbers[0]])[1]
    rows = [[n, str(len(rates[n])), f"{min(rates[n]) / 1e6:.1f}", f"{results.spread(rates[n])[1] / 1e6:.1f}",
             f"{results.spread(rates[n])[1] / first:.2f}"] for n in numbers]
    limit = f"{args.rate / 1e6:g} MB/s for each connection" if args.rate else "no limit"
    results.report("lanes" if args.rate else "lanes_uncapped",
                   f"all_reduce of {args.bytes} bytes, {limit}. Rates each way:\n\n" +
                   results.table(["lanes", "runs", "min MB/s", "median MB/s", f"median / {numbers[0]} lane"], rows), load)


if __name__ == "__main__":
    main()
