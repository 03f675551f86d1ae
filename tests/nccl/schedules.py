#!/usr/bin/env python3
"""Seeded schedules of failures on "GPUs", over the double of NCCL (tests/nccl/double).

A job of ddprun trains on each, while ranks die, hang while they are made, get asynchronous errors, and cannot abort. Each
schedule has to end in one of two ways:
  works    the job exits with 0: all steps were counted once, on a group that works, and all sums were right
  verdict  the job fails, ddprun reports why, and no rank is left
and not in a wrong sum, in a hang, or by breaking a rule of NCCL that the double knows. One seed makes one schedule:

    schedules.py --ddprun DDPRUN --trainer TRAINER --seeds 500      all of 0 .. 499
    schedules.py --ddprun DDPRUN --trainer TRAINER --seed 17 -v     one of them, with its output

Covers: worker-runtime/nccl, worker-runtime/group
"""

import argparse
import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

STEPS = 8
LIMIT_S = 300  # for a schedule that takes less than a second; more is a hang


class NoFaults:
    """A job in which nothing goes wrong: it has to work, or the others show nothing."""

    n, on_failure, max_restarts, faults = 3, "replace", 1, ()

    def __init__(self, way=()):
        self.way = way

    def __str__(self):
        return "no faults"


class Schedule:
    """What goes wrong in one job, from a seed."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.way = ["graph"] if seed % 2 else []  # how the trainer makes its steps
        self.n = rng.randint(2, 4)
        self.on_failure = rng.choice(["replace", "replace", "shrink"])
        self.max_restarts = rng.randint(1, 4)
        self.faults = []
        for _ in range(rng.randint(1, 3)):
            self.faults += self.trouble(rng)
        if rng.random() < 0.2:
            self.faults.append("lazy")

    def trouble(self, rng):
        """One thing that goes wrong, and perhaps what goes wrong when it is put right."""
        who = f"r{rng.randrange(self.n)}g{rng.choice([0, 0, 0, 1])}"
        at = rng.randint(1, STEPS)
        start = rng.randint(1, 2)
        cause = rng.choice(
            [
                f"{who}:kill@{at}",
                f"{who}:kill@{at}",
                f"{who}:kill_init@{start}",
                f"{who}:hang_init@{start}",
                f"{who}:fail_init@{start}",
                f"{who}:async@{at}",
                f"async@{at}",
                f"{who}:stall@{at}",
                f"{who}:cuda@{at}",
                f"{who}:slow_init@{start}={rng.randint(1, 80)}",
            ]
        )
        other = f"r{rng.randrange(self.n)}g0"
        after = rng.choice(
            [
                [],
                [],
                [f"{other}:revoke_error@1"],
                [f"{other}:revoke_hang@1"],
                [f"{other}:abort_error@{rng.randint(1, 2)}"],
                [f"{other}:abort_hang@{rng.randint(1, 2)}"],
                [f"{other}:revoke_error@1", f"{other}:abort_error@1"],
                [f"{other}:revoke_error@1", f"{other}:abort_hang@1"],
                ["revoke_graph"],
            ]
        )
        return [cause] + after

    def __str__(self):
        return f"-n {self.n} --on-failure {self.on_failure} --max-restarts {self.max_restarts} {';'.join(self.faults)} {' '.join(self.way)}"


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def run(schedule, args, folder, timeout=None):
    """Run one. Returns its outcome and its output."""
    report = os.path.join(folder, "report")
    env = dict(
        os.environ,
        NCCL_DOUBLE_DIR=folder,
        NCCL_DOUBLE_REPORT=report,
        NCCL_DOUBLE_FAULTS=";".join(schedule.faults),
        DDP_TIMEOUT=timeout or args.timeout,
        DDP_NCCL_ABORT_TIMEOUT=args.abort_timeout,
        DDP_SEGMENT_BYTES="64M",
    )
    command = [args.ddprun, "-n", str(schedule.n), "--max-restarts", str(schedule.max_restarts), "--on-failure"]
    command += [schedule.on_failure, "--shutdown-timeout", "5", args.trainer, str(STEPS)]
    command += schedule.way
    job = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, said = job.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        out, said = job.communicate(timeout=LIMIT_S)
        return "HANGS", out + said
    broken = read(report)
    if broken:
        return "BREAKS A RULE", broken + out + said
    return judge(job.returncode, out, said), f"exit status {job.returncode}\n" + out + said


def judge(code, out, said):
    """What an ended job came to."""
    if "WRONG" in out or code == 3:
        return "WRONG"
    if code == 0:
        return "works" if f"done: {STEPS} steps" in out else "ENDS WITHOUT A WORD"
    is_told = "train:" in said or "killed by signal" in said or "SIGKILL" in said
    return "verdict" if is_told else "FAILS WITHOUT A WORD"


def run_in_folder(schedule, args, timeout=None):
    folder = tempfile.mkdtemp(prefix="nccl-schedule-")
    try:
        return run(schedule, args, folder, timeout)
    finally:
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddprun", required=True)
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--timeout", default="2", help="DDP_TIMEOUT")
    parser.add_argument("--abort-timeout", default="0.5", help="DDP_NCCL_ABORT_TIMEOUT")
    parser.add_argument("-v", action="store_true")
    args = parser.parse_args()
    counts = collections.Counter()
    for way in [], ["graph"]:
        outcome, said = run_in_folder(NoFaults(way), args, timeout="120")
        if outcome != "works":
            sys.exit(f"without faults {way}: {outcome}\n{said}")
    for seed in [args.seed] if args.seed is not None else range(args.seeds):
        schedule = Schedule(seed)
        outcome, said = run_in_folder(schedule, args)
        counts[outcome] += 1
        if args.v or outcome not in ("works", "verdict"):
            print(f"seed {seed}: {outcome}: {schedule}\n{said}", flush=True)
    print(", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()))
    sys.exit(0 if set(counts) <= {"works", "verdict"} else 1)


if __name__ == "__main__":
    main()
