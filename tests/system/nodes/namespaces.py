#!/usr/bin/env python3
"""libddp between machines: network namespaces joined by veth, ranks started by hand as torchrun would.

Each job sums until rank 3 kills itself (tests/support/programs/adder.c). This shows that the job works, and that all other
ranks learn which rank died, and on which node.

Covers: worker-runtime/interfaces, worker-runtime/cost, worker-runtime/tcp, worker-runtime/join
"""
import os
import subprocess
import unittest

from facilities import lacks_network_namespaces

ADDER = os.environ["ADDER_PROGRAM"]
STORE = os.environ["STORE_SERVER"]
DEADLINE_S = float(os.environ.get("TEST_DEADLINE_S", "60"))
STEPS = 100  # of the adder, before it dies


def ip(*args):
    subprocess.run(["ip", *args], check=True, stderr=subprocess.PIPE)


class Nodes(unittest.TestCase):
    n_nodes = n_local = 2  # namespaces, and ranks in each

    def setUp(self):
        if lacks_network_namespaces():
            self.skipTest(lacks_network_namespaces())
        self.names = [f"ddp-test-{os.getpid()}-{i}" for i in range(self.n_nodes)]
        self.processes = []
        self.addCleanup(self.clean_up)
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self.join(0, ["10.119.1", "fd00:119:1:"])
        except (OSError, subprocess.CalledProcessError) as e:
            self.skipTest(f"cannot make network namespaces: {e}")

    def clean_up(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE_S)
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def join(self, number, networks):
        """An interface in each, veth<number>. More than two are joined by a bridge, in the first namespace."""
        link = f"veth{number}"
        if self.n_nodes == 2:
            ip("link", "add", link, "netns", self.names[0], "type", "veth", "peer", "name", link, "netns", self.names[1])
        else:
            ip("-n", self.names[0], "link", "add", link, "type", "bridge")
        for host, name in enumerate(self.names, 1):
            if self.n_nodes > 2 and host > 1:
                ip("link", "add", link, "netns", name, "type", "veth", "peer", "name", f"port{host}", "netns", self.names[0])
                ip("-n", self.names[0], "link", "set", f"port{host}", "master", link, "up")
            for network in networks:
                v6 = ":" in network
                ip("-n", name, "address", "add", f"{network}{':' if v6 else '.'}{host}/{64 if v6 else 24}",
                   "dev", link, *(["nodad"] if v6 else []))
            ip("-n", name, "link", "set", link, "up")

    def start(self, node, command, **env):
        process = subprocess.Popen(["ip", "netns", "exec", self.names[node], *command],
                                   env=dict(os.environ, **{k: str(v) for k, v in env.items()}),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def expect_all_ranks_to_name_the_dead_rank(self, bind, addresses, **env):
        """bind: where a store listens; addresses: MASTER_ADDR on each node."""
        port = self.start(0, [STORE, "0", bind]).stdout.readline().strip()
        self.expect_ranks_to_name_the_dead_rank(port, addresses, **env)

    def expect_ranks_to_name_the_dead_rank(self, port, addresses, **env):
        n = self.n_nodes * self.n_local
        ranks = [self.start(rank // self.n_local, [ADDER, "3", "9"], RANK=rank, WORLD_SIZE=n, LOCAL_RANK=rank % self.n_local,
                            LOCAL_WORLD_SIZE=self.n_local, GROUP_RANK=rank // self.n_local, GROUP_WORLD_SIZE=self.n_nodes,
                            MASTER_ADDR=addresses[rank // self.n_local], MASTER_PORT=port, DDP_SEGMENT_BYTES="64M", **env)
                 for rank in range(n)]
        for rank, process in enumerate(ranks):
            _, err = process.communicate(timeout=DEADLINE_S)
            if rank != 3:
                self.assertEqual(process.returncode, 5, err)
                self.assertIn(f"rank 3 on node {3 // self.n_local} (", err)
                self.assertIn(f"ddp_all_reduce(float32, sum, 1), call #{STEPS + 1}", err)


class TwoNodes(Nodes):
    def test_ranks_use_the_address_by_which_they_reach_the_store(self):
        self.expect_all_ranks_to_name_the_dead_rank("10.119.1.1", ["10.119.1.1"] * 2)

    def test_ipv6_is_enough(self):
        self.expect_all_ranks_to_name_the_dead_rank("fd00:119:1::1", ["fd00:119:1::1"] * 2)

    def test_the_stores_own_node_may_resolve_to_loopback(self):
        self.expect_all_ranks_to_name_the_dead_rank("0.0.0.0", ["127.0.0.1", "10.119.1.1"])

    def test_rank_0_serves_the_store_if_the_launcher_does_not(self):
        for address in "10.119.1.1", "fd00:119:1::1":
            with self.subTest(address):
                self.expect_ranks_to_name_the_dead_rank(29400, [address] * 2, TORCHELASTIC_USE_AGENT_STORE="False")

    def test_an_interface_can_be_named(self):
        self.join(1, ["10.119.2"])
        self.expect_all_ranks_to_name_the_dead_rank("10.119.1.1", ["10.119.1.1"] * 2, DDP_SOCKET_IFNAME="veth1")


class ManyNodes(Nodes):
    """So many that a sum goes by doubling (worker-runtime/cost/cost.h): a rank exchanges with 8 of the 13 others."""
    n_nodes, n_local = 14, 1

    def test_ranks_that_pass_sums_on_learn_of_a_death_elsewhere(self):
        self.expect_all_ranks_to_name_the_dead_rank("10.119.1.1", ["10.119.1.1"] * self.n_nodes)


if __name__ == "__main__":
    unittest.main(verbosity=2)
