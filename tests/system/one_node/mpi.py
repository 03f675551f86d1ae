"""MPI programs under ddprun: MPICH's ranks find each other by PMI-1, on one node and on two; Open MPI programs are
refused. Skipped without MPICH.

Covers: rendezvous/pmi, launcher/generation, launcher/node
"""
import os
import shutil
import signal
import unittest

from harness import DDPRUN, RANK, Job, main, run
from node import Node, static
from ports import free_port

HYDRA = shutil.which("mpiexec.hydra")
MEETER = os.environ["MEETER_PROGRAM"]
MPICH = os.environ.get("MPICH_PROGRAM")
OPEN_MPI = os.environ.get("OPEN_MPI_PROGRAM")

# MPICH's transport reports on standard output which system calls a container refuses it.
os.environ.setdefault("UCX_LOG_LEVEL", "fatal")


def two_nodes(words, n_ranks=(2, 2), more=()):
    """Each node's (exit status, stdout, stderr), and what the ranks reported."""
    port = free_port()
    with Node(*static(port, 0, "-p", str(n_ranks[0]), *more), *words) as a, \
            Node(*static(port, 1, "-p", str(n_ranks[1]), *more), *words, env={"TEST_FIFO": a.fifo}) as b:
        ends = a.finish(), b.finish()
        return ends, told(a)


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


@unittest.skipIf(MPICH is None, "there is no mpicc.mpich")
class OneNode(unittest.TestCase):
    def test_ranks_are_ranks_of_one_job(self):
        with Job("-n", "4", MPICH, "hello", "ring", "sum") as job:
            self.assertEqual(job.end(), (0, b"", b""))
            self.assertEqual(told(job), hello([(i, 4) for i in range(4)], 4) + ["ring 6", "sum 2004000"])

    def test_the_exit_status_of_an_abort_is_kept(self):
        for code, status in (77, 77), (1, 1), (255, 255):
            with self.subTest(code):
                end, out, err = run("-n", "4", MPICH, "only", "2", "abort", str(code), "wait")
                self.assertEqual((end, out), (status, ""))
                self.assertRegex(err, rf"rank 2 failed: exit status {code}\b")

    def test_an_abort_is_a_failure_whatever_its_code(self):
        for code in "0", "256":
            with self.subTest(code):
                end, _, err = run("-n", "2", MPICH, "only", "1", "abort", code, "wait")
                self.assertEqual(end, 1)
                self.assertIn("rank 1 failed: exit status 1", err)

    def test_a_crash_ends_the_others(self):
        code, _, err = run("-n", "3", MPICH, "only", "1", "crash", "wait")
        self.assertEqual(code, 128 + signal.SIGABRT)
        self.assertIn("rank 1 failed: killed by SIGABRT", err)

    def test_a_rank_that_exits_without_finalize_has_failed(self):
        code, _, err = run("-n", "2", MPICH, "only", "0", "leave", "wait")
        self.assertEqual(code, 1)
        self.assertIn("ddprun: warning: MPI: rank 0 exited with 0 without calling MPI_Finalize; ddprun treats this as a failure\n", err)
        self.assertIn("rank 0 failed: exit status 1", err)

    def test_a_rank_that_waits_for_an_exited_rank_causes_a_warning(self):
        code, _, err = run("-n", "2", MPICH, "early")
        self.assertNotEqual(code, 0)
        self.assertIn("ddprun: warning: MPI: rank 0 waits for rank 1, which has already exited\n", err)

    def test_spawning_is_refused_and_the_job_continues(self):
        # as some builds of MPICH ask for it; Debian's refuses by itself
        script = ("printf 'mcmd=spawn\\nnprocs=1\\nexecname=true\\nendcmd\\n' >&$PMI_FD; read -r line <&$PMI_FD; "
                  f"echo \"$line\" > $TEST_FIFO; exec {MPICH} hello")
        with Job("-n", "2", "--mpi", "pmi1", "bash", "-c", script) as job:
            code, out, err = job.end()
            self.assertEqual((code, out), (0, b""), err)
            for rank in b"01":
                self.assertIn(b"ddprun: warning: MPI: rank %c called MPI_Comm_spawn, which ddprun does not support; "
                              b"start all ranks at launch\n" % rank, err)
            self.assertEqual(told(job), ["cmd=spawn_result rc=-1 msg=not_supported_by_ddprun"] * 2 + hello([(0, 2), (1, 2)], 2))

    def test_a_restart_is_a_job_of_its_own(self):
        script = f'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec {MPICH} only 1 abort 7 wait; else exec {MPICH} hello; fi'
        with Job("-n", "2", "--mpi", "pmi1", "--max-restarts", "1", "sh", "-c", script) as job:
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(told(job), hello([(0, 2), (1, 2)], 2))

    def test_programs_of_one_job_have_their_numbers(self):
        with Job("-n", "1", MPICH, "hello", ":", "-n", "2", MPICH, "hello") as job:
            code, _, err = job.end()
            self.assertEqual((code, err), (0, b""))
            self.assertEqual([line.split("program ")[1] for line in told(job)], ["0", "1", "1"])

    def test_with_none_each_is_alone(self):
        with Job("-n", "2", "--mpi", "none", MPICH, "hello") as job:
            self.assertEqual(job.end(), (0, b"", b""))
            self.assertEqual(told(job), ["hello 0 of 1, 0 of 1, program -1"] * 2)

    def test_other_programs_get_no_pmi(self):
        with Job("-n", "2", "sh", "-c", "echo ${PMI_FD-none} > $TEST_FIFO") as job:
            self.assertEqual(job.end(), (0, b"", b""))
            self.assertEqual(told(job), ["none", "none"])

    def test_ranks_that_do_not_use_pmi_cause_a_warning(self):
        code, _, err = run("-n", "2", "--mpi", "pmi1", "true")
        self.assertEqual(code, 0)
        self.assertEqual(err.count("exited without using PMI-1: if it is an MPI program, its MPI is not derived from MPICH and it ran as a singleton"), 1, err)

    def test_garbage_on_the_pmi_socket_closes_it_with_a_warning(self):
        code, _, err = run("-n", "2", "--mpi", "pmi1", "bash", "-c",
                           "if [ $RANK = 1 ]; then printf 'GET / HTTP/1.1\\n' >&$PMI_FD; read -r line <&$PMI_FD; exit 0; fi")
        self.assertEqual(code, 0)
        self.assertIn("ddprun: warning: MPI: rank 1: PMI: unknown command 'GET / HTTP/1.1'\n", err)


