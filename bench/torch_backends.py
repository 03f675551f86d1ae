#!/usr/bin/env python3
"""Compare ddp_torch with gloo, from Python: all_reduce of 4 KiB and of 25 MiB, and a step of a DDP model with 25 million
parameters. 2 ranks run; the two back ends take turns, so that both run under the same conditions.

usage: bench/torch_backends.py [--runs N] [--build DIR]

The ranks run this script as well. PyTorch is that of $TORCH_2_11_PYTHON, or from scripts/install-deps --interop-old.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

import results
from torch_venv import torch_venv

RANKS = 2
SMALL, LARGE = 4 << 10, 25 << 20
GOALS = {"all_reduce, 4 KiB": 10, "all_reduce, 25 MiB": 8}


# --- a rank -------------------------------------------------------------------------------------------------------


def calls_of(dist, tensor, group, n):
    """A function that makes n calls and returns the time of one in us."""

    def run():
        dist.barrier(group)
        begun = time.perf_counter()
        for _ in range(n):
            dist.all_reduce(tensor, group=group)
        return (time.perf_counter() - begun) / n * 1e6

    return run


def steps_of(torch, group):
    """A function that makes a training step and returns its time in us: 25 million parameters, a batch of 16."""
    torch.manual_seed(1)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(2048, 2048), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(16, 2048)

    def run():
        torch.distributed.barrier(group)
        begun = time.perf_counter()
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
        return (time.perf_counter() - begun) * 1e6

    return run


def rank_main(runs):
    import torch
    import torch.distributed as dist

    import ddp_torch

    torch.set_num_threads(1)
    dist.init_process_group("ddp")
    gloo = dist.new_group(backend="gloo")
    world = dist.group.WORLD
    plain = torch.zeros(LARGE // 4)
    shared = ddp_torch.empty(LARGE // 4)
    small = torch.zeros(SMALL // 4)
    rows = {
        "all_reduce, 4 KiB": {
            "gloo": calls_of(dist, small, gloo, 30), "ddp_torch": calls_of(dist, small, world, 300)},
        "all_reduce, 25 MiB": {
            "gloo": calls_of(dist, plain, gloo, 1), "ddp_torch": calls_of(dist, plain, world, 4),
            "ddp_torch.empty()": calls_of(dist, shared, world, 4)},
        "DDP step, 25 M parameters": {"gloo": steps_of(torch, gloo), "ddp_torch": steps_of(torch, world)},
    }
    for row, ways in rows.items():
        times = {way: [] for way in ways}
        for i in range(runs + 2):  # the first two are for warm-up
            for way, run in ways.items():
                time_us = run()
                if i >= 2:
                    times[way].append(time_us)
        if dist.get_rank() == 0:
            for way, taken in times.items():
                print(f"row|{row}|{way}|{min(taken):.2f}|{statistics.median(taken):.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


# --- all ranks ----------------------------------------------------------------------------------------------------


def table_of(lines):
    rows = {}
    for line in lines:
        _, row, way, least, median = line.split("|")
        rows.setdefault(row, {})[way] = (float(least), float(median))
    cells = []
    for row, ways in rows.items():
        gloo = ways["gloo"]
        for way, (least, median) in ways.items():
            factor = f"{gloo[1] / median:.1f}" + (f" ({GOALS[row]})" if row in GOALS else "")
            cells.append([row, way, f"{least:,.1f}", f"{median:,.1f}", "" if way == "gloo" else factor])
    return results.table(["what", "back end", "min us", "median us", "as fast as gloo (goal)"], cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        return rank_main(args.runs)
    venv = torch_venv()
    if venv is None:
        sys.exit("no PyTorch: scripts/install-deps --interop")
    load = results.load_average()
    env = dict(venv[1], DDP_LIBRARY=os.path.abspath(os.path.join(args.build, "worker-runtime/libddp.so.0")))
    env["PYTHONPATH"] = ":".join(filter(None, [os.path.join(results.ROOT, "python"), env.get("PYTHONPATH")]))
    command = [os.path.join(args.build, "launcher/ddprun"), "-n", str(RANKS), os.path.abspath(__file__), "--rank"]
    out = subprocess.run([*command, "--runs", str(args.runs)], env=env, stdout=subprocess.PIPE, text=True, check=True)
    lines = [line for line in out.stdout.splitlines() if line.startswith("row|")]
    results.report("torch_backends", table_of(lines), load)


if __name__ == "__main__":
    main()
