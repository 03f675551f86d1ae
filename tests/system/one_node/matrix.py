"""Every exit code, every signal: as a rank's end, and sent to ddprun once, twice and three times.

Covers: launcher/supervisor, launcher/node, launcher/spawner
"""
import signal
import unittest

from harness import RANK, Job, await_true, main, run

HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
            signal.SIGURG, signal.SIGWINCH}
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def fatal_signals():
    usual = [s for s in range(1, 32) if s not in HARMLESS]
    return usual + list(range(signal.SIGRTMIN, signal.SIGRTMAX + 1))


def send(job, sig, n_ranks):
    """One signal, and the proof that each rank had it: two that come at once would be one."""
    job.signal(sig)
    return job.hear(n_ranks)


class Matrix(unittest.TestCase):
    def test_every_exit_code_is_passed_on(self):
        for code in range(256):
            with self.subTest(code=code):
                self.assertEqual(run("-n", "1", RANK, "exit", str(code))[0], code)

    def test_every_fatal_signal_is_128_and_its_number(self):
        for sig in fatal_signals():
            with self.subTest(sig=sig):
                self.assertEqual(run("-n", "1", RANK, "die", str(int(sig)))[0], 128 + sig)

    def test_ranks_that_obey(self):
        for sig in STOPPING:
            with self.subTest(sig=sig.name), Job("-n", "2", RANK, "on", str(int(sig)), "0", "tell", "up",
                                                 "wait") as job:
                job.hear(2)
                self.assertEqual(send(job, sig, 2), [f"0 got {int(sig)}", f"1 got {int(sig)}"])
                self.assertEqual(job.end()[0], -sig)
                self.assertEqual(job.processes(), [])

    def test_ranks_that_ignore_are_killed_when_the_grace_is_over(self):
        for sig in STOPPING:
            with self.subTest(sig=sig.name), Job("-n", "2", "--shutdown-timeout", "50ms", RANK, "ignore",
                                                 str(int(sig)), "tell", "up", "wait") as job:
                job.hear(2)
                job.signal(sig)
                code, _, err = job.end()
                self.assertEqual(code, -sig)
                self.assertIn(b"did not stop in time", err)
                self.assertEqual(job.processes(), [])

    def test_a_second_signal_is_passed_on_but_for_an_interrupt_which_kills(self):
        for sig in STOPPING:
            with self.subTest(sig=sig.name), Job("-n", "2", RANK, "note", str(int(sig)), "tell", "up", "wait") as job:
                job.hear(2)
                send(job, sig, 2)
                if sig != signal.SIGINT:
                    for _ in range(2):  # the second and the third
                        self.assertEqual(send(job, sig, 2), [f"0 got {int(sig)}", f"1 got {int(sig)}"])
                    job.signal(signal.SIGINT)  # does not kill yet: it is the first of its kind
                # again and again: two that come at once are one
                await_true(lambda: job.process.poll() is not None or job.signal(signal.SIGINT))
                self.assertEqual(job.end()[0], -sig)
                self.assertEqual(job.processes(), [])

    def test_what_does_not_stop_is_passed_on_each_time(self):
        for sig in (signal.SIGUSR1, signal.SIGUSR2):
            number = str(int(sig))
            with self.subTest(sig=sig.name), Job("-n", "2", RANK, "note", number, "on", "15", "0", "tell", "up",
                                                 "wait") as job:
                job.hear(2)
                for _ in range(3):
                    self.assertEqual(send(job, sig, 2), [f"0 got {number}", f"1 got {number}"])
                job.signal(signal.SIGTERM)
                job.hear(2)
                self.assertEqual(job.end()[0], -15)

    def test_a_signal_of_another_kind_does_not_change_the_verdict(self):
        for first in STOPPING:
            for second in STOPPING:
                if second in (first, signal.SIGINT):
                    continue
                with self.subTest(first=first.name, second=second.name), \
                        Job("-n", "1", RANK, "note", str(int(first)), "on", str(int(second)), "0", "tell", "up",
                            "wait") as job:
                    job.hear(1)
                    send(job, first, 1)
                    send(job, second, 1)
                    self.assertEqual(job.end()[0], -first)


main()
