#!/usr/bin/env python3
"""Measure Python ranks with and without --warm, and with torchrun: restart after a kill, start of a job, and memory.

usage: bench/warm.py [--runs N] [--warm-runs N] [--plain-runs N] [--torchrun-runs N] [--starts N] [-n RANKS]
                     [--limit-s S] [--build DIR]

The script is tests/interop/ddp_steps.py, an ordinary script with PyTorch's DistributedDataParallel on gloo. torchrun is that of the newest
PyTorch, from scripts/install-deps --interop, and of 2.11, from --interop-old; the ranks use the PyTorch of their torchrun, those of
ddprun the newest.

Restarts: a job has two ranks. Rank 0 or rank 1, in turns, is killed with SIGKILL once both make steps and, with --warm, once the
forks wait. The time is from the kill until both ranks have made a step. Each restart is the first of its job, since ddprun pauses
before later restarts. To save time two jobs are started together; the first has ended before the second is killed. The launchers
also take turns: --runs runs with --warm=start, --warm-runs with --warm, --plain-runs without either, and --torchrun-runs of each
torchrun.

Starts: the time until all of -n ranks have made a step.

After --limit-s only one start of each launcher still begins, and the table shows how many runs there were; by default the script
takes about a quarter of an hour.
"""
import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
import time

import results
from torch_venv import torch_venv, torchruns

sys.path.insert(0, os.path.join(results.ROOT, "tests/interop"))
sys.path.insert(0, os.path.join(results.ROOT, "tests/system/lib"))
from harness import Job, await_true  # noqa: E402 (found by the path above)

LIMIT_S = 120
BACK_S = 10  # a job that has not recovered by then has failed: a restart that works takes less than 4 s
IDLE_S = {"--warm=start": 0.4, "--warm": 1.5}  # after so long without CPU time the parent has nothing left to do
AT_A_TIME = 2  # number of jobs that are started together
STEP_S = "0.1"  # the step of a larger model; the job that waits for its turn leaves the CPUs free
SCRIPT = os.path.join(results.ROOT, "tests/interop/ddp_steps.py")


class Failed(Exception):
    pass


class Training:
    """A running job."""

    def __init__(self, command, env, n):
        self.output = tempfile.TemporaryFile()
        self.warm = next((word for word in command if word.startswith("--warm")), None)
        words = [*command[1:], *(["-v"] if self.warm else []), "--standalone", "--nproc-per-node", str(n),
                 "--max-restarts", "1", SCRIPT]
        self.begun = time.monotonic()
        self.job = Job(*words, launcher=command[0], env={**env, "TEST_STEP_S": STEP_S}, stdout=self.output, stderr=self.output)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """May be called twice. The next measurement has the machine for itself."""
        if not self.output.closed:
            self.job.__exit__()
            self.job.await_gone()
            self.output.close()

    def await_steps(self, n, known=(), limit_s=LIMIT_S):
        """{rank: pid} of all new ranks that have made a step."""
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

    def parents_told(self):
        """The parent of each set of ready forks."""
        self.output.seek(0)
        return re.findall(rb"are ready to become ranks; the pid of the fork parent is (\d+)", self.output.read())

    def await_seeds(self):
        """Wait until the forks for a restart are ready and their parent has nothing more to import."""
        if not self.warm:
            return
        n_sets = 2 if self.warm == "--warm=start" else 1  # the first set became the running ranks
        await_true(lambda: len(self.parents_told()) >= n_sets, lambda: "no forks", LIMIT_S)
        last, since = None, time.monotonic()
        while time.monotonic() < since + IDLE_S[self.warm]:
            with open(f"/proc/{int(self.parents_told()[-1])}/stat", encoding="ascii") as f:
                fields = f.read().rpartition(")")[2].split()
            now = fields[0], fields[11], fields[12]  # state, clock ticks in user space and in the kernel
            if now != last or fields[0] != "S":
                last, since = now, time.monotonic()
            time.sleep(0.02)

    def kill(self, ranks, victim):
        """Seconds until all ranks have made a step again; None if the job did not recover."""
        begin = time.monotonic()
        os.kill(ranks[victim], signal.SIGKILL)
        try:
            self.await_steps(len(ranks), ranks.values(), BACK_S)
            return time.monotonic() - begin
        except Failed:
            return None

    def memory_mb(self):
        """The proportional set size of all processes of the job."""
        total = 0
        for pid in self.job.processes():
            try:
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                    total += int(re.search(r"(?m)^Pss:\s+(\d+) kB", f.read())[1])
            except OSError:
                pass
        return total / 1024


