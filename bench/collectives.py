#!/usr/bin/env python3
"""Compare the time of an all-reduce of float32 on one node: libddp, Open MPI, MPICH and PyTorch's gloo.

usage: bench/collectives.py [-n RANKS] [--repeats R] [--rounds N] [--max-bytes B] [--build DIR]

In each of --rounds rounds, each library in turn runs its whole sweep of sizes, and `stream` also takes a turn.
The results for a size are the fastest time of all rounds and the median of the rounds' medians. Libraries that are
not installed are left out.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import contestants
import plot
import results
from contestants import GLOO, OPEN_MPI, PLAIN, SEGMENT

COPY_BYTES = 64 << 20  # size at which an all-reduce is compared with a copy

# Goals for two ranks on idle cores: how many times as fast as (Open MPI, gloo) an all-reduce has to be.
GOALS = {
    SEGMENT: {4: (1, 500), 4 << 10: (3, 300), 64 << 10: (8, 200), 1 << 20: (7, 60), 16 << 20: (7, 30),
              64 << 20: (6, 10), 256 << 20: (6, 8)},
    PLAIN: {4: (1, 500), 4 << 10: (2, 200), 64 << 10: (5, 150), 1 << 20: (2.5, 30), 16 << 20: (3, 15),
            64 << 20: (4, 7), 256 << 20: (3, 5)},
}
GOALS_OVERSUBSCRIBED = {SEGMENT: {4: (1, None), 64 << 20: (3, None)}, PLAIN: {}}


def copy_rates(build):
    """{kind of store: (best, median)} in GB/s."""
    done = subprocess.run([f"{build}/bench/stream", str(COPY_BYTES), "10"], stdout=subprocess.PIPE, text=True,
                          timeout=contestants.LIMIT_S, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {kind: (float(best), float(median)) for kind, best, median in lines}


def measure(args, folder):
    """({name: {bytes: (min, median)}} over all rounds, [copy_rates() of each round], [name and error of each failed run])"""
    libraries = contestants.contestants(args.n, args.build, folder)
    sweeps, copies, failed = {}, [], {}
    for _ in range(args.rounds):
        for name, contestant in libraries.items():
            if name in failed:
                continue
            try:
                sweeps.setdefault(name, []).append(contestants.sweep(contestant, args.repeats, args.max_bytes))
            except subprocess.TimeoutExpired:
                failed[name] = f"{name} did not end within {contestants.LIMIT_S} s."
            except (OSError, subprocess.SubprocessError) as error:
                failed[name] = f"{name} failed."
                print(f"{name}: {error}", file=sys.stderr)
        copies.append(copy_rates(args.build))
    times = {}
    for name, rounds in sweeps.items():
        if rounds and name not in failed:
            times[name] = {size: (min(r[size][0] for r in rounds), results.spread(r[size][1] for r in rounds)[1])
                           for size in rounds[0]}
    return times, copies, list(failed.values())


def times_table(times):
    rows = [[name, size, f"{times[name][size][0]:.2f}", f"{times[name][size][1]:.2f}",
             f"{size / times[name][size][1] / 1e3:.3f}"]
            for size in sorted(times[SEGMENT]) for name in times]
    return results.table(["library", "bytes", "min us", "median us", "algbw GB/s"], rows)


def ratio_text(times, ours, other, size, goal):
    if other not in times or size not in times[other]:
        return "-"
    ratio = times[other][size][1] / times[ours][size][1]
    text = f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
    return text if goal is None else f"{text} ({'' if ratio >= goal else 'not '}{goal:g})"


def ratio_table(times, goals):
    """A table: how many times as fast as the other libraries libddp is, and in brackets the goal, with `not` where it is missed."""
    columns = [(ours, other) for ours in (SEGMENT, PLAIN) for other in (OPEN_MPI, GLOO)]
    rows = []
    for size in sorted(times[SEGMENT]):
        row = [size]
        for ours, other in columns:
            goal = goals.get(ours, {}).get(size, (None, None))[0 if other == OPEN_MPI else 1]
            row.append(ratio_text(times, ours, other, size, goal))
        rows.append(row)
    head = ["bytes", *[f"{ours.split(', ')[1].split()[0]} / {other}" for ours, other in columns]]
    return results.table(head, [[str(row[0]), *row[1:]] for row in rows])


def copy_bound(times, copies, n):
    """How close an all-reduce comes to reading all inputs and writing all outputs once at the speed of a copy."""
    if COPY_BYTES not in times[SEGMENT]:
        return ""
    kinds = {kind: results.spread(c[kind][1] for c in copies)[1] for kind in copies[0]}
    best = max(kinds, key=kinds.get)
    bound_us = 2 * n * COPY_BYTES / kinds[best] / 1e3
    ours_us = times[SEGMENT][COPY_BYTES][1]
    rates = ", ".join(f"{rate:.1f} GB/s with {kind} stores" for kind, rate in kinds.items())
    return (f"A copy on all cores, read and written bytes together: {rates}. To read the {n} inputs of {COPY_BYTES} bytes "
            f"and to write the {n} outputs takes {bound_us:.0f} us at the best of these rates; libddp in segment memory "
            f"takes {ours_us / bound_us:.2f} times as long.\n\n")


def draw(path, times, n):
    series = {name: [(size, median) for size, (_low, median) in sorted(sizes.items())]
              for name, sizes in times.items()}
    with open(path, "w", encoding="utf-8") as f:
        f.write(plot.log_log(f"all-reduce of float32, {n} ranks of one node", "bytes", "median time, us", series))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--repeats", type=int, default=20, help="timings of a size in one sweep")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-bytes", type=int, default=256 << 20)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()

    load = results.load_average()
    with tempfile.TemporaryDirectory(prefix="ddp-bench-") as folder:
        times, copies, failed = measure(args, folder)
    if SEGMENT not in times:
        sys.exit("libddp could not be run")
    crowded = args.n > len(os.sched_getaffinity(0))
    goals = GOALS_OVERSUBSCRIBED if crowded else GOALS if args.n == 2 else {}
    section = f"collectives_{args.n}"
    draw(os.path.join(results.HERE, section + ".svg"), times, args.n)
    text = (f"{args.n} ranks. How many times as fast as others, by medians; in brackets the goal:\n\n"
            f"{ratio_table(times, goals)}\n\n" + (copy_bound(times, copies, args.n) if not crowded else "") +
            "".join(line + "\n\n" for line in failed) +
            f"![median times]({section}.svg)\n\n{times_table(times)}")
    results.report(section, text, load)


if __name__ == "__main__":
    main()
