"""Hosts on this machine, for tests: network namespaces with a real sshd in each, a host name and an address of
their own, around one in which the tests' ddprun runs. They share the file system and the process numbers."""
import os
import shutil
import subprocess
import tempfile
import unittest

from facilities import lacks_network_namespaces
from harness import DDPRUN, DEADLINE_S, NAME_MAX, Job, await_true, describe, name_of

SSH, SSHD, KEYGEN = (shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") for name in ("ssh", "sshd", "ssh-keygen"))
NETWORK = "10.121.0"
SSHD_CONFIG = """\
Port 22
AddressFamily inet
HostKey {dir}/host_key
AuthorizedKeysFile {dir}/user_key.pub
PidFile none
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
MaxStartups 100
"""
SSH_CONFIG = """\
Host *
    IdentityFile {dir}/user_key
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
    KexAlgorithms curve25519-sha256
    GlobalKnownHostsFile /dev/null
"""
# The first process of a host: its name in a UTS namespace of its own, what names lead to and what else is mounted there
# (`ip netns exec` has made a mount namespace), then sshd.
FIRST = 'hostname "$0" && { [ -z "$1" ] || mount --bind "$1" /etc/hosts; } && eval "${2:-:}" && shift 2 && exec "$@"'


def run(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def stand_in(folder, script):
    """A test double of ssh: $1 is the host, $2 the command."""
    path = os.path.join(folder, "ssh")
    with open(path, "w") as f:
        f.write(script)
    return f"sh {path}"


class SshHosts:
    """n1, n2, ... by number; `netns` is the namespace of the tests' side, `ssh` the command that reaches them.

    has_names: each has an /etc/hosts of its own, with the names of all of them, until set_names() changes it.
    mounts: by number, what a host's shell does first, so that it sees other files than the rest.
    variables: by number, what its sshd puts into the environment of all that is started there."""

    def __init__(self, n, has_names=False, mounts=None, variables=None):
        missing = [name for name, path in (("ssh", SSH), ("sshd", SSHD), ("ssh-keygen", KEYGEN), ("ip", shutil.which("ip")))
                   if path is None]
        why = f"not installed: {', '.join(missing)}" if missing else lacks_network_namespaces()
        if why:
            raise unittest.SkipTest(why)
        self.names = [f"n{i + 1}" for i in range(n)]
        self.has_names = has_names
        self.mounts = mounts or {}
        self.variables = variables or {}
        self.netns = f"ddp-hosts-{os.getpid()}"
        self.dir = tempfile.mkdtemp(prefix="ssh-hosts-")
        self.daemons = []
        try:
            self.make()
        except (OSError, subprocess.CalledProcessError) as e:
            self.close()
            raise unittest.SkipTest(f"cannot make hosts: {e} {getattr(e, 'stderr', '')}") from e

    def make(self):
        for name in ("host_key", "user_key"):
            run(KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.dir, name))
        self.write("sshd_config", SSHD_CONFIG.format(dir=self.dir))
        hosts = "".join(f"Host {name}\n    HostName {self.address(i)}\n" for i, name in enumerate(self.names))
        self.write("ssh_config", hosts + "Host nowhere\n    HostName " + NETWORK + ".250\n" + SSH_CONFIG.format(dir=self.dir))
        self.ssh = f"{SSH} -F {self.dir}/ssh_config -oBatchMode=yes -oConnectTimeout=30"
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        run("ip", "netns", "add", self.netns)
        run("ip", "-n", self.netns, "link", "set", "lo", "up")
        run("ip", "-n", self.netns, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        run("ip", "-n", self.netns, "address", "add", f"{NETWORK}.254/24", "dev", "bridge")
        run("ip", "-n", self.netns, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            self.make_host(i, name)
        for i, _ in enumerate(self.names):
            await_true(lambda i=i: self.answers(i), lambda: f"no sshd: {self.read('sshd.log')}", DEADLINE_S)

    def make_host(self, i, name):
        space = f"{self.netns}-{name}"
        run("ip", "netns", "add", space)
        run("ip", "-n", self.netns, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "-n", self.netns, "link", "set", name, "master", "bridge", "up")
        run("ip", "-n", space, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
        for link in ("eth0", "lo"):
            run("ip", "-n", space, "link", "set", link, "up")
        names = self.set_names(i) if self.has_names else ""
        variables = [f"-oSetEnv={' '.join(self.variables[i])}"] if i in self.variables else []
        with open(os.path.join(self.dir, "sshd.log"), "ab") as log:
            self.daemons.append(subprocess.Popen(
                ["ip", "netns", "exec", space, "unshare", "--uts", "sh", "-c", FIRST, name, names, self.mounts.get(i, ""),
                 SSHD, "-D", "-e", "-f", os.path.join(self.dir, "sshd_config"), *variables], stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def set_names(self, i, text=None):
        """What this host finds in its /etc/hosts besides localhost: from now on; without a text, all hosts."""
        if text is None:
            text = "".join(f"{self.address(k)} {name}\n" for k, name in enumerate(self.names))
        self.write(f"hosts_{i}", "127.0.0.1 localhost\n" + text)
        return os.path.join(self.dir, f"hosts_{i}")

    @staticmethod
    def address(i):
        return f"{NETWORK}.{i + 1}"

    def answers(self, i):
        """Is there an sshd? It is seen from the tests' side, where the address leads to it."""
        program = "import socket,sys; sys.exit(not socket.create_connection((sys.argv[1], 22), 5).recv(4) == b'SSH-')"
        return subprocess.run(["ip", "netns", "exec", self.netns, "python3", "-c", program, self.address(i)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def inside(self, i):
        """What runs on a host besides its sshd, and the sessions of that."""
        found = []
        of = os.readlink(f"/proc/{self.daemons[i].pid}/ns/uts")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/uts") == of and os.readlink(f"/proc/{pid}/exe") != os.path.realpath(SSHD):
                    found.append(int(pid))
            except OSError:
                pass
        return found

    def ddprun(self, i):
        """The pid of the one that runs on a host."""
        for pid in self.inside(i):
            if name_of(pid) == os.path.basename(DDPRUN)[:NAME_MAX]:
                return pid
        raise AssertionError(f"no ddprun on {self.names[i]}: {[describe(p) for p in self.inside(i)]}")

    def await_empty(self):
        await_true(lambda: not any(self.inside(i) for i in range(len(self.names))),
                   lambda: [describe(p) for i in range(len(self.names)) for p in self.inside(i)])

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w", encoding="utf-8") as f:
            f.write(text)

    def read(self, name):
        with open(os.path.join(self.dir, name), encoding="utf-8", errors="replace") as f:
            return f.read()

    def cut(self, i):
        """The host's network is gone, in both directions, without a word."""
        run("ip", "-n", self.netns, "link", "set", self.names[i], "down")

    def rejoin(self, i):
        run("ip", "-n", self.netns, "link", "set", self.names[i], "up")

    def close(self):
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait(DEADLINE_S)
        for space in [f"{self.netns}-{name}" for name in self.names] + [self.netns]:
            subprocess.run(["ip", "netns", "delete", space], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


class SshJob(Job):
    """A ddprun in the namespace that the hosts are around."""

    def __init__(self, hosts, program, *args, **kw):
        self.hosts = hosts
        super().__init__("netns", "exec", hosts.netns, program, "--ssh-command", hosts.ssh, *args, launcher="/bin/ip", **kw)

    def finish(self):
        code, out, err = self.end()
        left = self.processes()
        assert not left, f"left running: {[describe(p) for p in left]}"
        self.hosts.await_empty()
        return code, out.decode(), err.decode()
