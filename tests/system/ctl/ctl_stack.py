"""ddpctl stack: which rank hangs, and where, for every kind of program.

Covers: ctl/job, ctl, launcher/diagnosis
"""
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from ctl import TIMEOUT, await_running, await_socket, ctl, status
from harness import DEADLINE_S, RANK, Job, await_true, main

HANGER = os.environ["HANGER_PROGRAM"]
GDB = shutil.which("gdb")
RECORDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib/recorder.py")

SCRIPT = """
import faulthandler, os, signal, time
faulthandler.register(signal.SIGUSR2)
def read_a_batch_from_a_dead_disk():
    with open(os.environ["TEST_FIFO"], "w") as fifo:
        fifo.write(os.environ["RANK"] + " hangs\\n")
    time.sleep(3600)
read_a_batch_from_a_dead_disk()
"""


def stacks(job, *words):
    code, out, err = ctl(job, "stack", "--json", *words)
    if code != 0:
        raise AssertionError(err)
    return json.loads(out)["ranks"]


class CPrograms(unittest.TestCase):
    def await_wait(self, job):
        """Until the others wait for rank 1 in a call. ddprun may not have heard yet that they were started."""
        def found():
            code, out, _ = ctl(job, "stack", "--json", "all", "-n")
            calls = [r.get("calls") for r in json.loads(out)["ranks"]] if code == 0 else []
            return [c[0]["state"] for c in calls if c]
        await_true(lambda: found() == ["waits", "outside", "waits"], lambda: ctl(job, "status", *TIMEOUT))

    def test_a_rank_missing_in_a_collective_is_named(self):
        with Job("-n", "3", HANGER, "sleep") as job:
            await_socket(job)
            self.await_wait(job)
            code, out, err = ctl(job, "stack", "all", "--no-tools")
            self.assertEqual(code, 0, err)
            self.assertRegex(out.splitlines()[0],
                             r"^rank 1 is missing in all_reduce #\d+ \(3.906 KiB, float32\): ranks 0 and 2 wait in it$")
            self.assertRegex(out, r"(?m)^  libddp: 2 steps; it waits in all_reduce #\d+ ")
            (node,) = status(job)
            self.assertEqual([r["steps"] for r in node["ranks"]], [2, 2, 2])
            self.assertEqual([r["waits"] for r in node["ranks"]], [True, False, True])
            self.assertEqual(node["pace"]["steps"], 2)
            for rank in node["ranks"]:  # a rank may be faster than the report of its start
                for stage in "started_ms", "came_ms", "joined_ms", "first_step_ms":
                    self.assertGreaterEqual(rank[stage], 0)
            self.assertRegex(ctl(job, "status", "--start", *TIMEOUT)[1],
                             r"(?m)^  last: rank [0-2] completed its first step after ")
            self.assertIn("LAST CALL", ctl(job, "status", *TIMEOUT)[1])

    @unittest.skipUnless(GDB, "gdb is not installed; install it")
    @unittest.skipIf("SANITIZED" in os.environ, "gdb is slow with so many symbols")
    def test_gdb_shows_where_a_rank_is(self):
        with Job("-n", "3", HANGER, "sleep") as job:
            await_socket(job)
            self.await_wait(job)
            (rank,) = stacks(job, "1")
            if "ptrace: " in (rank["note"] or ""):
                self.skipTest(f"processes may not be traced here: {rank['note']}")
            self.assertEqual(rank["source"], "gdb", rank)
            self.assertIn("sleep_for_good", rank["stack"])
            self.assertEqual(job.process.poll(), None)  # and it lives on
            await_true(lambda: stacks(job, "1", "-n")[0]["state"] == "S")

    def test_a_sleeping_and_a_stopped_rank_are_shown(self):
        with Job("-n", "2", RANK, "pid", "wait") as job:
            pids = {int(line.split()[0]): int(line.split()[2]) for line in job.hear(2)}
            await_running(job)
            os.kill(pids[1], signal.SIGSTOP)
            await_true(lambda: [r["state"] for r in stacks(job, "all", "-n")] == ["S", "T"])
            code, out, err = ctl(job, "stack", "all", "-n")
            self.assertEqual(code, 0, err)
            self.assertRegex(out, rf"(?m)^rank 0 \(pid {pids[0]}, rank\): sleeps")
            self.assertRegex(out, rf"(?m)^rank 1 \(pid {pids[1]}, rank\): is stopped by a signal")
            (stopped,) = stacks(job, "1")  # with tools: ddprun does not touch it, and does not wait for it
            self.assertEqual((stopped["state"], stopped["stack"]), ("T", None))

    def test_an_ended_rank_has_no_stack(self):
        with Job("-n", "2", RANK, "only", "1", "exit", "0", "end", "tell", "here", "wait") as job:
            job.hear(1)
            await_socket(job)
            await_true(lambda: status(job)[0]["ranks"][1]["state"] == "ended")
            self.assertEqual([r["rank"] for r in stacks(job, "all", "-n")], [0])
            code, _, err = ctl(job, "stack", "1", "-n")
            self.assertEqual((code, err), (1, "ddpctl: error: this rank is not running\n"))


