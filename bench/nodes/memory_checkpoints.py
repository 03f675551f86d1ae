#!/usr/bin/env python3
"""Measure checkpoints in memory: from kill -9 of a rank to the first step of all ranks, saves, and memory.

usage: bench/nodes/memory_checkpoints.py [--mb MB] [-n RANKS] [--runs N] [--build DIR]

A rank has --mb megabytes of state (bench/programs/memory_steps.py: PyTorch on gloo). Each run is a job of its own: the ranks save four
times; one rank is killed with SIGKILL; the time is from the kill to the first step of all new ranks, with the whole state loaded, and written by
that step as an optimizer does. They save twice, and the other rank is killed: the 2nd kill. Four ways take turns: memory with --warm, into tensors of
ddp_torch.load(), and into new ones of the program; memory without --warm; and a disk (torch.save with fsync, torch.load; the file is in the page cache when
it is read) with --warm. A last job has two nodes of one rank each on this machine: there a save also waits for the copy of the one before.

The memory of the machine must hold 4 times --mb for each rank, besides the ranks.
"""
import argparse
import json
import os
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import results  # noqa: E402 (found by the path above)
from torch_venv import torch_venv  # noqa: E402

sys.path.insert(0, os.path.join(results.ROOT, "tests/system/lib"))
from harness import Job  # noqa: E402
from ports import free_port  # noqa: E402

LIMIT_S = 180
IDLE_S = 4.0  # after so long the fork parent has imported everything
SCRIPT = os.path.join(results.HERE, "programs/memory_steps.py")
WAYS = {"memory, --warm": ("memory", "--warm"), "memory, into new tensors, --warm": ("into", "--warm"), "memory": ("memory",),
        "disk, --warm": ("disk", "--warm")}
COMPARED = list(WAYS)[:2]  # in all runs; the others in a third of them
N_KILLS = 2


class Failed(Exception):
    pass


def hear(job, what, n):
    """The next reports of this kind, from n ranks."""
    found, end = [], time.monotonic() + LIMIT_S
    while len(found) < n:
        try:
            report = json.loads(job.hear(1, 0.5)[0])
        except AssertionError:
            if job.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"no report '{what}': {job.end()[2].decode()[-2000:] if job.process.poll() is not None else 'too late'}") from None
            continue
        if report["what"] == what:
            found.append(report)
    return found


def size_of(mb):
    return "--memory-checkpoints", f"{int(mb) + 64}M"


