#!/usr/bin/env python3
"""Two nodes that three networks join: network namespaces, and a ddprun with one rank in each. One network carries what the ddpruns send
each other, two carry what the ranks do (DDP_SOCKET_IFNAME). The ranks sum vectors, send messages, and check each element
(tests/support/programs/summer.c).

Covers: worker-runtime/interfaces, worker-runtime/tcp, worker-runtime/join, perf
"""
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from facilities import lacks_network_namespaces

DDPRUN = os.environ["DDPRUN"]
PERF = os.environ["DDP_PERF"]
SUMMER = os.environ["SUMMER_PROGRAM"]
DEADLINE_S = float(os.environ.get("TEST_DEADLINE_S", "60"))
NETWORKS = {"mgmt": "10.119.10", "fast0": "10.119.11", "fast1": "10.119.12"}
PORT, COUNT = 29419, 1 << 20
LEAST_BYTES = 8 << 20  # that an interface with lanes carries in 20 sums of 4 MiB: half of 80, and a margin


def ip(*args):
    return subprocess.run(["ip", *args], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30).stdout


class Interfaces(unittest.TestCase):
    def setUp(self):
        if lacks_network_namespaces():
            self.skipTest(lacks_network_namespaces())
        self.names = [f"ddp-if-{os.getpid()}-{i}" for i in range(2)]
        self.nodes, self.said = [], [["", ""], ["", ""]]  # of each node: on its output, on its standard error
        self.folder = tempfile.mkdtemp(prefix="ddp-if-")
        self.addCleanup(self.clean_up)
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            for link, network in NETWORKS.items():
                ip("link", "add", link, "netns", self.names[0], "type", "veth", "peer", "name", link, "netns", self.names[1])
                for host, name in enumerate(self.names, 1):
                    ip("-n", name, "address", "add", f"{network}.{host}/24", "dev", link)
                    ip("-n", name, "link", "set", link, "up")
        except (OSError, subprocess.SubprocessError) as e:
            self.skipTest(f"cannot make network namespaces: {e}")

    def clean_up(self):
        for node in self.nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
        for node in self.nodes:
            try:
                node.wait(timeout=20)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
            node.stdout.close()
            node.stderr.close()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *program, **env):
        """Without a program: summer"""
        self.file = os.path.join(self.folder, "end")
        program = program or (SUMMER, self.file, str(COUNT))
        for i, name in enumerate(self.names):
            folder = os.path.join(self.folder, str(i))
            os.mkdir(folder, mode=0o700)
            self.nodes.append(subprocess.Popen(
                ["ip", "netns", "exec", name, DDPRUN, "--nnodes", "2", "-p", "1", "--node-rank", str(i), "--master-addr", f"{NETWORKS['mgmt']}.1",
                 "--master-port", str(PORT), *(["--encrypt"] if "TEST_ENCRYPT" in os.environ else []), *program],
                env={**os.environ, "XDG_RUNTIME_DIR": folder, "DDP_SEGMENT_BYTES": "256M", "DDP_TOKEN": "0123456789abcdef" * 2, **env},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def await_true(self, condition, what):
        """The output of the nodes is read meanwhile."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}: did not happen; they said: {[[text[-500:] for text in node] for node in self.said]}")
            streams = {stream: (i, k) for i, node in enumerate(self.nodes) for k, stream in enumerate((node.stdout, node.stderr))}
            for stream in select.select(list(streams), [], [], 0.1)[0]:
                i, k = streams[stream]
                self.said[i][k] += os.read(stream.fileno(), 65536).decode()

    def await_warning(self, pattern):
        self.await_true(lambda: re.search("ddprun: warning: " + pattern, self.said[0][1] + self.said[1][1]), pattern)

    def rounds(self):
        return self.said[0][0].count("round")

    def await_rounds(self, n):
        end = self.rounds() + n
        self.await_true(lambda: self.rounds() >= end or any(node.poll() is not None for node in self.nodes), f"{n} sums")
        self.expect_no_end()

    def expect_no_end(self):
        self.assertEqual([node.poll() for node in self.nodes], [None, None], self.said)

    def expect_good_end(self):
        with open(self.file, "w", encoding="ascii"):
            pass
        self.await_true(lambda: all(node.poll() is not None for node in self.nodes), "the job ends")
        self.assertEqual([node.returncode for node in self.nodes], [0, 0], self.said)

    def sent(self, link):
        """Bytes that the first node has sent over an interface."""
        return int(ip("netns", "exec", self.names[0], "cat", f"/sys/class/net/{link}/statistics/tx_bytes"))

    def test_lanes_are_spread_over_the_interfaces(self):
        self.start(DDP_SOCKET_IFNAME="fast0,fast1")
        self.await_rounds(20)
        for link in ("fast0", "fast1"):
            self.assertGreater(self.sent(link), LEAST_BYTES, link)
        self.assertLess(self.sent("mgmt"), LEAST_BYTES)
        self.expect_good_end()
        self.assertNotIn("warning", self.said[0][1] + self.said[1][1])

    def test_interfaces_can_be_left_out(self):
        self.start(DDP_SOCKET_IFNAME="^mgmt")
        self.await_rounds(20)
        for link in ("fast0", "fast1"):
            self.assertGreater(self.sent(link), LEAST_BYTES, link)
        self.assertLess(self.sent("mgmt"), LEAST_BYTES)
        self.expect_good_end()

    def test_an_interface_that_fails_costs_its_lanes_and_not_the_job(self):
        self.start(DDP_SOCKET_IFNAME="fast0,fast1", DDP_SOCKET_LANES="4")
        self.await_rounds(20)
        self.assertGreater(self.sent("fast1"), LEAST_BYTES)
        ip("-n", self.names[0], "link", "set", "fast1", "down")
        self.await_warning(r"rank [01] lost connection [24] of 4 for large messages to rank [01] on node [01] \(.*\) over fast1: ")
        self.await_rounds(20)
        self.expect_good_end()

    def test_the_first_interface_that_fails_costs_its_lanes_and_not_the_job(self):
        self.start(DDP_SOCKET_IFNAME="fast0,fast1", DDP_SOCKET_LANES="4")
        self.await_rounds(20)
        ip("-n", self.names[1], "link", "set", "fast0", "down")
        self.await_warning(r"rank [01] (moved its connection to rank [01] on node [01] \(.*\) from fast0 to fast1"
                           r"|lost connection [13] of 4 for large messages to rank [01] on node [01] \(.*\) over fast0): the path does not answer")
        self.await_rounds(20)
        self.expect_good_end()

    def test_one_interface_after_the_other_may_fail(self):
        self.start(DDP_SOCKET_IFNAME="fast0,fast1,mgmt")
        self.await_rounds(20)
        for link in ("fast0", "fast1"):
            ip("-n", self.names[0], "link", "set", link, "down")
            self.await_rounds(20)
        self.expect_good_end()

    def test_the_first_interface_may_be_down_at_the_start(self):
        ip("-n", self.names[1], "link", "set", "fast0", "down")
        self.start(DDP_SOCKET_IFNAME="fast0,fast1")
        self.await_rounds(20)
        self.expect_good_end()

    def test_an_interface_that_is_down_at_the_start_costs_its_lanes_and_not_the_job(self):
        ip("-n", self.names[1], "link", "set", "fast1", "down")
        self.start(DDP_SOCKET_IFNAME="fast0,fast1")
        self.await_rounds(20)
        self.expect_good_end()

    def test_the_number_of_connections_is_measured(self):
        self.start(PERF, "--tune", "-n", "1")
        self.await_true(lambda: all(node.poll() is not None for node in self.nodes), "the job ends")
        self.assertEqual([node.returncode for node in self.nodes], [0, 0], self.said)
        self.assertRegex(self.said[0][0], r"\nDDP_SOCKET_LANES=(1|2|4|8|16)\n"
                                          r'DDP_TUNING="network: latency_ns=\d+ message_ns=\d+ byte_ps=\d+"\n$')

    def test_a_measured_network_is_used(self):
        self.start(PERF, "all_reduce", "-e", "1M", "-n", "1", DDP_TUNING="network: latency_ns=20000 message_ns=5000 byte_ps=8000")
        self.await_true(lambda: all(node.poll() is not None for node in self.nodes), "the job ends")
        self.assertEqual([node.returncode for node in self.nodes], [0, 0], self.said)

    def test_an_interface_that_does_not_exist_is_named(self):
        self.start(DDP_SOCKET_IFNAME="fast0,fast9")
        self.await_true(lambda: all(node.poll() is not None for node in self.nodes), "the job ends")
        self.await_true(lambda: "invalid value 'fast9' for DDP_SOCKET_IFNAME: no such network interface" in self.said[0][1] + self.said[1][1],
                        "the interface is named")
        self.assertNotIn(0, [node.returncode for node in self.nodes])


if __name__ == "__main__":
    unittest.main(verbosity=2)
