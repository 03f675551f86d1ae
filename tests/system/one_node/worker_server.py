"""torch's worker server in ranks that do not start it: what scripts see of it, and what ddprun learns from it. torch is a double
(lib/torch_double); tests/interop/run.py has the real one.

Covers: launcher/torch, launcher/node, launcher/diagnosis
"""
import glob
import json
import os
import signal
import sys
import tempfile
import unittest

from ctl import await_running, ctl
from harness import Job, main, run

LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib")
DOUBLE = os.path.join(LIB, "torch_double")
TIMEOUT = ("--hang-timeout", "2s", "--shutdown-timeout", "60s")  # longer than a busy machine keeps a process from running

HANG = """
import json, os, sys, time
rank = int(os.environ["RANK"])
entry = {"process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "state": "scheduled", "is_p2p": False}
os.environ["TRACE"] = json.dumps({"entries": [{**entry, "collective_seq_id": 37, "retired": True}]
                                  + ([] if rank == 1 else [{**entry, "collective_seq_id": 38, "retired": False}])})
import torch.distributed
def wait_in_all_reduce():
    if "TEST_FIFO" in os.environ:
        open(os.environ["TEST_FIFO"], "w").write("up\\n")
    time.sleep(1000)
def read_a_batch():
    wait_in_all_reduce()
read_a_batch() if rank == 1 else wait_in_all_reduce()
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def env(self, **more):
        """Without a debugger in PATH."""
        return {"PYTHON_EXEC": sys.executable, "PYTHONPATH": DOUBLE, "PATH": "/nonexistent", **more}

    def run_script(self, text, *words, n=1, **env):
        return run("-n", str(n), *words, self.write("train.py", text), env=self.env(**env))


class Hidden(Scripts):
    SHOW = """
import os, sys
print("before", "DDP_WORKER_SERVER" in os.environ, [p for p in sys.path if "torch.zip" in p], "sitecustomize" in sys.modules)
import torch.distributed
print("after", "DDP_WORKER_SERVER" in os.environ, os.environ.get("PYTHONPATH"), sys.meta_path[0].__module__ if hasattr(sys.meta_path[0], "__module__") else None)
"""

    def test_the_script_sees_none_of_it(self):
        code, out, err = self.run_script(self.SHOW, "--worker-server", "on")
        self.assertEqual((code, err), (0, "another warning\n"))
        before, after = out.splitlines()
        self.assertEqual(before, f"before True [] {'sitecustomize' in sys.modules}")  # a distribution may have one of its own
        self.assertIn(f"after False {DOUBLE} ", after)
        self.assertNotIn("sitecustomize", after)

    def test_it_is_off_by_default_and_with_off(self):
        for words in (), ("--worker-server", "off", *TIMEOUT):
            code, out, err = self.run_script(self.SHOW, *words)
            self.assertEqual((code, err), (0, ""))
            self.assertIn("before False [] ", out)

    def test_a_sitecustomize_of_the_user_runs(self):
        os.mkdir(os.path.join(self.folder, "site"))
        self.write("site/sitecustomize.py", "print('the own one')\n")
        code, out, err = self.run_script("print('script')", "--worker-server", "on",
                                         PYTHONPATH=os.path.join(self.folder, "site") + ":" + DOUBLE)
        self.assertEqual((code, out, err), (0, "the own one\nscript\n", ""))

    def test_a_python_without_torch_is_as_it_was(self):
        code, out, err = self.run_script("import os; print('x')", "--worker-server", "on", PYTHONPATH="")
        self.assertEqual((code, out, err), (0, "x\n", ""))

    def test_forked_processes_and_children_end(self):
        """A forked process has no thread of the server; a child has no server of its own."""
        script = """
import os, subprocess, sys
import torch.distributed
pid = os.fork()
if pid == 0:
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(subprocess.run([sys.executable, "-c", "import os; import torch.distributed; print(os.environ.get('DDP_WORKER_SERVER'))"],
      stdout=subprocess.PIPE, text=True).stdout, end="")
