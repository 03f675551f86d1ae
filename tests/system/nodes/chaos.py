"""Seeded chaos: ranks, spawners and ddpruns of a job of several nodes are killed, suspended, or signaled to leave, and other nodes
join, at any time, also several at once. In the end each step was made once and has one result, or the job has ended with one
verdict, and nothing is left. SEED selects the jobs, FIRST the first of them, CHAOS_S the duration. The report of a failed test
has SEED, FIRST, and what was done. The ranks are tests/support/programs/recovery_rank.c, as in recovery_nodes.py.

In KILLS jobs of one node, processes of any kind are killed, also children of ranks (rank.c).

Covers: launcher/node, launcher/membership, launcher/supervisor, launcher/spawner, rendezvous/jobs, worker-runtime/group
"""
import collections
import os
import queue
import random
import signal
import subprocess
import time
import unittest

from harness import DEADLINE_S, RANK, Job, await_true, describe, name_of
from recovery_job import BATCH, N_SAMPLES, Checked, Nodes, without_faults

SEED = os.environ.get("SEED", "1")
FIRST = int(os.environ.get("FIRST", "0"))
CHAOS_S = float(os.environ.get("CHAOS_S", "20"))
KILLS = int(os.environ.get("KILLS", "20"))
FREEZES = CHAOS_S >= 60  # each takes 3 s
DEADLY = [signal.SIGKILL] * 3 + [signal.SIGSEGV, signal.SIGABRT, signal.SIGTERM]
TAIL_BYTES = 4000

Shape = collections.namedtuple("Shape", "least most n_local admit_at n_disturbances")


def draw_shape(draw):
    most = draw.randint(1, 3)
    least = most if draw.random() < 0.5 else draw.randint(1, most)
    n_local = draw.randint(1, 2) if most > 1 else 3
    return Shape(least, most, n_local, draw.choice(["now", "now", "checkpoint"]), draw.randint(4, 14))