def restart_some(command, env, n_jobs, first_victim):
    """One restart of each of n jobs, as Training.kill() returns it."""
    times = []
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(Training(command, env, 2)) for _ in range(n_jobs)]
        ranks = [job.await_steps(2) for job in jobs]
        for job in jobs:
            job.await_seeds()
        for i, job in enumerate(jobs):
            times.append(job.kill(ranks[i], (first_victim + i) % 2))
            job.close()
    return times


def start_once(command, env, n):
    """(seconds until all ranks have made a step, megabytes once the forks wait)"""
    with Training(command, env, n) as training:
        training.await_steps(n)
        took = time.monotonic() - training.begun
        training.await_seeds()
        return took, training.memory_mb()


def turns(quotas):
    """(name, number of jobs) until each launcher has its quota: evenly mixed, and never two launchers at once."""
    order = [((first + 0.5) / quota, name, min(AT_A_TIME, quota - first))
             for name, quota in quotas.items() for first in range(0, quota, AT_A_TIME)]
    return [(name, n) for _, name, n in sorted(order)]


def run_restarts(launchers, quotas, end):
    """{launcher: times in ms, None where the job did not recover}"""
    times = {name: [] for name in launchers}
    for name, n in turns(quotas):
        if time.monotonic() < end:
            times[name] += restart_some(*launchers[name], n, len(times[name]) % 2)
    return {name: [t and 1000 * t for t in took] for name, took in times.items()}


def run_starts(launchers, runs, n, end):
    """{launcher: [(seconds, MB)]}"""
    outcomes = {name: [] for name in launchers}
    for _ in range(runs):
        for name, launcher in launchers.items():
            if time.monotonic() < end or not outcomes[name]:
                outcomes[name].append(start_once(*launcher, n))
    return outcomes


def back(took):
    return [t for t in took if t is not None]


def median(values):
    return results.spread(values)[1]


def describe_restarts(times):
    rows = [[name, len(took), len(back(took)), *(f"{t:.0f}" for t in (*results.spread(back(took)), max(back(took))))]
            if back(took) else [name, len(took), 0, "-", "-", "-"] for name, took in times.items()]
    text = ("From kill -9 of one of 2 ranks to the next step of both:\n\n"
            + results.table(["launcher", "restarts", "reached a step", "min ms", "median ms", "max ms"], rows))
    for name, took in times.items():
        if name.startswith("ddprun --warm") and back(took):
            text += "".join(f"\n\n`{name}`: {len(back(took))} of {len(took)} came back, in the median "
                            f"{median(back(other)) / median(back(took)):.1f} times as fast as those of {torchrun} that did "
                            f"({len(back(other))} of {len(other)}, each with {BACK_S} s for it)."
                            for torchrun, other in times.items() if torchrun.startswith("torchrun") and back(other))
    return text


def describe_starts(outcomes, n):
    rows = [[name, len(of), *(f"{t:.2f}" for t in results.spread([t for t, _ in of])), f"{median([mb for _, mb in of]):.0f}"]
            for name, of in outcomes.items()]
    seconds = {name: median([t for t, _ in of]) for name, of in outcomes.items()}
    ratios = " and ".join(f"{took / seconds['ddprun --warm=start']:.1f} times as fast as {name}" for name, took in seconds.items()
                          if name.startswith("torchrun"))
    return (f"From the start of {n} ranks to the first step of all, and the job's memory then (the sum of PSS; with "
            "--warm=start it includes the fork parent and the preforked processes):\n\n"
            + results.table(["launcher", "starts", "min s", "median s", "MB"], rows)
            + f"\n\n`ddprun --warm=start` is {ratios} (medians).")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50, help="restarts with --warm=start")
    parser.add_argument("--warm-runs", type=int, default=10)
    parser.add_argument("--plain-runs", type=int, default=10)
    parser.add_argument("--torchrun-runs", type=int, default=10)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("-n", type=int, default=8, help="ranks of a start")
    parser.add_argument("--limit-s", type=float, default=1500, help="nothing is begun later")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    venv = torch_venv()
    if venv is None:
        sys.exit("no PyTorch: scripts/install-deps --interop")
    ddprun = os.path.join(args.build, "launcher/ddprun")
    launchers = {" ".join(["ddprun", *option]): ([ddprun, *option], venv[1]) for option in (["--warm=start"], ["--warm"], [])}
    quotas = dict(zip(launchers, (args.runs, args.warm_runs, args.plain_runs)))
    launchers |= torchruns()
    quotas |= {name: args.torchrun_runs for name in torchruns()}
    starters = {name: launcher for name, launcher in launchers.items() if name != "ddprun --warm"}
    load, end = results.load_average(), time.monotonic() + args.limit_s
    restarts = run_restarts(launchers, quotas, end)
    starts = run_starts(starters, args.starts, args.n, end)
    results.report("warm", f"{describe_restarts(restarts)}\n\n{describe_starts(starts, args.n)}", load)


if __name__ == "__main__":
    main()
