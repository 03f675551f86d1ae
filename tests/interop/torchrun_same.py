#!/usr/bin/env python3
"""Real torchrun and ddprun, under its own name and as a link called torchrun, on the same command
lines: do workers get the same, does the shell, and are the log files the same? Standard library only.

usage: torchrun_same.py --launcher DDPRUN [CASE]...

The command lines are in same_cases.py. To compare more, add a function to COMPARE: it gets a case and the
three runs.
"""
import argparse
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import same_logs
from run import HERE, NEWEST, VERSIONS, fail, find_python, free_port
from same_cases import ANY_PORT, CASES, WHO

DEADLINE_S = round(60 * float(os.environ.get("TEST_PATIENCE", "1")))


@dataclasses.dataclass
class Run:
    who: str
    dir: str
    status: int
    streams: tuple  # what came out of the launcher, stdout and stderr: bytes
    ranks: dict  # (generation, rank): what that worker wrote down
    logs: dict  # same_logs.read_logs()

    @property
    def output(self):
        return b"".join(self.streams).decode(errors="replace")


# What all three have in a form, and need not be equal in; the same goes for a case's `unlike`.
FORMS = {
    "MASTER_ADDR": (r"localhost|127\.0\.0\.1",) * 3,
    "MASTER_PORT": (ANY_PORT,) * 3,
    "OMP_NUM_THREADS": ("1", "1", "[1-9][0-9]*"),
}
OWN_ERROR_FILE = {"TORCHELASTIC_ERROR_FILE": (r"TMP/JOB/.*/error\.json",) + (r"runtime/ddprun-\w+/[0-9]+\.json",) * 2}
# What the interpreter and torch's import leave in torchrun's own environment; not meant for workers.
IGNORED = {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "LC_CTYPE", "TORCHINDUCTOR_CACHE_DIR"}


def compare_status(case, runs):
    for run in runs:
        expected = case.status[WHO.index(run.who)]
        if run.status != expected:
            yield f"{run.who} ended with {run.status}, expected {expected}:\n{run.output}"


def compare_ranks(case, runs):
    expected = [(generation, rank) for generation in range(case.generations) for rank in range(case.ranks)]
    for run in runs:
        if sorted(run.ranks) != expected:
            yield f"{run.who} started (generation, rank) {sorted(run.ranks)}, expected {expected}:\n{run.output}"


def compare_words(case, runs):
    """The arguments, the current directory, and how Python was called."""
    for what in ["name", "argv", "cwd"] + ["python"] * case.python:
        for rank, theirs in runs[0].ranks.items():
            for run in runs[1:]:
                if rank in run.ranks and run.ranks[rank][what] != theirs[what]:
                    yield (f"generation and rank {rank}, {what}: {runs[0].who} {theirs[what]}, "
                           f"{run.who} {run.ranks[rank][what]}")


def compare_environment(case, runs):
    forms = {**FORMS, **({} if case.logs else OWN_ERROR_FILE), **case.unlike}
    for rank in runs[0].ranks:
        seen = [run.ranks[rank]["environment"] if rank in run.ranks else {} for run in runs]
        names = {name for env in seen for name in env if not name.startswith("DDP_")} - IGNORED
        for name in sorted(names):
            values = [env.get(name) for env in seen]
            if name == "OMP_NUM_THREADS" and case.ranks == 1 and values[0] is None:
                same = values[1 if "link" in case.only else 0] is None
            elif name in forms:
                patterns = [forms[name][WHO.index(run.who)] for run in runs]
                same = all(value is not None and re.fullmatch(pattern, value)
                           for pattern, value in zip(patterns, values))
            else:
                same = len(set(values)) == 1
            if not same:
                yield f"generation and rank {rank}, {name}: " + ", ".join(f"{run.who} {value!r}" for run, value in zip(runs, values))


def compare_logs(case, runs):
    """Names, modes and contents. torchrun always makes a directory; ddprun only if files are requested."""
    theirs = runs[0].logs if case.logs else {}
    if case.logs and not theirs:
        yield f"{runs[0].who} left no log files"
    for run in runs[1:]:
        for path in set(case.more) - set(run.logs):
            yield f"{run.who} left no {path}"
        ours = {path: entry for path, entry in run.logs.items() if path not in case.more}
        for difference in same_logs.compare(theirs, ours):
            yield f"{run.who}, log files: {difference}"


def compare_console(case, runs):
    """What ranks printed on each of the launcher's streams, with prefixes."""
    for i, stream in enumerate(("stdout", "stderr")):
        said = [same_logs.said_lines(run.streams[i]) for run in runs]
        for run, lines in zip(runs[1:], said[1:]):
            if case.console and lines != said[0]:
                yield f"{stream}: {runs[0].who} {said[0]}, {run.who} {lines}"


def check_leftovers(case, runs):
    """ddprun removes what it made for itself, and makes no directory without a request."""
    for run in runs:
        left = [name for name in os.listdir(os.path.join(run.dir, "tmp")) if not case.logs]
        left += os.listdir(os.path.join(run.dir, "runtime"))
        if run.who != "torchrun" and left:
            yield f"{run.who} left {left}"


