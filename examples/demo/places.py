"""Where the nodes of the demo are: each in a network namespace of its own, on one wire, or all on this host."""
import os
import subprocess
import sys

# In a mount and a network namespace of our own: no other process sees the names that ip(8) gives, and they vanish with
# this process, however it ends.
APART = ["--mount", "--net", "--propagation", "private"]
SET_UP = 'mount -t tmpfs none /run && ip link set lo up && exec "$@"'
PROBE = ["sh", "-c", "ip netns add probe && ip netns exec probe true && ip netns delete probe"]
INSIDE = "--inside"


def apart(words):
    """The command that runs these words apart."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, *APART, "sh", "-c", SET_UP, "sh", *words]


def can_be_apart():
    try:
        return subprocess.run(apart(PROBE), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def go_apart():
    """Become this program again, apart. Returns where that cannot be."""
    if can_be_apart():
        sys.stdout.flush()
        words = apart([sys.executable, *sys.argv, INSIDE])
        os.execvp(words[0], words)


class Loopback:
    """All on this host, an address of the loopback interface for each."""

    words = "on this host, each with an address of its own"
    folder = None
    has_power = False
    interface = "lo"
    rendezvous = "127.0.0.1"
    allowed = "127.0.0.0/8"

    def address(self, host):
        return f"127.0.0.{host + 1}"

    def command(self, _, words):
        return words


class Namespaces:
    """Host n is the namespace node<n>; where we are is the switch between them. Call go_apart() before."""

    words = "each in a network namespace of its own"
    folder = "/run"  # our own: gone with us
    has_power = True
    interface = "eth0"
    rendezvous = "10.79.0.254"
    allowed = "10.79.0.0/24"

    def __init__(self, n_hosts):
        ip("link", "add", "switch", "type", "bridge")
        ip("address", "add", f"{self.rendezvous}/24", "dev", "switch")
        ip("link", "set", "switch", "up")
        for host in range(1, n_hosts + 1):
            name = f"node{host}"
            ip("netns", "add", name)
            ip("link", "add", f"port{host}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"port{host}", "master", "switch", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def address(self, host):
        return f"10.79.0.{host}"

    def command(self, host, words):
        return ["ip", "netns", "exec", f"node{host}", *words]

    def cut(self, host):
        """Nothing that was or will be sent arrives: others hear no farewell."""
        ip("-n", f"node{host}", "link", "set", "eth0", "down")

    def rejoin(self, host):
        ip("-n", f"node{host}", "link", "set", "eth0", "up")


def ip(*words):
    subprocess.run(["ip", *words], check=True)
