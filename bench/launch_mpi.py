#!/usr/bin/env python3
"""Measure the time from the start of an Open MPI program until its end: ddprun and mpirun, in turn.

usage: bench/launch_mpi.py [-n N[,N]...] [--runs R] [--build DIR] [--open-mpi-5 DIR]

The program is MPI_Init, a barrier and MPI_Finalize (tests/support/programs/mpi_program.c). Each round begins with a different launcher. "ob1" has
the transports within a node only (pml=ob1, btl=self,vader or self,sm), "default" lets Open MPI search. Open MPI 4 is mpirun.openmpi's; Open MPI 5
is DIR/bin/mpirun: $OPEN_MPI_5, or the environment of scripts/install-deps --hosts. A version that is not installed is left out.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import launch
import results

SOURCE = os.path.join(results.ROOT, "tests/support/programs/mpi_program.c")


def cached(name):
    """An environment of scripts/install-deps, or None."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "ddprun", name)
    return folder if os.path.exists(os.path.join(folder, "complete")) else None


def versions(args, folder):
    """Name -> (mpirun, program, value of OMPI_MCA_btl)."""
    found = {}
    program = f"{args.build}/tests/support/open_mpi_program"
    if launch.is_here("mpirun.openmpi") and os.path.exists(program):
        found["Open MPI 4"] = "mpirun.openmpi", program, "self,vader"
    if args.open_mpi_5:
        program = os.path.join(folder, "open_mpi_5")
        subprocess.run([f"{args.open_mpi_5}/bin/mpicc", "-std=gnu17", "-O1", SOURCE, "-o", program], check=True)
        found["Open MPI 5"] = f"{args.open_mpi_5}/bin/mpirun", program, "self,sm"
    return found


def contestants(args, mpirun, transports):
    env = {**os.environ, **transports, "DDP_PLUGIN_DIR": f"{args.build}/rendezvous/pmix"}
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return {"mpirun": (lambda n: [mpirun, *as_root, "--oversubscribe", "-n", str(n)], env),
            "ddprun": (lambda n: [f"{args.build}/launcher/ddprun", "-n", str(n)], env)}


def rows_of(case, n, times, failures):
    base = results.spread(times["mpirun"])[1] if times["mpirun"] else None
    for name, values in times.items():
        if values:
            low, median = results.spread(values)
            ratio = f"{median / base:.3f}" if base else "-"
            yield [case, name, n, len(values), failures[name], f"{low:.1f}", f"{median:.1f}", ratio]
        else:
            yield [case, name, n, 0, failures[name], "-", "-", "-"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=launch.numbers, default=[2, 16], metavar="N[,N]...", help="ranks (default: 2,16)")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--limit-s", type=int, default=60, help="kill a run that takes longer")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("--open-mpi-5", metavar="DIR", default=os.environ.get("OPEN_MPI_5") or cached("open-mpi-5"))
    args = parser.parse_args()
    args.build, args.program, args.slow_runs = os.path.abspath(args.build), ["wait"], args.runs
    load = results.load_average()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        found = versions(args, folder)
        if not found:
            sys.exit("no Open MPI is installed, or the tests are not built")
        for version, (mpirun, program, btl) in found.items():
            args.program = [program, "wait"]
            for name, transports in ("ob1", {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": btl}), ("default", {}):
                for n in args.n:
                    times, failures = launch.measure(args, n, contestants(args, mpirun, transports), f"{args.build}/bench/timeit")
                    rows.extend(rows_of(f"{version}, {name}", n, times, failures))
    head = ["case", "launcher", "ranks", "runs", "failed", "min ms", "median ms", "median / mpirun"]
    results.report("launch_mpi", results.table(head, rows), load)


if __name__ == "__main__":
    main()
