#!/usr/bin/env python3
"""Measure the time to start N short programs until all have ended: ddprun, other launchers, and the floor.

usage: bench/launch.py [-n N[,N]...] [--runs R] [--slow-runs R] [--build DIR] [PROGRAM [ARGUMENT]...]

The launchers take turns, and each round begins with a different one, so that a busy moment of the machine affects all of
them and none always follows the same one. A launcher that is not installed is left out. A run that fails or exceeds
--limit-s is reported, and its time does not count; a launcher with three such runs is not run again. torchrun is that of the newest
PyTorch, from scripts/install-deps --interop, and of 2.11, from --interop-old.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import results
from torch_venv import torchruns

SLOW = "torchrun"  # takes seconds for each run: runs only --slow-runs times
GIVE_UP_AFTER = 3  # failures of one launcher: each may have cost --limit-s


def launchers(build):
    """Name -> (command before PROGRAM for n ranks, environment), for the launchers that are installed."""
    plain = dict(os.environ)
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    candidates = {
        "floor": lambda n: [f"{build}/bench/floor", str(n)],
        "ddprun": lambda n: [f"{build}/launcher/ddprun", "-n", str(n)],
        "mpiexec.hydra": lambda n: ["mpiexec.hydra", "-n", str(n)],
        "mpirun (Open MPI)": lambda n: ["mpirun.openmpi", *as_root, "--oversubscribe", "-n", str(n)],
    }
    found = {name: (command, plain) for name, command in candidates.items() if is_here(command(1)[0])}
    for name, (torchrun, env) in torchruns().items():
        found[name] = (lambda n, torchrun=torchrun: [*torchrun, "--standalone", "--nproc-per-node", str(n), "--no-python"], env)
    return found


def is_here(program):
    return any(os.access(os.path.join(folder, program), os.X_OK)
               for folder in ([""] if "/" in program else os.get_exec_path()))


def time_once(timeit, limit_s, command, env):
    """Milliseconds, or None after a failure, whose reason is printed."""
    with tempfile.TemporaryFile() as result, tempfile.TemporaryFile() as errors:
        # timeit writes its result to descriptor 3: the shell opens it and execs timeit
        subprocess.run(["sh", "-c", 'exec "$@" 3>&1 >/dev/null', "sh", timeit, str(limit_s), *command],
                       stdin=subprocess.DEVNULL, stdout=result, stderr=errors, env=env, check=False)
        result.seek(0)
        answer = result.read().split()
        if answer and answer[1] == b"0":
            return int(answer[0]) / 1e6
        errors.seek(0)
        text = errors.read().decode(errors="replace").strip().splitlines()
        status = answer[1].decode() if answer else "none"
        print(f"{command[0]}: exit status {status}{': ' + text[-1] if text else ''}", file=sys.stderr)
        return None


def measure(args, n, contestants, timeit):
    times = {name: [] for name in contestants}
    failures = dict.fromkeys(contestants, 0)
    order = list(contestants)
    for run in range(-1, args.runs):  # run -1 warms the caches
        order.append(order.pop(0))
        for name in order:
            if failures[name] == GIVE_UP_AFTER or name.startswith(SLOW) and run >= args.slow_runs:
                continue
            command, env = contestants[name]
            took = time_once(timeit, args.limit_s, command(n) + args.program, env)
            if took is None:
                failures[name] += 1
            elif run >= 0:
                times[name].append(took)
    return times, failures


def rows_of(n, times, failures):
    floor_min, floor_median = results.spread(times["floor"])
    for name, values in times.items():
        if not values:
            yield [name, n, 0, failures[name], "-", "-", "-", "-"]
            continue
        low, median = results.spread(values)
        yield [name, n, len(values), failures[name], f"{low:.2f}", f"{median:.2f}",
               f"{low / floor_min:.2f}", f"{median / floor_median:.2f}"]


def notes_of(n, failures, limit_s):
    for name, count in failures.items():
        if count == GIVE_UP_AFTER:
            yield f"{name} with {n} ranks: left alone after {count} runs that failed or were killed after {limit_s} s."
        elif count > 0:
            yield f"{name} with {n} ranks: {count} failed, or were killed after {limit_s} s."


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=numbers, default=[2, 8, 32, 64, 256], metavar="N[,N]...",
                        help="ranks (default: 2,8,32,64,256)")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--slow-runs", type=int, default=3, help="of launchers that take seconds")
    parser.add_argument("--limit-s", type=int, default=10, help="kill a run that takes longer")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("program", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    args.program = args.program or ["/bin/true"]

    timeit = f"{args.build}/bench/timeit"
    contestants = launchers(args.build)
    for needed in "floor", "ddprun":
        if needed not in contestants:
            sys.exit(f"{args.build} has no {needed}: build first, or give --build")
    load = results.load_average()
    rows, notes = [], []
    for n in args.n:
        times, failures = measure(args, n, contestants, timeit)
        rows.extend(rows_of(n, times, failures))
        notes.extend(notes_of(n, failures, args.limit_s))
    head = ["launcher", "ranks", "runs", "failed", "min ms", "median ms", "min / floor", "median / floor"]
    results.report("launch", "\n\n".join([results.table(head, rows), *notes]), load)


if __name__ == "__main__":
    main()
