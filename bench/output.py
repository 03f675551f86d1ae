#!/usr/bin/env python3
"""Compare ddprun's own CPU time for passing on the output of ranks with that of `cat` for the same bytes.

usage: bench/output.py [--ranks N] [--lines N] [--runs R] [--build DIR]

N ranks write lines of 100 bytes. ddprun -t 3 passes them on to a file, each line after its prefix, and to log files; one cat
per rank passes them on from a pipe to a file. The two take turns. Every line of ddprun's output is checked: it has to be
whole and in order, and none may be missing.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import results


def cpu_ms(pid):
    """User and system time of a process, which may have ended, without its children's."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def wait_ms(pids):
    """Wait for our children and return their CPU time, which is read before they are reaped."""
    total = 0
    for pid in pids:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        total += cpu_ms(pid)
        os.waitpid(pid, 0)
    return total


def check(path, ranks, lines):
    """Check every line of a run."""
    seen = [0] * ranks
    with open(path, "rb") as f:
        for line in f:
            prefix, _, rest = line.partition(b"]:")
            rank, number, filler = rest.split(b" ")
            if (prefix != b"[default" + rank or len(rest) != 100 or int(number) != seen[int(rank)]
                    or filler.strip(b"x") != b"\n"):
                sys.exit(f"torn, lost or out of order: {line!r}")
            seen[int(rank)] += 1
    if seen != [lines] * ranks:
        sys.exit(f"lost: {seen}")


def run_ddprun(a, folder, per_write):
    out = os.path.join(folder, "out")
    with open(out, "wb") as f:
        child = subprocess.Popen([f"{a.build}/launcher/ddprun", "-n", str(a.ranks), "-t", "3", "--log-dir", folder,
                                  f"{a.build}/tests/support/lines", str(a.lines), str(per_write)], stdout=f)
        # The ranks are the spawner's children: their time does not count as ddprun's
        used = wait_ms([child.pid])
    check(out, a.ranks, a.lines)
    return used


def run_cat(a, folder, per_write):
    """Run as many cats as ranks, all with output to one file."""
    with open(os.path.join(folder, "out"), "wb") as f:
        writers = [subprocess.Popen([f"{a.build}/tests/support/lines", str(a.lines), str(per_write)], stdout=subprocess.PIPE,
                                    env=dict(os.environ, RANK=str(rank))) for rank in range(a.ranks)]
        cats = [subprocess.Popen(["cat"], stdin=w.stdout, stdout=f) for w in writers]
        for w in writers:
            w.stdout.close()
        used = wait_ms([c.pid for c in cats])
        wait_ms([w.pid for w in writers])
    return used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--build", default="build")
    a = parser.parse_args()
    load = results.load_average()
    rows = []
    for name, per_write in (("a line each", 1), ("40 lines each", 40)):
        times = {"cat": [], "ddprun -t 3": []}
        for _ in range(a.runs):
            for way, run in (("cat", run_cat), ("ddprun -t 3", run_ddprun)):
                folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
                try:
                    times[way].append(run(a, folder, per_write))
                finally:
                    shutil.rmtree(folder)
        floor = results.spread(times["cat"])[1]
        for way, values in times.items():
            low, median = results.spread(values)
            rows.append([way, name, len(values), f"{low:.0f}", f"{median:.0f}", f"{median / floor:.2f}"])
    results.report("output", results.table(["", "writes", "runs", "min CPU ms", "median CPU ms", "median / cat"], rows)
                   + f"\n\n{a.ranks} ranks, {a.lines} lines of 100 bytes each. ddprun writes each byte twice: after "
                   "its prefix, and into a log file.", load)


main()
