"""examples/resume.c ends with the same bits, whatever happens to its ranks and to the job.

Covers: examples, worker-runtime/checkpoint, worker-runtime/group
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../lib"))
from harness import DEADLINE_S, Job  # noqa: E402

EXAMPLE = os.environ["EXAMPLE"]
RANKS = "3"
STEPS = 4000


class Resume(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="ddprun-resume-")
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, name, steps=STEPS, kill_at=(), *words):
        """-> the output of rank 0. kill_at: [(start of a line, rank)]: when the line appears, that rank is killed"""
        said, kill_at = [], list(kill_at)
        with Job("-n", RANKS, *words, EXAMPLE, self.path(name), str(steps)) as job:
            for line in job.process.stdout:
                said.append(line.decode())
                if kill_at and said[-1].startswith(kill_at[0][0]):
                    pids = sorted(job.named(os.path.basename(EXAMPLE)))
                    if len(pids) == int(RANKS):
                        os.kill(pids[kill_at.pop(0)[1]], signal.SIGKILL)
            code, _, err = job.end()
        self.assertEqual(code, 0, err)
        self.assertEqual(kill_at, [])
        return said

    def test_deaths_and_restarts_do_not_change_the_result(self):
        expected = self.train("undisturbed")[-1]
        self.assertRegex(expected, f"^{STEPS} steps, weights ")
        for on_failure in "replace", "restart":
            said = self.train(on_failure, STEPS, [("step 500:", 0), ("step 1", 2), ("step 2", 1)],
                              "--max-restarts", "3", "--on-failure", on_failure)
            self.assertEqual(said[-1], expected)
        self.train("ended", 1050)  # 50 steps after its last checkpoint
        said = self.train("ended", STEPS, [("continues", 1), ("step", 0)], "--max-restarts", "2")
        self.assertEqual(said[0], "continues after step 1000\n")
        self.assertEqual(said[-1], expected)

    def test_wrong_arguments_print_the_usage(self):
        done = subprocess.run([EXAMPLE, self.path("x")], capture_output=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"usage", done.stderr)


if __name__ == "__main__":
    unittest.main()
