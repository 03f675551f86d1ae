"""Whatever dies, nothing of the job is left running: cases that the table of exit_status.py does not have.

Covers: launcher/spawner, launcher/supervisor, launcher/node, launcher/generation
"""
import os
import signal
import time
import unittest

from harness import DEADLINE_S, RANK, Job, await_true, kill_all, main

FAMILY = ("child", "daemon", "daemon", "tell", "up")  # four lines on the FIFO
UNTIL_USR1 = ("on", "10", "0")  # a rank that exits with 0 at a signal of the test; set before it reports that it is up


class Leftovers(unittest.TestCase):
    def test_kill_9_of_ddprun_as_soon_as_it_has_its_directory(self):
        for _ in range(30):
            with Job("-n", "2", RANK, "wait") as job:
                deadline = time.monotonic() + DEADLINE_S
                while not os.listdir(job.runtime):  # without a pause: what follows comes within microseconds
                    self.assertLess(time.monotonic(), deadline)
                job.signal(signal.SIGKILL)
                job.await_gone()
                self.assertEqual(os.listdir(job.runtime), [])

    def test_kill_9_by_the_name_of_the_script(self):
        """As pkill -9 -f and pkill -9 ddprun do: ddprun and the ranks at once, but not what looks otherwise."""
        script = "setsid sleep 1000 & echo up >$TEST_FIFO; wait"  # sleep has another command line, and session
        for pattern, where in ((b"setsid", "cmdline"), (b"ddprun", "comm")):
            with self.subTest(where), Job("-n", "2", "sh", "-c", script) as job:
                job.hear(2)
                await_true(lambda: len(job.processes()) == 2 + 2 * 2)
                found = []
                for pid in job.processes():
                    with open(f"/proc/{pid}/{where}", "rb") as f:
                        if pattern in f.read():
                            found.append(pid)
                self.assertIn(job.process.pid, found)
                self.assertNotIn(job.spawner(), found)
                kill_all(found)
                job.await_gone()

    def test_a_stopped_spawner_does_not_keep_ddprun_when_both_are_killed(self):
        with Job("-n", "2", RANK, *FAMILY, "wait") as job:
            job.hear(8)
            os.kill(job.spawner(), signal.SIGSTOP)
            job.signal(signal.SIGKILL)
            os.kill(job.spawner(), signal.SIGCONT)
            job.await_gone()

    def test_a_spawner_that_stays_stopped_is_killed_in_the_end(self):
        with Job("-n", "2", RANK, "ignore", "2", *FAMILY, "wait") as job:
            job.hear(8)
            os.kill(job.spawner(), signal.SIGSTOP)
            # again and again: two that come at once are one
            await_true(lambda: job.process.poll() is not None or job.signal(signal.SIGINT))
            self.assertEqual(job.end()[0], -2)
            self.assertEqual(job.processes(), [])

    def test_children_that_outlive_their_rank_are_signaled_first(self):
        with Job("-n", "2", RANK, "on", "15", "0", *UNTIL_USR1, *FAMILY, "wait") as job:
            job.hear(8)
            job.signal(signal.SIGUSR1)
            # the ranks end; then two children and four daemons hear SIGTERM, each once, and end by their handler
            self.assertEqual(job.hear(8), ["0 got 10"] + ["0 got 15"] * 3 + ["1 got 10"] + ["1 got 15"] * 3)
            self.assertEqual(job.end()[0], 0)
            self.assertEqual(job.processes(), [])

    def test_children_that_ignore_the_signal_are_killed(self):
        with Job("-n", "2", "--shutdown-timeout", "100ms", RANK, "ignore", "15", *UNTIL_USR1, *FAMILY, "wait") as job:
            job.hear(8)
            job.signal(signal.SIGUSR1)
            code, _, err = job.end()
            self.assertEqual(code, 0)
            self.assertIn(b"did not stop in time", err)
            self.assertEqual(job.processes(), [])

    def test_a_signal_during_the_wait_for_children_ends_it(self):
        with Job("-n", "1", "--shutdown-timeout", "1h", RANK, "note", "15", *UNTIL_USR1, "daemon", "wait") as job:
            job.hear(1)
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(2), ["0 got 10", "0 got 15"])
            job.signal(signal.SIGINT)
            self.assertEqual(job.end()[0], -2)
            self.assertEqual(job.processes(), [])

    def test_the_spawner_is_small_and_holds_nothing(self):
        with Job("-n", "2", RANK, "tell", "up", "wait") as job:
            job.hear(2)
            pid = job.spawner()
            # those of the last start are closed when it has returned, maybe after the rank spoke
            await_true(lambda: len(os.listdir(f"/proc/{pid}/fd")) == 5, lambda: os.listdir(f"/proc/{pid}/fd"))
            names = {int(n): os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")}
            self.assertEqual([names.pop(n) for n in (0, 1, 2)], ["/dev/null"] * 3)
            self.assertEqual(sorted(names), [3, 4])
            self.assertTrue(names[3].startswith("socket:"))
            self.assertEqual(names[4], "anon_inode:[signalfd]")
            with open(f"/proc/{pid}/status") as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f)
            self.assertEqual(os.getsid(pid), pid)
            if "SANITIZED" not in os.environ:
                self.assertLess(int(status["RssAnon"].split()[0]), 512)
            with open(f"/proc/{job.process.pid}/status") as f:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in f)
            if "SANITIZED" not in os.environ:
                self.assertLess(int(status["VmRSS"].split()[0]), 10 * 1024)

    def test_a_rank_has_the_descriptors_it_is_meant_to_have(self):
        read_end, write_end = os.pipe()
        with Job("-n", "2", "sh", "-c", "ls /proc/self/fd", pass_fds=(read_end, write_end)) as job:
            code, out, _ = job.end()
            self.assertEqual(code, 0)
            self.assertEqual(sorted(out.split()), sorted(b"0 1 2 3 4 6".split() * 2))  # 4: ls reads the directory; 6: progress
        os.close(read_end)
        os.close(write_end)


main()
