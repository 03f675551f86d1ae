#!/usr/bin/env python3
"""Measure how long a killed rank stops a PyTorch job: from kill -9 until all ranks have completed their next step.

usage: bench/recovery_torch.py [--ranks N,...] [--kills K] [--only ROW,...] [--seed S] [--ms T] [--build DIR]
       bench/recovery_torch.py --cost [--pairs P] [--build DIR]

The ranks are tests/interop/torch_backend/recovering_rank.py on CPUs, with DistributedDataParallel; each reports a completed step with
the time. A random rank is killed at a random time. Rows:

  shrink-gloo, shrink-ddp   ddp_torch.elastic, the others continue without it; a job for each kill
  standby                   a process that waits takes the rank's place (--standby 1); one job
  forked                    the rank is forked (--warm), and the others wait; one job
  warm                      all ranks are forked again (--warm --on-failure restart); a few kills
  restart, torchrun         all ranks start again; torchrun of PyTorch 2.11 and of the newest; a few kills. Rank 0 serves the store: with
                            torchrun's default, gloo finds keys of the ranks before, and fails
  torchft                   the others continue without it, by torchft; a job for each of a few kills. $TORCHFT_PYTHON is a Python with
                            torchft; otherwise the row is left out

In the rows shrink and forked, each fifth kill is of two ranks: the second dies up to 50 ms after the first, perhaps while the others
recover, and the time counts from its death. `restarts` is how often all ranks started again where that should not happen.
Restarts begin from step 0 here: what a program loads from its checkpoint comes on top. --cost measures what elastic.State adds to a step
of two ranks: the medians of the differences in --pairs pairs of steps, and the ends of their 99 % confidence intervals.
"""
import argparse
import collections
import os
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import time

import results

from torch_venv import NEWEST, OWN_STORE, VERSIONS, torch_venv

RANK = os.path.join(results.ROOT, "tests/interop/torch_backend/recovering_rank.py")
COST = os.path.join(results.ROOT, "bench/programs/elastic_step.py")
TORCHFT = os.path.join(results.ROOT, "bench/programs/torchft_job.py")
LINE = re.compile(rb"step (\d+) \w+ generation (\d+) pid (\d+) rank (\d+) world (\d+) .* at (\S+)$")
LIMIT_S, END_S = 120, 10
FOREVER = "1000000"
WIDTHS = 64, 1024  # of a model: steps of a few and of tens of ms
FEW = 10  # times fewer kills where all ranks start again

Line = collections.namedtuple("Line", "step generation pid rank world at")


