"""Machines that lack something: read-only directories, little shared memory, few descriptors, little address space. The job runs, or
reports what is missing. The tests run in mount namespaces, so that the machine itself does not change.

Covers: launcher/node, launcher/generation, launcher/spawner, launcher/membership, segments
"""
import os
import resource
import shutil
import signal
import tempfile
import unittest

from facilities import lacks_namespaces
from harness import DDPRUN, RANK, Job, await_true, main, run
from node import Node, SHOW, static
from ports import free_port
from recovery_job import RECOVERY_RANK

UP = ("tell", "up", "wait")
TRAIN = (RECOVERY_RANK, "1", "20", "0")
READ_ONLY = "mount -t tmpfs none {0} && mount -o remount,ro {0}"
SMALL = "mount -t tmpfs -o size=16k none /dev/shm"

# Of what can be without: (what is done to the mounts, more of the environment)
WITHOUT = {
    "a TMPDIR that can be written": (READ_ONLY.format("$D/tmp"), {"TMPDIR": "$D/tmp"}),
    "/dev/shm that can be written": (READ_ONLY.format("/dev/shm"), {}),
    "/dev/shm of more than 16 KiB": (SMALL, {}),
    "/run that can be written": (READ_ONLY.format("/run"), {"XDG_RUNTIME_DIR": ""}),
    "HOME that can be written": (READ_ONLY.format("$D/home"), {"HOME": "$D/home"}),
    "HOME at all": ("true", {"HOME": "/nonexistent"}),
}


class Mounts(unittest.TestCase):
    def setUp(self):
        self.unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
        if lacks_namespaces(*self.unshare[1:]):
            self.skipTest(lacks_namespaces(*self.unshare[1:]))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        for name in "tmp", "home":
            os.mkdir(os.path.join(self.folder, name))

    def job(self, mounts, *args, env=None, after=""):
        script = f'D="{self.folder}"; {mounts} && "$0" "$@"; code=$?; {after} exit $code'
        env = {name: value.replace("$D", self.folder) for name, value in (env or {}).items()}
        return Job(*self.unshare[1:], "sh", "-c", script, DDPRUN, *args, env=env, launcher=shutil.which("unshare"))

    def test_libddp_ranks_train_in_restricted_environments(self):
        for name, (mounts, env) in WITHOUT.items():
            with self.subTest(name), self.job(mounts, "-n", "2", *TRAIN, env=env) as job:
                code, out, err = job.end()
                self.assertEqual(code, 0, err)
                self.assertGreaterEqual(out.count(b"\nstep "), 2)

    def test_nothing_is_left_in_shared_memory(self):
        """For a job that succeeds, and for one whose ranks crash."""
        for name, words, status in (("well", TRAIN, 0), ("crash", (RANK, "die", str(int(signal.SIGKILL))), 137)):
            with self.subTest(name), self.job("mount -t tmpfs none /dev/shm", "-n", "2", *words, after="ls -A /dev/shm >$D/left;") as job:
                self.assertEqual(job.end()[0], status)
                with open(os.path.join(self.folder, "left"), encoding="utf-8") as f:
                    self.assertEqual(f.read(), "")


class Limits(unittest.TestCase):
    def limited(self, which, limit, *args):
        with Job(*args, preexec_fn=lambda: resource.setrlimit(which, (limit, limit))) as job:
            code, out, err = job.end()
            return code, out.decode(), err.decode()

    def test_20_open_files(self):
        code, out, err = self.limited(resource.RLIMIT_NOFILE, 20, "-n", "2", "true")
        self.assertEqual((code, out), (70, ""))
        self.assertIn("ulimit -n", err)

    def test_little_address_space(self):
        """If it is too little for the ranks, they fail; if it is too little for ddprun, that is its error. Neither hangs or crashes."""
        for limit in 8 << 20, 32 << 20, 128 << 20, 1 << 30:
            with self.subTest(limit):
                code, _, err = self.limited(resource.RLIMIT_AS, limit, "-n", "2", *TRAIN)
                self.assertIn(code, (0, 1, 2, 70, 126, 127), err)
                self.assertTrue(code == 0 or err, "it fails without a word")


class Sizes(unittest.TestCase):
    def test_64_ranks(self):
        with Job("-n", "64", RANK, *UP) as job:
            self.assertEqual(len(job.hear(64)), 64)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.end()[0], -signal.SIGTERM)
            await_true(lambda: not job.processes())

    def test_64_libddp_ranks(self):
        code, out, err = run("-n", "64", RECOVERY_RANK, "1", "2", "0", env={"DDP_SEGMENT_BYTES": "16M"})
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("step 1 "), 64)


class Names(unittest.TestCase):
    def test_a_master_of_ipv6(self):
        port = free_port()
        with Node(*static(port, 0, host="::1"), *SHOW) as a, Node(*static(port, 1, host="::1"), *SHOW) as b:
            self.assertEqual((a.finish(), b.finish()), ((0, "", ""), (0, "", "")))
            self.assertIn(f" ::1:{port} ", a.hear(1)[0])

    def test_localhost_as_a_host(self):
        code, out, err = run("-n", "2", "-H", "localhost", "sh", "-c", "echo $RANK of $WORLD_SIZE")
        self.assertEqual((code, sorted(out.splitlines())), (0, ["0 of 2", "1 of 2"]), err)


main()
