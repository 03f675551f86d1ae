#!/usr/bin/env python3
"""Measure how long after --hang-timeout the report about a rank that hangs is complete: which rank and why, and the stacks of all ranks.

usage: bench/hang_report.py [--ranks N] [--timeout SECONDS] [--rounds N] [--torch PYTHON] [--build DIR]

Rank 1 hangs in step 37, and prints when. The ways take turns: ranks that report their steps; with --torch also a gloo script that does, and
an unmodified one, whose rank and collective torch's worker server names. No debugger is in PATH. Times are from the hang to a line of
ddprun, less the timeout.
"""
import argparse
import os
import re
import subprocess
import sys
import threading
import time

import results

PROGRAM = os.path.join(results.HERE, "programs/hang.py")
LIMIT_S = 120  # for a job, in addition to the timeout


def read_lines(stream, lines):
    for line in stream:
        lines.append((time.monotonic(), line))


def run_once(args, way):
    """(seconds to the finding, seconds to the last stack), less the timeout"""
    python = sys.executable if way == "steps" else args.torch
    words = [os.path.join(args.build, "launcher/ddprun"), "-n", str(args.ranks), "--hang-timeout", f"{args.timeout}s", "--no-python", python,
             PROGRAM, way]
    out, err = [], []
    with subprocess.Popen(words, env={**os.environ, "PATH": "/nonexistent"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as job:
        readers = [threading.Thread(target=read_lines, args=pair) for pair in ((job.stdout, out), (job.stderr, err))]
        for reader in readers:
            reader.start()
        try:
            job.wait(args.timeout + LIMIT_S)
        finally:
            job.kill()
            for reader in readers:
                reader.join()
    hung = [float(line.split()[-1]) for _, line in out if line.startswith("hangs at ")]
    found = [at for at, line in err if re.match(r"ddprun: warning: rank 1 hangs: ", line)]
    stacks = [at for at, line in err if re.match(r"  where rank \d+ is:", line)]
    if not hung or not found or len(stacks) != args.ranks:
        sys.exit(f"{way}: the report is not complete:\n" + "".join(line for _, line in err))
    return found[0] - hung[0] - args.timeout, max(stacks) - hung[0] - args.timeout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--timeout", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--torch", help="a Python that has torch 2.15 or later")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load = results.load_average()
    ways = ["steps", *(["gloo-steps", "gloo"] if args.torch else [])]
    times = {way: [] for way in ways}
    for _ in range(args.rounds):
        for way in ways:
            times[way].append(run_once(args, way))
    rows = []
    for way in ways:
        for what, values in zip(("which rank", "all stacks"), zip(*times[way])):
            rows.append([f"{way}: {what}", *(f"{value:.2f}" for value in (*results.spread(values), max(values)))])
    text = (f"{args.ranks} ranks, --hang-timeout {args.timeout}s, {args.rounds} rounds. Seconds after the timeout until ddprun has printed it.\n\n" +
            results.table(["way", "min", "median", "max"], rows))
    results.show(text, load)


if __name__ == "__main__":
    main()
