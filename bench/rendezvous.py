#!/usr/bin/env python3
"""Measure the time from the start of two launchers, the nodes of one job, until both workers are in main().

usage: bench/rendezvous.py [--runs R] [--slow-runs R] [--build DIR]

Both launchers run on this host and are started one right after the other, as on two nodes; the workers are C programs.
ddprun uses each of its rendezvous back ends, and a ddp-rendezvous that runs already. The contestants take turns. torchrun is
that of the newest PyTorch, from scripts/install-deps --interop, and of 2.11, from --interop-old.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import results
from jobs import LIMIT_S, Fifo
from torch_venv import torchruns

sys.path.insert(0, os.path.join(results.ROOT, "tests/system/lib"))
from ports import free_port  # noqa: E402 (found by the path above)

N_NODES = 2


def static(node, port, _):
    return ["--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)]


def c10d(_, port, job):
    return ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", job]


class Daemon:
    """A ddp-rendezvous on a free port."""

    def __init__(self, build):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "port")
        self.process = subprocess.Popen([os.path.join(build, "rendezvous/daemon/ddp-rendezvous"), "-b", "127.0.0.1:0",
                                         "--port-file", path], stderr=subprocess.DEVNULL)
        while not os.path.exists(path):
            if self.process.poll() is not None:
                raise SystemExit("ddp-rendezvous did not start")
            time.sleep(0.001)
        with open(path, encoding="ascii") as f:
            self.port = int(f.read())

    def close(self):
        self.process.terminate()
        self.process.wait(LIMIT_S)
        self.folder.cleanup()


def time_once(launcher, env, options, port, job, worker):
    """Milliseconds."""
    with Fifo() as fifo:
        begin = time.perf_counter()
        for node in range(N_NODES):
            fifo.start([*launcher, "--nnodes", str(N_NODES), "--nproc-per-node", "1", *options(node, port, job), "--no-python",
                        *worker], env)
        fifo.await_lines(N_NODES)
        return (time.perf_counter() - begin) * 1000


def contestants_of(build, daemon):
    """Name -> launcher, environment, options, port (None: a new one each time), whether it is slow."""
    env = dict(os.environ)
    ddprun = [os.path.join(build, "launcher/ddprun")]
    found = {"ddprun, static": (ddprun, env, static, None, False),
             "ddprun, c10d": (ddprun, env, c10d, None, False),
             "ddprun at a ddp-rendezvous": (ddprun, env, c10d, daemon.port, False)}
    for name, (torchrun, env) in torchruns().items():
        found[name + ", static"] = (torchrun, env, static, None, True)
        found[name + ", c10d"] = (torchrun, env, c10d, None, True)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--slow-runs", type=int, default=3, help="of torchrun, which takes seconds")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load_before = results.load_average()
    worker = [os.path.join(args.build, "tests/support/rank"), "tell", "up", "wait"]
    daemon = Daemon(args.build)
    try:
        contestants = contestants_of(args.build, daemon)
        times = {name: [] for name in contestants}
        for run in range(args.runs):
            for name, (launcher, env, options, port, is_slow) in contestants.items():
                if not is_slow or run < args.slow_runs:
                    times[name].append(time_once(launcher, env, options, port or free_port(), f"job{run}", worker))
    finally:
        daemon.close()
    rows = [[name, len(took), *(f"{t:.1f}" for t in results.spread(took)), f"{max(took):.1f}"]
            for name, took in times.items()]
    results.report("rendezvous", results.table(["nodes", "runs", "min ms", "median ms", "max ms"], rows), load_before)


if __name__ == "__main__":
    main()
