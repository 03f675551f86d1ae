#!/usr/bin/env python3
"""Unmodified programs, each with the command it was taught with and with ddprun. Prints a table; standard library only.

usage: programs.py --program DDPRUN [--ours] [NAME...]

--ours   not the taught commands
NAME     of the programs below; all of them if none is given

The Pythons are those of scripts/install-deps --interop --programs. A program whose packages are not here is skipped, with the
reason in the table. Exit status 1 if one failed under ddprun, 77 if none could be tried.
"""
import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from run import HERE, NEWEST, SKIPPED, cache_dir, find_python, free_port

DEADLINE_S = 240 * float(os.environ.get("TEST_PATIENCE", "1"))
PROGRAMS = {}


class Skip(Exception):
    """The reason why a command is not tried."""


class Place:
    """Where a command runs, and what it needs of its own."""

    def __init__(self, ddprun, folder):
        self.ddprun, self.folder = ddprun, folder

    def torchrun(self, *words):
        return ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", *words]

    def ours(self, *words):
        return [self.ddprun, "-n", *words]

    def script(self, name):
        beside = os.path.join(HERE, "programs", name)
        return beside if os.path.exists(beside) else os.path.join(HERE, name)

    def path(self, name):
        return os.path.join(self.folder, name)


def program(packages, wanted, status=0, environment="torch"):
    """A function of a Place that gives (the taught command, ours), each of which may be an outcome instead.

    packages      whose versions are shown
    wanted        patterns that the output has
    status        the exit status of both
    environment   "torch", "torch 1.13", or "programs", which has more packages """

    def enter(function):
        PROGRAMS[function.__name__] = (function, packages, wanted, status, environment)
        return function

    return enter


# --- the kinds of scripts that tutorials teach --------------------------------------------------------------------


@program(["torch"], [r"2 ranks agree, accuracy"])
def ddp_by_torchrun(at):
    script = [at.script("ddp_tutorial.py"), "--checkpoint", at.path("checkpoint.pt")]
    return at.torchrun("2", *script), at.ours("2", *script)


@program(["torch"], [r"2 ranks agree, accuracy"], environment="torch 1.13")
def ddp_on_torch_1_13(at):
    script = [at.script("ddp_tutorial.py"), "--checkpoint", at.path("checkpoint.pt")]
    return "skipped: Debian's 1.13 cannot start workers on its Python", at.ours("2", *script)


@program(["torch"], [r"2 spawned ranks learned it"])
def ddp_by_mp_spawn(at):
    script = [at.script("mp_spawn_tutorial.py"), "-n", "1", "-g", "2", "-nr", "0", "--port", str(free_port())]
    return ["python", *script], [at.ddprun, *script]


@program(["torch"], [r"local rank 0 of 2 trained", r"local rank 1 of 2 trained"])
def ddp_by_distributed_launch(at):
    script = [at.script("launch_argument.py")]
    taught = ["python", "-m", "torch.distributed.launch", "--nproc_per_node=2", f"--master_port={free_port()}"]
    return taught + script, at.ours("2", "--local-rank-arg=--local-rank", *script)


@program(["torch"], [r"2 processes trained"])
def imagenet_multiprocessing_distributed(at):
    script = [at.script("imagenet_spawn.py"), "--dist-url", f"tcp://127.0.0.1:{free_port()}", "--world-size", "1",
              "--rank", "0", "--multiprocessing-distributed"]
    return ["python", *script], [at.ddprun, *script]


@program(["torch"], [r"rank 0 resumes from snapshot at epoch 2", r"rank 0 finished epoch 5", r"rank 1 finished epoch 5"])
def snapshots_and_restarts(at):
    # torch 2.11 leaves addresses of the first attempt in the store that it keeps; see run.py
    script = [at.script("snapshot.py"), "5", at.path("snapshot.pt")]
    taught = ["env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", *at.torchrun("2", "--max-restarts", "3", *script)]
    return taught, at.ours("2", "--max-restarts", "3", *script)


# --- more of PyTorch ----------------------------------------------------------------------------------------------


@program(["torch"], [rf"rank {rank} went on from the checkpoint as without it" for rank in range(4)])
def fsdp2_devicemesh_checkpoint(at):
    script = [at.script("fsdp2_mesh.py"), at.path("checkpoint")]
    return at.torchrun("4", *script), at.ours("4", *script)


@program(["torch"], [r"rank 1 trained on worker0"])
def rpc(at):
    script = [at.script("rpc.py")]
    return at.torchrun("2", *script), at.ours("2", *script)


FEATURES = "find_unused_parameters", "join", "async_save", "compiled", "child", "groups", "store", "workers"


@program(["torch"], [rf"rank {rank}: {feature}\b" for feature in FEATURES for rank in range(2)])
def features(at):
    script = [at.script("torch_features.py"), at.folder, *FEATURES]
    return at.torchrun("2", *script), at.ours("2", *script)


@program(["torch"], [r"ValueError: batch 17 has 3 labels for 4 images"], status=1)
def record_decorator(at):
    script = [at.script("crash.py"), "recorded"]
    return at.torchrun("2", *script), at.ours("2", *script)


