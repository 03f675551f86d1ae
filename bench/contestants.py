"""libddp's all-reduce and those that it is compared with: how each is started, and what it prints."""
import os
import shutil
import subprocess

import results
from torch_venv import torch_venv

SOURCES = [os.path.join(results.HERE, "programs", name) for name in ("mpi_collectives.c", "sweep.c")]
LIMIT_S = 60  # for a sweep: MPICH with more ranks than cores takes minutes

SEGMENT, PLAIN, OPEN_MPI, MPICH, GLOO = \
    "libddp, segment memory", "libddp, plain memory", "Open MPI", "MPICH", "torch gloo"


def build_mpi(folder, compiler):
    """The MPI program, or None where that MPI is not installed."""
    if shutil.which(compiler) is None:
        return None
    program = f"{folder}/{compiler}"
    subprocess.run([compiler, "-O2", "-D_GNU_SOURCE", "-o", program, *SOURCES], check=True)
    return program


def contestants(n, build, folder):
    """Name -> (command, environment) of those that are installed; sweep.h describes the arguments that follow."""
    plain = dict(os.environ)
    ddprun = [f"{build}/launcher/ddprun", "-n", str(n)]
    found = {name: (ddprun + [f"{build}/bench/collectives", kind], plain)
             for name, kind in ((SEGMENT, "segment"), (PLAIN, "plain"))}
    openmpi, mpich = build_mpi(folder, "mpicc.openmpi"), build_mpi(folder, "mpicc.mpich")
    if openmpi:
        options = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        if n > len(os.sched_getaffinity(0)):
            options.append("--oversubscribe")
        found[OPEN_MPI] = (["mpirun.openmpi", *options, "-n", str(n), openmpi], plain)
    if mpich:
        found[MPICH] = (["mpiexec.hydra", "-n", str(n), mpich], plain)
    venv = torch_venv()
    if venv:
        found[GLOO] = (ddprun + [os.path.join(results.HERE, "torch_collectives.py")], venv[1])
    return found


def run(contestant, *words):
    """{bytes: [the figures that each rank printed for that size]}"""
    command, env = contestant
    done = subprocess.run([*command, *map(str, words)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, timeout=LIMIT_S, check=True)
    said = {}
    for line in done.stdout.splitlines():
        _rank, size, *figures = line.split()
        said.setdefault(int(size), []).append([float(figure) for figure in figures])
    return said


def sweep(contestant, repeats, max_bytes):
    """{bytes: (min, median)} in microseconds; a call takes as long as on its slowest rank."""
    return {size: tuple(max(figures) for figures in zip(*ranks))
            for size, ranks in run(contestant, repeats, max_bytes).items()}


def steady(contestant, ms, size):
    """The mean time of a call in microseconds, where calls follow each other for `ms` milliseconds."""
    return max(mean for _calls, mean in run(contestant, "steady", ms, size)[size])
