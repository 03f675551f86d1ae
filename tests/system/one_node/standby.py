"""--standby: a process that waits takes the place of a rank that fails. The ranks are tests/support/programs/recovery_rank.c, as in
recovery.py: each reports its pid and the bits of its state after each step.

Covers: launcher/supervisor, launcher/node, launcher/spawner, worker-runtime/group
"""
import os
import signal
import tempfile
import unittest

from harness import RANK, Job, await_true, run
from recovery_job import RECOVERY_RANK, STEP_MS, Endless, Ranks, alone

BATCHES = 60


def programs_of(job):
    """Pids of the job's processes that execute the ranks' program."""
    found = set()
    for pid in job.processes():
        try:
            if os.path.samefile(f"/proc/{pid}/exe", RECOVERY_RANK):
                found.add(pid)
        except OSError:
            pass
    return found


class Standby(unittest.TestCase):
    def begin(self, n, *words):
        self.n = n
        return Endless("-n", str(n), "--max-restarts", "9", "--standby", "1", *words, RECOVERY_RANK, "1000000", str(BATCHES), STEP_MS)

    def check_end(self, job, ranks):
        job.end_training()
        steps = ranks.hear_all()
        code, _, err = job.end()
        self.assertEqual(code, 0, err)
        self.assertEqual(steps, alone(self.n, max(steps) // BATCHES, BATCHES))
        self.assertEqual(job.processes(), [])

    def await_standbys(self, job, ranks, n):
        """-> their pids. The ranks continue meanwhile, until their pipe is full."""
        found = set()

        def are_there():
            found.clear()
            found.update(programs_of(job) - set(ranks.pids.values()))
            return len(found) == n

        await_true(are_there, lambda: found)
        return found

    def test_the_successor_of_a_killed_rank_is_the_process_that_waited(self):
        for n, victim in (2, 0), (3, 2):
            with self.subTest(n=n, victim=victim), self.begin(n) as job:
                ranks = Ranks(job)
                ranks.hear_until(lambda: len(ranks.pids) == n)
                before = dict(ranks.pids)
                standby, = self.await_standbys(job, ranks, 1)
                os.kill(before[victim], signal.SIGKILL)
                ranks.hear_until(lambda: ranks.pids[victim] != before[victim])
                self.assertEqual(ranks.pids, {**before, victim: standby})
                self.check_end(job, ranks)

    def test_a_new_standby_waits_and_takes_over_at_the_next_death(self):
        with self.begin(2) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 2)
            for generation in 1, 2, 3:
                standby, = self.await_standbys(job, ranks, 1)
                os.kill(ranks.pids[generation % 2], signal.SIGKILL)
                ranks.hear_until(lambda: ranks.pids[generation % 2] == standby)
            self.check_end(job, ranks)

    def test_a_rank_is_started_if_no_standby_waits(self):
        with self.begin(3) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 3)
            before = dict(ranks.pids)
            standby, = self.await_standbys(job, ranks, 1)
            os.kill(standby, signal.SIGKILL)
            await_true(lambda: standby not in programs_of(job))
            os.kill(before[1], signal.SIGKILL)
            ranks.hear_until(lambda: ranks.pids[1] != before[1])
            self.assertNotIn(ranks.pids[1], (standby, before[1]))
            self.check_end(job, ranks)

    def test_a_standby_that_dies_with_the_rank_costs_a_start(self):
        """Whichever of the two ends is seen first."""
        with self.begin(2) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 2)
            for _ in range(3):
                victim = ranks.pids.pop(1)
                for pid in (programs_of(job) - {victim, ranks.pids[0]}) | {victim}:
                    os.kill(pid, signal.SIGKILL)
                ranks.hear_until(lambda: 1 in ranks.pids and ranks.pids[1] != victim)
            self.check_end(job, ranks)

    def test_its_output_has_the_label_of_its_rank(self):
        with tempfile.TemporaryDirectory() as logs, \
                self.begin(2, "--log-dir", logs, "-t", "1") as job:
            ranks = Ranks(job)
            lines = []
            ranks.stream = Unlabelled(job.process.stdout, lines)
            ranks.hear_until(lambda: len(ranks.pids) == 2)
            standby, = self.await_standbys(job, ranks, 1)
            os.kill(ranks.pids[1], signal.SIGKILL)
            ranks.hear_until(lambda: ranks.pids[1] == standby)
            self.check_end(job, ranks)
            said = f"pid {standby} rank 1".encode()
            self.assertTrue(all(line.startswith(b"[default1]:") for line in lines if said in line))
            files = [os.path.join(path, f) for path, _, names in os.walk(logs) for f in names if f == "stdout.log"]
            holders = [f for f in files if said in open_and_read(f)]
            self.assertEqual([f.split(os.sep)[-2] for f in holders], ["1"])

    def test_a_signal_ends_it_with_the_job(self):
        with Job("-n", "2", "--max-restarts", "9", "--standby", "1", RECOVERY_RANK, "100", "1000", STEP_MS) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 2)
            self.await_standbys(job, ranks, 1)
            job.signal(signal.SIGTERM)
            ranks.hear_all()
            self.assertEqual(job.end()[0], -signal.SIGTERM)
            self.assertEqual(job.processes(), [])

    def test_restarted_ranks_get_a_new_standby(self):
        with self.begin(2, "--recovery-timeout", "2s", "--shutdown-timeout", "200ms") as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.pids) == 2)
            old, = self.await_standbys(job, ranks, 1)
            os.kill(ranks.pids[0], signal.SIGSTOP)
            os.kill(ranks.pids[1], signal.SIGKILL)
            ranks.hear_until(lambda: ranks.generation == 2)
            await_true(lambda: old not in programs_of(job))
            ranks.pids.clear()
            ranks.hear_until(lambda: len(ranks.pids) == 2)
            standby, = self.await_standbys(job, ranks, 1)
            victim = ranks.pids[1]
            os.kill(victim, signal.SIGKILL)
            ranks.hear_until(lambda: ranks.pids[1] != victim)
            self.assertEqual(ranks.pids[1], standby)
            job.end_training()
            ranks.hear_all()
            self.assertEqual(job.end()[0], 0)


