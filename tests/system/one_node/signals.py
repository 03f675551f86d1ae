"""Signals to ddprun reach the ranks; the job ends or goes on as they say.

Covers: launcher/supervisor, launcher/node, launcher/spawner
"""
import os
import signal
import subprocess
import unittest

from harness import DDPRUN, RANK, Job, main

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Signals(unittest.TestCase):
    def test_ddprun_dies_of_the_signal_after_its_ranks_had_it(self):
        for sig in STOPPING:
            with self.subTest(sig=sig.name), Job("-n", "2", RANK, "on", str(int(sig)), "0", "tell", "up", "wait") as job:
                job.hear(2)
                job.signal(sig)
                self.assertEqual(job.hear(2), [f"0 got {int(sig)}", f"1 got {int(sig)}"])
                code, _, err = job.end()
                self.assertEqual(code, -sig)
                self.assertIn(f"stopped by {sig.name}".encode(), err)
                self.assertEqual(job.processes(), [])

    def test_no_core_is_left_by_sigquit(self):
        with Job("-n", "1", RANK, "on", "3", "0", "tell", "up", "wait") as job:
            job.hear(1)
            job.signal(signal.SIGQUIT)
            job.process.stdout.close()
            job.process.stderr.close()
            _, status = os.waitpid(job.process.pid, 0)
            job.process.returncode = -3
            self.assertEqual(os.WTERMSIG(status), 3)
            self.assertFalse(os.WCOREDUMP(status))

    def test_others_are_passed_on_and_the_job_goes_on(self):
        for sig in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT):
            n = str(int(sig))
            with self.subTest(sig=sig.name), Job("-n", "2", RANK, "note", n, "on", "15", "0", "tell", "up", "wait") as job:
                job.hear(2)
                for _ in range(3):
                    job.signal(sig)
                    self.assertEqual(job.hear(2), [f"0 got {n}", f"1 got {n}"])
                job.signal(signal.SIGTERM)
                job.hear(2)
                self.assertEqual(job.end()[0], -15)

    def test_only_the_first_process_of_a_rank_is_signalled(self):
        with Job("-n", "1", RANK, "note", "10", "child", "on", "15", "0", "tell", "up", "wait") as job:
            job.hear(2)
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(1), ["0 got 10"])
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(1), ["0 got 15"])  # the child had a handler for 10 only; and is swept
            self.assertEqual(job.end()[0], -15)
            self.assertEqual(job.processes(), [])

    def test_a_second_interrupt_kills_at_once(self):
        with Job("-n", "2", RANK, "note", "2", "tell", "up", "wait") as job:
            job.hear(2)
            job.signal(signal.SIGINT)
            self.assertEqual(job.hear(2), ["0 got 2", "1 got 2"])
            job.signal(signal.SIGINT)
            self.assertEqual(job.end()[0], -2)
            self.assertEqual(job.processes(), [])

    def test_ranks_that_do_not_stop_are_killed_with_their_group(self):
        with Job("-n", "2", "--shutdown-timeout", "100ms", RANK, "ignore", "15", "child", "tell", "up", "wait") as job:
            job.hear(4)
            job.signal(signal.SIGTERM)
            code, _, err = job.end()
            self.assertEqual(code, -15)
            self.assertIn(b"did not stop in time", err)
            self.assertEqual(job.processes(), [])

    def test_after_a_failure_ranks_get_sigterm_then_sigkill(self):
        with Job("-n", "2", "--shutdown-timeout", "2s", RANK, "only", "1", "note", "15", "tell", "up", "wait", "end",
                 "on", "10", "6", "tell", "up", "wait") as job:  # in which rank 1 has a CPU to tell of it
            job.hear(2)
            for pid in job.processes():
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if b"RANK=0" in f.read().split(b"\0"):
                        os.kill(pid, signal.SIGUSR1)
            self.assertEqual(job.hear(2), ["0 got 10", "1 got 15"])
            code, _, err = job.end()
            self.assertEqual(code, 6)
            self.assertIn(b"rank 1: stopped by ddprun (SIGKILL)", err)

    def test_nohup_is_respected(self):
        with Job("-n", "1", RANK, "note", "1", "on", "15", "0", "tell", "up", "wait",
                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as job:
            job.hear(1)
            job.signal(signal.SIGHUP)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(1), ["0 got 15"])
            self.assertEqual(job.end()[0], -15)

    def test_ranks_start_with_default_dispositions_and_no_signal_blocked(self):
        def spoil():
            for sig in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD, signal.SIGUSR1):
                signal.signal(sig, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])

        with Job("-n", "1", "cat", "/proc/self/status", preexec_fn=spoil) as job:
            code, out, _ = job.end()
            self.assertEqual(code, 0)
            sets = dict(line.split(":\t", 1) for line in out.decode().splitlines())
            self.assertEqual([sets[name] for name in ("SigBlk", "SigIgn", "SigCgt")], ["0" * 16] * 3)

    def test_the_first_process_of_a_container_exits_with_128_and_the_signal(self):
        unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
        if os.geteuid() != 0:
            unshare += ["--user", "--map-root-user"]
        if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("no PID namespaces here")
        script = f'{DDPRUN} -n 1 sh -c "kill -TERM 1; exec sleep 1000"'
        done = subprocess.run([*unshare, "sh", "-c", "exec " + script], capture_output=True, timeout=30)
        self.assertEqual(done.returncode, 143, done.stderr)


main()
