#!/usr/bin/env python3
"""Measure the images a second of examples/mnist on one rank and on several, with the same batches and hence the same work.

usage: bench/train.py [-n RANKS] [--runs R] [--build DIR] [-- MNIST-OPTION...]

One rank and several take turns. The rate is that of the last epoch of a run, as mnist prints it.
"""
import argparse
import os
import re
import subprocess
import sys

import results

LIMIT_S = 600


def train(command):
    """(images a second of the last epoch, test accuracy in percent)"""
    run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                         env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=LIMIT_S, check=True)
    epochs = re.findall(r"test accuracy ([\d.]+) %.* ([\d.]+) images/s", run.stdout)
    if not epochs:
        sys.exit(f"{' '.join(command)} told no images/s:\n{run.stdout}")
    return float(epochs[-1][1]), float(epochs[-1][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=int, default=2, help="ranks, beside one")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("mnist_options", nargs="*", metavar="MNIST-OPTION")
    args = parser.parse_args()

    mnist = [f"{args.build}/examples/mnist", "--data", f"{args.build}/digits", "--epochs", "2",
             *args.mnist_options]
    ddprun = f"{args.build}/launcher/ddprun"
    load = results.load_average()
    train(mnist)  # generates the digits and warms the caches
    runs = {1: [], args.n: []}
    for _ in range(args.runs):
        for n, seen in runs.items():
            seen.append(train(mnist if n == 1 else [ddprun, "-n", str(n), *mnist]))

    rows, medians = [], {}
    for n, seen in runs.items():
        rates = [rate for rate, _ in seen]
        _, medians[n] = results.spread(rates)
        rows.append([n, len(seen), f"{max(rates):.0f}", f"{medians[n]:.0f}", f"{min(rates):.0f}",
                     f"{max(rates) / max(rate for rate, _ in runs[1]):.2f}",
                     f"{medians[n] / medians[1]:.2f}",
                     f"{results.spread(accuracy for _, accuracy in seen)[1]:.2f}"])
    head = ["ranks", "runs", "best images/s", "median", "worst", "best / 1 rank", "median / 1 rank",
            "accuracy %"]
    results.report("train", results.table(head, rows), load)


if __name__ == "__main__":
    main()
