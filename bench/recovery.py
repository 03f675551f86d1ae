#!/usr/bin/env python3
"""Measure the time from kill -9 of a rank until all ranks, the survivors and the new rank, hold the state of the next
generation.

usage: bench/recovery.py [--shrink] [--ranks N,...] [--mb M,...] [--kills K] [--standby N] [--build DIR]

The ranks are tests/support/programs/recovery_rank.c, with M MB of parameters besides a few that change. Each number of ranks and each
size is one job; a random rank is killed at a random time, repeatedly. `start` ends at main() of the new process; the kernel takes most
of that time to free the memory of the killed process. `state` ends when the last rank holds the state. The table also shows the
program's own time, from its start to its state, when the job begins. With --standby a waiting process replaces the rank: each kill
happens while one waits, so no process starts. bench/programs/deaths.c measures when the other ranks detect a death.

With --shrink no process replaces the killed rank: the others continue without it. Each kill has a job of its own, since each needs
the full number of ranks; `state` ends when all survivors hold it.
"""
import argparse
import os
import random
import signal
import subprocess
import time

import results

RECVMSG = {"x86_64": "47", "aarch64": "212"}[os.uname().machine]

def waits_for_a_socket(pid):
    try:
        with open(f"/proc/{pid}/syscall") as f:
            return f.read().split()[0] == RECVMSG
    except OSError:
        return False


class Job:
    def __init__(self, build, n, floats, n_kills, *more):
        env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "worker-runtime"))
        command = [os.path.join(build, "launcher/ddprun"), "-n", str(n), "--max-restarts", str(n_kills + 1), *more,
                   os.path.join(build, "tests/support/recovery_rank"), "1000", "1000", "1", str(floats)]
        self.n = n
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)

    def await_state(self, generation):
        """-> {rank: pid}; the times when a process began and when all held their state (seconds)"""
        pids, started = {}, None
        while len(pids) < self.n:
            words = self.process.stdout.readline().decode().split()
            if not words:
                raise SystemExit("the job ended")
            if words[0] == "start":
                started = time.perf_counter()
            if words[0] == "holds" and int(words[2]) == generation:
                pids[int(words[6])] = int(words[4])
        return pids, started, time.perf_counter()

    def skip_steps(self, n):
        while n > 0:
            n -= self.process.stdout.readline().startswith(b"step")

    def await_standby(self, pids):
        """Wait until a process that is not a rank waits for its socket; the ranks' lines are read meanwhile."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            spawner = f.read().split()[0]
        while True:
            self.skip_steps(1)
            with open(f"/proc/{spawner}/task/{spawner}/children") as f:
                others = {int(pid) for pid in f.read().split()} - set(pids.values())
            if any(waits_for_a_socket(pid) for pid in others):
                return

    def end(self):
        self.process.terminate()
        self.process.stdout.read()
        self.process.wait()


def measure(build, n, mb, n_kills, n_standby):
    """-> ms of the program's own time, [ms until start], [ms until all hold the state]"""
    draw = random.Random(n * 1000 + mb)
    job = Job(build, n, mb * 250000, n_kills, *(["--standby", str(n_standby)] if n_standby else []))
    pids, started, held = job.await_state(0)
    own = (held - started) * 1000
    starts, states = [], []
    for generation in range(1, n_kills + 1):
        job.skip_steps(draw.randrange(2, 6 * n))
        if n_standby:
            job.await_standby(pids)
        begun = time.perf_counter()
        os.kill(pids[draw.randrange(n)], signal.SIGKILL)
        pids, started, held = job.await_state(generation)
        starts.append((started - begun) * 1000 if started is not None and not n_standby else 0)
        states.append((held - begun) * 1000)
    job.end()
    return own, starts, states


def measure_shrink(build, n, mb, n_kills):
    """-> [ms until all survivors hold the state]"""
    draw = random.Random(n * 1000 + mb)
    states = []
    for _ in range(n_kills):
        job = Job(build, n, mb * 250000, 1, "--on-failure", "shrink")
        pids, _, _ = job.await_state(0)
        job.skip_steps(draw.randrange(2, 6 * n))
        begun = time.perf_counter()
        os.kill(pids[draw.randrange(n)], signal.SIGKILL)
        job.n -= 1
        states.append((job.await_state(1)[2] - begun) * 1000)
        job.end()
    return states


def of(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--mb", default="0,1,10,100")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--standby", type=int, default=0)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load_before = results.load_average()
    rows = []
    for n in map(int, args.ranks.split(",")):
        for mb in map(int, args.mb.split(",")):
            if args.shrink:
                states = measure_shrink(args.build, n, mb, args.kills)
                rows.append([n, mb, args.kills, *(f"{of(states, part):.1f}" for part in (0.5, 0.9, 1))])
                continue
            own, starts, states = measure(args.build, n, mb, args.kills, args.standby)
            rows.append([n, mb, args.kills, f"{own:.1f}", f"{of(starts, 0.5):.1f}",
                         *(f"{of(states, part):.1f}" for part in (0.5, 0.9, 1))])
    head = ["state: median ms", "p90 ms", "most ms"]
    if not args.shrink:
        head[:0] = ["own way ms", "start: median ms"]
    section = "recovery_shrink" if args.shrink else "recovery_standby" if args.standby else "recovery"
    results.report(section, results.table(["ranks", "MB", "kills", *head], rows),
                   load_before)


if __name__ == "__main__":
    main()