def run_once(args, env, way, victim):
    """What was measured in one job, for each kill."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        kind, *words = WAYS[way]
        words += size_of(args.mb) if kind != "disk" else ()
        command = ["-n", str(args.n), "--max-restarts", str(N_KILLS), *words, SCRIPT, str(args.mb), kind, folder]
        with Job(*command, launcher=args.ddprun, env=env) as job:
            saved = hear(job, "saved", args.n)
            ranks = {report["rank"]: report["pid"] for report in hear(job, "step", args.n)}
            return [kill_one(args, job, ranks, (victim + i) % args.n, saved) for i in range(N_KILLS)]


def kill_one(args, job, ranks, victim, saved):
    """What was measured; `ranks` and `saved` become those of the next generation."""
    time.sleep(IDLE_S)
    begin = time.monotonic()
    os.kill(ranks[victim], signal.SIGKILL)
    loaded = hear(job, "loaded", args.n)
    steps = hear(job, "step", args.n)
    got = {"seconds": max(r["at"] for r in steps) - begin, "load": max(r["took"] for r in loaded),
           "cpu": max(r["cpu"] for r in loaded), "begin": max(r["begun"] for r in loaded) - begin,
           "saves": [max(save) for save in zip(*(r["saves"] for r in saved))], "bytes": saved[0]["bytes"], "memory_mb": max(r["memory_mb"] for r in saved)}
    ranks.update((r["rank"], r["pid"]) for r in steps)
    saved[:] = hear(job, "saved", args.n)
    return got


def run_two_nodes(args, env):
    """The saves of two nodes of one rank each, and the memory of one."""
    port = free_port()
    words = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "bench", "-p", "1", *size_of(args.mb),
             SCRIPT, str(args.mb), "memory", "-"]
    env = {**env, "DDP_TOKEN": "", "BENCH_SAVES_ON": "1"}
    with Job("--local-addr", "127.0.0.1", *words, launcher=args.ddprun, env=env) as a, \
            Job("--local-addr", "127.0.0.2", *words, launcher=args.ddprun, env=env) as b:
        saved = [hear(job, "saved", 1)[0] for job in (a, b)]
        return [max(save) for save in zip(*(r["saves"] for r in saved))], max(r["memory_mb"] for r in saved)


def describe(args, runs, pair):
    first = runs["memory, --warm"][0][0]
    mb = first["bytes"] / 1e6
    rows = []
    for way, of in runs.items():
        for kill in range(N_KILLS):
            kills = [jobs[kill] for jobs in of]
            low, middle = results.spread(r["seconds"] for r in kills)
            rows.append([way, kill + 1, len(of), f"{low:.2f}", f"{middle:.2f}", f"{max(r['seconds'] for r in kills):.2f}",
                         f"{results.spread(r['begin'] for r in kills)[1]:.2f}", f"{results.spread(r['load'] for r in kills)[1]:.2f}",
                         f"{results.spread(r['cpu'] for r in kills)[1]:.2f}"])
    text = (f"{args.n} ranks with {mb:.0f} MB of state each, PyTorch on gloo. Seconds from kill -9 of a rank to the first step of all ranks with the state "
            "loaded, a step that writes all of it (min, median, max), and of the medians: until the script of the last rank begins, the load, and the "
            "CPU time of the load in one rank. After the 1st kill the ranks saved twice before the 2nd:\n\n"
            + results.table(["state in", "kill", "runs", "min s", "median s", "max s", "begin s", "load s", "load CPU s"], rows))
    rows = [[way, *(f"{results.spread(r[kill]['saves'][i] for r in of)[1]:.2f}" for kill, i in ((0, 0), (0, 1), (0, 3), (1, 0), (1, 1)))]
            for way, of in runs.items()]
    rows.append(["memory, two nodes of 1 rank", *(f"{pair[0][i]:.2f}" for i in (0, 1, 3)), "", ""])
    text += ("\n\nSeconds of a save (median), one right after the other, and the first two after the 1st kill; with two nodes a save waits for the copy of "
             "the one before:\n\n" + results.table(["state in", "1st", "2nd", "4th", "1st after a kill", "2nd"], rows))
    used = first["memory_mb"] / args.n
    later = runs["memory, --warm"][0][1]["memory_mb"] / args.n
    return text + (f"\n\nMemory: {used:.0f} MiB for each rank on one node, {later:.0f} MiB after a restart, of which one part is the state that the rank "
                   f"works on; {pair[1]:.0f} MiB for each rank with copies ({used * 1.048576 / mb:.2f}, {later * 1.048576 / mb:.2f} and "
                   f"{pair[1] * 1.048576 / mb:.2f} times the state).")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=1000)
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--folder", help="of the files on a disk; default: TMPDIR")
    parser.add_argument("--print", action="store_true", help="do not write RESULTS.md")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    venv = torch_venv()
    if venv is None:
        sys.exit("no PyTorch: scripts/install-deps --interop")
    args.ddprun = os.path.join(args.build, "launcher/ddprun")
    env = {**venv[1], "PYTHONPATH": os.path.join(results.ROOT, "python"), "DDP_LIBRARY": os.path.join(args.build, "worker-runtime/libddp.so.0")}
    load, runs = results.load_average(), {way: [] for way in WAYS}
    for i in range(args.runs):
        for way, of in runs.items():
            if i < args.runs // 3 or way in COMPARED or not of:
                of.append(run_once(args, env, way, i % args.n))
    text = describe(args, runs, run_two_nodes(args, env))
    if args.print:
        results.show(text, load)
    else:
        results.report("memory_checkpoints", text, load)


if __name__ == "__main__":
    main()
