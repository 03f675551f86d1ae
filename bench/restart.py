#!/usr/bin/env python3
"""Measure the time from kill -9 of one of 2 C workers until both new workers are in main().

usage: bench/restart.py [--runs R] [--build DIR]

The launchers take turns. Each run is a new job that restarts once. torchrun is that of the newest PyTorch, from
scripts/install-deps --interop, and of 2.11, from --interop-old; without them only ddprun is measured. Each torchrun runs with its
default, and with --monitor-interval 0.01, with which it notices the end of a worker sooner.
"""
import argparse
import os
import signal
import time

import results
from jobs import Fifo
from torch_venv import torchruns


def time_once(command, env):
    """Milliseconds."""
    with Fifo() as fifo:
        fifo.start(command, env)
        fifo.await_lines(2)
        victim, = fifo.processes("RANK=1")
        begin = time.perf_counter()
        os.kill(victim, signal.SIGKILL)
        fifo.await_lines(2)
        return (time.perf_counter() - begin) * 1000


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
