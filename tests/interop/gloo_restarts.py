#!/usr/bin/env python3
"""An unmodified gloo script, one of whose two ranks is killed by kill -9: does the job come back, again and again?
Standard library only.

usage: gloo_restarts.py --launcher DDPRUN [--runs N]

Each run is a job of its own that may restart once; rank 0 and rank 1 are killed in turns, after their first step. It has
come back when both new ranks have made a step. Prints how many did, and for each that did not why; the exit status is 0
if all did.
"""
import argparse
import dataclasses
import os
import re
import signal
import statistics
import sys
import tempfile
import time

from run import HERE, NEWEST, fail, find_python

sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system/lib"))
from harness import Job  # noqa: E402 (found by the path above)

LIMIT_S = 120  # for a step; importing torch is most of it
WORDS = ["--standalone", "--max-restarts", "1", "--nproc-per-node", "2", os.path.join(HERE, "gloo_steps.py")]


@dataclasses.dataclass
class Outcome:
    came_back: bool
    after_s: float  # from the kill to the later rank's step
    why: str = ""  # it did not


class Failed(Exception):
    """Why a job did not reach a step."""


def await_step(job, known, limit_s):
    """{rank: pid} of both ranks, once each has made its first step; pids in known are old."""
    seen = {}
    end = time.monotonic() + limit_s
    while len(seen) < 2:
        try:
            rank, pid = map(int, job.hear(1, 0.2)[0].split())
        except AssertionError:
            if job.process.poll() is not None:
                raise Failed(f"the launcher ended with {job.process.returncode}") from None
            if time.monotonic() > end:
                raise Failed(f"no step within {limit_s:.0f} s") from None
            continue
        if pid not in known:
            seen[rank] = pid
    return seen


def restart_once(command, env, victim, limit_s=LIMIT_S):
    """command is the launcher, with its first words; the limit is for the restart."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as output:
        with Job(*command[1:], *WORDS, launcher=command[0], env={**env, "TMPDIR": folder}, stdout=output, stderr=output) as job:
            old = {}
            try:
                old = await_step(job, {}, LIMIT_S)
                begin = time.monotonic()
                os.kill(old[victim], signal.SIGKILL)
                await_step(job, old.values(), limit_s)
                return Outcome(True, time.monotonic() - begin)
            except Failed as reason:
                output.seek(0)
                when = "after the kill" if old else "before the kill"
                return Outcome(False, 0, f"{when}, {reason}{explain(output.read().decode(errors='replace'))}")


def explain(text):
    """The errors of the ranks, each once: the lines that end a traceback."""
    errors = dict.fromkeys(re.findall(r"(?m)^.*?((?:\w+\.)*\w*(?:Error|Exception): \S.{0,300})$", text))
    return "".join(f"\n    {error}" for error in list(errors)[:6])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", required=True, help="ddprun")
    parser.add_argument("--runs", type=int, default=50)
    args = parser.parse_args()
    env = find_python(NEWEST)[1]
    outcomes = []
    for run in range(args.runs):
        outcomes.append(restart_once([os.path.abspath(args.launcher)], env, run % 2))
        if not outcomes[-1].came_back:
            print(f"run {run}, kill -9 of rank {run % 2}: {outcomes[-1].why}", flush=True)
    back = [outcome.after_s for outcome in outcomes if outcome.came_back]
    print(f"{len(back)} of {args.runs} restarts reached their next step", flush=True)
    if len(back) < args.runs:
        fail(f"{args.runs - len(back)} jobs did not come back")
    print(f"after {statistics.median(back):.1f} s, {max(back):.1f} s at most")


if __name__ == "__main__":
    main()
