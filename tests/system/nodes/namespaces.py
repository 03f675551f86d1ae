#!/usr/bin/env python3
"""libddp between two machines: network namespaces joined by veth, ranks started by hand as torchrun would.

Each job sums until rank 3 kills itself (tests/support/programs/adder.c). This shows that the job works, and that all other
ranks learn which rank died, and on which node.

Covers: worker-runtime/interfaces, worker-runtime/tcp, worker-runtime/join
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


class Namespaces(unittest.TestCase):
    def setUp(self):
        if lacks_network_namespaces():
            self.skipTest(lacks_network_namespaces())
        self.names = [f"ddp-test-{os.getpid()}-{i}" for i in range(2)]
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
        """A pair of interfaces, veth<number> in each."""
        ip("link", "add", f"veth{number}", "netns", self.names[0], "type", "veth",
           "peer", "name", f"veth{number}", "netns", self.names[1])
        for host, name in enumerate(self.names, 1):
            for network in networks:
                v6 = ":" in network
                ip("-n", name, "address", "add", f"{network}{':' if v6 else '.'}{host}/{64 if v6 else 24}",
                   "dev", f"veth{number}", *(["nodad"] if v6 else []))
            ip("-n", name, "link", "set", f"veth{number}", "up")

    def start(self, node, command, **env):
        process = subprocess.Popen(["ip", "netns", "exec", self.names[node], *command],
                                   env=dict(os.environ, **{k: str(v) for k, v in env.items()}),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def expect_death_to_be_told(self, bind, addresses, **env):
        """addresses: MASTER_ADDR on each node."""
        port = self.start(0, [STORE, "0", bind]).stdout.readline().strip()
        ranks = [self.start(node, [ADDER, "3", "9"], RANK=2 * node + local, WORLD_SIZE=4, LOCAL_RANK=local,
                            LOCAL_WORLD_SIZE=2, GROUP_RANK=node, GROUP_WORLD_SIZE=2, MASTER_ADDR=addresses[node],
                            MASTER_PORT=port, DDP_SEGMENT_BYTES="64M", **env)
                 for node in range(2) for local in range(2)]
        for rank, process in enumerate(ranks):
            _, err = process.communicate(timeout=DEADLINE_S)
            if rank != 3:
                self.assertEqual(process.returncode, 5, err)
                self.assertIn("rank 3 on node 1 (", err)
                self.assertIn(f"ddp_all_reduce(float32, sum, 1), call #{STEPS + 1}", err)

    def test_ranks_use_the_address_by_which_they_reach_the_store(self):
        self.expect_death_to_be_told("10.119.1.1", ["10.119.1.1"] * 2)

    def test_ipv6_is_enough(self):
        self.expect_death_to_be_told("fd00:119:1::1", ["fd00:119:1::1"] * 2)

    def test_the_stores_own_node_may_resolve_to_loopback(self):
        self.expect_death_to_be_told("0.0.0.0", ["127.0.0.1", "10.119.1.1"])

    def test_an_interface_can_be_named(self):
        self.join(1, ["10.119.2"])
        self.expect_death_to_be_told("10.119.1.1", ["10.119.1.1"] * 2, DDP_SOCKET_IFNAME="veth1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
