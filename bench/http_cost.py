#!/usr/bin/env python3
"""Measure the processor time of ddprun while a job runs, without and with the pages of --http.

usage: bench/http_cost.py [--ranks N] [--seconds S] [--rounds N] [--steps-per-second N] [--build DIR]

Each rank reports its steps with one line each. The variants take turns: without --http; with --http and no client; with a client that reads
/metrics every 15 s, as Prometheus does, or / every 2 s, as a browser does. Shown is the time of ddprun and its spawner, in percent of a core,
from one second after the start of the last rank.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import results

RANK = """
import os, sys, time
n, fd, pause = 0, int(os.environ["DDP_PROGRESS_FD"]), 1 / float(sys.argv[1])
while True:
    n += 1
    os.write(fd, b"step %d\\n" % n)
    time.sleep(pause)
"""
VARIANTS = {  # arguments; what a client reads, and how often
    "without --http": ([], None, 0),
    "--http, no client": (["--http", "0"], None, 0),
    "--http, /metrics every 15 s": (["--http", "0"], "metrics", 15),
    "--http, / every 2 s": (["--http", "0"], "", 2),
}
LIMIT_S = 60


def cpu_ns(pids):
    """Of all threads."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
    return total


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(child) for child in f.read().split()]


def await_ranks(pid, n):
    """-> the spawner, once it has so many children"""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for child in children_of(pid):
            if len(children_of(child)) >= n:
                return child
        time.sleep(0.1)
    sys.exit("the ranks did not start")


def await_address(log):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with open(log, encoding="utf-8") as f:
            found = re.search(r"serving (http://\S+)", f.read())
        if found:
            return found[1]
        time.sleep(0.1)
    sys.exit("no page is served")


def measure(args, words, path, every_s, log):
    """percent of a core"""
    command = [os.path.join(args.build, "launcher/ddprun"), "-n", str(args.ranks), *words, "--no-python", sys.executable, "-S", "-c", RANK,
               str(args.steps_per_second)]
    with open(log, "wb") as err, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err) as job:
        try:
            pids = [job.pid, await_ranks(job.pid, args.ranks)]
            address = await_address(log) if path is not None else None
            time.sleep(1)
            begun, before = time.monotonic(), cpu_ns(pids)
            while time.monotonic() < begun + args.seconds:
                if path is not None:
                    with urllib.request.urlopen(address + path, timeout=LIMIT_S) as reply:
                        reply.read()
                time.sleep(max(0, min(every_s or args.seconds, begun + args.seconds - time.monotonic())))
            return (cpu_ns(pids) - before) / 1e7 / (time.monotonic() - begun)
        finally:
            job.terminate()
            job.wait(LIMIT_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps-per-second", type=float, default=2)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load = results.load_average()
    shares = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for name, (words, path, every_s) in VARIANTS.items():
                shares[name].append(measure(args, words, path, every_s, os.path.join(folder, "log")))
    rows = [[name, *(f"{value:.3f}" for value in (*results.spread(values), max(values)))] for name, values in shares.items()]
    text = (f"{args.ranks} ranks with {args.steps_per_second:g} steps a second each; {args.rounds} rounds of {args.seconds:g} s. Percent of a core.\n\n" +
            results.table(["ddprun", "min", "median", "max"], rows))
    results.show(text, load)


if __name__ == "__main__":
    main()
