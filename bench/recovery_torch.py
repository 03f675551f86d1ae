#!/usr/bin/env python3
"""Measure how long a killed rank stops a PyTorch job: from kill -9 until all ranks have completed their next step.

usage: bench/recovery_torch.py [--ranks N,...] [--kills K] [--seed S] [--torch PYTHON]... [--build DIR] [--cost]

The ranks are tests/interop/torch_backend/recovering_rank.py on CPUs, with DistributedDataParallel. A random rank is killed at a random time. Rows:

  shrink gloo, shrink ddp   ddp_torch.elastic, the others continue without the rank; a job for each kill
  replace, standby          a process that waits takes the rank's place; one job
  replace, forked           the rank is forked (--warm), and the others wait; one job
  ddprun --warm             all ranks are forked again
  ddprun, torchrun          all ranks start again; torchrun of each --torch

Restarts begin from step 0 here: what a program loads from its checkpoint comes on top. --cost measures the time of a step with
elastic.run() and without, in turns, on one rank for each CPU.
"""
import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

import results

RANK = os.path.join(results.ROOT, "tests/interop/torch_backend/recovering_rank.py")
COST = os.path.join(results.ROOT, "bench/programs/elastic_step.py")
LINE = re.compile(r"step (\d+) \w+ generation (\d+) pid (\d+) rank (\d+) world (\d+) ")
MS = "10"  # that a step takes longer than it computes


class Job:
    def __init__(self, command, env):
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)

    def steps(self):
        """(step, pid, rank, world, when) of each line"""
        for line in self.process.stdout:
            match = LINE.search(line)
            if match:
                yield int(match[1]), int(match[3]), int(match[4]), int(match[5]), time.perf_counter()
        raise SystemExit("the job ended")

    def end(self):
        self.process.terminate()
        self.process.stdout.read()
        self.process.wait()


def kill_and_wait(steps, n, n_after, draw, pause_s):
    """-> ms from the kill of a random rank until n_after ranks have completed a step"""
    pids = {}
    at = None
    for _, pid, rank, world, when in steps:
        if world == n:
            pids[rank] = pid
        if len(pids) == n:
            at = at or when + pause_s + draw.random() * 0.05
            if when >= at:
                break
    killed = time.perf_counter()
    victim = pids[draw.randrange(n)]
    os.kill(victim, signal.SIGKILL)
    back = set()
    for _, pid, rank, world, when in steps:
        # the line of a step that was complete before the kill may arrive after it: its world is the old one
        if when > killed and pid != victim and (world == n_after if n_after != n else pid not in pids.values() or back):
            back.add(rank)
        if len(back) == n_after:
            return (when - killed) * 1000
    return None


def measure(command, env, n, n_after, n_kills, per_job, draw, pause_s):
    found = []
    while len(found) < n_kills:
        job = Job(command, env)
        steps = job.steps()
        for _ in range(min(per_job, n_kills - len(found))):
            found.append(kill_and_wait(steps, n, n_after, draw, pause_s))
        job.end()
    return found


def row(name, version, n, values):
    ordered = sorted(values)
    return [name, version, n, len(ordered), *(f"{v:.0f}" for v in (ordered[0], statistics.median(ordered), ordered[-1]))]


def version_of(python):
    return subprocess.run([python, "-c", "import torch; print(torch.__version__)"], stdout=subprocess.PIPE, text=True).stdout.strip()


def recover(args, env, draw):
    rows = []
    ddprun = os.path.join(args.build, "launcher/ddprun")
    first = args.torch[0]
    for n in map(int, args.ranks.split(",")):
        def words(*options, backend="gloo", n=n):
            return [ddprun, "-n", str(n), "--max-restarts", "1000", *options, RANK, "--steps", "1000000", "--ms", MS, "--backend", backend]

        for backend in "gloo", "ddp":
            rows.append(row(f"shrink, {backend}", version_of(first), n, measure(
                words("--warm=start", "--on-failure", "shrink", backend=backend), env, n, n - 1, args.kills, 1, draw, 0.2)))
        for name, options in ("replace, standby", ["--standby", "1"]), ("replace, forked", ["--warm=start"]):
            rows.append(row(name, version_of(first), n, measure(words(*options), env, n, n, args.kills, args.kills, draw, 8)))
        few = max(1, args.kills // 10)
        rows.append(row("ddprun --warm", version_of(first), n, measure(
            words("--warm=start", "--on-failure", "restart"), env, n, n, args.kills, args.kills, draw, 1)))
        rows.append(row("ddprun", version_of(first), n, measure(words("--on-failure", "restart"), env, n, n, few, few, draw, 1)))
        for python in args.torch:
            command = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), "--max-restarts", "1000",
                       RANK, "--steps", "1000000", "--ms", MS]
            rows.append(row("torchrun", version_of(python), n, measure(command, env, n, n, few, few, draw, 1)))
    return results.table(["recovery", "torch", "ranks", "kills", "min ms", "median ms", "max ms"], rows)


def cost(args, env):
    """Both kinds of steps in one job, in turns."""
    rows = []
    for width in 64, 1024:
        command = [os.path.join(args.build, "launcher/ddprun"), "-n", str(os.cpu_count()), "--max-restarts", "1", COST, str(width)]
        out = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
        plain, elastic, n = re.search(r"plain (\S+) elastic (\S+) n (\d+)", out).groups()
        rows.append([width, n, plain, elastic, f"{100 * (float(elastic) / float(plain) - 1):.2f}"])
    return results.table(["width", "steps", "DDP: median us", "elastic.run: median us", "more, %"], rows)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="3,5")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--torch", action="append", help="a Python with torch; the first runs the ranks of ddprun")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("--cost", action="store_true")
    args = parser.parse_args()
    args.torch = args.torch or [os.environ.get("TORCH_PYTHON", sys.executable)]
    env = dict(os.environ, PYTHON_EXEC=args.torch[0], PYTHONPATH=os.path.join(results.ROOT, "python"), OMP_NUM_THREADS="1",
               DDP_LIBRARY=os.path.join(args.build, "worker-runtime/libddp.so.0"))
    load_before = results.load_average()
    print("seed", args.seed, flush=True)
    if args.cost:
        results.report("recovery_torch_cost", cost(args, env), load_before)
    else:
        results.report("recovery_torch", recover(args, env, random.Random(args.seed)), load_before)


if __name__ == "__main__":
    main()