@unittest.skipIf(MPICH is None, "there is no mpicc.mpich")
class TwoNodes(unittest.TestCase):
    def test_ranks_find_the_ranks_of_the_other_node(self):
        ends, lines = two_nodes([MPICH, "hello", "ring", "sum"])
        self.assertEqual(ends, ((0, "", ""), (0, "", "")))
        self.assertEqual(lines, hello([(0, 2), (1, 2), (0, 2), (1, 2)], 4) + ["ring 6", "sum 2004000"])

    def test_nodes_may_be_of_different_size(self):
        ends, lines = two_nodes([MPICH, "hello", "ring"], n_ranks=(1, 3))
        self.assertEqual(ends, ((0, "", ""), (0, "", "")))
        self.assertEqual(lines, hello([(0, 1), (0, 3), (1, 3), (2, 3)], 4) + ["ring 6"])

    def test_the_exit_status_of_an_abort_is_kept_on_both_nodes(self):
        for rank in "0", "3":
            with self.subTest(rank=rank):
                ends, _ = two_nodes([MPICH, "only", rank, "abort", "77", "wait"])
                self.assertEqual([end[0] for end in ends], [77, 77], ends)

    def test_a_restart_restarts_all_nodes(self):
        script = f'if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then exec {MPICH} only 3 abort 7 wait; else exec {MPICH} hello; fi'
        ends, lines = two_nodes(["sh", "-c", script], more=("--mpi", "pmi1", "--max-restarts", "1"))
        self.assertEqual([end[0] for end in ends], [0, 0], ends)
        self.assertEqual(lines, hello([(0, 2), (1, 2), (0, 2), (1, 2)], 4))

    def test_it_needs_the_store_of_ddprun(self):
        code, _, err = run(*static(free_port(), 0, "--store", "worker"), MPICH)
        self.assertEqual(code, 2)
        self.assertIn("--store worker cannot be used with MPI programs on several nodes, which use ddprun's store; use --store agent", err)


