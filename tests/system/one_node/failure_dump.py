"""--on-failure-dump: what is kept of a failure, and that the ranks are looked at before they are stopped.

Covers: launcher/node, launcher/reporting, launcher/diagnosis
"""
import contextlib
import glob
import json
import os
import re
import signal
import sys
import tempfile
import unittest

from ctl import await_running
from harness import Job, main, run
from node import Node, static
from ports import free_port
from recovery_job import RECOVERY_RANK, STEP_MS, Endless, Ranks
from ras_server import RasServer

# ddp_torch/progress.py, without PyTorch: these ranks print their stacks themselves. All are ready before one fails.
PYTHON = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("progress", os.environ["SOURCE_ROOT"] + "/python/ddp_torch/progress.py")
progress = importlib.util.module_from_spec(spec)
spec.loader.exec_module(progress)
progress.step(1)
rank, fifo = int(os.environ["RANK"]), os.environ["READY"]
def wait_for_the_others():
    open(fifo, "w").write("x")
    time.sleep(1000)
def fail():
    ready = os.open(fifo, os.O_RDWR)
    assert os.read(ready, 1) + os.read(ready, 1) == b"xx"
    print("</pre><script>alert(1)</script>", file=sys.stderr)
    sys.exit(3)
fail() if rank == 1 else wait_for_the_others()
"""


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


class Dumps(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name
        self.dir = os.path.join(self.folder, "a", "dumps")

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def dumps(self):
        return sorted(glob.glob(self.dir + "/*/attempt_*"))

    def only_dump(self):
        (path,) = self.dumps()
        return path

    def check_page(self, folder, *parts):
        page = read(folder, "index.html")
        for part in parts:
            self.assertIn(part, page)
        self.assertNotIn("<script", page)
        for name in re.findall(r'href="([^"]*)"', page):
            self.assertTrue(os.path.exists(os.path.join(folder, name)), name)
        return page


class Failures(Dumps):
    def test_a_failed_rank_leaves_the_stacks_of_the_others(self):
        script, ready = self.write("train.py", PYTHON), os.path.join(self.folder, "ready")
        os.mkfifo(ready)
        with Job("-n", "3", "--on-failure-dump", self.dir, "--rdzv-id", "j/7", script,
                 env={"PYTHON_EXEC": sys.executable, "PATH": "/nonexistent", "READY": ready}) as job:
            code, _, err = job.end()
            self.assertEqual(job.processes(), [])
        err = err.decode()
        self.assertEqual(code, 3, err)
        folder = self.only_dump()
        self.assertIn(f"ddprun: note: what is known about this failure is in {folder}/index.html\n", err)
        self.assertRegex(folder, r"/a/dumps/j_7_\w{6}/attempt_0$")
        self.assertEqual(os.stat(os.path.dirname(folder)).st_mode & 0o777, 0o700)
        self.check_page(folder, "rank 1 failed: exit status 3", "&lt;/pre&gt;&lt;script&gt;", "<td>stopped by ddprun (SIGTERM)</td>")
        for rank in 0, 2:
            self.assertRegex(read(folder, f"rank_{rank}.txt"), r"(?s)stopped by ddprun \(SIGTERM\)\n.*in wait_for_the_others")
        self.assertRegex(read(folder, "rank_1.txt"), r"(?s)^rank 1, pid \d+: exit status 3\n.*\n</pre><script>alert")
        self.assertIn("rank 1 failed: exit status 3", read(folder, "report.txt"))
        stacks = {stack["rank"]: stack for stack in json.loads(read(folder, "stacks.json"))}
        self.assertEqual(stacks[0]["source"], "signal")
        self.assertIn("wait_for_the_others", stacks[2]["stack"])

    def test_each_generation_that_fails_has_its_own(self):
        code, _, err = run("-n", "2", "--max-restarts", "1", "--on-failure-dump", self.dir, "sh", "-c",
                           "echo oops $TORCHELASTIC_RESTART_COUNT >&2; exit 5", env={"PATH": os.environ["PATH"]})
        self.assertEqual(code, 5, err)
        dumps = self.dumps()
        self.assertEqual([os.path.basename(path) for path in dumps], ["attempt_0", "attempt_1"])
        for i, path in enumerate(dumps):
            self.check_page(path, f"generation {i}, node 0 on ", f"oops {i}\n")
        self.assertIn("; restart 1 of 1", read(dumps[0], "report.txt"))

    def test_a_job_that_succeeds_or_is_stopped_leaves_nothing(self):
        self.assertEqual(run("-n", "2", "--on-failure-dump", self.dir, "true")[0], 0)
        with Job("-n", "2", "--on-failure-dump", self.dir, "sh", "-c", "echo up >$TEST_FIFO; exec sleep 1000") as job:
            job.hear(2)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.end()[0], -signal.SIGTERM)
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_directory_that_cannot_be_made_is_an_error_at_once(self):
        path = self.write("file", "")
        code, _, err = run("-n", "1", "--on-failure-dump", path + "/dumps", "sh", "-c", "echo started")
        self.assertEqual(code, 70, err)
        self.assertRegex(err, r"^ddprun: error: --on-failure-dump: cannot make log directory '.*': Not a directory\n$")

    def test_a_timeout_is_a_failure(self):
        code, _, err = run("-n", "2", "--timeout", "1s", "--on-failure-dump", self.dir, "sleep", "1000")
        self.assertEqual(code, 124, err)
        self.check_page(self.only_dump(), "the job timed out after", "<td>sleeps")

    def test_a_rank_that_hangs_is_a_failure(self):
        script = "echo up $RANK >&2; exec sleep 1000"
        code, _, err = run("-n", "2", "--hang-timeout", "2s", "--on-failure-dump", self.dir, "sh", "-c", script)
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.check_page(self.only_dump(), "terminated by ddprun because it hung", "<td>sleeps", "up 0\n", "up 1\n")

    def test_nccl_and_torchs_dumps_are_kept(self):
        """The server is a mock of NCCL, see there; instead of torch, the ranks write a file."""
        script = 'echo "kept by $RANK" >$FOLDER/dump_$RANK; sleep 1000 & echo $! >$FOLDER/$RANK.new; mv $FOLDER/$RANK.new $FOLDER/$RANK; ' \
            'test $RANK = 0 || wait; while ! test -e $FOLDER/1; do sleep 0.1; done; kill %1; exit 4'

        def pids():
            return [int(read(self.folder, str(rank))) for rank in range(2)]

        with RasServer(pids, [41, 40]) as server:
            code, _, err = run("-n", "2", "--on-failure-dump", self.dir, "sh", "-c", script,
                               env={"FOLDER": self.folder, "NCCL_RAS_ADDR": server.address, "TORCH_FR_DUMP_TEMP_FILE": self.folder + "/dump_"})
        self.assertEqual(code, 4, err)
        folder = self.only_dump()
        self.check_page(folder, "rank 1 (pid ", " lags: it has started 40 AllReduce, others 41")
        self.assertEqual(json.loads(read(folder, "nccl_ras.json"))["communicators"][0]["size"], 2)
        self.assertEqual(sorted(read(path) for path in glob.glob(folder + "/flight_recorder/rank_?")), ["kept by 0\n", "kept by 1\n"])

    def test_a_signal_ends_a_job_whose_ranks_are_looked_at(self):
        """The debugger is a mock of gdb that never ends."""
        self.write("gdb", "#!/bin/sh\necho gdb >$TEST_FIFO\nexec sleep 1000\n", 0o755)
        with Job("-n", "2", "--on-failure-dump", self.dir, "sh", "-c",
                 "test $RANK = 0 && exec sleep 1000; exit 3", env={"PATH": self.folder + ":" + os.environ["PATH"]}) as job:
            job.hear(1)
            job.signal(signal.SIGTERM)
            code, _, err = job.end()
            self.assertEqual(job.processes(), [])
        self.assertEqual(code, -signal.SIGTERM, err)
        self.check_page(self.only_dump(), "there was no time left for it")


class Recovery(Dumps):
    def test_a_rank_that_is_replaced_leaves_a_dump(self):
        with Endless("-n", "2", "--max-restarts", "1", "--on-failure-dump", self.dir, RECOVERY_RANK, "1000000", "40", STEP_MS) as job:
            ranks = Ranks(job)
            ranks.hear_until(lambda: len(ranks.steps) > 10 and len(ranks.pids) == 2)
            os.kill(ranks.pids[1], signal.SIGKILL)
            ranks.hear_until(lambda: ranks.generation == 1)
            job.end_training()
            ranks.hear_all()
            code, _, err = job.end()
        self.assertEqual(code, 0, err)
        self.check_page(self.only_dump(), "<td class=\"bad\">killed by SIGKILL", "<td>continues</td>")


class Nodes(Dumps):
    def test_each_node_writes_about_its_own_ranks(self):
        """Node 0 looks at its rank before it stops it, though the rank that failed is on node 1."""
        go = os.path.join(self.folder, "go")
        os.mkfifo(go)
        port = free_port()
        script = 'test $RANK = 0 && exec sleep 1000; read x <$GO; echo oops >&2; exit 9'
        with contextlib.ExitStack() as stack:
            nodes = [stack.enter_context(Node("-p", "1", "--on-failure-dump", self.dir, *static(port, i), "sh", "-c", script, env={"GO": go}))
                     for i in range(2)]
            for node in nodes:
                await_running(node)
            with open(go, "w", encoding="ascii") as f:
                f.write("go\n")
            for node in nodes:
                self.assertEqual(node.finish()[0], 9)
                self.assertEqual(node.processes(), [])
        pages = sorted(map(self.check_page, self.dumps()), key=lambda page: "node 1 on " in page)
        self.assertEqual(len(pages), 2)
        self.assertRegex(pages[0], r"(?s)node 0 on .*<td>stopped by ddprun \(SIGTERM\)</td><td>sleeps")
        self.assertNotIn("oops", pages[0])
        self.assertRegex(pages[1], r"(?s)rank 1 failed: exit status 9.*<td class=\"bad\">exit status 9</td>.*oops\n")


main()
