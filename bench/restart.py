#!/usr/bin/env python3
"""Measure the time from kill -9 of one of 2 C workers until both new workers are in main().

usage: bench/restart.py [--runs R] [--build DIR]

The launchers take turns. Each run is a new job that restarts once. torchrun is that of the newest PyTorch, from
scripts/install-deps --interop, and of 2.11, from --interop-old; without them only ddprun is measured. Each torchrun runs with its
default, and with --monitor-interval 0.01, with which it notices the end of a worker sooner.
"""
import argparse
import os
import select
import signal
import subprocess
import tempfile
import time

import results
from torch_venv import torchruns

LIMIT_S = 60


def await_lines(fd, n):
    end = time.monotonic() + LIMIT_S
    heard = b""
    while heard.count(b"\n") < n:
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise SystemExit(f"waited in vain for the workers; heard {heard!r}")
        heard += os.read(fd, 4096)


def find_rank(number, fifo):
    wanted = {f"TEST_FIFO={fifo}".encode(), f"RANK={number}".encode()}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if wanted <= set(f.read().split(b"\0")):
                    return int(pid)
        except OSError:
            pass
    raise SystemExit("the worker is not there")


def time_once(command, env):
    """Milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        fifo = os.path.join(folder, "fifo")
        os.mkfifo(fifo)
        fd = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        job = subprocess.Popen(command, env=dict(env, TEST_FIFO=fifo), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await_lines(fd, 2)
            victim = find_rank(1, fifo)
            begin = time.perf_counter()
            os.kill(victim, signal.SIGKILL)
            await_lines(fd, 2)
            return (time.perf_counter() - begin) * 1000
        finally:
            job.terminate()
            job.wait(LIMIT_S)
            os.close(fd)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load_before = results.load_average()
    worker = [os.path.join(args.build, "tests/support/rank"), "tell", "up", "wait"]
    options = ["--standalone", "--max-restarts", "1", "--nproc-per-node", "2", "--no-python"]
    launchers = {"ddprun": ([os.path.join(args.build, "launcher/ddprun")], dict(os.environ))}
    for name, (torchrun, env) in torchruns().items():
        launchers[name] = (torchrun, env)
        launchers[name + " --monitor-interval 0.01"] = ([*torchrun, "--monitor-interval", "0.01"], env)
    times = {name: [] for name in launchers}
    for _ in range(args.runs):
        for name, (command, env) in launchers.items():
            times[name].append(time_once(command + options + worker, env))
    base = results.spread(times["ddprun"])
    rows = [[name, len(took), *(f"{t:.2f}" for t in results.spread(took)),
             *(f"{t / b:.1f}" for t, b in zip(results.spread(took), base))] for name, took in times.items()]
    results.report("restart", results.table(["launcher", "runs", "min ms", "median ms", "min / ddprun",
                                             "median / ddprun"], rows), load_before)


if __name__ == "__main__":
    main()
