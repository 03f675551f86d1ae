"""Programs that report their steps by lines to DDP_PROGRESS_FD: what ddprun shows of them, and what follows if they make none.

Covers: launcher/generation, launcher/supervisor, launcher/node, rendezvous/membership
"""
import json
import os
import re
import signal
import sys
import tempfile
import unittest

import prometheus
from ctl import await_running, status
from harness import Job, await_true, main, run
from http_client import get, port_of

TIMEOUT_MS = 2000  # longer than a busy machine keeps a process from running
NO_PROGRESS = 79

# ddp_torch/progress.py, without PyTorch
PYTHON_STEPS = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("progress", os.environ["SOURCE_ROOT"] + "/python/ddp_torch/progress.py")
progress = importlib.util.module_from_spec(spec)
spec.loader.exec_module(progress)
"""


def sh(*words):
    return "sh", "-c", "\n".join(words)


STEPS = 'steps() { for n in $(seq $1 $2); do echo "step $n" >&$DDP_PROGRESS_FD; done; }'
CRASH = sh(STEPS, "steps $((TORCHELASTIC_RESTART_COUNT * $1 + 1)) 5", "exit 3")


class Shown(unittest.TestCase):
    def test_steps_of_a_shell_script_are_shown(self):
        with Job("--http", "0", "-n", "2", *sh(STEPS, "steps 0 7", "echo up >$TEST_FIFO", "exec sleep 1000")) as job:
            port = port_of(job)
            job.hear(2)
            await_running(job)
            await_true(lambda: [rank["steps"] for rank in status(job)[0]["ranks"]] == [7, 7])
            rank = status(job)[0]["ranks"][0]
            self.assertIsNone(rank["waits"])  # libddp alone knows it
            self.assertIsNotNone(rank["first_step_ms"])
            metrics = prometheus.parse(get(port, "/metrics")[2])
            self.assertEqual(metrics["ddprun_steps"][2], {(): 7})
            self.assertEqual(metrics["ddprun_steps_reported"][2], {(): 1})

    def test_bad_lines_are_noted_and_harm_nothing(self):
        noise = "head -c 300000 /dev/urandom >&$DDP_PROGRESS_FD 2>/dev/null"
        with Job("-n", "1", *sh(noise, "echo >&$DDP_PROGRESS_FD", STEPS, "echo up >$TEST_FIFO",
                                "while :; do steps 1 3 2>/dev/null; sleep 0.1; done")) as job:
            job.hear(1)
            await_running(job)
            await_true(lambda: status(job)[0]["ranks"][0]["steps"] == 3)
            job.signal(signal.SIGTERM)
            err = job.end()[2].decode()
        self.assertEqual(err.count("DDP_PROGRESS_FD"), 1, err)

    def test_the_pace_names_the_rank_that_waits_least(self):
        script = sh('test $RANK = 1 && wait=0 || wait=10000', "n=0",  # however long a step takes, it is all of it
                    'while test ! -e $UNTIL; do n=$((n + 1)); echo "step $n wait_ms $wait" >&$DDP_PROGRESS_FD; sleep 0.1; done')
        with tempfile.TemporaryDirectory() as folder:
            until, events = os.path.join(folder, "until"), os.path.join(folder, "events")

            def pace():
                with open(events, encoding="utf-8") as f:
                    return [e for e in map(json.loads, f) if e["ev"] == "pace"]

            with Job("--events", events, "-n", "3", *script, env={"UNTIL": until}) as job:
                await_true(lambda: os.path.exists(events) and pace())
                with open(until, "w", encoding="utf-8"):
                    pass
                self.assertEqual(job.end()[0], 0)
            self.assertEqual({e["slowest"] for e in pace()}, {1})


class Hangs(unittest.TestCase):
    def test_rank_step_and_stacks_are_named(self):
        """Rank 1 sleeps where the others do not; all answer with their stacks."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w", encoding="utf-8") as f:
                f.write(PYTHON_STEPS + "def wait_for_the_others():\n    os.read(os.pipe()[0], 1)\n"
                        "def read_a_batch():\n    time.sleep(1000)\n"
                        "for n in range(1, 37): progress.step(n)\n"
                        "read_a_batch() if os.environ['RANK'] == '1' else wait_for_the_others()\n")
            code, _, err = run("-n", "3", "--hang-timeout", f"{TIMEOUT_MS}ms", path,
                               env={"SOURCE_ROOT": os.environ["SOURCE_ROOT"], "PYTHON_EXEC": sys.executable, "PATH": "/nonexistent"})
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: (rank 1|the job) hangs: no rank made progress for \d\.\d s.*; the last completed step is 36")
        for rank in range(3):
            self.assertRegex(err, rf"(?m)^  rank {rank}: pid \d+, .*; 36 steps completed$")
        self.assertRegex(err, r"(?s)where rank 1 is:.*in read_a_batch.*where rank 0 is:.*in wait_for_the_others.*"
                              r"where rank 2 is:.*in wait_for_the_others.*rank 1 failed: killed by SIGABRT")

    def test_the_rank_with_the_fewest_steps_is_ended(self):
        script = sh(STEPS, "steps 1 $((10 - (RANK == 2)))", "exec sleep 1000")
        code, _, err = run("-n", "3", "--hang-timeout", f"{TIMEOUT_MS}ms", "--shutdown-timeout", "60s", *script)
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 2 hangs: .*; rank 2 has completed 9 steps, others 10")

    def test_a_rank_that_makes_steps_does_not_hang(self):
        """Rank 0 alone reports them, and no rank writes anything."""
        script = sh("test $RANK != 0 || for n in $(seq 1 30); do", 'echo "step $n" >&$DDP_PROGRESS_FD; sleep 0.1', "done",
                    "test $RANK = 0 || sleep 3")
        code, _, err = run("-n", "2", "--hang-timeout", f"{TIMEOUT_MS}ms", *script)
        self.assertEqual((code, err), (0, ""))