class Chaos(Nodes):
    """A job, and what is done to it. At each moment one rank is the keeper: it and its node are not killed, since the state
    of a job is lost with the last rank that has it."""

    def __init__(self, daemon, draw, shape, *more):
        self.draw, self.shape = draw, shape
        self.is_fixed = shape.least == shape.most
        nodes = str(shape.most) if self.is_fixed and shape.most > 1 else f"{shape.least}:{shape.most}"
        super().__init__(daemon, nodes, shape.n_local, "--join-window", "0", "--admit-at", shape.admit_at,
                         "--shutdown-timeout", "200ms", *more, samples=0 if self.is_fixed else N_SAMPLES)
        self.condemned = {}  # node -> why
        self.done = []  # for the report of a failed test
        self.keeper = None  # node, pid
        self.doomed = set()  # pids of ranks that were sent a deadly signal
        self.logs_in = self.dir.name

    def note(self, text):
        self.done.append(f"generation {self.generation}, step {max(self.steps, default=0)}: {text}")

    def start_another(self):
        name = len(self.jobs)
        self.note(f"node {name} comes")
        self.start(name)

    def standing(self):
        return [name for name in self.jobs if name not in self.condemned]

    # --- what there is to hit ---

    def ranks_of(self, name):
        """Pids of ranks, those that begin included. The spawner is found by its name, ddprun is its parent."""
        job = self.jobs[name]
        return [pid for pid in job.processes() if pid != job.process.pid and name_of(pid) not in ("ddp-spawner", "ddprun", "")]

    def victims(self):
        return sorted((name, pid) for name in self.standing() for pid in self.ranks_of(name) if (name, pid) != self.keeper)

    def other_nodes(self):
        return [name for name in self.standing() if self.keeper is None or name != self.keeper[0]]

    # --- disturbances ---

    def end_rank(self, name, pid, sig):
        self.note(f"{sig.name} to rank {pid} of node {name}")
        self.doomed.add(pid)
        send(pid, sig)

    def kill_some_rank(self):
        victims = self.victims()
        if victims:
            name, pid = self.draw.choice(victims)
            self.end_rank(name, pid, self.draw.choice(DEADLY))

    def kill_ranks_at_once(self):
        victims = self.victims()
        for name, pid in self.draw.sample(victims, min(2, len(victims))):
            self.end_rank(name, pid, signal.SIGKILL)

    def spawner_of(self, name):
        return next(iter(self.jobs[name].named("ddp-spawner")), None)

    def condemn(self, what, act):
        """Kill a node that has a spawner: without one, nothing cleans up (docs/design/launcher.md)."""
        others = [name for name in self.other_nodes() if self.spawner_of(name) is not None]
        if others:
            name = self.draw.choice(others)
            self.note(f"{what} of node {name}")
            self.condemned[name] = what
            act(name)

    def kill_ddprun(self):
        self.condemn("SIGKILL of ddprun", lambda name: self.jobs[name].process.kill())

    def kill_spawner(self):
        self.condemn("SIGKILL of the spawner", lambda name: send(
            self.spawner_of(name) or self.jobs[name].process.pid, signal.SIGKILL))

    def leave(self):
        self.condemn("SIGTERM", lambda name: self.jobs[name].signal(signal.SIGTERM))

    def join(self):
        if len(self.standing()) < self.shape.most:
            self.start_another()

    def while_stopped(self, pid, what):
        self.note(f"SIGSTOP to {what}")
        send(pid, signal.SIGSTOP)
        self.disturb(may_stop=False)
        self.note(f"SIGCONT to {what}")
        send(pid, signal.SIGCONT)

    def stop_rank(self):
        victims = self.victims()
        if victims:
            name, pid = self.draw.choice(victims)
            self.while_stopped(pid, f"rank {pid} of node {name}")

    def stop_ddprun(self):
        others = self.other_nodes()
        if not others:
            return
        name = self.draw.choice(others)
        self.while_stopped(self.jobs[name].process.pid, f"ddprun of node {name}")

    def freeze_ddprun(self):
        """For longer than a lease: its ranks are killed, and it comes again."""
        others = [name for name in self.other_nodes() if self.ranks_of(name)]
        if not others:
            return
        name = self.draw.choice(others)
        self.note(f"SIGSTOP to ddprun of node {name}, until its ranks are gone")
        pid = self.jobs[name].process.pid
        send(pid, signal.SIGSTOP)
        self.doomed.update(self.ranks_of(name))
        await_true(lambda: not self.ranks_of(name), lambda: f"ranks {self.ranks_of(name)} of node {name}, which is stopped")
        send(pid, signal.SIGCONT)

    def disturb(self, may_stop=True):
        kinds = [self.kill_some_rank] * 4 + [self.kill_ranks_at_once, self.kill_ddprun, self.kill_spawner, self.leave]
        if self.keeper is not None:
            kinds += [self.join] * 2  # a node that joins when the job is over would begin it again
        if may_stop:
            kinds += [self.stop_rank, self.stop_ddprun]
        if FREEZES and self.keeper is not None:
            kinds += [self.freeze_ddprun]
        self.draw.choice(kinds)()

    # --- a job's life ---

    def fill_up(self):
        """As many nodes as the job needs to continue."""
        while len(self.standing()) < self.shape.least:
            self.start_another()

    def check_standing(self):
        for name in self.standing():
            code = self.jobs[name].process.poll()
            if code is not None:
                raise AssertionError(f"node {name} has ended with {code}")

    def is_whole(self):
        """All possible ranks have made a step in the newest generation that was reported, and none is about to end."""
        nodes = collections.Counter(name for name, _ in self.ranks.values())
        return nodes == {name: self.shape.n_local for name in self.standing()} and \
            self.doomed.isdisjoint(pid for _, pid in self.ranks.values())

    def settle(self):
        """The job has got over all that was done to it; and its next keeper is drawn."""
        self.fill_up()
        end = time.monotonic() + DEADLINE_S
        while not self.is_whole():
            self.hear()
            if time.monotonic() > end:
                raise AssertionError(f"at step {max(self.steps)} ranks {self.ranks} and no others")
        self.check_standing()
        if self.keeper is not None and self.keeper not in self.ranks.values():
            raise AssertionError(f"rank {self.keeper[1]} of node {self.keeper[0]} should have lived on")
        self.keeper = self.draw.choice(sorted(self.ranks.values()))

    def hear_lines(self, n):
        for _ in range(n):
            self.hear()

    def live(self):
        for _ in range(self.draw.randint(self.shape.least, self.shape.most)):
            self.start_another()
        self.settle()
        for _ in range(self.shape.n_disturbances):
            self.disturb()
            self.fill_up()
            if self.draw.random() < 0.5:
                self.settle()
            else:
                self.hear_lines(self.draw.randint(0, 20))
        self.settle()
        self.note("the end")

    def has_ended(self):
        return all(name in self.condemned or job.process.poll() is not None for name, job in self.jobs.items())

    def hear_some(self, n):
        """So many lines, unless the job ends before."""
        end = time.monotonic() + DEADLINE_S
        for _ in range(n):
            while not self.has_ended() and time.monotonic() < end:
                try:
                    self.lines.get(timeout=0.01)
                    break
                except queue.Empty:
                    pass

    def live_without_keeper(self):
        """Until the job ends, or nothing more is done to it."""
        for _ in range(self.draw.randint(self.shape.least, self.shape.most)):
            self.start_another()
        for _ in range(self.shape.n_disturbances):
            self.hear_some(self.draw.randint(0, 40))
            if any(self.jobs[name].process.poll() is not None for name in self.standing()) or self.has_ended():
                break
            self.disturb()
        self.note("the end")

    def explain(self):
        return "\n".join([str(self.shape), *self.done, self.told(TAIL_BYTES)])


