#!/usr/bin/env python3
"""Compare ddprun and torchrun when nodes of a job join, leave and fail, with C workers and with gloo workers.

usage: bench/elastic.py [--runs N] [--torchrun-runs N] [--torchrun-limit-s S] [--torchrun-window-s S] [--workers c|gloo]
                        [--place loopback|namespaces] [--case TEXT]... [--launcher NAME]... [--at-once N] [--build DIR]

Each case of tests/system/lib/elastic_cases.py is a job of two or three nodes, on addresses of the loopback interface and in network
namespaces (as root). The launchers take turns: ddprun, torchrun of the newest PyTorch (scripts/install-deps --interop) and of 2.11
(--interop-old), and these also with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ("own store"), which avoids some of their failures. The C
workers use libddp, the others the PyTorch of their torchrun, under ddprun the newest. When a case fails, the reason and the messages
of ddprun are printed at once; the exit status is 1 if a case of ddprun fails. With --at-once several jobs run at a time: then only
the passes count, and no times are measured. RESULTS.md has a section for each kind of workers; it is not written with --case, --place,
--at-once, 0 runs of a launcher, or --launcher without ddprun.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import queue
import signal
import subprocess
import sys
import time

import results
from torch_venv import OWN_STORE, torch_venv, torchruns

TESTS = os.path.join(results.ROOT, "tests")
sys.path.insert(0, os.path.join(TESTS, "system/lib"))
from elastic_cases import CASES, WINDOW_S, is_possible, try_case  # noqa: E402 (found by the path above)
from elastic_job import Launcher, Workers  # noqa: E402
from places import Loopback, Namespaces, NoPlace  # noqa: E402

PLACES = {"loopback": Loopback, "namespaces": Namespaces}
LIMIT_S = {"c": 30, "gloo": 60}
NODES_ON = {"loopback": "addresses of the loopback interface", "namespaces": "network namespaces"}

Job = collections.namedtuple("Job", "case workers place launcher")


def workers_of(args):
    """The kinds of workers that are installed."""
    program = os.path.join(args.build, "tests/support/elastic_rank")
    found = {"c": Workers("C", ["--no-python", program], {}, n_local=2)}
    if torch_venv():  # whose Python they use is in the environment of the launcher
        found["gloo"] = Workers("gloo", [os.path.join(TESTS, "interop/elastic_steps.py")], {}, n_local=1)
    return found


def launchers_of(args):
    venv = torch_venv()
    ddprun = [os.path.join(args.build, "launcher/ddprun")]
    found = {"ddprun": Launcher("ddprun", ddprun, venv[1] if venv else dict(os.environ), is_ours=True)}
    for name, (command, env) in torchruns().items():
        found[name] = Launcher(name, command, env, is_ours=False)
        found[name + ", own store"] = Launcher(name, command, {**env, **OWN_STORE}, is_ours=False)
    return found


def find_places(args, stack):
    """Name -> place, for the places that can be made on this machine."""
    found = {}
    for name, make in PLACES.items():
        if args.place in (None, name):
            try:
                found[name] = stack.enter_context(make())
            except NoPlace as reason:
                print(f"left out: {reason}", file=sys.stderr)
    return found


def cases_of(args):
    """The chosen cases, with the chosen window where it is that of most cases."""
    window_s = (WINDOW_S[0], args.torchrun_window_s)
    return [dataclasses.replace(case, window_s=window_s) if case.window_s == WINDOW_S else case
            for case in CASES if not args.case or any(text in case.title for text in args.case)]


def jobs_of_run(args, cases, number, workers, places, launchers):
    runs = {name: args.runs if launcher.is_ours else args.torchrun_runs for name, launcher in launchers.items()}
    for place, place_object in places.items():
        for kind in workers:
            for case in cases:
                if is_possible(case, place_object):
                    yield from (Job(case, kind, place, name) for name in launchers if number < runs[name])


class Bench:
    def __init__(self, args, stack):
        self.args = args
        self.cases = cases_of(args)
        self.workers = {k: v for k, v in workers_of(args).items() if args.workers in (None, k)}
        self.launchers = {k: v for k, v in launchers_of(args).items() if not args.launcher or k in args.launcher}
        self.places = queue.Queue()  # a set of places for each job that runs
        for _ in range(args.at_once):
            places = find_places(args, stack)
            self.places.put(places)
        self.found_places = places
        self.outcomes = collections.defaultdict(list)

    def run(self, job):
        limit_s = LIMIT_S[job.workers] if job.launcher == "ddprun" else self.args.torchrun_limit_s
        places = self.places.get()
        try:
            outcome = try_case(job.case, self.launchers[job.launcher], self.workers[job.workers], places[job.place], limit_s)
        finally:
            self.places.put(places)
        limit_ms = job.case.within_ms if job.launcher == "ddprun" and self.args.at_once == 1 else None
        if not outcome.why and limit_ms is not None and outcome.times.ended > limit_ms:
            outcome.why = f"it took {outcome.times.ended:.0f} ms"
        self.outcomes[job].append(outcome)
        if outcome.why:
            print(f"{job.launcher}, {self.workers[job.workers].name} workers, {job.place}: {job.case.title}: {outcome.why}",
                  file=sys.stderr, flush=True)
            if job.launcher == "ddprun":
                print(outcome.logs, file=sys.stderr, flush=True)

    def warm_up(self):
        """Torch is large, and the first process that loads it reads it from the disk."""
        for name, (command, env) in torchruns().items():
            if name in self.launchers or "gloo" in self.workers:
                subprocess.run([command[0], "-c", "import torch.distributed.run"], env=env, check=True)

    def run_all(self):
        self.warm_up()
        for number in range(max(self.args.runs, self.args.torchrun_runs)):
            begin = time.monotonic()
            jobs = list(jobs_of_run(self.args, self.cases, number, self.workers, self.found_places, self.launchers))
            if self.args.at_once == 1:
                for job in jobs:
                    self.run(job)
            else:
                with concurrent.futures.ThreadPoolExecutor(self.args.at_once) as pool:
                    list(pool.map(self.run, jobs))
            print(f"run {number + 1}: {len(jobs)} jobs in {time.monotonic() - begin:.0f} s; {self.count_failed()} of ddprun's "
                  "have not passed so far", file=sys.stderr, flush=True)

    def count_failed(self):
        return sum(bool(o.why) for job, of in self.outcomes.items() if job.launcher == "ddprun" for o in of)

    # --- The report ---

    def found(self, **wanted):
        """Outcomes of the jobs with these attributes."""
        return [outcome for job, found in self.outcomes.items() for outcome in found
                if all(getattr(job, name) == value for name, value in wanted.items())]

    def text(self, kind):
        """The report for one kind of workers."""
        of = [job for job in self.outcomes if job.workers == kind]
        texts = []
        for place in dict.fromkeys(job.place for job in of):
            cases = [case for case in self.cases if any((job.case, job.place) == (case, place) for job in of)]
            texts.append(f"Nodes on {NODES_ON[place]}:")
            texts.append(self.table(kind, place, cases))
            texts += self.reasons(kind, place, cases)
        if self.args.at_once == 1:
            texts.append("*started*: until the new generation's last worker was in its first line; *stepped*: until it had added up; "
                         "*ended*: until the last launcher's end, or that of the last process. Median (maximum).")
            if len(self.launchers) > 1:
                texts.append(f"torchrun's join window: {self.args.torchrun_window_s} s. *own store*: with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.")
            texts += self.targets(kind)
        return "\n\n".join(texts)

    def table(self, kind, place, cases):
        head = ["what happens"]
        for name in self.launchers:
            head += [name] + (["started", "stepped", "ended"] if self.args.at_once == 1 else [])
        return results.table(head, [[case.title, *self.cells(kind, place, case)] for case in cases])

    def cells(self, kind, place, case):
        for name in self.launchers:
            found = self.found(case=case, workers=kind, place=place, launcher=name)
            passed = [outcome.times for outcome in found if not outcome.why]
            yield f"{len(passed)} of {len(found)}" if found else "-"
            if self.args.at_once == 1:
                yield from (show_times([getattr(times, what) for times in passed]) for what in ("started", "stepped", "ended"))

    def reasons(self, kind, place, cases):
        """A list of why cases failed, if any did."""
        lines = []
        for name in self.launchers:
            for case in cases:
                whys = dict.fromkeys(o.why for o in self.found(case=case, workers=kind, place=place, launcher=name) if o.why)
                lines += [f"- {name}: {case.title}: {why}" for why in whys]
        if lines:
            yield "\n".join(lines)

    def targets(self, kind):
        """The targets for ddprun with C workers, and what ddprun reached in the cases that passed."""
        rows = []
        for case in self.cases:
            took = [o.times.started for o in self.found(case=case, workers=kind, launcher="ddprun") if not o.why]
            if kind == "c" and case.target_ms is not None and took:
                n_in_time = sum(t < case.target_ms for t in took)
                rows.append([case.title, show_time(case.target_ms), show_times(took), f"{n_in_time} of {len(took)}"])
        if rows:
            yield results.table(["started", "target", "ddprun", "in time"], rows)
        dead = [o.times.ranks_dead for o in self.found(workers=kind, launcher="ddprun") if not o.why and o.times.ranks_dead is not None]
        if dead:
            yield f"The ranks of the node whose link went down were dead after {show_times(dead)}."


def show_times(took):
    """Median and maximum, or `-` without times."""
    took = [t for t in took if t is not None]
    if not took:
        return "-"
    median = results.spread(took)[1]
    return show_time(median) if len(took) == 1 else f"{show_time(median)} ({show_time(max(took))})"


def show_time(ms):
    return f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of ddprun")
    parser.add_argument("--torchrun-runs", type=int, default=1)
    parser.add_argument("--torchrun-limit-s", type=float, default=45, help="for each wait; most of its failures last longer")
    parser.add_argument("--torchrun-window-s", type=int, default=WINDOW_S[1],
                        help="its join window, which has to be longer than its own start, and which it waits for again after a loss")
    parser.add_argument("--case", action="append", help="only those whose title holds TEXT")
    parser.add_argument("--workers", choices=["c", "gloo"])
    parser.add_argument("--place", choices=list(PLACES))
    parser.add_argument("--launcher", action="append", help="ddprun, torchrun 2.11, 'torchrun 2.11, own store', and so on; default: all")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="jobs")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # clean up
    unknown = set(args.launcher or ()) - set(launchers_of(args))
    if unknown:
        parser.error(f"unknown launcher {', '.join(sorted(unknown))}: expected {'; '.join(launchers_of(args))}")
    load = results.load_average()
    with contextlib.ExitStack() as stack:
        bench = Bench(args, stack)
        bench.run_all()
    for kind in bench.workers:
        if args.case or args.place or "ddprun" not in bench.launchers or args.at_once > 1 or 0 in (args.runs, args.torchrun_runs):
            print(f"{bench.workers[kind].name} workers.\n\n{bench.text(kind)}\n")
        else:
            results.report("elastic_" + kind, bench.text(kind), load)
    if bench.count_failed() > 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