NO_STORE = {"MASTER_ADDR": "", "MASTER_PORT": ""}


@unittest.skipIf(HYDRA is None, "there is no mpiexec.hydra")
class Hydra(unittest.TestCase):
    """libddp ranks that mpiexec.hydra starts, on two nodes that are this machine."""

    def test_nodes_rendezvous_without_an_external_store(self):
        with Job("-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2", "-ppn", "2", "-n", "4", MEETER, launcher=HYDRA,
                 env=NO_STORE) as job:
            self.assertEqual(job.end(), (0, b"", b""))
            self.assertEqual(told(job), [f"joined {i} of 4, sum 6, received hello-from-{(i + 1) % 4}" for i in range(4)])

    def ddpruns(self, *words):
        return Job("-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2", "-ppn", "1", "-n", "2", DDPRUN, *words, launcher=HYDRA)

    def test_a_ddprun_on_each_node_is_one_job_whose_ranks_see_no_pmi_nor_secret(self):
        script = "echo $RANK/$WORLD_SIZE $GROUP_RANK ${PMI_FD-no} ${PMI_RANK-no} ${DDP_TOKEN-no} > $TEST_FIFO"
        with self.ddpruns("-p", "2", "sh", "-c", script) as job:
            self.assertEqual(job.end(), (0, b"", b""))
            self.assertEqual(job.hear(4), [f"{rank}/4 {rank // 2} no no no" for rank in range(4)])

    def test_mpiexec_returns_the_exit_status_of_ddprun(self):
        with self.ddpruns("-p", "2", RANK, "only", "3", "exit", "7", "end", "wait") as job:
            code, _, err = job.end()
            self.assertEqual(code, 7, err)
            self.assertIn(b"rank 3 failed: exit status 7", err)

    @unittest.skipIf(MPICH is None, "there is no mpicc.mpich")
    def test_its_ranks_may_be_mpi_ranks(self):
        with self.ddpruns("-p", "2", MPICH, "hello", "sum") as job:
            code, _, err = job.end()
            self.assertEqual((code, err), (0, b""))
            self.assertEqual(told(job), hello([(0, 2), (1, 2), (0, 2), (1, 2)], 4) + ["sum 2004000"])

    def test_several_ddpruns_on_a_node_are_refused(self):
        with Job("-n", "2", DDPRUN, "true", launcher=HYDRA) as job:
            code, _, err = job.end()
            self.assertEqual(code, 2)
            self.assertIn(b"ddprun: error: 2 ddpruns were started on this node, but one starts all ranks of a node; use mpiexec -ppn 1\n", err)

    def test_one_node_needs_no_store(self):
        with Job("-n", "2", MEETER, launcher=HYDRA, env=NO_STORE) as job:
            code, _, err = job.end()
            self.assertNotEqual(code, 0)
            self.assertIn(b"the job has no store", err)

    def test_a_missing_interface_is_reported_to_all_nodes(self):
        with Job("-launcher", "fork", "-hosts", "127.0.0.1,127.0.0.2", "-ppn", "1", "-n", "2", MEETER, launcher=HYDRA,
                 env={**NO_STORE, "DDP_SOCKET_IFNAME": "nonesuch0"}) as job:
            code, _, err = job.end()
            self.assertNotEqual(code, 0)
            self.assertIn(b"rank 0 cannot serve a store: invalid value 'nonesuch0' for DDP_SOCKET_IFNAME: no such network interface", err)


@unittest.skipIf(OPEN_MPI is None, "there is no mpicc.openmpi")
class OpenMpi(unittest.TestCase):
    def test_it_is_refused_before_it_starts(self):
        code, out, err = run("-n", "2", OPEN_MPI, "hello")
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, r"ddprun: error: '.*' is linked against Open MPI \(libmpi\.so\.40\), which requires "
                              r"PMIx; ddprun supports PMI-1")

    def test_with_mpi_none_it_runs_without_pmi(self):
        with Job("-n", "2", "--mpi", "none", RANK, "tell", "up") as job:
            self.assertEqual(job.end()[0], 0)
            self.assertEqual(job.hear(2), ["0 up", "1 up"])


if __name__ == "__main__":
    main()