"""
        code, out, err = self.run_script(script, "--worker-server", "on")
        self.assertEqual((code, out, err), (0, "7\nNone\n", "another warning\n"))

    def test_warm_ranks_have_none(self):
        code, _, err = self.run_script("", "--worker-server", "on", "--warm")
        self.assertEqual((code, err), (2, "ddprun: error: --worker-server on and --warm cannot be used together\n"))


class Stacks(Scripts):
    def test_ddpctl_stack_shows_stacks_and_the_missing_rank(self):
        with Job("-n", "3", "--worker-server", "on", self.write("train.py", HANG), env=self.env()) as job:
            job.hear(3)
            await_running(job)
            _, out, _ = ctl(job, "stack", "all")
            self.assertIn("rank 1 is missing in gloo:all_reduce #38 of process group 0 (default_pg): ranks 0 and 2 wait in it\n", out)
            self.assertIn("  torch: gloo:all_reduce #37 of process group 0 (default_pg)\n", out)
            self.assertRegex(out, r"(?s)rank 1 \(.*in wait_in_all_reduce.*in read_a_batch")
            answer = json.loads(ctl(job, "stack", "-j", "all")[1])
            self.assertEqual([rank["source"] for rank in answer["ranks"]], ["torch"] * 3)
            self.assertEqual(answer["ranks"][0]["torch_calls"], [{"group": "0", "description": "default_pg", "op": "gloo:all_reduce",
                                                                  "number": 38, "waits": True}])

    def test_a_rank_in_a_shell_script_has_one(self):
        with Job("-n", "1", "--worker-server", "on", "--no-python", "/bin/sh", "-c", f"{sys.executable} {self.write('train.py', HANG)}; exit 0",
                 env=self.env()) as job:
            job.hear(1)
            await_running(job)
            self.assertIn("in wait_in_all_reduce", ctl(job, "stack", "all")[1])

    def test_a_server_that_does_not_answer_delays_nothing_else(self):
        with Job("-n", "2", "--worker-server", "on", self.write("train.py", HANG), env=self.env(DEAF="1")) as job:
            job.hear(2)
            await_running(job)
            answer = json.loads(ctl(job, "stack", "-j", "all")[1])
            self.assertEqual([rank["source"] for rank in answer["ranks"]], ["torch", None])


class Hangs(Scripts):
    def test_a_silent_script_that_calls_collectives_does_not_hang(self):
        script = """
import json, os, time
import torch.distributed
for n in range(1, 61):
    os.environ["TRACE"] = json.dumps({"entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": n, "retired": True,
                                                   "time_created_ns": time.time_ns()}]})
    time.sleep(0.2)
"""
        code, _, err = self.run_script(script, "--hang-timeout", "10s", n=2)  # a busy machine makes answers late
        self.assertEqual(code, 0, err)

    def test_an_unmodified_script_has_the_missing_rank_named(self):
        code, _, err = self.run_script(HANG, *TIMEOUT, "--on-failure-dump", self.folder + "/dumps", n=3)
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 1 hangs: no rank made progress for \d\.\d s; rank 1 has not called a collective of torch "
                              r"that others wait in$")
        self.assertRegex(err, r"(?m)^  rank 1 is missing in gloo:all_reduce #38 of process group 0 \(default_pg\): ranks 0 and 2 wait in it$")
        self.assertRegex(err, r"(?s)where rank 1 is:.*in read_a_batch.*where rank 0 is:.*in wait_in_all_reduce")
        self.assertRegex(err, r"(?m)^ddprun: error: rank 1 failed: killed by SIGABRT")
        (page,) = glob.glob(self.folder + "/dumps/*/attempt_0/index.html")
        with open(page, encoding="utf-8") as f:
            self.assertIn("rank 1 is missing in gloo:all_reduce #38", f.read())


main()
