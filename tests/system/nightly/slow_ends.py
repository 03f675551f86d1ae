"""A rank that SIGKILL ends slowly: the kernel frees its memory, and other processes have the processor. The job waits for it, and then
continues. All of it runs as an ordinary user, without the right to give a process its priority back. The test waits for the time that
SIGKILL is given.

Covers: launcher/supervisor, launcher/spawner, launcher/node, common
"""
import os
import signal
import tempfile
import unittest

from harness import DDPRUN, DEADLINE_S, Job, main

OTHER_UID = 65534

# Rank 0 has much memory, does not end by SIGTERM, and runs where nothing else wants to: 24 processes that it has started want to, each of
# which has 340 times its time. They are in its session, among which the kernel may share time first, and not in its process group, which
# is killed. Rank 1 fails when it can open the FIFO.
PROGRAM = """
import mmap, os, signal, sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "0":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        ready, writer = os.pipe()
        busy = []
        for _ in range(24):
            busy.append(os.fork())
            if busy[-1] == 0:
                os.close(writer)
                os.read(ready, 1)
                while True:
                    pass
        memory = mmap.mmap(-1, 400 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory[::4096] = bytes([1]) * (len(memory) // 4096)
        for pid in busy:
            os.setpgid(pid, pid)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        os.close(writer)
        os.write(os.open(os.environ["TEST_FIFO"], os.O_WRONLY), f"{' '.join(map(str, busy))}\\n".encode())
        while True:
            signal.pause()
    os.open(os.environ["FAIL"], os.O_RDONLY)
    sys.exit(1)
"""


class SlowEnds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(OTHER_UID, OTHER_UID, OTHER_UID)
            os.setresuid(OTHER_UID, OTHER_UID, OTHER_UID)
        if not os.access(DDPRUN, os.X_OK):
            raise unittest.SkipTest("an ordinary user cannot execute ddprun here")

    def test_the_job_restarts_when_it_has_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            fail = os.path.join(folder, "fail")
            os.mkfifo(fail)
            with Job("-n", "2", "--max-restarts", "1", "--shutdown-timeout", "1s", "/usr/bin/python3", "-c", PROGRAM, env={"FAIL": fail}) as job:
                busy, = job.hear(1)
                os.close(os.open(fail, os.O_WRONLY))
                while b" s of SIGKILL" not in job.said:
                    said = job.read_stderr()
                    job.said += said
                    if not said:
                        self.assertIn(b"; restart 1 of 1", job.said)
                        self.skipTest("the kernel has freed 400 MiB in less than 10 s, beside 24 processes that are busy")
                for pid in map(int, busy.split()):
                    os.kill(pid, signal.SIGKILL)
                err = job.said + job.process.communicate(timeout=4 * DEADLINE_S)[1]
                self.assertEqual(job.process.returncode, 0, err)
        self.assertRegex(err, rb"(?m)^ddprun: note: process \d+ has not ended within 10 s of SIGKILL, but is still running in the kernel")
        self.assertIn(b"; restart 1 of 1", err)
        self.assertNotIn(b"survived SIGKILL", err)


main()
