"""Tests of several machines: network namespaces, joined by a bridge."""
import os
import shutil
import subprocess
import unittest

from facilities import lacks_network_namespaces
from harness import DDPRUN
from node import TOKEN, Node


@unittest.skipIf(lacks_network_namespaces(), lacks_network_namespaces())
class Machines(unittest.TestCase):
    """Three machines on a wire of their own: 10.77.0.1 to .3, fd77::1 to ::3."""

    def setUp(self):
        self.names = [f"ddpn{os.getpid()}n{i}" for i in range(4)]  # 0: the wire
        self.addCleanup(self.remove)
        for name in self.names:
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        self.ip("-n", self.names[0], "link", "add", "wire", "type", "bridge")
        self.ip("-n", self.names[0], "link", "set", "wire", "up")
        for i, name in enumerate(self.names[1:], 1):
            self.ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", self.names[0])
            self.ip("-n", self.names[0], "link", "set", f"port{i}", "master", "wire", "up")
            self.ip("-n", name, "addr", "add", f"10.77.0.{i}/24", "dev", "eth0")
            self.ip("-n", name, "addr", "add", f"fd77::{i}/64", "dev", "eth0", "nodad")
            self.ip("-n", name, "link", "set", "eth0", "up")

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(f"/etc/netns/{name}", ignore_errors=True)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def hosts(self, i, *lines):
        """The content of machine i's /etc/hosts."""
        os.makedirs(f"/etc/netns/{self.names[i]}", exist_ok=True)
        with open(f"/etc/netns/{self.names[i]}/hosts", "w", encoding="ascii") as f:
            f.write("127.0.0.1 localhost\n" + "".join(line + "\n" for line in lines))

    def node(self, i, *args, **kw):
        return Node("netns", "exec", self.names[i], DDPRUN, *args, launcher=shutil.which("ip"),
                    env={"DDP_TOKEN": TOKEN, **kw})
