#!/usr/bin/env python3
"""Python ranks with and without --warm, beside torchrun: a rank is killed, a job starts, and how much memory that takes.

usage: bench/warm.py [--runs N] [--starts N] [-n RANKS] [--build DIR]

The script is tests/interop/ddp_steps.py: PyTorch's DistributedDataParallel on gloo, as one would write it. Restarts: two
ranks, one of which is killed with SIGKILL once both make steps, rank 0 and rank 1 in turns, and with --warm once its forks wait; the
time is from the kill until both ranks have made a step. Starts: until all of -n ranks have. The launchers take turns, each
run is a new job. PyTorch 2.11 and torchrun are from scripts/install-deps --interop.
"""
import argparse
import os
import re
import signal
import sys
import tempfile
import time

import results
from torch_venv import torch_venv

sys.path.insert(0, os.path.join(results.ROOT, "tests/interop"))
sys.path.insert(0, os.path.join(results.ROOT, "tests/system"))
from harness import Job, await_true  # noqa: E402 (found by the path above)

LIMIT_S = 120
BACK_S = 30  # who has not come back by then does not
IDLE_S = 2.5  # the parent looks at least every second
SCRIPT = os.path.join(results.ROOT, "tests/interop/ddp_steps.py")


class Failed(Exception):
    pass


class Training:
    """A job under way."""

    def __init__(self, command, env, n, restarts):
        self.output = tempfile.TemporaryFile()
        self.warm = any(word.startswith("--warm") for word in command)
        words = [*command[1:], *(["-v"] if self.warm else []), "--standalone", "--nproc-per-node", str(n),
                 "--max-restarts", str(restarts), SCRIPT]
        self.begun = time.monotonic()
        self.job = Job(*words, launcher=command[0], env=env, stdout=self.output, stderr=self.output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.__exit__()
        self.output.close()

    def await_steps(self, n, known=(), limit_s=LIMIT_S):
        """{rank: pid} of all that are new, and have made a step."""
        seen, end = {}, time.monotonic() + limit_s
        while len(seen) < n:
            try:
                rank, pid = map(int, self.job.hear(1, 0.2)[0].split())
            except AssertionError:
                if self.job.process.poll() is not None or time.monotonic() > end:
                    raise Failed from None
                continue
            if pid not in known:
                seen[rank] = pid
        return seen

    def await_seeds(self):
        """Until forks wait, and their parent has nothing more to import: it has done nothing for IDLE_S."""
        if not self.warm:
            return
        found = []

        def is_ready():
            self.output.seek(0)
            found[:] = re.findall(rb"are ready to become ranks; their parent is (\d+)", self.output.read())
            return found
        await_true(is_ready, lambda: "no forks", LIMIT_S)
        last, since = None, time.monotonic()
        while time.monotonic() < since + IDLE_S:
            with open(f"/proc/{int(found[-1])}/stat", encoding="ascii") as f:
                fields = f.read().rpartition(")")[2].split()
            now = fields[0], fields[11], fields[12]  # state, ticks in user space and in the kernel
            if now != last or fields[0] != "S":
                last, since = now, time.monotonic()
            time.sleep(0.02)

    def memory_mb(self):
        """Proportional shares of all that belongs to the job."""
        total = 0
        for pid in self.job.processes():
            try:
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                    total += int(re.search(r"(?m)^Pss:\s+(\d+) kB", f.read())[1])
            except OSError:
                pass
        return total / 1024


def restart_once(command, env, victim):
    """Seconds; None: it did not come back."""
    with Training(command, env, 2, 1) as training:
        try:
            old = training.await_steps(2)
            training.await_seeds()
            begin = time.monotonic()
            os.kill(old[victim], signal.SIGKILL)
            training.await_steps(2, old.values(), BACK_S)
            return time.monotonic() - begin
        except Failed:
            return None


def start_once(command, env, n):
    """(seconds until all have made a step, megabytes then and with forks that wait)"""
    with Training(command, env, n, 1) as training:
        training.await_steps(n)
        took = time.monotonic() - training.begun
        training.await_seeds()
        return took, training.memory_mb()


def restart_rows(launchers, env, runs):
    times = {name: [] for name in launchers}
    for run in range(runs):
        for name, command in launchers.items():
            times[name].append(restart_once(command, env, run % 2))
    rows = []
    for name, took in times.items():
        back = [1000 * t for t in took if t is not None]
        rows.append([name, len(took), len(back), *([f"{t:.0f}" for t in results.spread(back)] if back else ["-", "-"])])
    return rows


def start_rows(launchers, env, runs, n):
    outcomes = {name: [] for name in launchers}
    for _ in range(runs):
        for name, command in launchers.items():
            outcomes[name].append(start_once(command, env, n))
    rows = []
    for name, of in outcomes.items():
        rows.append([name, len(of), *(f"{t:.2f}" for t in results.spread([t for t, _ in of])),
                     f"{results.spread([m for _, m in of])[1]:.0f}"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="restarts")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("-n", type=int, default=8, help="ranks of a start")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    venv = torch_venv()
    if venv is None:
        sys.exit("no PyTorch 2.11; scripts/install-deps --interop")
    ddprun = os.path.join(args.build, "launcher/ddprun")
    torchrun = [venv[0], "-m", "torch.distributed.run"]
    load = results.load_average()
    restarts = restart_rows({"ddprun --warm=start": [ddprun, "--warm=start"], "ddprun --warm": [ddprun, "--warm"],
                             "ddprun": [ddprun], "torchrun": torchrun}, venv[1], args.runs)
    starts = start_rows({"ddprun --warm=start": [ddprun, "--warm=start"], "ddprun": [ddprun], "torchrun": torchrun}, venv[1],
                        args.starts, args.n)
    results.report("warm", "From kill -9 of one of 2 ranks to the next step of both:\n\n"
                   + results.table(["launcher", "restarts", "reached a step", "min ms", "median ms"], restarts)
                   + f"\n\nFrom the start of {args.n} ranks to the first step of all, and the job's memory then (the sum of PSS; with "
                   "--warm=start the parent and the forks that wait included):\n\n"
                   + results.table(["launcher", "starts", "min s", "median s", "MB"], starts), load)


if __name__ == "__main__":
    main()
