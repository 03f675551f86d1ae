#!/usr/bin/env python3
"""The time of an all-reduce of float32 on one node: libddp beside Open MPI, MPICH and PyTorch's gloo.

usage: bench/collectives.py [-n RANKS] [--repeats R] [--rounds N] [--build DIR]

Each library runs its whole sweep of sizes in turn, --rounds times over; of a size, the fastest of all rounds
and the median of the rounds' medians count. What is not installed is left out.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import results
from torch_venv import torch_venv

SOURCES = [os.path.join(results.HERE, name) for name in ("mpi_collectives.c", "sweep.c")]
LIMIT_S = 300


def build_mpi(folder, compiler):
    """The MPI program, or None where that MPI is not installed."""
    if shutil.which(compiler) is None:
        return None
    program = f"{folder}/{compiler}"
    subprocess.run([compiler, "-O2", "-D_GNU_SOURCE", "-o", program, *SOURCES], check=True)
    return program


def contestants(args, folder):
    """Name -> (command, environment)."""
    plain, n, repeats = dict(os.environ), str(args.n), str(args.repeats)
    ddprun = [f"{args.build}/launcher/ddprun", "-n", n]
    found = {
        f"libddp, {kind} memory": (ddprun + [f"{args.build}/bench/collectives", kind, repeats], plain)
        for kind in ("shared", "plain")
    }
    openmpi, mpich = build_mpi(folder, "mpicc.openmpi"), build_mpi(folder, "mpicc.mpich")
    if openmpi:
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        found["Open MPI"] = (["mpirun.openmpi", *as_root, "-n", n, openmpi, repeats], plain)
    if mpich:
        found["MPICH"] = (["mpiexec.hydra", "-n", n, mpich, repeats], plain)
    venv = torch_venv()
    if venv:
        found["torch gloo"] = (ddprun + [os.path.join(results.HERE, "torch_collectives.py"), repeats], venv[1])
    return found


def sweep(command, env):
    """{bytes: (min, median)} in microseconds."""
    run = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                         timeout=LIMIT_S, check=True)
    lines = [line.split() for line in run.stdout.splitlines()]
    return {int(size): (float(low), float(median)) for size, low, median in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--repeats", type=int, default=20, help="timings of a size in one sweep")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()

    load = results.load_average()
    sweeps = {}
    with tempfile.TemporaryDirectory(prefix="ddp-bench-") as folder:
        libraries = contestants(args, folder)
        for _ in range(args.rounds):
            for name, (command, env) in libraries.items():
                try:
                    sweeps.setdefault(name, []).append(sweep(command, env))
                except (OSError, subprocess.SubprocessError) as error:
                    print(f"{name}: {error}", file=sys.stderr)

    if not sweeps:
        sys.exit("nothing could be run")
    rows = []
    for size in sorted(next(iter(sweeps.values()))[0]):
        for name, runs in sweeps.items():
            low = min(run[size][0] for run in runs)
            median = results.spread(run[size][1] for run in runs)[1]
            rows.append([name, size, f"{low:.2f}", f"{median:.2f}", f"{size / median / 1e3:.3f}"])
    head = ["library", "bytes", "min us", "median us", "algbw GB/s"]
    results.report("collectives", f"{args.n} ranks.\n\n" + results.table(head, rows), load)


if __name__ == "__main__":
    main()