class Scripts(unittest.TestCase):
    def test_a_python_rank_prints_its_stack_on_its_signal(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "train.py")
            with open(path, "w", encoding="utf-8") as f:
                f.write(SCRIPT)
            with Job("-n", "2", path, env={"PYTHON_EXEC": sys.executable}) as job:
                job.hear(2)
                await_running(job)
                for rank in stacks(job, "all", "--signal", "USR2"):
                    self.assertEqual(rank["source"], "signal", rank)
                    self.assertIn("in read_a_batch_from_a_dead_disk", rank["stack"])
                code, out, _ = ctl(job, "stack", "1", "-s", "USR2")
                self.assertEqual(code, 0)
                self.assertRegex(out, r'(?m)^    File ".*train.py", line \d+ in read_a_batch_from_a_dead_disk$')

    def test_a_rank_without_a_handler_is_not_signaled(self):
        with Job("-n", "2", RANK, "note", str(int(signal.SIGUSR1)), "pid", "wait") as job:
            job.hear(2)
            await_running(job)
            for rank in stacks(job, "all", "-n", "-s", "USR2"):
                self.assertEqual(rank["note"], "it has no handler for SIGUSR2")
            for rank in stacks(job, "0", "-n", "-s", "USR1"):  # one that is not for this
                self.assertEqual(rank["note"], "it wrote nothing when it got the signal")
            self.assertEqual(job.hear(1), [f"0 got {int(signal.SIGUSR1)}"])
            self.assertEqual([r["state"] for r in status(job)[0]["ranks"]], ["running", "running"])

    def test_a_stderr_that_goes_to_a_file_is_named(self):
        with tempfile.TemporaryDirectory() as folder, \
                Job("-n", "1", "--log-dir", folder, "-r", "3", RANK, "note", str(int(signal.SIGUSR1)), "pid",
                    "wait") as job:
            job.hear(1)
            await_running(job)
            (rank,) = stacks(job, "0", "-n", "-s", "USR1")
            self.assertIn(f"its output is in {folder}", rank["note"])


class FlightRecorder(unittest.TestCase):
    """tests/system/lib/recorder.py is a mock of torch's process group for NCCL. Real records:
    tests/interop/flight_recorder.py."""

    @contextlib.contextmanager
    def job(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            env = {"PYTHON_EXEC": sys.executable, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": folder + "/pipe_",
                   "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": folder + "/dump_"}
            with Job("-n", "2", *words, RECORDER, env=env) as job:
                job.hear(2)
                await_running(job)
                yield job, folder

    def test_dumps_are_collected_in_the_log_directory(self):
        with tempfile.TemporaryDirectory() as logs, self.job("--log-dir", logs) as (job, _):
            code, out, err = ctl(job, "stack", "all", "-n")
            self.assertEqual(code, 0, err)
            self.assertRegex(out, r"(?m)^  dumps of 2 ranks; to compare them, run\n"
                                  rf"    python -m torch\.distributed\.flight_recorder\.fr_trace {logs}/")
            (folder,) = glob.glob(logs + "/*/attempt_0/flight_recorder")
            for rank in "01":
                with open(f"{folder}/rank_{rank}", encoding="utf-8") as dump:
                    self.assertEqual(dump.read(), f"what rank {rank} has kept")

    def test_without_a_log_directory_the_report_names_the_dumps(self):
        with self.job() as (job, folder):
            code, out, err = ctl(job, "stack", "--json", "1", "-n")
            self.assertEqual(code, 0, err)
            self.assertEqual(json.loads(out)["dumps"], [{"rank": 1, "file": folder + "/dump_1", "note": None}])

    def test_ddpctl_does_not_wait_for_a_rank_without_a_dump_pipe(self):
        env = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/nonexistent/pipe_"}
        with Job("-n", "2", RANK, "pid", "wait", env=env) as job:
            job.hear(2)
            await_running(job)
            self.assertIn("rank 1: no NCCL process group is listening on its pipe\n", ctl(job, "stack", "all", "-n")[1])


class Others(unittest.TestCase):
    @contextlib.contextmanager
    def looked_at(self):
        """A job of one rank and a ddpctl that looks at it. The tool here is one of ours that never ends: stand-in for a gdb that
        takes long."""
        with tempfile.TemporaryDirectory() as folder:
            tool = os.path.join(folder, "gdb")
            begun = os.path.join(folder, "begun")
            with open(tool, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\necho > {begun}\nexec sleep 1000\n")
            os.chmod(tool, 0o755)
            with Job("-n", "1", RANK, "pid", "wait", env={"PATH": folder + ":" + os.environ["PATH"]}) as job:
                job.hear(1)
                await_running(job)
                env = {**os.environ, "XDG_RUNTIME_DIR": job.runtime}
                with subprocess.Popen([os.environ["DDPCTL"], "stack", "0", str(job.process.pid)], env=env,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) as looker:
                    await_true(lambda: os.path.exists(begun))
                    yield job, looker

    def test_ddprun_continues_while_tools_run(self):
        with self.looked_at() as (job, looker):
            self.assertEqual(status(job)[0]["state"], "running")
            code, _, err = ctl(job, "stack", "0", "-n")
            self.assertEqual((code, err), (1, "ddpctl: error: another ddpctl command is in progress; try again\n"))
            looker.kill()
            looker.wait(DEADLINE_S)
            # ddprun does not wait for the tool any more: it has exited, and the next one may run
            await_true(lambda: ctl(job, "stack", "0", "-n")[0] == 0)
            self.assertEqual(ctl(job, "stop", *TIMEOUT)[0], 0)
            self.assertEqual(job.end()[0], -signal.SIGTERM)
            job.await_gone()

    def test_no_tool_outlives_its_job(self):
        with self.looked_at() as (job, looker):
            job.signal(signal.SIGTERM)
            self.assertEqual(job.end()[0], -signal.SIGTERM)
            self.assertEqual(looker.wait(DEADLINE_S), 69)
            job.await_gone()


if __name__ == "__main__":
    main()
