"""--replay: what the events of a job tell is made to happen again, behind the same steps. The ranks are
tests/support/mender.c, whose steps show what they computed with: where the world changes its size, only the same
history gives the same bits."""
import json
import os
import random
import signal
import tempfile
import unittest

from harness import Job, run
from recovery import MENDER, STEP_MS, Ranks
from recovery_nodes import N_SAMPLES, Nodes
from rendezvous import Daemon

SAME = "replay: it went as before"


def read_events(path):
    with open(path) as f:
        return [json.loads(line) for line in f]


class OneNode(unittest.TestCase):
    """Samples of a fixed number, so that where the world shrinks the steps show it."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.events = os.path.join(self.dir.name, "events.jsonl")

    def job(self, n, *words, file, epochs=4):
        return Job("-n", str(n), *words, "--events", self.path(file), MENDER, str(epochs), "40", STEP_MS, "0", "600")

    def path(self, file):
        return os.path.join(self.dir.name, file)

    def record(self, n, *words, deaths, seed):
        """-> exit status, steps"""
        draw = random.Random(seed)
        with self.job(n, *words, file="first") as job:
            ranks = Ranks(job)
            for generation in range(deaths):
                seen = len(ranks.steps)
                ranks.hear_until(lambda: ranks.generation == generation and len(ranks.steps) > seen + 2 and len(ranks.pids) > 1)
                os.kill(ranks.pids.pop(draw.choice(sorted(ranks.pids))), draw.choice([signal.SIGKILL, signal.SIGSEGV]))
                ranks.pids = {}
            steps = ranks.hear_all()
            return job.end()[0], steps

    def replay(self, n, *words, file="first"):
        with self.job(n, "--replay", self.path(file), *words, file="second") as job:
            ranks = Ranks(job)
            steps = ranks.hear_all()
            code, _, err = job.end()
            self.assertEqual(job.processes(), [])
            return code, steps, err.decode()

    def begun(self, file):
        """Behind which step each generation began, as its ranks knew."""
        return {e["gen"]: e["before"] for e in read_events(self.path(file)) if e["ev"] == "steps"}

    def test_what_the_ranks_compute_and_where_they_fail_is_the_same(self):
        for what in "replace", "shrink":
            with self.subTest(what):
                words = ("--max-restarts", "9", "--on-failure", what)
                first = self.record(4, *words, deaths=2 if what == "shrink" else 5, seed=what)
                code, steps, err = self.replay(4, *words)
                self.assertEqual((code, steps), first, err)
                self.assertIn(SAME, err)
                self.assertEqual(self.begun("second"), self.begun("first"))
                os.unlink(self.path("first"))
                os.unlink(self.path("second"))

    def test_a_replay_can_be_replayed(self):
        words = ("--max-restarts", "9")
        self.record(3, *words, deaths=3, seed=3)
        _, steps, _ = self.replay(3, *words)
        os.rename(self.path("second"), self.path("third"))
        _, again, err = self.replay(3, *words, file="third")
        self.assertEqual(again, steps)
        self.assertIn(SAME, err)


if __name__ == "__main__":
    unittest.main()
