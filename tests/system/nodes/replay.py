"""--replay: what the events of a job tell is made to happen again, behind the same steps. The ranks are
tests/support/programs/recovery_rank.c, whose steps show what they computed with: where the world changes its size, only the same
history gives the same bits. REPLAYS histories are made up, SEED says which."""
import json
import os
import random
import signal
import subprocess
import tempfile
import unittest

from harness import DEADLINE_S, Job, await_true, run
from recovery import RECOVERY_RANK, STEP_MS, Ranks
from recovery_nodes import N_SAMPLES, Nodes
from rendezvous import Daemon

DDPCTL = os.environ["DDPCTL"]
SAME = "replay: it went as before"
SEED = os.environ.get("SEED", "1")
REPLAYS = int(os.environ.get("REPLAYS", "2"))


def read_events(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class OneNode(unittest.TestCase):
    """Samples of a fixed number, so that where the world shrinks the steps show it. A job goes on until a file says that it
    may end, so that it does not before all has happened."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def path(self, file):
        return os.path.join(self.dir.name, file)

    def job(self, n, *words, file):
        return Job("-n", str(n), *words, "--events", self.path(file), RECOVERY_RANK, "1000000", "40", STEP_MS, "0", "600",
                   env={"MENDER_UNTIL": self.path(f"{file}.until")})

    def end(self, job, ranks, file):
        """-> exit status, steps, stderr"""
        with open(self.path(f"{file}.until"), "w"):
            pass
        steps = ranks.hear_all()
        code, _, err = job.end()
        self.assertEqual(job.processes(), [])
        return code, steps, err.decode()

    def record(self, n, *words, deaths, seed):
        """-> steps"""
        draw = random.Random(seed)
        with self.job(n, *words, file="first") as job:
            ranks = Ranks(job)
            for generation in range(deaths):
                seen = len(ranks.steps)
                ranks.hear_until(lambda: ranks.generation == generation)
                ranks.pids = {}  # what the dead have said was heard before
                ranks.hear_until(lambda: len(ranks.steps) > seen + 2 and len(ranks.pids) > 1)
                ranks.kill(draw.choice(sorted(ranks.pids)), draw.choice([signal.SIGKILL, signal.SIGSEGV]))
            ranks.hear_until(lambda: ranks.generation == deaths)
            code, steps, err = self.end(job, ranks, "first")
            self.assertEqual(code, 0, err)
            return steps

    def replay(self, n, *words, n_steps, file="first"):
        with self.job(n, "--replay", self.path(file), *words, file="second") as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: max(ranks.steps, default=0) >= n_steps)
            return self.end(job, ranks, "second")

    def check_same(self, first, second):
        """A step that only a dead rank had made, before the world shrank, was made again."""
        code, steps, err = second
        self.assertEqual(code, 0, err)
        self.assertIn(SAME, err)
        for number, results in first.items():
            self.assertTrue(steps[number] and steps[number] <= results, f"step {number}\n{err}")

    def begun(self, file):
        """Behind which step each generation began, as its ranks knew."""
        return {e["gen"]: e["before"] for e in read_events(self.path(file)) if e["ev"] == "steps"}

    def test_what_the_ranks_compute_and_where_they_fail_is_the_same(self):
        for what, deaths in ("replace", 5), ("shrink", 2):
            with self.subTest(what):
                words = ("--max-restarts", "9", "--on-failure", what)
                first = self.record(4, *words, deaths=deaths, seed=what)
                self.check_same(first, self.replay(4, *words, n_steps=max(first)))
                self.assertEqual(self.begun("second"), self.begun("first"))
            self.dir.cleanup()
            os.mkdir(self.dir.name)

    def test_a_replay_can_be_replayed(self):
        words = ("--max-restarts", "9")
        first = self.record(3, *words, deaths=3, seed=3)
        _, steps, _ = self.replay(3, *words, n_steps=max(first))
        for name in "", ".until":
            os.rename(self.path(f"second{name}"), self.path(f"third{name}"))
        self.check_same(steps, self.replay(3, *words, n_steps=max(steps), file="third"))

    def test_what_cannot_be_repeated_is_refused_with_the_line(self):
        run("-n", "2", "--events", self.path("first"), "sh", "-c", "exit 3")
        code, _, err = run("-n", "2", "--replay", self.path("first"), "true")
        self.assertEqual(code, 2)
        self.assertIn("first:1: no rank has told its steps: only what happened to programs of libddp can be repeated", err)
        code, _, err = run("-n", "2", "--replay", "/nowhere", "true")
        self.assertEqual(code, 2)
        self.assertIn("cannot open /nowhere to repeat what it tells: No such file", err)

    def test_what_goes_otherwise_is_told(self):
        words = ("--max-restarts", "9")
        self.record(3, *words, deaths=1, seed=4)
        code, _, err = self.replay(2, *words, n_steps=1)
        self.assertEqual(code, 0)
        self.assertIn("replay: generation 0 has 1 nodes and 2 ranks, and had 1 and 3", err)
        self.assertNotIn(SAME, err)


class Played(Nodes):
    """A job of several nodes whose events are kept, a file for each of its ddpruns."""

    def __init__(self, daemon, folder, n_local, *more):
        super().__init__(daemon, "1:3", n_local, "--join-window", "0", "--max-restarts", "99", "--shutdown-timeout", "200ms",
                         *more, samples=N_SAMPLES)
        self.folder = self.logs_in = folder

    def words_of(self, name):
        return ["--events", os.path.join(self.folder, f"events.{name}")]

    def events(self):
        """Of all nodes, as lines. One that is just being written may be there in part."""
        lines = []
        for name in self.jobs:
            path = os.path.join(self.folder, f"events.{name}")
            if os.path.exists(path):
                with open(path) as f:
                    lines += [line for line in f if line.endswith("\n")]
        return lines

    def standing(self):
        return [name for name, job in self.jobs.items() if job.process.poll() is None]

    def history(self):
        """What each step was made of, and where."""
        return {number: (step.results, step.world, step.generation) for number, step in self.steps.items()}


class SeveralNodes(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.daemon = Daemon(env={**os.environ, "HOME": "/nonexistent", "DDP_TOKEN": ""})
        self.daemon.__enter__()
        self.addCleanup(self.daemon.__exit__)

    more = ()  # options of both jobs

    def folder(self, name):
        path = os.path.join(self.dir.name, name)
        os.mkdir(path)
        return path

    @staticmethod
    def restart(nodes, name):
        """All ranks begin again; the job goes on until they have come further than those before, so that each step is of one
        generation."""
        job, generation = nodes.jobs[name], nodes.generation
        subprocess.run([DDPCTL, "restart", "-t", str(DEADLINE_S), str(job.process.pid)], check=True, stdin=subprocess.DEVNULL,
                       env={**os.environ, "XDG_RUNTIME_DIR": job.runtime}, timeout=3 * DEADLINE_S)
        nodes.hear_until(lambda: nodes.generation > generation and nodes.steps[max(nodes.steps)].generation > generation)

    def disturb(self, nodes, kind, draw, n_local):
        names = nodes.standing()
        if kind == "restart":
            self.restart(nodes, draw.choice(names))
            nodes.await_world(len(names) * n_local)
            return
        if kind == "drop":  # of a node that has another one
            nodes.kill_rank(draw.choice([r for r, (node, _) in sorted(nodes.ranks.items()) if len(nodes.pids[node]) > 1]))
            nodes.await_world(len(nodes.ranks) - 1, nodes.generation + 1)
            return
        if kind == "join":
            nodes.start(len(nodes.jobs))
            names.append(len(nodes.jobs) - 1)
        elif kind == "rank":
            nodes.kill_rank(draw.randrange(len(nodes.ranks)), draw.choice([signal.SIGKILL, signal.SIGSEGV]))
        else:
            name = draw.choice(names)
            nodes.jobs[name].signal(signal.SIGKILL if kind == "lost" else signal.SIGTERM)
            nodes.jobs[name].process.wait(timeout=DEADLINE_S)
            names.remove(name)
        generation = nodes.generation
        nodes.await_world(len(names) * n_local, generation + 1)

    def record(self, kinds, n_local, draw):
        """-> the history, and the events in a file"""
        with Played(self.daemon, self.folder("first"), n_local, *self.more) as nodes:
            nodes.start(0)
            nodes.await_world(n_local)
            for kind in kinds:
                self.disturb(nodes, kind, draw, n_local)
            names = nodes.standing()
            self.assertEqual(set(nodes.finish(names)), {0})
            path = os.path.join(self.dir.name, "events.jsonl")
            with open(path, "w") as f:
                f.writelines(nodes.events())
            return nodes.history(), path

    def play(self, path, n_local, history):
        with Played(self.daemon, self.folder("second"), n_local, *self.more, "--replay", path) as nodes:
            nodes.start(0)
            waited = set()
            last = max(generation for _, _, generation in history.values())
            target = max(number for number, step in history.items() if step[2] == last)

            def is_there():
                for event in map(json.loads, nodes.events()):
                    if event["ev"] == "replay" and event["action"] == "await" and event["gen"] not in waited:
                        waited.add(event["gen"])
                        nodes.start(len(nodes.jobs))
                return any(number >= target and step.generation == last for number, step in nodes.steps.items())
            await_true(lambda: self.listen(nodes) or is_there(), nodes.told, 4 * DEADLINE_S)
            self.assertEqual(set(nodes.finish(nodes.standing())), {0})
            played = nodes.history()
            self.assertEqual({number: played[number][1:] for number in history}, {number: step[1:] for number, step in history.items()},
                             nodes.told())
            for number, (results, *_) in history.items():  # those of a step that only the dead had made are no more
                self.assertTrue(played[number][0] and played[number][0] <= results, f"step {number}\n{nodes.told()}")
            self.assertEqual(nodes.told().count(SAME), len([name for name in nodes.jobs if nodes.jobs[name].process.returncode == 0]),
                             nodes.told())

    @staticmethod
    def listen(nodes):
        while not nodes.lines.empty():
            nodes.hear()
        return False

    def compare(self, n_local, kinds, seed):
        with self.subTest(n_local=n_local, kinds=kinds, seed=seed):
            history, path = self.record(kinds, n_local, random.Random(seed))
            self.play(path, n_local, history)
        self.dir.cleanup()
        os.mkdir(self.dir.name)

    def test_what_the_ranks_compute_and_who_comes_and_goes_is_the_same(self):
        self.compare(2, ["join", "rank", "join", "lost", "rank"], 0)
        self.compare(1, ["join", "join", "lost", "leave", "join", "rank", "join"], 1)
        self.compare(2, ["join", "rank", "rank", "leave", "join", "lost"], 2)

    def test_ranks_that_were_left_out_are_left_out_again(self):
        self.more = ("--on-failure", "shrink")
        self.compare(3, ["join", "drop", "drop", "drop", "drop"], 4)

    @unittest.skipIf(REPLAYS <= 2, "of the soak tests")
    def test_a_restart_that_was_asked_for_starts_the_ranks_of_all_nodes_again(self):
        self.compare(1, ["join", "restart", "rank"], 3)

    def test_any_history_is_the_same(self):
        for number in range(REPLAYS):
            draw = random.Random(f"{SEED}:{number}")
            kinds, n_nodes = [], 1
            for _ in range(draw.randint(1, 12)):
                kinds.append(draw.choice(["rank"] * 2 + ["join"] * 2 * (n_nodes < 3) + ["lost", "leave"] * (n_nodes > 1)))
                n_nodes += {"rank": 0, "join": 1, "lost": -1, "leave": -1}[kinds[-1]]
            self.compare(draw.randint(1, 2), kinds, f"{SEED}:{number}")


if __name__ == "__main__":
    unittest.main()
