"""A table of jobs with PyTorch 2.11: ranks that end in special ways, begin again from a checkpoint, are many, or start other processes;
and jobs that are disturbed while they run. PyTorch's features: tests/interop/programs.

Covers: launcher/node, launcher/warm, launcher/supervisor, launcher/membership, launcher/stdio
"""
import contextlib
import os
import re
import signal
import sys
import tempfile
import time
import unittest

from harness import DEADLINE_S, Job, await_true, main
from node import Node, c10d
from ports import free_port

INTEROP = os.path.join(os.environ["SOURCE_ROOT"], "tests/interop")
sys.path.insert(0, INTEROP)
from programs import Skip, find_environment  # noqa: E402 (found by the path above)

START_S = 4 * DEADLINE_S  # torch is imported by each rank
N_MANY = int(os.environ.get("TEST_TORCH_RANKS", "24"))
SUM = ("import os, torch, torch.distributed as dist\ndist.init_process_group('gloo')\nx = torch.ones(1)\ndist.all_reduce(x)\n"
       "assert x.item() == dist.get_world_size()\nos.write(1, b'summed\\n')\ndist.barrier()\ndist.destroy_process_group()\n")
RESUMED = [rf"rank {r} resumes from snapshot at epoch 2" for r in (0, 1)] + [rf"rank {r} finished epoch 5" for r in (0, 1)]
FIRST_STEPS = [rf"rank {r}: first step of generation 0" for r in (0, 1)]
TORCHRUN = ("@PYTHON@", "-m", "torch.distributed.run", "--nproc-per-node", "2")

# name: (words; "name.py" is a script of tests/interop, exit status, patterns of what is written, environment)
JOBS = {
    "restart from a checkpoint": (("-n", "2", "--max-restarts", "3", "snapshot.py", "5", "@DIR@/s"), 0, RESUMED),
    "restart from a checkpoint, --warm": (("-n", "2", "--warm", "--max-restarts", "3", "snapshot.py", "5", "@DIR@/s"), 0, RESUMED),
    "restart from a checkpoint, --warm=start": (("-n", "2", "--warm=start", "--max-restarts", "3", "snapshot.py", "5", "@DIR@/s"), 0,
                                                RESUMED),
    "restart from a checkpoint, -t": (("-n", "2", "-t", "3", "--log-dir", "@DIR@/logs", "--max-restarts", "3", "snapshot.py", "5",
                                       "@DIR@/s"), 0, RESUMED),
    "restarts that are used up": (("-n", "2", "--max-restarts", "1", "restart.py", "5"), 137, [r"after 1 restart\b", "killed by SIGKILL"]),
    "a rank with workers of a loader is killed": (("-n", "2", "loader_ends.py", "rank"), 137, ["rank 1 failed: killed by SIGKILL"]),
    "a worker of a loader is killed": (("-n", "2", "loader_ends.py", "worker"), 1, ["failed: exit status 1"]),
    "an exception beside workers of a loader": (("-n", "2", "loader_ends.py", "exception"), 1, ["ValueError: batch 32 is bad"]),
    "many ranks": (("-n", str(N_MANY), "@PYTHON@", "-c", SUM), 0, [r"(?s)(summed\n.*){%d}" % N_MANY]),
    "torchrun --standalone in a rank": (("-n", "1", *TORCHRUN, "--standalone", "restart.py", "1"), 0, FIRST_STEPS),
    "torchrun with a port in a rank": (("-n", "1", *TORCHRUN, "--master-port", "@PORT@", "restart.py", "1"), 0, FIRST_STEPS),
    "Lightning that starts ranks within a rank": (("-n", "1", "lightning_trainer.py", "@DIR@"), 1, [r"devices"], "programs"),
}


def script(name):
    beside = os.path.join(INTEROP, "programs", name)
    return beside if os.path.exists(beside) else os.path.join(INTEROP, name)


class Torch(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def environment(self, name="torch"):
        try:
            python, env = find_environment(name)
        except (Skip, SystemExit) as reason:
            self.skipTest(str(reason))
        return python, {**env, "PYTHON_EXEC": python, "OMP_NUM_THREADS": "1"}

    def words(self, words, python):
        values = {"@PYTHON@": python, "@DIR@": tempfile.mkdtemp(dir=self.folder), "@PORT@": str(free_port())}
        for word in words:
            for name, value in values.items():
                word = word.replace(name, value)
            yield script(word) if re.fullmatch(r"\w+\.py", word) else word


class Jobs(Torch):
    def test_each_program_ends_as_expected(self):
        for name, (words, status, patterns, *environment) in JOBS.items():
            with self.subTest(name):
                python, env = self.environment(*environment)
                with Job(*self.words(words, python), env=env) as job:
                    out, err = job.process.communicate(timeout=START_S)
                    await_true(lambda job=job: job.processes() == [])
                text = (out + err).decode(errors="replace")
                self.assertEqual(job.process.returncode, status, text[-4000:])
                for pattern in patterns:
                    self.assertRegex(text, pattern)


class Disturbed(Torch):
    def test_an_interrupt_ends_ranks_with_workers_of_a_loader(self):
        python, env = self.environment()
        with Job("-n", "2", *self.words(("loader_ends.py", "wait"), python), env=env) as job:
            said = b""
            while said.count(b"trains") < 2:
                some = job.process.stdout.readline()
                self.assertNotEqual(some, b"")
                said += some
            job.signal(signal.SIGINT)
            job.process.communicate(timeout=START_S)
            self.assertEqual(job.process.returncode, -signal.SIGINT)
            await_true(lambda: job.processes() == [])

    def test_nodes_with_warm_ranks_join_and_leave(self):
        """A rank is killed, then a ddprun, and another node joins: each time, the ranks of all nodes rendezvous again."""
        python, env = self.environment()
        words = c10d(free_port(), "--join-window", "0", "--max-restarts", "9", "--warm", nodes="1:2")

        def start(number):
            return Node(*words, "--local-addr", f"127.0.0.{number}", *self.words(("gloo_steps.py",), python), env=env)

        def met(*nodes):
            """-> the pid of each node's rank, in the newest generation in which there are so many"""
            pids, end = {}, time.monotonic() + START_S
            while {rank for rank, _ in pids.values()} != set(range(len(nodes))):
                self.assertLess(time.monotonic(), end, pids)
                for node in nodes:
                    with contextlib.suppress(AssertionError):
                        rank, pid = node.hear(1, 0.1 if node in pids else START_S)[0].split()
                        pids[node] = int(rank), int(pid)
            return [pids[node][1] for node in nodes]

        with start(1) as a:
            met(a)
            with start(2) as b:
                os.kill(met(a, b)[1], signal.SIGKILL)
                met(a, b)
                b.signal(signal.SIGKILL)
                b.await_gone()
            met(a)
            with start(3) as c:
                met(a, c)
                for node in c, a:
                    node.signal(signal.SIGTERM)
                    node.process.communicate(timeout=START_S)
                    self.assertEqual(node.process.returncode, -signal.SIGTERM)
                    await_true(lambda node=node: node.processes() == [])


main()
