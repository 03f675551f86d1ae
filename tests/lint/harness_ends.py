"""The harness of the system tests: it ends what a job left, and shows where a test waits that is ended from outside."""
import os
import signal
import subprocess
import sys
import unittest

import harness
from harness import Job, await_true, is_gone

# A launcher that ends at once and leaves a process with its output, with the job's mark or without it.
LEAVES = ["-c", "sleep 600 & echo $!"]
LEAVES_UNMARKED = ["-c", "env -i sh -c 'echo $$; exec sleep 600' &"]
WAITS = """
import threading
import harness

def waits_for_an_event():
    threading.Event().wait()

threading.Thread(target=waits_for_an_event).start()
print("waits", flush=True)
threading.Event().wait()
"""


class Harness(unittest.TestCase):
    def setUp(self):
        deadline_s = harness.DEADLINE_S
        self.addCleanup(lambda: setattr(harness, "DEADLINE_S", deadline_s))

    def test_a_process_that_outlives_its_job_is_killed(self):
        with Job(*LEAVES, launcher="/bin/sh") as job:
            left = int(job.process.stdout.readline())
        await_true(lambda: is_gone(left))

    def test_a_process_without_the_jobs_mark_that_holds_the_output_open_fails_the_test(self):
        with self.assertRaisesRegex(AssertionError, "without the job's mark"):
            with Job(*LEAVES_UNMARKED, launcher="/bin/sh") as job:
                left = int(job.process.stdout.readline())
                self.addCleanup(os.kill, left, signal.SIGKILL)
                harness.DEADLINE_S = 0.2
        self.assertFalse(os.path.exists(job.dir))

    def test_a_test_that_is_ended_by_sigterm_shows_where_its_threads_wait(self):
        env = {**os.environ, "PYTHONPATH": os.path.dirname(harness.__file__)}
        test = subprocess.Popen([sys.executable, "-c", WAITS], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(test.kill)
        self.assertEqual(test.stdout.readline(), "waits\n")
        test.terminate()
        _, err = test.communicate(timeout=harness.DEADLINE_S)
        self.assertIn("in waits_for_an_event", err)
        self.assertEqual(test.returncode, -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
