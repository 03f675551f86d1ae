"""Ranks that wait for a frozen file system, where no signal reaches them: the job still ends, and names them. Needs root, a loop
device, ext4 and fsfreeze(8). Each test waits for the time that SIGKILL is given.

Covers: launcher/diagnosis, launcher/supervisor, launcher/node
"""
import os
import signal
import subprocess
import tempfile
import unittest

from facilities import attempt
from harness import DEADLINE_S, Job, await_true, main

SCRIPT = """exec 3>>$MOUNT/log.$RANK
echo up >$TEST_FIFO
test $RANK != 1 || { while test ! -e $FROZEN; do sleep 0.05; done; echo x >&3; }
exec sleep 1000
"""


class Frozen(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = temporary.name
        self.image, self.mount, self.frozen = (os.path.join(folder, name) for name in ("image", "mount", "frozen"))
        os.mkdir(self.mount)
        with open(self.image, "wb") as f:
            f.truncate(16 << 20)
        why = "not root" if os.geteuid() != 0 else attempt("mkfs.ext4", "-q", self.image)
        why = why or attempt("mount", "-o", "loop", self.image, self.mount)
        if why is None:
            self.addCleanup(self.unmount)
            why = attempt("fsfreeze", "-f", self.mount) or attempt("fsfreeze", "-u", self.mount)
        if why is not None:
            self.skipTest(f"no file system that can be frozen: {why}")

    def unmount(self):
        await_true(lambda: subprocess.run(["umount", self.mount], capture_output=True, check=False).returncode == 0)

    def end(self, *words, by_signal=None, env=None):
        """A job whose rank 1 hangs in the file system; it is thawed when ddprun has ended, and the rank with it."""
        with Job("-n", "3", "--shutdown-timeout", "1s", *words, "sh", "-c", SCRIPT, env={"MOUNT": self.mount, "FROZEN": self.frozen, **(env or {})}) as job:
            job.hear(3)
            subprocess.run(["fsfreeze", "-f", self.mount], check=True)
            try:
                with open(self.frozen, "w", encoding="utf-8"):
                    pass
                await_true(lambda: any(is_frozen(pid) for pid in job.processes()))
                if by_signal is not None:
                    job.signal(by_signal)
                code = job.process.wait(DEADLINE_S)
            finally:
                subprocess.run(["fsfreeze", "-u", self.mount], check=True)
            _, _, err = job.end()  # the rank had the other ends of its pipes
            await_true(lambda: job.processes() == [])
            return code, err.decode()

    def check_name(self, err):
        self.assertRegex(err, rf"(?m)^    rank 1 \(pid \d+\) sleeps and cannot be woken( in \S+)?, system call write, "
                              rf"on {self.mount}/log\.1 \({self.mount}, ext4 of /dev/loop\d+\)$")

    def test_a_job_that_is_stopped_names_the_rank(self):
        code, err = self.end(by_signal=signal.SIGTERM)
        self.assertEqual(code, -signal.SIGTERM, err)
        self.check_name(err)

    def test_a_hung_rank_is_not_awaited_for_good(self):
        code, err = self.end("--hang-timeout", "2s", "--max-restarts", "3")
        self.assertNotEqual(code, 0, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 1 did not end within 10 s of SIGKILL, it sleeps and cannot be woken.*: ddprun no longer waits for it$")
        self.assertNotIn("; restart 1", err)  # this node is of no use to the job
        self.check_name(err)

    def test_torchruns_limit_of_sleep_ends_the_job(self):
        code, err = self.end(env={"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT": "2"})
        self.assertNotEqual(code, 0, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 1 hangs: rank 1 has slept uninterruptibly in the kernel for \d")
        self.check_name(err)


def is_frozen(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "D"
    except OSError:
        return False


main()
