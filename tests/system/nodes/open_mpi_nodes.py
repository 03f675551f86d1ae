"""Open MPI programs on several nodes: two ddpruns on this machine, two in network namespaces, and hosts with a real sshd, a network
namespace and a name of their own. Skipped without the compiler of Open MPI 4 (mpicc.openmpi), or without the plug-in. $OPEN_MPI_5 as in one_node/open_mpi.py.

Covers: rendezvous/pmix, launcher/generation, launcher/node
"""
import contextlib
import os
import signal
import unittest

from harness import DDPRUN, RANK, main
from mpi_cases import NodesOfOneHost, OpenMpi4, OpenMpi5, hello, load_plugin, told
from node import TOKEN, Node, static
from places import Namespaces, NoPlace
from ports import free_port
from ssh_hosts import SshHosts, SshJob

def setUpModule():
    load_plugin()


class TwoNodes(NodesOfOneHost):
    """Cases of both versions. Two nodes on one host: Open MPI's files of the two do not collide."""

    MPI = "pmix"

    def test_nodes_may_be_in_network_namespaces(self):
        try:
            place = self.enterContext(Namespaces())
        except NoPlace as error:
            self.skipTest(str(error))
        with contextlib.ExitStack() as stack:
            nodes = []
            for rank in range(2):
                words = static(place.port(), rank, "-p", "2", "--local-addr", place.address(1 + rank), host=place.address(1))
                launcher, *first = place.command(1 + rank, [DDPRUN])
                env = {**self.ENV, "DDP_TOKEN": TOKEN, **({"TEST_FIFO": nodes[0].fifo} if nodes else {})}
                nodes.append(stack.enter_context(Node(*first, *words, self.PROGRAM, "hello", "ring", "sum", launcher=launcher, env=env)))
            self.assertEqual([node.finish() for node in nodes], [(0, "", "")] * 2)
            self.assertEqual(told(nodes[0]), hello([(0, 2), (1, 2), (0, 2), (1, 2)], 4) + ["ring 6", "sum 2004000"])

    def test_a_rank_that_waits_for_an_exited_rank_of_the_other_node_fails_and_both_are_named(self):
        ends, _ = self.nodes([self.PROGRAM, "early"], n_ranks=(1, 1))
        self.assertEqual([end[0] for end in ends], [1, 1], ends)
        self.assertIn("ddprun: warning: MPI: rank 0 waits for rank 1, which has exited without calling MPI_Init\n", ends[0][2])

    def test_ranks_that_ask_for_each_others_data_get_an_error(self):
        """Open MPI does not do so unless a parameter asks for it."""
        self.ENV = {**self.ENV, **self.MODEX}
        ends, _ = self.nodes([self.PROGRAM, "ring"], n_ranks=(1, 1))
        self.assertTrue(any("asked for data of a single rank, which ddprun does not support" in end[2] for end in ends), ends)
        self.assertTrue(all(end[0] != 0 for end in ends), ends)


class Net4(OpenMpi4):
    ENV = {**OpenMpi4.ENV, "OMPI_MCA_btl": "self,vader,tcp"}
    MODEX = {"OMPI_MCA_pmix_base_collect_data": "0"}


class Net5(OpenMpi5):
    ENV = {**OpenMpi5.ENV, "OMPI_MCA_btl": "self,sm,tcp"}
    MODEX = {"OMPI_MCA_pmix_base_async_modex": "1"}


class Version4(Net4, TwoNodes, unittest.TestCase):
    def test_a_signal_ends_a_node_that_waits_for_the_others(self):
        """Node 1 does not take part in PMIx, so no rank of node 0 can be started."""
        port = free_port()
        with Node(*static(port, 0, "-p", "2"), self.PROGRAM, "hello", env=self.ENV) as a, \
                Node(*static(port, 1, "-p", "1", "--mpi", "none"), RANK, "tell", "up", "wait") as b:
            b.hear(1)
            a.signal(signal.SIGTERM)
            self.assertEqual(a.finish()[0], -signal.SIGTERM)
            b.finish()


class Version5(Net5, TwoNodes, unittest.TestCase):
    pass


class Hosts:
    """Cases of both versions."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.hosts = SshHosts(2)
        cls.addClassCleanup(cls.hosts.close)

    def test_ranks_of_hosts_that_ssh_reaches_are_ranks_of_one_job(self):
        env = [word for name, value in self.ENV.items() for word in ("-x", f"{name}={value}")]
        with SshJob(self.hosts, os.path.abspath(DDPRUN), "-H", "n1:2,n2:2", *env, "-x", "DDP_PLUGIN_DIR", self.PROGRAM, "hello", "ring", "sum") as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual(told(job), hello([(0, 2), (1, 2), (0, 2), (1, 2)], 4) + ["ring 6", "sum 2004000"])


@unittest.skipIf("SANITIZED" in os.environ, "ssh does not pass LSAN_OPTIONS, by which leaks of libpmix are ignored")
class Hosts4(Net4, Hosts, unittest.TestCase):
    pass


@unittest.skipIf("SANITIZED" in os.environ, "ssh does not pass LSAN_OPTIONS, by which leaks of libpmix are ignored")
class Hosts5(Net5, Hosts, unittest.TestCase):
    pass


if __name__ == "__main__":
    main()
