#!/usr/bin/env python3
"""Count how often the rank with the real error is named as the first that failed. Standard library only.

usage: cause_runs.py --launcher DDPRUN|TORCHRUN [--runs N] [WAY...]

Each run is a job of two ranks of cause.py. Prints for each way how many runs named rank 1 and had its error in the report;
the exit status is 0 if all did. The launcher may be torchrun.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from run import HERE, NEWEST, find_python

DDPRUN_NAMES = re.compile(r"^ddprun: error: rank (\d+) failed: .*", re.MULTILINE | re.DOTALL)
TORCHRUN_NAMES = re.compile(r"^Root Cause .*?rank +: (\d+) .*", re.MULTILINE | re.DOTALL)


def run_once(launcher, way, env):
    """(rank 1 was named first, the report has its error, how long the job took)"""
    begin = time.monotonic()
    done = subprocess.run([launcher, "--nproc-per-node", "2", os.path.join(HERE, "cause.py"), way], env=env, timeout=120,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    report = DDPRUN_NAMES.search(done.stderr) or TORCHRUN_NAMES.search(done.stderr)
    named = report is not None and report[1] == "1"
    return named, report is not None and "RuntimeError: the real cause" in report[0], time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("ways", nargs="*", default=["raises", "cleans_up"])
    args = parser.parse_args()
    _, env = find_python(NEWEST)
    env["OMP_NUM_THREADS"] = "1"
    all_named = True
    for way in args.ways:
        with tempfile.TemporaryDirectory() as folder:
            runs = [run_once(os.path.abspath(args.launcher), way, {**env, "TMPDIR": folder}) for _ in range(args.runs)]
        n_named, n_said = sum(run[0] for run in runs), sum(run[1] for run in runs)
        print(f"{way}: rank 1 named first in {n_named} of {args.runs}, its error in the report in {n_said}; a job takes "
              f"{min(run[2] for run in runs):.2f} s at least, {statistics.median(run[2] for run in runs):.2f} s in the median",
              flush=True)
        all_named &= n_named == n_said == args.runs
    sys.exit(0 if all_named else 1)


if __name__ == "__main__":
    main()