class NoProgress(unittest.TestCase):
    def end(self, *words, **more):
        with Job(*words, **more) as job:
            code, _, err = job.end()
            self.assertEqual(job.processes(), [])
            return code, err.decode()

    def test_a_crash_loop_ends_with_its_own_status(self):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report")
            code, err = self.end("--report", report, "-n", "2", "--max-restarts", "9", "--no-progress", "3", *CRASH[:2],
                                 CRASH[2].replace("$1", "0"))
            with open(report, encoding="utf-8") as f:
                outcome = json.load(f)
        self.assertEqual(code, NO_PROGRESS, err)
        self.assertEqual(len(re.findall("; restart ", err)), 3, err)  # the first generation made progress
        self.assertRegex(err, r"(?m)^ddprun: error: rank \d failed: exit status 3")
        self.assertIn("  no progress: the last 3 generations completed no new step; this one ended after step 5 (--no-progress); "
                      "do not requeue the job unchanged\n", err)
        self.assertEqual((outcome["outcome"], outcome["exit_code"]), ("no_progress", NO_PROGRESS))

    def test_a_job_without_reported_steps_ends_too(self):
        code, err = self.end("-n", "1", "--max-restarts", "9", "--no-progress", "2", "sh", "-c", "exit 3")
        self.assertEqual(code, NO_PROGRESS, err)
        self.assertIn("no rank reported a step", err)
        self.assertEqual(len(re.findall("; restart ", err)), 1, err)

    def test_new_steps_keep_the_job_alive(self):
        script = sh(STEPS, "steps $((TORCHELASTIC_RESTART_COUNT * 5 + 1)) $((TORCHELASTIC_RESTART_COUNT * 5 + 5))",
                    "test $TORCHELASTIC_RESTART_COUNT = 4 || exit 3")
        code, err = self.end("-n", "2", "--max-restarts", "9", "--no-progress", "1", *script)
        self.assertEqual((code, len(re.findall("; restart ", err))), (0, 4), err)

    def test_the_budget_of_restarts_counts_too(self):
        script = sh(STEPS, "steps $((TORCHELASTIC_RESTART_COUNT + 1)) $((TORCHELASTIC_RESTART_COUNT + 1))", "exit 3")
        code, err = self.end("-n", "2", "--max-restarts", "2", "--no-progress", "2", *script)
        self.assertEqual((code, len(re.findall("; restart ", err))), (3, 2), err)

    def test_under_the_name_torchrun_the_status_is_1(self):
        code, err = self.end("--nproc-per-node", "1", "--max-restarts", "3", "--no-progress", "2", "--no-python", "false", name="torchrun")
        self.assertEqual(code, 1, err)

    def test_steps_are_progress_for_restarts(self):
        script = sh(STEPS, "steps 1 1", "test $TORCHELASTIC_RESTART_COUNT = 3 || exit 3")
        code, err = self.end("-n", "2", "--restart-after-progress", *script)
        self.assertEqual((code, len(re.findall(r"; restart \d \(after progress\)", err))), (0, 3), err)


main()
