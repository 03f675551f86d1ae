"""Ranks under valgrind with its search for leaks: it finds none, and does not fill the machine's memory by reading what is shared.

Covers: worker-runtime/core
"""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

DDPRUN = os.environ["DDPRUN"]
STEPPER = os.environ["STEPPER_PROGRAM"]
DEADLINE_S = 3 * float(os.environ.get("TEST_DEADLINE_S", "60"))
MOST_KIB = 1 << 20  # of shared memory that a process of the job may have: two segments, and some


def fields_of(path):
    with open(path, encoding="utf-8") as file:
        return dict(line.split(":", 1) for line in file)


def descendants(of):
    """Their pids, and the most shared memory that one of them has, in KiB."""
    children, shared = {}, {}
    for path in glob.glob("/proc/[0-9]*/status"):
        try:
            fields = fields_of(path)
        except OSError:  # it has ended
            continue
        pid = int(fields["Pid"])
        children.setdefault(int(fields["PPid"]), []).append(pid)
        shared[pid] = int(fields.get("RssShmem", "0").split()[0])
    found = [of]
    for pid in found:
        found += children.get(pid, [])
    return found, max(shared.get(pid, 0) for pid in found)


class Valgrind(unittest.TestCase):
    def setUp(self):
        if shutil.which("valgrind") is None:
            self.skipTest("there is no valgrind")
        if "SANITIZED" in os.environ:
            self.skipTest("valgrind does not run programs of a sanitizer")

    def test_ranks_are_searched_for_leaks_without_filling_the_memory(self):
        environment = {name: value for name, value in os.environ.items() if name != "DDP_SEGMENT_BYTES"}
        with tempfile.TemporaryFile() as said:
            job = subprocess.Popen([DDPRUN, "-n", "2", "valgrind", "--leak-check=full", "--show-leak-kinds=definite",
                                    "--errors-for-leak-kinds=definite", "--error-exitcode=9", "-q", STEPPER, "3", "0"],
                                   env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            end = time.monotonic() + DEADLINE_S
            most = 0
            while job.poll() is None and most <= MOST_KIB and time.monotonic() < end:
                pids, shared = descendants(job.pid)
                most = max(most, shared)
                time.sleep(0.02)
            if job.poll() is None:  # before it fills the machine
                for pid in reversed(pids):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                job.wait()
            said.seek(0)
            self.assertLessEqual(most, MOST_KIB, "KiB of shared memory")
            self.assertEqual(job.returncode, 0, said.read().decode())


if __name__ == "__main__":
    unittest.main()
