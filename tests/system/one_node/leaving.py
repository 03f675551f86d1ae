"""--on-term: an end that is announced. The ranks are asked to save their state before the signal that ends them is passed
on. Jobs of several nodes: nodes.py, Scaling.

Covers: launcher/supervisor, launcher/node, launcher/generation
"""
import json
import os
import signal
import tempfile
import unittest

from harness import RANK, Job, await_true, run

SCALER = os.environ["CHECKPOINTER_PROGRAM"]
TERM, USR1 = str(int(signal.SIGTERM)), str(int(signal.SIGUSR1))
LONG = ("--on-term", "600s", "--shutdown-timeout", "600s")
UP = ("on", TERM, "7", "tell", "up")  # reports a SIGTERM, and exits after it


def is_scaler(pid):
    try:
        return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(SCALER)
    except OSError:
        return False


def of_all(*words, n=2):
    return sorted(f"{rank} {word}" for rank in range(n) for word in words)


class Announced(unittest.TestCase):
    def test_the_signal_follows_the_last_save(self):
        with Job("-n", "2", *LONG, RANK, "only", "1", "ignore", USR1, "end", *UP, "asked", "only", "0", "await", USR1, "end",
                 "saved", "wait") as job:
            self.assertEqual(job.hear(2), of_all("up"))
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(3), ["0 asked", "0 awaits 10", "1 asked"])
            with self.assertRaises(AssertionError):  # rank 0 has not saved
                job.hear(1, deadline_s=0.2)
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(2), of_all("got 15"))
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertIn(b"ddprun: note: SIGTERM: asking the ranks to save their state within 600 s\n", err)

    def test_ranks_are_asked_through_the_socket_and_a_harmless_signal(self):
        with Job("-n", "2", *LONG, RANK, "note", str(int(signal.SIGURG)), *UP, "asked", "saved", "wait") as job:
            self.assertEqual(job.hear(2), of_all("up"))
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(6), of_all("asked", "got 15", "got 23"))
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertIn(b"ddprun: note: stopped by SIGTERM", err)

    def test_libddp_programs_save_in_the_same_step(self):
        with Job("-n", "3", *LONG, SCALER) as job:
            await_true(lambda: sum(is_scaler(pid) for pid in job.processes()) == 3)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(3), of_all("saved", n=3))
            self.assertEqual(job.end()[0], -signal.SIGTERM)

    def test_a_rank_that_does_not_save_gets_the_signal_after_the_timeout(self):
        with Job("-n", "2", "--on-term", "200ms", RANK, *UP, "wait") as job:
            self.assertEqual(job.hear(2), of_all("up"))
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(2), of_all("got 15"))
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertIn(b"waiting for all ranks to save their state (--on-term)", err)

    def test_an_earlier_save_does_not_count(self):
        with Job("-n", "1", "--on-term", "200ms", RANK, *UP, "saved", "tell", "saved", "wait") as job:
            self.assertEqual(job.hear(2), ["0 saved", "0 up"])
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(1), ["0 got 15"])
            self.assertIn(b"waiting for all ranks to save their state (--on-term)", job.end()[2])

    def test_a_second_signal_does_not_wait(self):
        for second in signal.SIGTERM, signal.SIGINT:
            with self.subTest(second), Job("-n", "2", *LONG, RANK, "ignore", "2", *UP, "asked", "wait") as job:
                self.assertEqual(job.hear(2), of_all("up"))
                job.signal(signal.SIGTERM)
                self.assertEqual(job.hear(2), of_all("asked"))
                job.signal(second)
                self.assertEqual(job.hear(2), of_all("got 15"))
                self.assertEqual(job.end()[0], -signal.SIGTERM)

    def test_an_interrupt_is_not_announced(self):
        with Job("-n", "2", *LONG, RANK, "on", "2", "7", "tell", "up", "wait") as job:
            self.assertEqual(job.hear(2), of_all("up"))
            job.signal(signal.SIGINT)
            self.assertEqual(job.hear(2), of_all("got 2"))
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGINT)
            self.assertNotIn(b"asking the ranks to save", err)

    def test_a_schedulers_signal_is_also_announced(self):
        with Job("-n", "2", *LONG, "--signals-to-handle", "SIGUSR1", RANK, "on", USR1, "7", "tell", "up", "asked", "saved", "wait") as job:
            self.assertEqual(job.hear(2), of_all("up"))
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(4), of_all("asked", "got 10"))
            self.assertEqual(job.end()[0], -signal.SIGUSR1)

    def test_a_failure_while_ranks_save_causes_no_restart(self):
        with Job("-n", "2", *LONG, "--max-restarts", "5", RANK, "only", "0", "ignore", USR1, "end", *UP, "asked",
                 "only", "1", "await", USR1, "exit", "3", "end", "wait") as job:
            self.assertEqual(job.hear(2), of_all("up"))
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(3), ["0 asked", "1 asked", "1 awaits 10"])
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(1), ["0 got 15"])
            self.assertEqual(job.end()[0], -signal.SIGTERM)

    def test_the_job_succeeds_if_all_ranks_exit_with_0_instead(self):
        with Job("-n", "2", *LONG, RANK, *UP, "asked", "exit", "0") as job:
            self.assertEqual(job.hear(2), of_all("up"))
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(2), of_all("asked"))
            self.assertEqual(job.end()[0], 0)

    def test_the_events_show_the_request(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events")
            with Job("-n", "2", *LONG, "--events", path, RANK, *UP, "asked", "saved", "wait") as job:
                self.assertEqual(job.hear(2), of_all("up"))
                job.signal(signal.SIGTERM)
                job.end()
            with open(path) as f:
                told = [e for e in map(json.loads, f) if e["ev"] in ("leaving", "stop")]
        self.assertEqual([(e["ev"], e.get("state"), e["signal"]) for e in told],
                         [("leaving", "announced", "SIGTERM"), ("leaving", "saved", "SIGTERM"), ("stop", None, "SIGTERM")])
        self.assertEqual(told[0]["grace_ms"], 600000)


class Options(unittest.TestCase):
    def test_without_the_option_no_rank_is_asked(self):
        code, out, _ = run("-n", "1", "sh", "-c", "echo fd=$DDP_CHECKPOINT_FD")
        self.assertEqual((code, out), (0, "fd=\n"))

    def test_a_zero_or_invalid_time_is_refused(self):
        for word in "0", "soon", "-1", "":
            with self.subTest(word):
                code, _, err = run("--on-term", word, RANK)
                self.assertEqual(code, 2, err)
                self.assertIn("--on-term", err)


if __name__ == "__main__":
    unittest.main()