class Unlabelled:
    """Standard output without the labels of -t, which are kept apart."""

    def __init__(self, stream, lines):
        self.stream, self.lines = stream, lines

    def readline(self):
        line = self.stream.readline()
        self.lines.append(line)
        return line.split(b"]:", 1)[-1]


def open_and_read(path):
    with open(path, "rb") as f:
        return f.read()


class Options(unittest.TestCase):
    def test_standby_needs_replaceable_ranks_and_arguments_without_ranks(self):
        for words in (["--standby", "1"], ["--standby", "1", "--max-restarts", "1", "--on-failure", "restart"],
                      ["--standby", "-1"], ["--standby", "65"], ["--standby", "x"],
                      ["--standby", "1", "--max-restarts", "1", "--nnodes", "2", "--rdzv-endpoint", "h:1", "--rdzv-id", "x"],
                      ["--standby", "1", "--max-restarts", "1", "--virtual-local-rank"]):
            with self.subTest(words):
                code, _, err = run(*words, RANK)
                self.assertEqual(code, 2, err)
                self.assertIn("--standby", err)
        for word in "{rank}", "a$local_rank", "$${local_rank}":
            with self.subTest(word):
                code, _, err = run("--standby", "1", "--max-restarts", "1", RANK, "say", word)
                self.assertEqual(code, 2, err)
                self.assertIn("--standby cannot be used together with arguments that are filled in for each rank", err)

    def test_words_that_are_the_same_for_all_ranks_are_accepted(self):
        for words in ["test $RANK = 0"], ["test $1 = {rank}", "sh", "{rank}", "$$"]:
            with self.subTest(words):
                code, _, err = run("--standby", "1", "--max-restarts", "1", "--templates", "no", "-n", "1", "sh", "-c", *words)
                self.assertEqual(code, 0, err)

    def test_programs_without_libddp_get_no_standby(self):
        with Job("-n", "2", "--max-restarts", "1", "--standby", "1", RANK, "tell", "up", "wait") as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            job.signal(signal.SIGTERM)
            self.assertEqual(job.end()[0], -signal.SIGTERM)
            self.assertEqual(job.unheard(), b"")  # no third one has reported


if __name__ == "__main__":
    unittest.main()
