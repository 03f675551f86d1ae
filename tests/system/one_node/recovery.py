"""A rank that dies is replaced, the others stay: docs/design/recovery.md. The ranks are tests/support/programs/recovery_rank.c, which report
each step with the bits of a parameter and of a momentum, so that a run with deaths can be compared with one without.

Covers: launcher/supervisor, launcher/node, worker-runtime/group, worker-runtime/data, segments
"""
import ctypes
import json
import os
import random
import signal
import tempfile
import unittest

from ctl import status
from harness import Job, await_true
from recovery_job import RECOVERY_RANK, STEP_MS, Endless, Ranks, alone

PTRACE_SEIZE = 0x4206
BATCHES = 40


class Replaced(unittest.TestCase):
    def begin(self, *words, n=2):
        self.n = n
        return Endless("-n", str(n), *words, RECOVERY_RANK, "1000000", str(BATCHES), STEP_MS)

    def check_end(self, job, ranks, n_starts):
        job.end_training()
        steps = ranks.hear_all()
        code, _, err = job.end()
        self.assertEqual(code, 0, err)
        self.assertEqual(steps, alone(self.n, max(steps) // BATCHES, BATCHES))  # no step is missing, and none was made in two ways
        self.assertEqual(len(ranks.started), n_starts)
        self.assertEqual(job.processes(), [])
        return err.decode()

    def hold_end_of(self, pid):
        """A traced process is not reaped before its tracer has waited for it: as if it had much memory to free."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.ptrace(PTRACE_SEIZE, pid, None, None) != 0:
            self.skipTest(f"processes may not be traced here: {os.strerror(ctypes.get_errno())}")

    def test_a_killed_rank_is_replaced_and_the_others_are_the_same_processes(self):
        for n in 2, 4:
            for victim in 0, n - 1:
                with self.subTest(n=n, victim=victim), self.begin("--max-restarts", "1", n=n) as job:
                    ranks = Ranks(job)
                    ranks.hear_until(lambda: len(ranks.steps) > 10 and len(ranks.pids) == n)
                    before = dict(ranks.pids)
                    os.kill(before[victim], signal.SIGKILL)
                    ranks.hear_until(lambda: ranks.pids[victim] != before[victim] and ranks.generation == 1)
                    err = self.check_end(job, ranks, n + 1)
                    del before[victim], ranks.pids[victim]
                    self.assertEqual(ranks.pids, before)
                    self.assertIn(f"rank {victim} failed: killed by SIGKILL", err)
                    self.assertIn("replacing it, restart 1 of 1", err)

    def test_ranks_know_how_many_steps_are_completed(self):
        """A checkpoint is loaded where no step was made: before the first step, also in a later generation."""
        with Endless("-n", "2", "--max-restarts", "2", RECOVERY_RANK, "1000000", "10", "100") as job:
            told = 0  # steps that rank 0 has completed
            pids, completed = {}, []
            for line in job.process.stdout:
                words = line.decode().split()
                if words[0] == "step" and words[9] == "0":
                    told = int(words[1])
                    if told > 3 and len(completed) == 4 and 1 in pids:
                        os.kill(pids.pop(1), signal.SIGKILL)
                if words[0] == "holds":
                    pids[int(words[6])] = int(words[4])
                    completed.append(int(words[8]))
                    if words[6] == "0":
                        self.assertEqual(completed[-1], told)
                    if len(completed) == 2:
                        os.kill(pids.pop(1), signal.SIGKILL)  # in its first step
                    if len(completed) == 6:
                        job.end_training()
            code, _, err = job.end()
        self.assertEqual(code, 0, err)
        self.assertEqual(len(completed), 6)
        self.assertEqual(completed[:2], [0, 0])
        self.assertEqual(completed[2], completed[3])
        self.assertEqual(completed[4], completed[5])
        self.assertGreater(completed[4], 3)

    def test_with_shrink_the_others_continue_without_a_killed_rank(self):
        n_samples, batch = 300, 3
        with Endless("-n", "4", "--max-restarts", "5", "--on-failure", "shrink", RECOVERY_RANK, "1000000", "40", STEP_MS, "0",
                     str(n_samples)) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 4)
            before = set(ranks.pids.values())
            for generation, victim in enumerate((1, 0, 1), 1):
                before.remove(ranks.pids[victim])
                os.kill(ranks.pids[victim], signal.SIGKILL)
                ranks.hear_until(lambda: ranks.generation == generation)
                ranks.pids = {}
                ranks.hear_until(lambda: len(ranks.pids) == 4 - generation)
                self.assertEqual(set(ranks.pids.values()), before)
                self.assertEqual(sorted(ranks.pids), list(range(4 - generation)))
                (now,) = status(job)  # each process has its own progress, the dead have none
                self.assertEqual({r["pid"] for r in now["ranks"] if r["steps"] is not None}, before)
                self.assertEqual(now["world"], 4 - generation)
            job.end_training()
            steps = ranks.hear_all()
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(sorted(steps), list(range(1, max(steps) + 1)))
            self.assertEqual({len(results) for results in steps.values()}, {1})
            self.assertEqual(len(ranks.started), 4)
            n_epochs = round(len(ranks.took) / n_samples)
            times = [ranks.took.count(i) for i in range(n_samples)]
            # a rank that died, or that received the state of a step which others had completed, did not report its samples
            self.assertLessEqual(sum(max(0, n_epochs - n) for n in times), ranks.n_silent() * batch)
            self.assertLessEqual(sum(max(0, n - n_epochs) for n in times), 4 * n_epochs)  # filled up
            self.assertIn(b"continuing without it, restart 3 of 5", err)
            self.assertEqual(job.processes(), [])

    def test_no_rank_waits_until_the_dead_rank_is_reaped(self):
        for word in "replace", "shrink":
            with self.subTest(word), Job("-n", "3", "--max-restarts", "1", "--on-failure", word, RECOVERY_RANK, "1000000", "40",
                                         STEP_MS) as job:
                ranks = Ranks(job)
                ranks.hear_until(lambda: len(ranks.pids) == 3)
                victim = ranks.pids[1]
                self.hold_end_of(victim)
                os.kill(victim, signal.SIGKILL)
                ranks.hear_until(lambda: ranks.generation == 1)
                ranks.pids = {}
                ranks.hear_until(lambda: len(ranks.pids) == (3 if word == "replace" else 2))
                self.assertEqual(os.waitpid(victim, 0), (victim, signal.SIGKILL))  # only now it can be reaped
                job.signal(signal.SIGTERM)
                ranks.hear_all()
                code, _, err = job.end()
                self.assertEqual(code, -signal.SIGTERM, err)
                self.assertIn(b"rank 1 failed: killed by SIGKILL", err)
                self.assertEqual(len(ranks.started), 4 if word == "replace" else 3)
                self.assertEqual(job.processes(), [])

    def test_after_a_shrink_ddprun_does_not_wait_for_the_dead_rank_to_save(self):
        with Job("-n", "3", "--max-restarts", "1", "--on-failure", "shrink", "--on-term", "600s", RECOVERY_RANK, "1000000", "40",
                 STEP_MS) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 3)
            os.kill(ranks.pids[0], signal.SIGKILL)
            ranks.hear_until(lambda: ranks.generation == 1)
            job.signal(signal.SIGTERM)
            ranks.hear_all()
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertNotIn(b"waiting for all ranks to save their state", err)

    def test_batches_that_were_read_ahead_are_used_once(self):
        draw = random.Random(5)
        n = 3 * 40 * 2 - 1
        with tempfile.NamedTemporaryFile() as f:
            f.write(bytes((0, 0, 8, 1)) + n.to_bytes(4, "big") + bytes(n))
            f.flush()
            with Endless("-n", "2", "--max-restarts", "10", RECOVERY_RANK, "1000000", "40", STEP_MS, "0", "0", f.name) as job:
                ranks = Ranks(job)
                for generation in range(10):
                    seen = len(ranks.steps)
                    ranks.hear_until(lambda: ranks.generation == generation and len(ranks.steps) > seen + 2 and len(ranks.pids) == 2)
                    ranks.kill(draw.randrange(2))
                ranks.hear_until(lambda: ranks.generation == 10)
                job.end_training()
                steps = ranks.hear_all()
                code, _, err = job.end()
                self.assertEqual(code, 0, err)
            expected = alone(2, max(steps) // 40, 40)  # the same samples, and nothing is read ahead
            self.assertEqual(steps, expected)

    def test_many_deaths_in_a_row_lose_no_step(self):
        draw = random.Random(1)
        with self.begin("--max-restarts", "20", n=3) as job:
            ranks = Ranks(job)
            for generation in range(20):
                seen = len(ranks.steps)
                ranks.hear_until(lambda: ranks.generation == generation and len(ranks.steps) > seen + 2 and len(ranks.pids) == 3)
                ranks.kill(draw.randrange(3), draw.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM]))
            self.check_end(job, ranks, 23)

    def test_a_death_during_a_replacement_is_also_recovered(self):
        draw = random.Random(2)
        with self.begin("--max-restarts", "40", n=4) as job:
            ranks = Ranks(job)
            for _ in range(8):
                seen = len(ranks.steps)
                ranks.hear_until(lambda: len(ranks.steps) > seen + 3 and len(ranks.pids) == 4)
                keeper = draw.randrange(4)  # the state dies with the last that has it
                n_started = len(ranks.started)
                first, second = draw.sample([rank for rank in range(4) if rank != keeper], 2)
                ranks.kill(first)
                ranks.hear_until(lambda: len(ranks.started) > n_started)
                ranks.kill(second)
            self.check_end(job, ranks, 20)

    def test_after_the_budget_the_failure_is_the_outcome(self):
        with self.begin("--max-restarts", "1") as job:
            ranks = Ranks(job)
            for generation in range(2):
                ranks.hear_until(lambda: ranks.generation == generation and len(ranks.pids) == 2)
                ranks.kill(0)
            ranks.hear_all()
            code, _, err = job.end()
            self.assertEqual(code, 137, err)
            self.assertEqual(len(ranks.started), 3)

    def test_restart_and_abort_can_be_requested(self):
        for word, n_starts, code in ("restart", 4, 0), ("abort", 2, 137):
            with self.subTest(word), self.begin("--max-restarts", "1", "--on-failure", word) as job:
                ranks = Ranks(job)
                ranks.hear_until(lambda: len(ranks.pids) == 2)
                os.kill(ranks.pids[1], signal.SIGKILL)
                if word == "restart":
                    ranks.hear_until(lambda: ranks.generation == 1)
                    job.end_training()
                ranks.hear_all()
                self.assertEqual(job.end()[0], code)
                self.assertEqual(len(ranks.started), n_starts)

    def test_a_survivor_that_does_not_answer_restarts_all_ranks(self):
        with self.begin("--max-restarts", "2", "--recovery-timeout", "2s", "--shutdown-timeout", "100ms", n=3) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 3)
            os.kill(ranks.pids[2], signal.SIGSTOP)
            os.kill(ranks.pids[0], signal.SIGKILL)
            ranks.hear_until(lambda: ranks.generation == 2)
            job.end_training()
            ranks.hear_all()
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(len(ranks.started), 3 + 1 + 3)
            self.assertIn(b"timed out after 2 s waiting for rank 2 to join its peers (--recovery-timeout); stopping all ranks", err)

    def test_the_events_show_the_recovery(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events")
            with self.begin("--max-restarts", "1", "--events", path) as job:
                ranks = Ranks(job)
                ranks.hear_until(lambda: len(ranks.pids) == 2)
                os.kill(ranks.pids[1], signal.SIGKILL)
                self.check_end(job, ranks, 3)
            with open(path) as f:
                events = [json.loads(line) for line in f]
        told = [(e["ev"], e["gen"], e["rank"]) for e in events if e["ev"] in ("rank_exit", "replace", "rank_start")]
        self.assertEqual(told[2:5], [("rank_exit", 0, 1), ("replace", 1, 1), ("rank_start", 1, 1)])

    def test_a_signal_ends_a_job_in_which_a_rank_was_replaced(self):
        with self.begin("--max-restarts", "3") as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 2)
            os.kill(ranks.pids[1], signal.SIGKILL)
            ranks.hear_until(lambda: ranks.generation == 1)
            job.signal(signal.SIGTERM)
            ranks.hear_all()
            self.assertEqual(job.end()[0], -signal.SIGTERM)
            await_true(lambda: job.processes() == [])


if __name__ == "__main__":
    unittest.main()
