"""Where the nodes of a test job are: on this host, an address of the loopback interface each, or each in a network
namespace of its own, on one wire. Used by tests and by bench/elastic.py."""
import itertools
import os
import subprocess

from facilities import lacks_network_namespaces
from ports import free_port

N_HOSTS = 4
NOWHERE = "02:00:00:00:00:99"  # no interface has it
_number = itertools.count()


class NoPlace(Exception):
    """Why a place cannot be made."""


class Loopback:
    """127.0.0.1 and so on."""

    name = "loopback"
    interface = "lo"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def address(self, host):
        return f"127.0.0.{host}"

    def command(self, host, words):
        return list(words)

    def port(self):
        return free_port()


class Namespaces:
    """10.78.0.1 to .5, as root. Hosts that are cut off, or parted from others, are joined again by rejoin()."""

    name = "namespaces"
    interface = "eth0"

    def __init__(self, n_hosts=N_HOSTS):
        if lacks_network_namespaces():
            raise NoPlace(lacks_network_namespaces())
        self.names = [f"ddpe{os.getpid()}n{next(_number)}" for _ in range(n_hosts + 1)]  # 0: the wires

    def __enter__(self):
        wire = self.names[0]
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            for bridge in "wire", "other":
                ip("-n", wire, "link", "add", bridge, "type", "bridge")
                ip("-n", wire, "link", "set", bridge, "up")
            for host, name in enumerate(self.names[1:], 1):
                ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{host}", "netns", wire)
                ip("-n", wire, "link", "set", f"port{host}", "master", "wire", "up")
                ip("-n", name, "address", "add", self.address(host) + "/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise NoPlace(f"network namespaces: {error}") from None
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def address(self, host):
        return f"10.78.0.{host}"

    def command(self, host, words):
        return ["ip", "netns", "exec", self.names[host], *words]

    def port(self):
        return 29400

    def cut(self, host):
        ip("-n", self.names[host], "link", "set", "eth0", "down")

    def part(self, *hosts):
        """These reach only each other."""
        for host in hosts:
            ip("-n", self.names[0], "link", "set", f"port{host}", "master", "other")

    def deafen(self, host, other):
        """Nothing that `other` sends arrives at `host`."""
        ip("-n", self.names[other], "neigh", "replace", self.address(host), "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def rejoin(self, host):
        ip("-n", self.names[host], "link", "set", "eth0", "up")
        ip("-n", self.names[0], "link", "set", f"port{host}", "master", "wire")
        for name in self.names[1:]:
            subprocess.run(["ip", "-n", name, "neigh", "del", self.address(host), "dev", "eth0"], stderr=subprocess.DEVNULL, check=False)


def ip(*words):
    subprocess.run(["ip", *words], check=True, stderr=subprocess.PIPE)
