#!/usr/bin/env python3
"""Measure what a training step costs with and without the ability to survive the loss of a peer, when nothing fails.

usage: bench/elastic_cost.py [--ranks N,...] [--floats N,...] [--steps N] [--rounds N] [--build DIR]

The program is bench/programs/elastic_cost.c: the same steps in a program that ends when it loses a peer (`ddp_init`, no restarts), in a
program that survives (`ddp_run`, `--max-restarts`), and in the latter with all monitoring: `--standby`, `--hang-timeout`, `--events`. The
variants take turns; each run is a new job. A run gives its shortest and its median step; the table shows the best and the median of all
rounds.
"""
import argparse
import os
import subprocess
import tempfile

import results

VARIANTS = {
    "ends with a peer": ("init", []),
    "outlives it": ("run", ["--max-restarts", "9"]),
    "and is watched": ("run", ["--max-restarts", "9", "--standby", "1", "--hang-timeout", "60s", "--events"]),
}


def run_once(args, variant, n, floats, events):
    """(shortest, median) step in microseconds"""
    mode, words = VARIANTS[variant]
    if words[-1:] == ["--events"]:
        words = [*words, events]
    env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(args.build, "worker-runtime"))
    done = subprocess.run([os.path.join(args.build, "launcher/ddprun"), "-n", str(n), *words, os.path.join(args.build, "bench/elastic_cost"),
                           mode, str(floats), str(args.steps)],
                          env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=600)
    return tuple(map(float, done.stdout.split()[-2:]))


def rows_of(args, n, floats, events):
    times = {variant: [] for variant in VARIANTS}
    for _ in range(args.rounds):
        for variant in VARIANTS:
            times[variant].append(run_once(args, variant, n, floats, events))
    best = {variant: (min(t[0] for t in of), results.spread(t[1] for t in of)) for variant, of in times.items()}
    base = best[next(iter(VARIANTS))]
    for variant, (shortest, (least, median)) in best.items():
        yield [variant, n, floats, args.rounds, f"{shortest:.1f}", f"{least:.1f}", f"{median:.1f}", f"{shortest / base[0]:.3f}",
               f"{least / base[1][0]:.3f}", f"{median / base[1][1]:.3f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--floats", default="1000,250000")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load_before = results.load_average()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for n in map(int, args.ranks.split(",")):
            for floats in map(int, args.floats.split(",")):
                rows += rows_of(args, n, floats, os.path.join(folder, "events"))
    head = ["a program that", "ranks", "floats", "runs", "shortest us", "best median us", "median us", "ratio: shortest", "best median",
            "median"]
    results.report("elastic_cost", results.table(head, rows), load_before)


if __name__ == "__main__":
    main()
