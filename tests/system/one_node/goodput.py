"""What the seconds of a job were spent on, in --report, --events and ddpctl status: the causes add up to its duration, and what is lost has the
cause of its loss.

Covers: launcher/supervisor, launcher/node, launcher/reporting, ctl/job
"""
import json
import os
import signal
import tempfile
import unittest

from ctl import TIMEOUT, await_running, ctl, status
from harness import RANK, Job, main, run
from recovery_job import RECOVERY_RANK, Endless, Ranks

HANGER = os.environ["HANGER_PROGRAM"]
STEPPER = os.environ["STEPPER_PROGRAM"]


class Goodput(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.report, self.events = (os.path.join(folder.name, name) for name in ("report", "events"))
        self.words = "--report", self.report, "--events", self.events

    def read(self):
        """The seconds by cause, where they are not 0."""
        with open(self.report) as f:
            report = json.load(f)
        with open(self.events) as f:
            events = [json.loads(line) for line in f]
        self.assertEqual([e["ev"] for e in events[-2:]], ["goodput", "job_end"])
        self.of_generations = [e for e in events if e["ev"] == "goodput"]
        goodput = report["goodput"]
        for g in [goodput, *self.of_generations]:
            self.assertAlmostEqual(sum(g["seconds"].values()), g["total_s"], delta=0.01)
            self.assertAlmostEqual(g["seconds"]["productive"], g["ratio"] * g["total_s"], delta=0.001 * g["total_s"] + 0.001)
        self.assertAlmostEqual(goodput["total_s"], report["duration_s"], delta=0.001)
        self.by_steps = goodput["by_steps"]
        return {cause for cause, s in goodput["seconds"].items() if s > 0}, goodput["seconds"]

    def test_a_program_without_steps_is_productive_while_it_runs(self):
        code, _, err = run("-n", "2", *self.words, "sleep", "0.3")
        self.assertEqual(code, 0, err)
        causes, seconds = self.read()
        self.assertFalse(self.by_steps)
        self.assertGreaterEqual(seconds["productive"], 0.1)
        self.assertLessEqual(causes, {"start", "productive", "shutdown"})

    def test_a_restart_begins_after_the_last_step_that_was_completed(self):
        code, _, err = run("-n", "2", "--max-restarts", "2", *self.words, STEPPER, "5", "2")
        self.assertEqual(code, 0, err)
        causes, _ = self.read()
        self.assertTrue(self.by_steps)
        self.assertIn("restart", causes)
        self.assertNotIn("recovery", causes)
        self.assertEqual([e["gen"] for e in self.of_generations], [0, 1, 2])
        self.assertEqual(self.of_generations[0]["now"], "restart")

    def test_a_replaced_rank_costs_recovery(self):
        with Endless("-n", "2", "--max-restarts", "1", *self.words, RECOVERY_RANK, "1000000", "20", "5") as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.steps) > 10 and len(ranks.pids) == 2)
            ranks.kill(1)
            ranks.hear_until(lambda: ranks.generation == 1)
            job.end_training()
            ranks.hear_all()
            code, _, err = job.end()
        self.assertEqual(code, 0, err)
        causes, _ = self.read()
        self.assertIn("recovery", causes)
        self.assertNotIn("restart", causes)

    def test_a_hang_is_booked_from_the_last_movement_on(self):
        code, _, err = run("-n", "3", "--hang-timeout", "2s", *self.words, HANGER, "sleep")
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        _, seconds = self.read()
        self.assertGreaterEqual(seconds["hang"], 1.9)

    def test_ddpctl_status_shows_the_goodput(self):
        with Job("-n", "1", RANK, "pid", "wait") as job:
            job.hear(1)
            await_running(job)
            code, out, err = ctl(job, "status", *TIMEOUT)
            self.assertEqual((code, err), (0, ""))
            self.assertRegex(out, r"(?m)^  goodput \d+\.\d % of .* \(no steps are reported\)(; the rest: start \d.*)?$")
            goodput = status(job)[0]["goodput"]
            self.assertEqual((goodput["now"], goodput["by_steps"]), ("productive", False))


main()
