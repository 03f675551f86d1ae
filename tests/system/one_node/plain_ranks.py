"""Ranks without a ddp_model, which report their steps with ddp_step_done(): for ddprun they are libddp programs like others. They are
tests/support/programs/plain_rank.c, and write the lines of recovery_rank.c.

Covers: launcher/start, worker-runtime/group, launcher/node, segments
"""
import os
import unittest

from ctl import await_running, status
from harness import DEADLINE_S, Job, await_true
from recovery_job import Endless, Ranks

PLAIN_RANK = os.environ["PLAIN_RANK"]
STEP_MS = "2"


def alone(n_steps):
    """The steps of a run in which nothing happens."""
    with Job("-n", "3", PLAIN_RANK, str(n_steps), "0") as job:
        steps = Ranks(job).hear_all()
        assert job.process.wait(DEADLINE_S) == 0
        return steps


class Steps(unittest.TestCase):
    def begin(self, *words):
        return Endless("-n", "3", *words, PLAIN_RANK, "1000000", STEP_MS)

    def check_end(self, job, ranks):
        job.end_training()
        steps = ranks.hear_all()
        code, _, err = job.end()
        self.assertEqual(code, 0, err)
        self.assertEqual(steps, alone(max(steps)))
        self.assertEqual(job.processes(), [])
        return err.decode()

    def test_a_replacement_continues_with_the_step_of_the_survivors(self):
        for victim in 0, 2:
            with self.subTest(victim), self.begin("--max-restarts", "9") as job:
                ranks = Ranks(job)
                ranks.hear_until(lambda: len(ranks.steps) > 10 and len(ranks.pids) == 3)
                before = dict(ranks.pids)
                ranks.kill(victim)
                ranks.hear_until(lambda: victim in ranks.pids and ranks.generation == 1)
                self.assertEqual({r: p for r, p in ranks.pids.items() if r != victim}, {r: p for r, p in before.items() if r != victim})
                self.check_end(job, ranks)

    def test_a_standby_waits_once_a_step_is_done_and_takes_over(self):
        with self.begin("--max-restarts", "9", "--standby", "1") as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 3)
            found = set()

            def is_there():
                found.clear()
                found.update(pid for pid in job.processes() if is_plain_rank(pid) and pid not in ranks.pids.values())
                return len(found) == 1

            await_true(is_there, lambda: found)
            ranks.kill(1)
            ranks.hear_until(lambda: 1 in ranks.pids)
            self.assertEqual({ranks.pids[1]}, found)
            self.check_end(job, ranks)

    def test_ddprun_shows_the_steps_of_each_rank(self):
        with self.begin() as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.steps) > 10 and len(ranks.pids) == 3)
            await_running(job)
            (now,) = status(job)
            self.assertEqual([r["pid"] for r in now["ranks"]], [ranks.pids[r] for r in range(3)])
            self.assertTrue(all(r["steps"] > 0 for r in now["ranks"]), now)
            self.check_end(job, ranks)

    def test_a_rank_that_hangs_after_some_steps_is_found_and_replaced(self):
        with Endless("-n", "3", "--max-restarts", "1", "--hang-timeout", "2s", PLAIN_RANK, "1000000", STEP_MS, "20") as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: ranks.generation == 1)
            err = self.check_end(job, ranks)
            self.assertIn("ddprun: warning: rank 1 hangs", err)
            self.assertEqual(ranks.generation, 1)

    def test_steps_count_as_progress_for_restarts(self):
        with self.begin("--max-restarts", "1", "--restart-after-progress") as job:
            ranks = Ranks(job)
            for generation in range(3):
                ranks.hear_until(lambda g=generation: ranks.generation == g and len(ranks.pids) == 3)
                ranks.kill(generation)
            ranks.hear_until(lambda: ranks.generation == 3)  # else the others may have ended before it is replaced
            err = self.check_end(job, ranks)
            self.assertEqual(err.count("; replacing it, after progress"), 3, err)


def is_plain_rank(pid):
    try:
        return os.path.samefile(f"/proc/{pid}/exe", PLAIN_RANK)
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