class Job:
    """A job, and what its ranks have reported."""

    numbers = iter(range(10**6))

    def __init__(self, command, env):
        self.mark = f"RECOVERY_TORCH_JOB={os.getpid()}.{next(self.numbers)}"
        name, _, value = self.mark.partition("=")
        self.process = subprocess.Popen(command, env={**env, name: value}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.fd = self.process.stdout.fileno()
        self.rest = b""
        self.lines = collections.deque()
        self.pids = set()  # all that have reported
        self.ranks = {}  # rank -> pid, of the newest ranks that have all completed a step
        self.generation = -1  # theirs

    def __enter__(self):
        return self

    def hear(self, until):
        """One line; None: none before that time."""
        while not self.lines:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                return None
            data = os.read(self.fd, 65536)
            if not data:
                raise SystemExit(f"the job ended with {self.process.wait()}")
            *whole, self.rest = (self.rest + data).split(b"\n")
            found = map(LINE.search, whole)
            self.lines += [Line(*map(int, m.groups()[:5]), float(m[6])) for m in found if m]
        return self.lines.popleft()

    def await_all(self, n):
        """Until n ranks that are newer than those of the last call have completed a step. -> when the last of them did"""
        known, generation = set(self.pids), self.generation
        found, last = {}, 0
        while len(found) < n:
            line = self.hear(time.monotonic() + LIMIT_S)
            if line is None:
                raise SystemExit(f"{len(found)} of {n} ranks have completed a step within {LIMIT_S} s")
            self.pids.add(line.pid)
            if line.world != n or (line.pid in known and line.generation <= generation):
                continue
            if line.generation > self.generation:  # of those that came before, some have died
                found, self.generation = {}, line.generation
            if line.rank not in found:
                found[line.rank], last = line.pid, line.at
        self.ranks = found
        return last

    def let_run(self, seconds):
        end = time.monotonic() + seconds
        while self.hear(end) is not None:
            pass

    def processes(self, *variables):
        """Pids of the job's processes that also have these variables (NAME=..., or NAME)."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    words = f.read().decode(errors="replace").split("\0")
            except OSError:
                continue
            if self.mark in words and all(any(word.partition("=")[0] == name for word in words) for name in variables):
                found.append(int(pid))
        return found

    def await_standby(self):
        """Until a process waits to be a rank: it has imported torch, and uses no more CPU time."""
        end = time.monotonic() + LIMIT_S
        before = {}
        while time.monotonic() < end:
            now = {pid: cpu_ticks(pid) for pid in self.processes("DDP_STANDBY") if pid not in self.pids}
            if any(ticks > 50 and before.get(pid) == ticks for pid, ticks in now.items()):
                return
            before = now
            self.let_run(0.5)
        raise SystemExit(f"no standby process within {LIMIT_S} s")

    def __exit__(self, *_):
        """torchrun 2.15 sometimes ignores a SIGTERM that arrives just after it has started workers."""
        self.process.terminate()
        end = time.monotonic() + END_S
        while time.monotonic() < end and select.select([self.fd], [], [], end - time.monotonic())[0] and os.read(self.fd, 65536):
            pass
        try:
            self.process.wait(max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.process.stdout.close()


def cpu_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return sum(map(int, f.read().rpartition(")")[2].split()[11:13]))
    except OSError:
        return None


def kill(job, n_victims, draw):
    """-> when the last of them was killed"""
    victims = draw.sample(sorted(job.ranks.values()), n_victims)
    for i, pid in enumerate(victims):
        if i > 0:
            job.let_run(draw.random() * 0.05)
        at = time.monotonic()
        os.kill(pid, signal.SIGKILL)
    return at


class Row:
    """A way to continue.

    name      in the table
    n_each    kills in one job; 0: all of them
    shrinks   the ranks that are left continue; otherwise there are as many as before
    keeps     the survivors keep their processes
    doubles   each fifth kill is of two ranks"""

    def __init__(self, name, command, env, n_each=0, shrinks=False, keeps=True, doubles=False, standby=False, share=1):
        self.name, self.command, self.env, self.n_each, self.shrinks, self.keeps = name, command, env, n_each, shrinks, keeps
        self.doubles, self.standby, self.share = doubles, standby, share

    def measure(self, n, n_kills, draw):
        """-> ms of each kill, and how often all ranks started again"""
        n_kills = max(1, n_kills // self.share)
        times, n_restarts = [], 0
        while len(times) < n_kills:
            with Job(self.command(n), self.env) as job:
                job.await_all(n)
                for _ in range(min(self.n_each or n_kills, n_kills - len(times))):
                    took, restarted = self.measure_kill(job, n, 2 if self.doubles and len(times) % 5 == 4 else 1, draw)
                    times.append(took)
                    n_restarts += restarted
        return times, n_restarts

    def measure_kill(self, job, n, n_victims, draw):
        if self.standby:
            job.await_standby()
        job.let_run(0.1 + draw.random() * 0.1)
        before = set(job.ranks.values())
        killed = kill(job, n_victims, draw)
        done = job.await_all(n - n_victims if self.shrinks else n)
        n_kept = len(before & set(job.ranks.values()))
        return (done - killed) * 1000, self.keeps and n_kept < len(before) - n_victims


def make_rows(args, python, env):
    def ddprun(*options, backend="gloo"):
        return lambda n: [os.path.join(args.build, "launcher/ddprun"), "-n", str(n), "--max-restarts", "1000", *options, RANK,
                          "--steps", FOREVER, "--ms", str(args.ms), "--backend", backend]

    rows = [Row("shrink-" + backend, ddprun("--warm=start", "--on-failure", "shrink", backend=backend), env, n_each=1, shrinks=True,
                doubles=True) for backend in ("gloo", "ddp")]
    rows += [Row("standby", ddprun("--standby", "1"), env, standby=True),
             Row("forked", ddprun("--warm=start"), env, doubles=True),
             Row("warm", ddprun("--warm=start", "--on-failure", "restart"), env, n_each=FEW, keeps=False, share=FEW // 5),
             Row("restart", ddprun("--on-failure", "restart"), env, n_each=FEW, keeps=False, share=FEW)]
    for version in VERSIONS:
        venv = torch_venv(version)
        if venv is not None:
            words = [venv[0], "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1000", "--nproc-per-node"]
            rows.append(Row("torchrun", lambda n, words=words: [*words, str(n), RANK, "--steps", FOREVER, "--ms", str(args.ms)],
                            with_ddp_torch(args, {**venv[1], **OWN_STORE}), n_each=FEW, keeps=False, share=FEW))
            rows[-1].version = version
    if "TORCHFT_PYTHON" in os.environ:
        command = [os.environ["TORCHFT_PYTHON"], TORCHFT]
        rows.append(Row("torchft", lambda n: [*command, str(n), str(args.ms)], env, n_each=1, shrinks=True, share=FEW // 5))
        version = subprocess.check_output([command[0], "-c", "import torch; print(torch.__version__)"], env=env, text=True)
        rows[-1].version = ".".join(version.split(".")[:2])
    return rows


def with_ddp_torch(args, env):
    return dict(env, PYTHONPATH=os.path.join(results.ROOT, "python"), DDP_LIBRARY=os.path.join(args.build, "worker-runtime/libddp.so.0"))


def recover(args, python, env):
    draw = random.Random(args.seed)
    rows = make_rows(args, python, env)
    wanted = args.only.split(",") if args.only else [row.name for row in rows]
    lines = []
    for n in map(int, args.ranks.split(",")):
        for row in rows:
            if row.name not in wanted:
                continue
            times, n_restarts = row.measure(n, args.kills, draw)
            times.sort()
            cells = [f"{t:.0f}" for t in (times[0], statistics.median(times), times[int(0.9 * (len(times) - 1))], times[-1])]
            lines.append([row.name, getattr(row, "version", NEWEST), n, len(times), *cells, n_restarts if row.keeps else "all"])
            print("#", *lines[-1], flush=True)
    return results.table(["recovery", "torch", "ranks", "kills", "min ms", "median ms", "90 % ms", "max ms", "restarts"], lines)


def cost(args, env):
    """Steps with State's hooks and without, in pairs, in one job for each row."""
    rows = []
    for backend in "gloo", "ddp":
        for width in WIDTHS:
            command = [os.path.join(args.build, "launcher/ddprun"), "-n", "2", "--max-restarts", "1", COST, str(width), str(args.pairs), backend]
            out = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
            save = re.search(r"(?m)^save (\S+)", out)[1]
            for clock, name in ("perf_counter", "elapsed"), ("process_time", "CPU"):
                plain, *more = map(float, re.search(rf"(?m)^{clock} plain (\S+) more (\S+) from (\S+) to (\S+)", out).groups())
                rows.append([name, backend, width, args.pairs, f"{plain:.0f}", *(f"{us:.1f}" for us in more),
                             *(f"{100 * us / plain:.2f}" for us in more), save])
                save = ""
    return results.table(["time", "back end", "width", "pairs", "DDP: us", "more: us", "from", "to", "more: %", "from", "to", "to save: us"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="3,5")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--only", help="rows, separated by commas")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--ms", type=float, default=2, help="a pause after each step")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--pairs", type=int, default=1000)
    args = parser.parse_args()
    venv = torch_venv()
    if venv is None:
        sys.exit(f"no PyTorch {NEWEST}: scripts/install-deps --interop")
    env = with_ddp_torch(args, venv[1])
    load_before = results.load_average()
    if args.cost:
        results.report("recovery_torch_cost", cost(args, env), load_before)
    else:
        print("# seed", args.seed, flush=True)
        results.report("recovery_torch", recover(args, venv[0], env) + f"\n\nSeed {args.seed}.", load_before)


if __name__ == "__main__":
    main()