# --- what others have made ----------------------------------------------------------------------------------------


@program(["lightning"], [r"rank 0 of 2: loss 0\.0\d+", r"rank 1 of 2: loss 0\.0\d+"], environment="programs")
def lightning_trainer(at):
    script = [at.script("lightning_trainer.py"), at.folder]
    return ["python", *script], at.ours("2", *script)


@program(["accelerate"], [r"process 0 of 2: ", r"process 1 of 2: "], environment="programs")
def accelerate_launch(at):
    script = [at.script("accelerate_script.py")]
    # the launcher's way to start several processes; the script specifies that they have no GPUs
    taught = ["python", "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1",
              "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port())]
    return taught + script, at.ours("2", *script)


@program(["jax"], [r"process 0 of 2: 9", r"process 1 of 2: 9"], environment="programs")
def jax_distributed(at):
    script = [at.script("jax_script.py"), str(free_port())]
    return at.torchrun("2", *script), at.ours("2", *script)


@program(["mpi4py"], [r"rank 0 of 2: MPICH", r"rank 1 of 2: MPICH"], environment="programs")
def mpi4py_on_mpich(at):
    if shutil.which("mpiexec.hydra") is None:
        raise Skip("no MPICH: scripts/install-deps --programs")
    script = [at.script("mpi4py_script.py")]
    ours = at.ours("2", "--mpi", "pmi1", *script)
    if "pmi1" not in subprocess.run([at.ddprun, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout:
        ours = "skipped: this ddprun serves no PMI"
    return ["mpiexec.hydra", "-n", "2", "python", *script], ours


# --- running them -------------------------------------------------------------------------------------------------


def find_environment(name):
    """(Python, the environment variables to run it in)"""
    version = "1.13" if name == "torch 1.13" else NEWEST
    try:
        python, env = find_python(version)
    except SystemExit:
        raise Skip(f"no PyTorch {version}: scripts/install-deps --interop --programs") from None
    if name == "programs":
        python = os.path.join(cache_dir(), "ddprun/programs/bin/python")
        if not os.path.exists(os.path.join(cache_dir(), "ddprun/programs/complete")):
            raise Skip("not installed: scripts/install-deps --interop --programs")
        # mpi4py's wheel is for any MPI, and would find another one first; MPICH's library has two names
        libraries = os.path.join(cache_dir(), "ddprun/programs/lib")
        env = dict(env, MPI4PY_MPIABI="mpich")
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [libraries, env.get("LD_LIBRARY_PATH")]))
    return python, dict(env, PYTHON_EXEC=python, PYTHONDONTWRITEBYTECODE="1")


def versions(python, env, packages):
    code = "import importlib.metadata as m, sys; print(*[f'{p} {m.version(p)}' for p in sys.argv[1:]], sep=', ')"
    out = subprocess.run([python, "-c", code, *packages], env=env, stdout=subprocess.PIPE, text=True, timeout=60)
    return out.stdout.strip() or "?"


def attempt(command, python, env, wanted, status):
    """ "passed", or what was wrong; the output is printed then."""
    words = [python if word == "python" else word for word in command]
    child = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace", start_new_session=True)
    try:
        out, _ = child.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate(timeout=DEADLINE_S)
        wrong = f"still running after {DEADLINE_S} s"
    else:
        missing = [pattern for pattern in wanted if not re.search(pattern, out)]
        if child.returncode != status:
            wrong = f"exit status {child.returncode}"
        elif missing:
            wrong = f"no '{missing[0]}'"
        else:
            return "passed"
    print(f"+ {shlex.join(words)}\n{out}\n--- {wrong}\n", flush=True)
    return f"FAILED: {wrong}"


def shown(command):
    """As one would type it."""
    text = shlex.join([os.path.basename(word) if os.path.isabs(word) else word for word in command])
    return text.replace("python -m torch.distributed.run --standalone", "torchrun --standalone").replace(
        "python -m accelerate.commands.launch", "accelerate launch")


def try_one(name, ddprun, ours_only):
    """Rows of the table: (program, versions, command, outcome)."""
    function, packages, wanted, status, environment = PROGRAMS[name]
    rows = []
    try:
        python, env = find_environment(environment)
        with_versions = versions(python, env, packages)
        for which in ((1,) if ours_only else (0, 1)):
            with tempfile.TemporaryDirectory(prefix="ddprun-programs-") as folder:
                at = Place(ddprun, folder)
                command = function(at)[which]
                if isinstance(command, str):
                    rows.append((name, with_versions, "", command))
                else:
                    outcome = attempt(command, python, env, wanted, status)
                    rows.append((name, with_versions, shown(command), outcome))
    except Skip as reason:
        rows.append((name, ", ".join(packages), "", f"skipped: {reason}"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(PROGRAMS))
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    rows = []
    for name in args.names or PROGRAMS:
        rows += try_one(name, os.path.abspath(args.program), args.ours)
    print("| program | with | command | |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    outcomes = [row[3] for row in rows if row[2].startswith("ddprun") or row[3].startswith("skipped")]
    if any(outcome.startswith("FAILED") for outcome in outcomes):
        return 1
    return SKIPPED if all(outcome.startswith("skipped") for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
