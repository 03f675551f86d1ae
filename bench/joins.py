#!/usr/bin/env python3
"""Measure the time until N supervisors that join a job at once at one ddp-rendezvous have their places in it.

usage: bench/joins.py [-n N[,N]...] [--runs R] [--build DIR]

The supervisors are in one process, bench/programs/join_load.c, on this host. Each run has a new daemon.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

import results

LIMIT_S = 90
TOKEN = "0123456789abcdef0123456789abcdef"


class Daemon:
    def __init__(self, build, env):
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "port")
        self.process = subprocess.Popen([os.path.join(build, "rendezvous/daemon/ddp-rendezvous"), "-b", "127.0.0.1:0",
                                         "--port-file", path], env=env, stderr=subprocess.DEVNULL)
        while not os.path.exists(path):
            if self.process.poll() is not None:
                sys.exit("ddp-rendezvous did not start")
            time.sleep(0.001)
        with open(path, encoding="ascii") as f:
            self.port = int(f.read())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def rss_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

    def cpu_ms(self):
        """CPU time from the scheduler's accounting, which is in ns."""
        with open(f"/proc/{self.process.pid}/schedstat", encoding="ascii") as f:
            return int(f.read().split()[0]) / 1e6


def join_once(build, n, token):
    """What the load program prints, as a dict, with the daemon's cpu_ms and bytes_per_node."""
    env = dict(os.environ, DDP_TOKEN=token, HOME="/nonexistent", XDG_CONFIG_HOME="")
    with Daemon(build, env) as daemon:
        rss_kb, cpu_ms = daemon.rss_kb(), daemon.cpu_ms()
        load = subprocess.Popen([os.path.join(build, "bench/join_load"), str(daemon.port), "job", str(n)], env=env,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            words = load.stdout.readline().split()
            if not words:
                sys.exit("join_load failed")
            said = dict(zip(words[::2], map(float, words[1::2])))
            said["cpu_ms"] = daemon.cpu_ms() - cpu_ms
            said["bytes_per_node"] = (daemon.rss_kb() - rss_kb) * 1024 / n
            load.stdin.close()
            load.wait(LIMIT_S)
            return said
        finally:
            if load.poll() is None:
                load.kill()
                load.wait()


def row_of(name, n, runs):
    def spread(key):
        return [f"{t:.0f}" for t in results.spread(run[key] for run in runs)]

    return [name, n, len(runs), *spread("welcome_ms"), *spread("placed_ms"), spread("cpu_ms")[0],
            f"{max(run['bytes_per_node'] for run in runs) / 1024:.1f}", f"{sum(run['broken'] for run in runs):.0f}"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=lambda text: [int(word) for word in text.split(",")], default=[1000],
                        metavar="N[,N]...", help="supervisors (default: 1000)")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load_before = results.load_average()
    rows = []
    for n in args.n:
        runs = {"sealed": [], "in the clear": []}
        for _ in range(args.runs):
            for name, token in ("sealed", TOKEN), ("in the clear", ""):
                runs[name].append(join_once(args.build, n, token))
        rows.extend(row_of(name, n, of) for name, of in runs.items())
    head = ["frames", "nodes", "runs", "all known, min ms", "median ms", "all placed, min ms", "median ms",
            "daemon's CPU, min ms", "KiB a node", "links broken"]
    results.report("joins", results.table(head, rows), load_before)


if __name__ == "__main__":
    main()
