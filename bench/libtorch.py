#!/usr/bin/env python3
"""Steps of a libtorch program on ddp/torch.hpp, and of Python's DistributedDataParallel on gloo, by turns.

usage: bench/libtorch.py BUILD RANK_PROGRAM [--ranks 2] [--runs 5] [--steps 40]

BUILD          the build directory, with launcher/ddprun
RANK_PROGRAM   tests/interop/libtorch_rank, built by: tests/interop/libtorch_same.py --rank-program RANK_PROGRAM --program BUILD/launcher/ddprun
               --libddp BUILD/worker-runtime/libddp.so.0.1.0 --torch 2.15 kinds

Two networks: 67 MB of gradients (batch 16), and a conv net of 1.2 million parameters (batch 64). One thread per rank. Prints the median of
the runs' medians, and the least and most of them.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/interop"))
import run as interop  # noqa: E402 (found by the path above)


def measure(command, env):
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    found = re.search(r"median (\S+) ms(?:, (\d+) of (\d+) buckets in place)?", done.stdout)
    return float(found[1]), found[2], found[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("rank_program")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    _, env = interop.find_python(interop.NEWEST)
    env["OMP_NUM_THREADS"] = "1"
    start = [os.path.join(arguments.build, "launcher/ddprun"), "-n", str(arguments.ranks)]
    for network in "mlp", "conv":
        ways = {
            "C++, libddp": [*start, arguments.rank_program, "bench", network, str(arguments.steps)],
            "Python, gloo": [*start, os.path.join(ROOT, "tests/interop/programs/libtorch_gloo.py"), "--bench", network, str(arguments.steps)],
        }
        times = {way: [] for way in ways}
        for _ in range(arguments.runs):
            for way, command in ways.items():
                took, in_place, n_buckets = measure(command, env)
                times[way].append(took)
                if in_place is not None:
                    note = f"; {in_place} of {n_buckets} buckets averaged in place, one copy of each gradient"
        for way, runs in times.items():
            print(f"{network}: {way}: {statistics.median(runs):.2f} ms a step ({min(runs):.2f} to {max(runs):.2f}, n = {len(runs)})"
                  f"{note if way.startswith('C++') else ''}")
        ours, theirs = (statistics.median(runs) for runs in times.values())
        print(f"{network}: Python takes {theirs / ours:.2f} times as long", flush=True)


if __name__ == "__main__":
    main()
