"""MPICH programs under ddprun: the ranks find each other by PMI-1, on one node and on two. Skipped without MPICH.

Covers: rendezvous/pmi, launcher/generation, launcher/node
"""
import os
import shutil
import unittest

from harness import DDPRUN, RANK, Job, main, run
from mpi_cases import NodesOfOneHost, Ranks, hello, told
from node import static
from ports import free_port

HYDRA = shutil.which("mpiexec.hydra")
MEETER = os.environ["MEETER_PROGRAM"]
MPICH = os.environ.get("MPICH_PROGRAM")

# MPICH's transport reports on standard output which system calls a container refuses it.
os.environ.setdefault("UCX_LOG_LEVEL", "fatal")


@unittest.skipIf(MPICH is None, "there is no mpicc.mpich")
class OneNode(Ranks, unittest.TestCase):
    PROGRAM, MPI = MPICH, "pmi1"

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
class TwoNodes(NodesOfOneHost, unittest.TestCase):
    PROGRAM, MPI = MPICH, "pmi1"

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


if __name__ == "__main__":
    main()
