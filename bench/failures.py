#!/usr/bin/env python3
"""Compare what launchers do when a job of two ranks fails: exit statuses, survivors, notifications, and how long it takes.

usage: bench/failures.py [--launcher NAME]... [--row TEXT]... [--build DIR]

The launchers are torchrun (of the newest PyTorch, from scripts/install-deps --interop), mpirun (Open MPI), mpiexec.hydra (MPICH),
srun in a Slurm of its own, and ddprun. A launcher that is not installed has a `-` in its column, and the reason below the
table. With --launcher or --row the table is only printed.
"""
import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

import results
from torch_venv import NEWEST, torch_venv

TESTS = os.path.join(results.ROOT, "tests")
sys.path.insert(0, os.path.join(TESTS, "system/lib"))
from endings import ROWS, Launcher  # noqa: E402 (found by the path above)
from slurm import NoSlurm, Slurm  # noqa: E402

NO_HOST = "no-such-host.invalid"
SRUN_REMARK = ("- srun: this Slurm knows a rank's processes by their parents (proctrack/linuxproc); one that uses cgroups "
               "finds daemons")


class NotHere(Exception):
    """The reason why a launcher is not available."""


def mpi_abort(folder, compiler):
    """The program, or None where the compiler of that MPI is not installed."""
    if shutil.which(compiler) is None:
        return None
    program = os.path.join(folder, "mpi_abort." + compiler)
    subprocess.run([compiler, "-o", program, os.path.join(results.HERE, "programs/mpi_abort.c")], check=True)
    return program


def must_be_here(program):
    if shutil.which(program) is None:
        raise NotHere(f"no {program} in PATH; scripts/install-deps --bench")
    return program


def torchrun(args, folder):
    venv = torch_venv()
    if venv is None:
        raise NotHere("no PyTorch: scripts/install-deps --interop")
    return Launcher("torchrun", venv[0], ["-m", "torch.distributed.run", "--standalone", "--no-python"], "--nproc-per-node",
                    ["-t", "3"], args.rank, env=venv[1])


def mpirun(args, folder):
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return Launcher("mpirun", must_be_here("mpirun.openmpi"), [*as_root, "--oversubscribe"], "-n", ["--tag-output"], args.rank,
                    unknown_host=["-H", f"{NO_HOST}:2"], mpi_abort=mpi_abort(folder, "mpicc.openmpi"))


def hydra(args, folder):
    return Launcher("mpiexec.hydra", must_be_here("mpiexec.hydra"), [], "-n", ["-prepend-rank"], args.rank,
                    unknown_host=["-hosts", NO_HOST], mpi_abort=mpi_abort(folder, "mpicc.mpich"))


def srun(args, folder, name="srun", words=()):
    if args.slurm is None:
        raise NotHere(args.no_slurm)
    return Launcher(name, must_be_here("srun"), [*words, "--mpi=pmi2"], "-n", ["-l"], args.rank, env=args.slurm.env,
                    unknown_host=["-w", "no-such-node"], mpi_abort=mpi_abort(folder, "mpicc.mpich"))


def srun_k1(args, folder):
    return srun(args, folder, "srun -K1", ["-K1"])


def ddprun(args, folder):
    return Launcher("ddprun", os.path.join(args.build, "launcher/ddprun"), [], "-n", ["--label"], args.rank,
                    unknown_host=["-H", f"{NO_HOST}:2"], mpi_abort=mpi_abort(folder, "mpicc.mpich"))


LAUNCHERS = {"torchrun": torchrun, "mpirun": mpirun, "mpiexec.hydra": hydra, "srun": srun, "srun -K1": srun_k1,
             "ddprun": ddprun}


def show_time(seconds):
    return f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"


def cell(seen):
    """The status is the one that a shell reports; `dies` marks a launcher that was killed by the signal instead of exiting."""
    if isinstance(seen, str):
        return "-"
    if seen.headline is None and seen.status is None:
        return "; ".join(["**runs on**", *seen.notes])
    how = seen.headline or f"{seen.status}{' (dies)' if seen.died else ''}"
    return "; ".join([how if seen.after_s is None else f"{how}, {show_time(seen.after_s)}", *seen.notes])


def column(make, args, folder, rows):
    """(a cell for each row, the notes below the table)"""
    try:
        launcher = make(args, folder)
    except NotHere as reason:
        return ["-"] * len(rows), [str(reason)]
    cells, notes = [], []
    for name in rows:
        seen = ROWS[name](launcher)
        if isinstance(seen, str):
            notes.append(f"{name}: {seen}")
        cells.append(cell(seen))
        print(f"{launcher.name}: {name}: {cells[-1]}", file=sys.stderr)
    return cells, notes


def versions(args):
    """The versions that the launchers print; srun prints none without a configuration."""
    found = [f"torchrun of PyTorch {NEWEST}"] if torch_venv() else []
    env = {**os.environ, **(args.slurm.env if args.slurm else {})}
    for program, pattern in (("mpirun.openmpi", r"^mpirun\S* \(\S*\) ([0-9.]+)"), ("mpiexec.hydra", r"Version: +([0-9.]+)"),
                             ("srun", r"^slurm\S* ([0-9.]+)")):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            text = subprocess.run([program, "--version"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                  timeout=20, check=False).stdout
            found += [f"{program} {version}" for version in re.findall(pattern, text)[:1]]
    return ", ".join(found)


def measure(args, rows):
    chosen = {name: make for name, make in LAUNCHERS.items() if not args.launcher or name in args.launcher}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        args.slurm = args.no_slurm = None
        if any(name.startswith("srun") for name in chosen):
            try:
                args.slurm = stack.enter_context(Slurm())
            except NoSlurm as reason:
                args.no_slurm = f"{reason}; scripts/install-deps --bench"
        columns = {name: column(make, args, folder, rows) for name, make in chosen.items()}
        of = versions(args)
    table = results.table(["", *columns], [[name, *(cells[i] for cells, _ in columns.values())] for i, name in enumerate(rows)])
    remarks = [f"- {name}: {note}" for name, (_, notes) in columns.items() for note in notes]
    remarks += [SRUN_REMARK] * (args.slurm is not None)
    return "\n".join([table, "", of + ".", "", *remarks])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launcher", action="append", choices=list(LAUNCHERS))
    parser.add_argument("--row", action="append", default=[], help="only those whose name holds TEXT")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    args.rank = os.path.join(args.build, "tests/support/rank")
    load = results.load_average()
    rows = [name for name in ROWS if not args.row or any(text in name for text in args.row)]
    text = measure(args, rows)
    if args.launcher or args.row:
        print(text)
    else:
        results.report("failures", text, load)


if __name__ == "__main__":
    main()
