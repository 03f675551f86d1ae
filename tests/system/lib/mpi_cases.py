"""What holds for the ranks of each MPI, whichever interface they find each other by, and where Open MPI is."""
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from harness import Job, await_true, run
from node import Node, static
from ports import free_port

SOURCE = os.path.join(os.environ["SOURCE_ROOT"], "tests/support/programs/mpi_program.c")


def find_open_mpi_5():
    """A directory with its bin/mpicc and bin/python: $OPEN_MPI_5, or the environment of scripts/install-deps --hosts. None: not installed."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    installed = os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.cache"), "ddprun/open-mpi-5")
    return os.environ.get("OPEN_MPI_5") or (installed if os.path.exists(os.path.join(installed, "complete")) else None)


OPEN_MPI_5 = find_open_mpi_5()


def load_plugin():
    """For all ddpruns of a test."""
    folder = os.environ.get("PMIX_PLUGIN_DIR", "/nonexistent")
    if not os.path.exists(os.path.join(folder, "ddprun-pmix.so")):
        raise unittest.SkipTest("ddprun was built without libpmix")
    os.environ["DDP_PLUGIN_DIR"] = folder


class OpenMpi4:
    """tests/support/programs/mpi_program.c, built with the system's Open MPI. Most of MPI_Init is the search for transports: these are always
    there."""

    PROGRAM = os.environ.get("OPEN_MPI_PROGRAM")
    ENV = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader"}

    @classmethod
    def setUpClass(cls):
        if cls.PROGRAM is None:
            raise unittest.SkipTest("there is no mpicc.openmpi")
        super().setUpClass()


class OpenMpi5:
    """The same with Open MPI 5."""

    ENV = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"}

    @classmethod
    def setUpClass(cls):
        if OPEN_MPI_5 is None:
            raise unittest.SkipTest("no Open MPI 5: scripts/install-deps --hosts")
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.PROGRAM = os.path.join(folder, "open_mpi_5")
        subprocess.run([os.path.join(OPEN_MPI_5, "bin/mpicc"), "-std=gnu17", SOURCE, "-o", cls.PROGRAM], check=True)
        super().setUpClass()


def told(job):
    """All lines that ranks have reported by now, sorted."""
    try:
        text = os.read(job.fifo_fd, 65536).decode()
    except BlockingIOError:
        return []
    return sorted(text.splitlines())


def hello(places, size, program=0):
    return [f"hello {rank} of {size}, {local} of {n_local}, program {program}"
            for rank, (local, n_local) in enumerate(places)]


class Ranks:
    """Cases of one node. PROGRAM is tests/support/programs/mpi_program.c, MPI what --mpi has for it, ENV what the ranks need."""

    PROGRAM = MPI = None
    ENV = {}

    def job(self, *args):
        return Job(*args, env=self.ENV)

    def run_job(self, *args):
        return run(*args, env=self.ENV)

    def fails_once(self, *words):
        """A script whose first generation executes these words."""
        return f'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec {self.PROGRAM} {" ".join(words)}; else exec {self.PROGRAM} hello; fi'

    def test_ranks_are_ranks_of_one_job(self):
        for n in 2, 4:
            with self.subTest(n), self.job("-n", str(n), self.PROGRAM, "hello", "ring", "sum") as job:
                self.assertEqual(job.end(), (0, b"", b""))
                total = sum(sum(rank + i for rank in range(n)) for i in range(1000))
                self.assertEqual(told(job), hello([(i, n) for i in range(n)], n) + [f"ring {sum(range(n))}", f"sum {total}"])

    def test_the_exit_status_of_an_abort_is_kept(self):
        for code, status in (77, 77), (1, 1), (255, 255):
            with self.subTest(code):
                end, out, err = self.run_job("-n", "4", self.PROGRAM, "only", "2", "abort", str(code), "wait")
                self.assertEqual((end, out), (status, ""))
                self.assertRegex(err, rf"rank 2 failed: exit status {code}\b")

    def test_an_abort_is_a_failure_whatever_its_code(self):
        for code in "0", "256":
            with self.subTest(code):
                end, _, err = self.run_job("-n", "2", self.PROGRAM, "only", "1", "abort", code, "wait")
                self.assertEqual(end, 1)
                self.assertIn("rank 1 failed: exit status 1", err)

    def test_a_crash_ends_the_others(self):
        code, _, err = self.run_job("-n", "3", self.PROGRAM, "only", "1", "crash", "wait")
        self.assertEqual(code, 128 + signal.SIGABRT)
        self.assertIn("rank 1 failed: killed by SIGABRT", err)

    def test_a_rank_that_exits_without_finalize_has_failed(self):
        code, _, err = self.run_job("-n", "2", self.PROGRAM, "only", "0", "leave", "wait")
        self.assertEqual(code, 1)
        self.assertIn("ddprun: warning: MPI: rank 0 exited with 0 without calling MPI_Finalize; ddprun treats this as a failure\n", err)
        self.assertIn("rank 0 failed: exit status 1", err)

    def test_a_restart_is_a_job_of_its_own(self):
        with self.job("-n", "2", "--mpi", self.MPI, "--max-restarts", "1", "sh", "-c",
                      self.fails_once("only", "1", "abort", "7", "wait")) as job:
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(told(job), hello([(0, 2), (1, 2)], 2))

    def test_a_killed_rank_is_restarted_with_the_others(self):
        with self.job("-n", "2", "--mpi", self.MPI, "--max-restarts", "1", "sh", "-c",
                      self.fails_once("hello", "only", "1", "hang", "wait")) as job:
            job.hear(2)
            os.kill(job.named(os.path.basename(self.PROGRAM))[-1], signal.SIGKILL)
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(told(job), hello([(0, 2), (1, 2)], 2))

    def test_programs_of_one_job_have_their_numbers(self):
        with self.job("-n", "1", self.PROGRAM, "hello", ":", "-n", "2", self.PROGRAM, "hello") as job:
            code, _, err = job.end()
            self.assertEqual((code, err), (0, b""))
            self.assertEqual([line.split("program ")[1] for line in told(job)], ["0", "1", "1"])

    def test_with_bound_ranks_each_knows_its_node(self):
        n = min(2, len(os.sched_getaffinity(0)))
        with self.job("-n", str(n), "--bind-to", "core", "--mpi", self.MPI, self.PROGRAM, "hello") as job:
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(told(job), hello([(i, n) for i in range(n)], n))


class NodesOfOneHost:
    """Cases of two nodes, which are two ddpruns of this machine. PROGRAM, MPI and ENV as in Ranks."""

    PROGRAM = MPI = None
    ENV = {}

    @contextlib.contextmanager
    def pair(self, words, n_ranks=(2, 2), more=()):
        port = free_port()
        with Node(*static(port, 0, "-p", str(n_ranks[0]), *more), *words, env=self.ENV) as a, \
                Node(*static(port, 1, "-p", str(n_ranks[1]), *more), *words, env={**self.ENV, "TEST_FIFO": a.fifo}) as b:
            yield a, b

    def nodes(self, words, n_ranks=(2, 2), more=()):
        """Each node's (exit status, stdout, stderr), and what the ranks reported."""
        with self.pair(words, n_ranks, more) as (a, b):
            ends = a.finish(), b.finish()
            return ends, told(a)

    def test_ranks_find_the_ranks_of_the_other_node(self):
        ends, lines = self.nodes([self.PROGRAM, "hello", "ring", "sum"])
        self.assertEqual(ends, ((0, "", ""), (0, "", "")))
        self.assertEqual(lines, hello([(0, 2), (1, 2), (0, 2), (1, 2)], 4) + ["ring 6", "sum 2004000"])

    def test_nodes_may_be_of_different_size(self):
        ends, lines = self.nodes([self.PROGRAM, "hello", "ring"], n_ranks=(1, 3))
        self.assertEqual(ends, ((0, "", ""), (0, "", "")))
        self.assertEqual(lines, hello([(0, 1), (0, 3), (1, 3), (2, 3)], 4) + ["ring 6"])

    def assert_cause(self, ends, rank, status, text):
        self.assertEqual([end[0] for end in ends], [status, status], ends)
        own = rank // 2
        self.assertRegex(ends[own][2], rf"ddprun: error: rank {rank} failed: {text}")
        self.assertRegex(ends[1 - own][2], rf"ddprun: error: rank {rank} on [^:]+: {text}")

    def test_the_rank_that_aborts_is_the_root_cause_on_both_nodes(self):
        for rank in 0, 3:
            with self.subTest(rank=rank):
                ends, _ = self.nodes([self.PROGRAM, "only", str(rank), "abort", "77", "wait"])
                self.assert_cause(ends, rank, 77, "exit status 77")

    def test_an_abort_is_known_on_the_other_node_before_its_rank_has_ended(self):
        """The spawner of its node, which would report the end, is stopped meanwhile."""
        with self.pair([self.PROGRAM, "hello", "only", "3", "await", "only", "3", "abort", "77", "wait"]) as (a, b):
            a.hear(4)
            name = os.path.basename(self.PROGRAM)
            rank, spawner = b.named(name)[-1], b.spawner()
            os.kill(spawner, signal.SIGSTOP)
            os.kill(rank, signal.SIGUSR1)
            await_true(lambda: not a.named(name))
            os.kill(spawner, signal.SIGCONT)
            self.assert_cause((a.finish(), b.finish()), 3, 77, "exit status 77")

    def test_a_rank_that_crashes_is_the_root_cause_though_others_may_abort_because_of_it(self):
        for rank in 0, 3:
            with self.subTest(rank=rank):
                ends, _ = self.nodes([self.PROGRAM, "only", str(rank), "crash", "wait"])
                self.assert_cause(ends, rank, 128 + signal.SIGABRT, "killed by SIGABRT")

    def test_an_abort_and_a_crash_restart_all_nodes(self):
        for end in "abort 7", "crash":
            with self.subTest(end=end):
                script = f'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec {self.PROGRAM} only 3 {end} wait; else exec {self.PROGRAM} hello; fi'
                ends, lines = self.nodes(["sh", "-c", script], more=("--mpi", self.MPI, "--max-restarts", "1"))
                self.assertEqual([code for code, _, _ in ends], [0, 0], ends)
                self.assertEqual(lines, hello([(0, 2), (1, 2), (0, 2), (1, 2)], 4))
