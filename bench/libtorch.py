#!/usr/bin/env python3
"""Steps of a libtorch program on ddp/torch.hpp, and of Python's DistributedDataParallel on gloo, by turns.

usage: bench/libtorch.py [--build DIR] [--torch VERSION] [--ranks N] [--runs R] [--steps N]
       bench/libtorch.py --kills K [--build DIR] [--torch VERSION] [--seed S]

Two networks: "mlp" has 67 MB of gradients (batch 16), "conv" 1.2 million parameters (batch 64). One thread per rank. A run's time is the median
of its steps. Copies are those that libtorch makes in a step, less those that it makes in a step without DistributedDataParallel; a bucket in place is
averaged where its gradients are. "keeping" has MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=-1: glibc keeps memory that tensors have freed, instead of
returning it to the kernel and faulting it in again. The program of the ranks is tests/interop/programs/libtorch_rank.cpp, which is built first, with -O2, in DIR/bench: a
minute or two.

--kills measures recovery instead, of 2 and 4 ranks: K times a rank is killed at a random place of a random step, and is replaced, replaced by a standby, or
dropped, by turns. The time is from the kill until the last rank has called the function of ddp::run() again, has its model, and has completed a step. The
script fails if a run has other bits than it has to have, as tests/interop/libtorch_same.py does.
"""
import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

import results

sys.path.insert(0, os.path.join(results.ROOT, "tests/interop"))
import libtorch_same  # noqa: E402 (found by the path above)
import run as interop  # noqa: E402

NETWORKS = ["mlp", "conv"]
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
LINE = re.compile(r"median (\S+) ms(?:; (\d+) gradients of (\S+) MB, (\d+) copies; (\d+) of (\d+) buckets in place, (\d+) overlapped)?")


def build(args, python, env):
    folder = os.path.join(args.build, "bench")
    program = os.path.join(folder, f"libtorch_rank-{args.torch}")
    sources = [os.path.join(results.ROOT, "tests/interop/programs/libtorch_rank.cpp")]
    for directory in "include", "examples/libtorch":
        for where, _, names in os.walk(os.path.join(results.ROOT, directory)):
            sources += [os.path.join(where, name) for name in names]
    if not os.path.exists(program) or os.path.getmtime(program) < max(map(os.path.getmtime, sources)):
        libddp = os.path.join(args.build, "worker-runtime/libddp.so")
        libtorch_same.build(folder, libddp, libtorch_same.torch_directory(python, env), program, optimize=2)
    return program


def measure(command, env):
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return LINE.search(done.stdout).groups()


def recover(args, python, env, program):
    arguments = argparse.Namespace(program=os.path.join(args.build, "launcher/ddprun"), kills=args.kills, seed=args.seed, sanitize="")
    load, rows = results.load_average(), []
    with tempfile.TemporaryDirectory() as folder:
        times = libtorch_same.Tests(arguments, python, env, folder, program).kill_ranks(args.kills)
    for (way, n), taken in sorted(times.items()):
        for what, ms in zip(("called", "model made", "step completed"), zip(*taken)):
            rows.append([way, n, len(ms), what, f"{min(ms):.0f}", f"{statistics.median(ms):.0f}", f"{max(ms):.0f}"])
    head = ["recovery", "ranks", "kills", "until", "min ms", "median ms", "max ms"]
    results.report("libtorch_recovery", f"torch {args.torch}, seed {args.seed}\n\n{results.table(head, rows)}", load)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("--torch", default=interop.NEWEST)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    python, env = interop.find_python(args.torch)
    env["OMP_NUM_THREADS"] = "1"
    program = build(args, python, env)
    if args.kills > 0:
        recover(args, python, env, program)
        return
    start = [os.path.join(args.build, "launcher/ddprun"), "-n", str(args.ranks)]
    load, rows = results.load_average(), []
    for network in NETWORKS:
        commands = {
            "C++, libddp": [*start, program, "bench", network, str(args.steps)],
            "Python, gloo": [*start, os.path.join(results.ROOT, "tests/interop/programs/libtorch_gloo.py"), "--bench", network, str(args.steps)],
        }
        ways = {(name, memory): (command, {**env, **(KEEPING if memory else {})})
                for memory in ("", ", keeping") for name, command in commands.items()}
        times, counts = {way: [] for way in ways}, {}
        for _ in range(args.runs):
            for way, (command, way_env) in ways.items():
                took, *counts[way] = measure(command, way_env)
                times[way].append(float(took))
        for way, runs in times.items():
            theirs = statistics.median(times["Python, gloo", way[1]])
            n, size, copies, in_place, buckets, overlapped = (text or "-" for text in counts[way])
            rows.append([network, "".join(way), len(runs), f"{min(runs):.2f}", f"{statistics.median(runs):.2f}", f"{max(runs):.2f}",
                         f"{theirs / statistics.median(runs):.2f}", f"{n} ({size} MB)", copies, f"{in_place} of {buckets}", overlapped])
    head = ["network", "ranks' program", "runs", "min ms", "median ms", "max ms", "Python / it", "gradients", "copies", "in place", "overlapped"]
    text = f"torch {args.torch}, {args.ranks} ranks, {args.steps} steps a run\n\n{results.table(head, rows)}"
    results.report("libtorch", text, load)


if __name__ == "__main__":
    main()