def send(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass  # it ended between the two lines


class Seeded(unittest.TestCase):
    def repeat(self, run_one, jobs, what):
        """run_one gets what it draws from, and returns how much was done; jobs has an item for each."""
        number, n_done = FIRST, 0
        for _ in jobs:
            with self.subTest(SEED=SEED, FIRST=number):
                n_done += run_one(random.Random(f"{SEED}:{number}"))
            number += 1
        print(f"SEED={SEED}: {number - FIRST} jobs, {n_done} {what}", flush=True)


def for_seconds(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


class ChaosRuns(Seeded, Checked):
    maxDiff = None

    def check_left(self, nodes):
        for name, job in nodes.jobs.items():
            await_true(lambda job=job: job.processes() == [], lambda name=name, job=job:
                       f"node {name} left {[describe(pid) for pid in job.processes()]}")
            await_true(lambda job=job: os.listdir(job.runtime) == [], lambda name=name, job=job:
                       f"node {name} left {os.listdir(job.runtime)}")

    def check_samples(self, nodes):
        """Each sample was used as often as any other, except those that fill batches, and those of ranks that died before they
        could report them."""
        seen = collections.Counter(i for step in nodes.steps.values() for took in step.took.values() for i in took)
        untold = BATCH * sum(step.world - len(step.took) for step in nodes.steps.values())
        n_epochs = round((sum(seen.values()) + untold) / N_SAMPLES)
        missing = sum(max(0, n_epochs - seen[i]) for i in range(N_SAMPLES))
        self.assertLessEqual(missing, untold)

    def check_steps(self, nodes):
        self.assertEqual(sorted(nodes.steps), list(range(1, max(nodes.steps) + 1)))
        self.assertEqual([number for number, step in nodes.steps.items() if len(step.results) != 1], [])
        if not nodes.is_fixed:
            self.check_samples(nodes)
            return
        expected = without_faults(self.daemon, nodes.shape.most, nodes.shape.n_local, max(nodes.steps), step_ms=0)
        wrong = [f"step {number}: {vars(step)}, expected {expected[number]}"
                 for number, step in nodes.steps.items() if step.results != expected[number]]
        self.assertEqual(wrong, [])

    def go_on(self, draw):
        """A job with enough restarts, of which one rank always lives: it succeeds, with each step made once. -> what was done"""
        with Chaos(self.daemon, draw, draw_shape(draw), "--max-restarts", "1000000") as nodes:
            try:
                nodes.live()
                self.assertEqual(set(nodes.finish(nodes.standing())), {0})
                self.check_left(nodes)
                self.check_steps(nodes)
            except AssertionError as failure:
                raise AssertionError(f"{failure}\n{nodes.explain()}") from None
            return len(nodes.done)

    def end_somehow(self, draw):
        """A job that may fail: all ddpruns that were not disturbed report the same outcome."""
        more = ["--max-restarts", str(draw.randint(0, 3)), "--rejoin-timeout", "200ms", "--start-timeout", "3s"]
        with Chaos(self.daemon, draw, draw_shape(draw), *more) as nodes:
            try:
                nodes.live_without_keeper()
                codes = nodes.finish(nodes.standing())
                self.assertLessEqual(len(set(codes)), 1, codes)
                self.check_left(nodes)
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                raise AssertionError(f"{failure}\n{nodes.explain()}") from None
            return len(nodes.done)

    def test_no_fault_loses_or_repeats_a_step(self):
        self.repeat(self.go_on, for_seconds(CHAOS_S * 0.7), "disturbances")

    def test_all_nodes_report_the_same_outcome(self):
        self.repeat(self.end_somehow, for_seconds(CHAOS_S * 0.3), "disturbances")


class OneNode(Seeded):
    def kill_some(self, draw):
        n_ranks = draw.randint(1, 4)
        family = draw.choices(("child", "daemon"), k=draw.randint(0, 3))
        stubborn = ("ignore", "15") if draw.random() < 0.5 else ()
        options = ("--shutdown-timeout", "50ms", "--max-restarts", str(draw.randint(0, 2)))
        n_killed = 0
        # LeakSanitizer's tracer also has the job's mark: if it is killed, ddprun waits for it
        no_tracer = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        with Job(*options, "-n", str(n_ranks), RANK, *stubborn, *family, "tell", "up", "wait", env=no_tracer) as job:
            # at a random point of the start: after that many lines were heard
            job.hear(draw.randint(0, n_ranks * (1 + len(family))))
            # not ddprun and the spawner together: then no process is left to clean up (docs/design/launcher.md)
            spare_spawner = draw.random() < 0.5
            for _ in range(draw.randint(1, 3)):
                alive = sorted(pid for pid in job.processes()
                               if not (name_of(pid) == "ddp-spawner" if spare_spawner else pid == job.process.pid))
                if not alive:
                    break
                send(draw.choice(alive), signal.SIGKILL)
                n_killed += 1
            if job.process.poll() is None:
                job.signal(signal.SIGTERM)  # a rank's child may have been the victim: the job continues
            job.await_gone()
        return n_killed

    def test_no_kill_leaves_anything(self):
        self.repeat(self.kill_some, range(KILLS), "kills")


if __name__ == "__main__":
    unittest.main()