COMPARE = [compare_status, compare_ranks, compare_words, compare_environment, compare_logs, compare_console,
           check_leftovers]


class Torchrun:
    """The server of real torchruns."""

    def __init__(self, python, env):
        self.process = subprocess.Popen([python, os.path.join(HERE, "torchrun_server.py")], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def run(self, task):
        signal.alarm(DEADLINE_S)
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        status = self.process.stdout.readline()
        signal.alarm(0)
        return int(status)

    def close(self):
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)


def run_ours(command, task):
    with open(task["stdout"], "wb") as stdout, open(task["stderr"], "wb") as stderr:
        return subprocess.run(command + task["words"], env=task["env"], cwd=task["cwd"], stdin=subprocess.DEVNULL,
                              stdout=stdout, stderr=stderr, timeout=DEADLINE_S).returncode


def run_case(case, who, start, env, folder):
    """start(task) -> exit status"""
    run_dir = os.path.join(folder, case.name, who)
    for name in "dump", "tmp", "runtime":
        os.makedirs(os.path.join(run_dir, name))
    words = case.words if who == "torchrun" or case.ours is None else case.ours
    own = {**{name: fill(value, case, run_dir) for name, value in case.env.items()}, "DUMP_DIR": run_dir + "/dump",
           "TMPDIR": run_dir + "/tmp", "XDG_RUNTIME_DIR": run_dir + "/runtime"}
    task = {"module": case.module, "words": fill(words, case, run_dir).split(), "cwd": run_dir, "env": {**env, **own},
            "stdout": run_dir + "/stdout", "stderr": run_dir + "/stderr"}
    status = start(task)
    ranks = read_ranks(run_dir)
    run_id = None
    for rank in ranks.values():
        run_id = rank["environment"]["TORCHELASTIC_RUN_ID"]
        name = rank["environment"]["TORCHELASTIC_ERROR_FILE"]
        rank["environment"]["TORCHELASTIC_ERROR_FILE"] = same_logs.place(name, "RUN_DIR", run_id)
    return Run(who, run_dir, status, tuple(read_bytes(task[name]) for name in ("stdout", "stderr")), ranks,
               same_logs.read_logs(run_dir, run_id))


def read_ranks(run_dir):
    ranks = {}
    for name in os.listdir(run_dir + "/dump"):
        generation, rank = name.split(".")[:2]
        with open(os.path.join(run_dir, "dump", name)) as f:
            worker = ranks[int(generation), int(rank)] = json.load(f)
        worker["cwd"] = os.path.relpath(worker["cwd"], run_dir)  # each launcher runs in a directory of its own
        for variable in "TMPDIR", "XDG_RUNTIME_DIR", "DUMP_DIR":
            del worker["environment"][variable]
        worker["environment"] = {k: v.replace(run_dir, "RUN_DIR") for k, v in worker["environment"].items()}
    return ranks


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def fill(text, case, run_dir):
    for name, value in (("WORKER", os.path.join(HERE, "dump.py")), ("PORT", case.port), ("LOGS", run_dir + "/logs"),
                        ("DIR", run_dir)):
        text = text.replace(f"@{name}@", value)
    return text


def check(case, starts, env, folder):
    case.port = str(free_port())
    case.unlike = {name: [form.replace("@PORT@", case.port) for form in forms] for name, forms in case.unlike.items()}
    runs = [run_case(case, who, starts[who], env, folder) for who in case.only]
    return [problem for compare in COMPARE for problem in compare(case, runs)]


def is_in(version, case):
    """Does torchrun of this version have what the case compares?"""
    return not case.since or tuple(map(int, version.split("."))) >= tuple(map(int, case.since.split(".")))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True, help="ddprun")
    parser.add_argument("--torch", default=NEWEST, choices=VERSIONS)
    parser.add_argument("case", nargs="*", help="default: all")
    args = parser.parse_args()
    chosen = [case for case in CASES if (not args.case or case.name in args.case) and is_in(args.torch, case)]
    python, env = find_python(args.torch)
    for name in "RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "TORCHELASTIC_ERROR_FILE", "LOGLEVEL":
        env.pop(name, None)
    folder = tempfile.mkdtemp(prefix="ddprun-same-")
    link = os.path.join(folder, "torchrun")
    ddprun = shutil.which(args.launcher) or fail(f"there is no {args.launcher}")
    os.symlink(os.path.abspath(ddprun), link)
    torchrun = Torchrun(python, env)
    starts = {"torchrun": torchrun.run, "link": lambda task: run_ours([link], task),
              "ddprun": lambda task: run_ours([os.path.abspath(ddprun)], task)}
    n_failed = 0
    try:
        for case in chosen:
            problems = check(case, starts, env, folder)
            n_failed += bool(problems)
            print("not the same:" if problems else "same:", case.name, *problems, sep="\n    " if problems else " ", flush=True)
        torchrun.close()
    finally:
        torchrun.process.kill()
        torchrun.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    if n_failed:
        fail(f"{n_failed} of {len(chosen)} command lines")
    print(f"passed: {len(chosen)} command lines")


if __name__ == "__main__":
    sys.exit(main())
