#!/usr/bin/env python3
"""Two nodes of three that cannot reach each other, while both reach the coordinator: network namespaces on a bridge. ddprun names the
two and their addresses, on the terminal and in `ddpctl status`, and blames no rank.

Covers: worker-runtime/tcp, worker-runtime/core, segments, launcher/generation, launcher/node, ctl/job
"""
import json
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

ADDER = os.environ["ADDER_PROGRAM"]
DDPRUN = os.environ["DDPRUN"]
DDPCTL = os.environ["DDPCTL"]
DEADLINE_S = float(os.environ.get("TEST_DEADLINE_S", "60"))
NETWORK, PORT, NOWHERE = "10.119.7", 29417, "02:00:00:00:00:99"


def ip(*args):
    subprocess.run(["ip", *args], check=True, stderr=subprocess.PIPE, timeout=30)


class Ddprun:
    """One node's, in a namespace of its own."""

    def __init__(self, namespace, folder, options, **env):
        self.folder = folder
        self.said = ""
        # no name of a host, which no resolver knows here
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, DDPRUN, "--nnodes", "3", "-p", "1", *options, "--shutdown-timeout", "1s", ADDER, "9", "9"],
            env={**os.environ, "XDG_RUNTIME_DIR": folder, "DDP_SEGMENT_BYTES": "64M", "DDP_TOKEN": "0123456789abcdef" * 2, **env},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def status(self):
        run = subprocess.run([DDPCTL, "status", "--json", str(self.process.pid)], capture_output=True, text=True,
                             env={**os.environ, "XDG_RUNTIME_DIR": self.folder}, timeout=DEADLINE_S, check=False)
        jobs = json.loads(run.stdout)["jobs"] if run.returncode == 0 else []
        return jobs[0]["ranks"][0] if jobs else {}


class Unreachable(unittest.TestCase):
    def setUp(self):
        if lacks_network_namespaces():
            self.skipTest(lacks_network_namespaces())
        self.names = [f"ddp-unreach-{os.getpid()}-{i}" for i in range(4)]  # the last one has the bridge
        self.nodes = []
        self.folder = tempfile.mkdtemp(prefix="ddp-unreach-")
        self.addCleanup(self.clean_up)
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", self.names[3], "link", "add", "br0", "type", "bridge")
            ip("-n", self.names[3], "link", "set", "br0", "up")
            for i in range(3):
                ip("link", "add", "eth0", "netns", self.names[i], "type", "veth", "peer", "name", f"port{i}", "netns", self.names[3])
                ip("-n", self.names[3], "link", "set", f"port{i}", "master", "br0", "up")
                ip("-n", self.names[i], "address", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0")
                ip("-n", self.names[i], "link", "set", "eth0", "up")
        except (OSError, subprocess.SubprocessError) as e:
            self.skipTest(f"cannot make network namespaces: {e}")

    def clean_up(self):
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            try:
                node.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
            node.process.stderr.close()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def cut(self):
        """Between the second and the third node, in both directions: frames go to a machine that is not there."""
        for here, there in ((1, 3), (2, 2)):
            ip("-n", self.names[here], "neigh", "replace", f"{NETWORK}.{there}", "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def mend(self):
        for here, there in ((1, 3), (2, 2)):
            ip("-n", self.names[here], "neigh", "del", f"{NETWORK}.{there}", "dev", "eth0")

    def start(self, *options, is_static=True, **env):
        for i in range(3):
            folder = os.path.join(self.folder, str(i))
            os.mkdir(folder, mode=0o700)
            where = ["--node-rank", str(i), "--master-addr", f"{NETWORK}.1", "--master-port", str(PORT)] if is_static else \
                ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NETWORK}.1:{PORT}", "--rdzv-id", "unreachable"]
            self.nodes.append(Ddprun(self.names[i], folder, [*where, *options], **env))

    def await_true(self, condition, what):
        """The output of the nodes is read meanwhile."""
        end = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > end:
                self.fail(f"{what}: did not happen; they said: {[node.said for node in self.nodes]}")
            ready = select.select([node.process.stderr for node in self.nodes if node.process.poll() is None], [], [], 0.1)[0]
            for node in self.nodes:
                if node.process.stderr in ready:
                    node.said += os.read(node.process.stderr.fileno(), 65536).decode()

    def find(self, pattern):
        return next((found for node in self.nodes for found in [re.search(pattern, node.said)] if found), None)

    def test_an_unconnected_pair_is_named_and_connects_later(self):
        self.cut()
        self.start()
        warning = (rf"ddprun: warning: rank 1 cannot connect to rank 2 on node 2 \(.*?\) at {NETWORK}\.3 port \d+, "
                   rf"from {NETWORK}\.2: no answer for 5 s; check routes and firewalls between the two")
        self.await_true(lambda: self.find(warning), "the pair is named")
        here = self.nodes[1]
        self.assertEqual(f"ddprun: warning: rank 1 {here.status()['unreachable']}", self.find(warning)[0])
        self.assertEqual([self.nodes[i].status()["unreachable"] for i in (0, 2)], [None, None])
        self.assertEqual(sum(node.said.count("warning") for node in self.nodes), 1, [node.said for node in self.nodes])
        self.mend()
        self.await_true(lambda: all(node.status().get("call") for node in self.nodes), "all ranks work")
        self.assertIsNone(here.status()["unreachable"])

    def test_a_path_that_breaks_in_the_middle_is_named_and_no_rank_is_blamed(self):
        self.start("--max-restarts", "1", DDP_TIMEOUT="8")
        self.await_true(lambda: all(node.status().get("call") for node in self.nodes), "all ranks work")
        self.cut()
        warning = (rf"ddprun: warning: rank [12] got no acknowledgment from rank [12] on node [12] \(.*?\) at {NETWORK}\.([23]) port \d+, "
                   rf"from {NETWORK}\.([23]) for 5 s; check routes and firewalls between the two")
        self.await_true(lambda: self.find(warning), "the pair is named")
        self.assertEqual({self.find(warning)[1], self.find(warning)[2]}, {"2", "3"})
        # after the timeout the ranks are started again, and cannot connect
        again = rf"ddprun: warning: rank 1 cannot connect to rank 2 on node 2 \(.*?\) at {NETWORK}\.3 port"
        self.await_true(lambda: self.find(again), "the pair is named in the next generation")
        self.assertIsNone(self.find("waiting for rank"))


    def test_a_node_that_cannot_connect_is_named_with_its_target(self):
        self.cut()
        self.start(is_static=False)  # which node has the store is up to the order in which they come
        warning = (rf"ddprun: warning: rank \d (cannot connect to rank \d on node \d \(.*?\) at {NETWORK}\.[23] port \d+"
                   rf"|on \S+ cannot reach the job's store for 5 s: .*{NETWORK}\.[23] port \d+)")
        self.await_true(lambda: self.find(warning), "the pair is named")


if __name__ == "__main__":
    unittest.main(verbosity=2)
