"""The job of the demo: a ddp-rendezvous, unless nodes coordinate the job themselves, a ddprun on each host that is up, and the steps that rank 0 reports."""
import collections
import math
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import tempfile
import threading
import time

END_S = 30
TAIL_LINES = 15
STEP = re.compile(r"step (\d+): loss ([\d.]+|nan|inf),(?: generation (\d+)$)?")
WORLD = re.compile(r"(\d+) ranks?, float(?:32, generation (\d+): continues after step (\d+)$)?")

Step = collections.namedtuple("Step", "at_s number loss world")


class Failed(Exception):
    """What was not as it should be."""


class Node:
    """A ddprun and its processes, which are known by a mark in their environment."""

    def __init__(self, host, process, mark, comm):
        self.host, self.process, self.mark, self.comm = host, process, mark, comm

    def processes(self):
        return marked(self.mark)

    def ranks(self):
        """Pids of the processes that train."""
        return [pid for pid in self.processes() if read_proc(pid, "comm") == self.comm]


class Training:
    """What is running. Use as a context: its end leaves no process."""

    def __init__(self, place, build, program, n_hosts, n_local, deadline_s, texts, elects):
        self.place, self.build, self.program, self.n_hosts, self.n_local = place, build, program, n_hosts, n_local
        self.deadline_s, self.texts, self.elects = deadline_s, texts, elects
        self.folder = tempfile.TemporaryDirectory(prefix="ddprun-demo.", dir=place.folder)
        self.mark = f"DEMO_MARK={secrets.token_hex(8)}."
        self.lines = queue.SimpleQueue()
        self.nodes = {}  # host -> Node, of those that are up
        self.n_started = 0
        self.steps = []
        self.numbers = set()  # of the steps that rank 0 reported
        self.made, self.kept = {}, {}  # generation -> the last step reported in it; the step after which it began, if ranks report it
        self.world = 0  # as the newest run of the training's function reported it
        self.daemon = None
        self.readers = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill_all()
        for reader in self.readers:
            reader.join(END_S)
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    # --- starting ---

    def spawn(self, host, mark, words, log, stdout=subprocess.DEVNULL):
        """Start a process that dies with this one, even if this one is killed."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("DDP_", "PET_", "SLURM_"))}
        key, value = mark.split("=")
        words = ["setpriv", "--pdeathsig", "KILL", *words]
        with open(self.path(log), "ab") as stderr:
            return subprocess.Popen(words if host is None else self.place.command(host, words),
                                    env={**env, key: value, "XDG_RUNTIME_DIR": self.folder.name,
                                         **self.program.env(self.place.interface)}, stdin=subprocess.DEVNULL,
                                    stdout=stdout, stderr=stderr, start_new_session=True)

    def start_rendezvous(self):
        with open(os.open(self.path("token"), os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write(secrets.token_hex(16))
        if self.elects:
            port = free_port(self.place.rendezvous)
            self.endpoint = ",".join(f"{self.place.address(host)}:{port}" for host in range(1, self.n_hosts + 1))
            return
        ports = self.path("port")
        self.daemon = self.spawn(None, self.mark + "rendezvous", [
            os.path.join(self.build, "rendezvous/daemon/ddp-rendezvous"), "--bind", f"{self.place.rendezvous}:0", "--allow", self.place.allowed,
            "--token-file", self.path("token"), "--port-file", ports], "log.rendezvous")
        self.wait(lambda: os.path.exists(ports), "ddp-rendezvous to listen")
        with open(ports, encoding="ascii") as f:
            self.endpoint = f"{self.place.rendezvous}:{int(f.readline())}"

    def start_node(self, host):
        mark = f"{self.mark}{self.n_started}"
        self.n_started += 1
        # each world that there can be has the same part of a batch for each of its ranks
        batch = math.lcm(*(n * self.n_local for n in range(1, self.n_hosts + 1)))
        process = self.spawn(host, mark, [
            os.path.join(self.build, "launcher/ddprun"), "--nnodes", f"1:{self.n_hosts}", "-p", str(self.n_local),
            "--max-restarts", "1000000", "--join-window", "0", "--rdzv-endpoint", self.endpoint, "--rdzv-id", "demo",
            "--local-addr", self.place.address(host), "--token-file", self.path("token"), *self.program.options,
            *self.program.command(batch * math.ceil(24 / batch), self.texts)], f"log.{host}", stdout=subprocess.PIPE)
        self.nodes[host] = Node(host, process, mark, self.program.comm)
        reader = threading.Thread(target=self.read, args=(process.stdout,), daemon=True)
        reader.start()
        self.readers.append(reader)

    def read(self, stream):
        with stream:
            for line in stream:
                self.lines.put((time.monotonic(), line.decode(errors="replace")))

    # --- hearing ---

    def hear(self, timeout_s):
        """Take in a line if one comes in this time."""
        try:
            at_s, line = self.lines.get(timeout=max(0, timeout_s))
        except queue.Empty:
            return
        world, step = WORLD.match(line), STEP.match(line)
        if world:
            self.world = int(world[1])
            if world[2]:
                self.kept[int(world[2])] = int(world[3])
                self.check_kept()
        elif step:
            number = int(step[1])
            if step[3]:
                self.made[int(step[3])] = number
                self.check_kept()
            if number in self.numbers:
                raise Failed(f"step {number} was made again, after step {self.steps[-1].number}")
            self.numbers.add(number)
            if not self.steps or number > self.steps[-1].number:  # else late: another node was rank 0's then
                self.steps.append(Step(at_s, number, float(step[2]), self.world))

    def check_kept(self):
        """A step that was reported is not lost. Lines of two nodes may come in any order."""
        for generation, step in self.kept.items():
            for earlier, number in self.made.items():
                if earlier < generation and number > step:
                    raise Failed(f"step {number} of generation {earlier} was lost: generation {generation} continues after step {step}")

    def wait(self, condition, what, on_line=lambda: None):
        """Hear until it holds."""
        end = time.monotonic() + self.deadline_s
        while not condition():
            self.hear(0.05)
            on_line()
            self.check_up()
            if time.monotonic() > end:
                raise Failed(f"timed out after {self.deadline_s:g} s waiting for {what}")

    def check_up(self):
        if self.daemon is not None and self.daemon.poll() is not None:
            raise Failed(f"ddp-rendezvous has ended with {self.daemon.returncode}")
        for host, node in self.nodes.items():
            if node.process.poll() is not None:
                raise Failed(f"ddprun of node {host} has ended with {node.process.returncode}")

    # --- what there is, and what becomes of it ---

    def n_ranks(self):
        return self.n_local * len(self.nodes)

    def n_needed(self):
        """The nodes that must be left for the job to continue: two of three replace the coordinator, one of two does not."""
        return 2 if self.elects else 1

    def ranks(self):
        """[(host, pid)] of the processes that train, sorted."""
        return sorted((host, pid) for host, node in self.nodes.items() for pid in node.ranks())

    def kill_process(self, pid, sig):
        send(pid, sig)

    def forget(self, host):
        """Forget a node that is to end, or has ended."""
        return self.nodes.pop(host)

    def leave(self, host):
        """It finishes its step, and is gone."""
        node = self.forget(host)
        send(node.process.pid, signal.SIGTERM)

    def kill_launcher(self, host):
        node = self.forget(host)
        send(node.process.pid, signal.SIGKILL)

    def switch_off(self, host):
        node = self.forget(host)
        if self.place.has_power:
            self.place.cut(host)
        kill_marked(node.mark)

    def switch_on(self, host):
        if self.place.has_power:
            self.place.rejoin(host)
        self.start_node(host)

    # --- ending ---

    def stop(self):
        """As its user would. All nodes end, each by the signal that ddprun handles."""
        node = next(iter(self.nodes.values()))
        words = [os.path.join(self.build, "ctl/ddpctl"), "stop", "--timeout", str(END_S), str(node.process.pid)]
        done = subprocess.run(words, env={**os.environ, "XDG_RUNTIME_DIR": self.folder.name}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"ddpctl stop: {done.stdout.strip()}")
        for host, node in self.nodes.items():
            try:
                node.process.wait(self.deadline_s)
            except subprocess.TimeoutExpired:
                raise Failed(f"ddprun of node {host} has not ended") from None
        self.nodes.clear()
        if self.daemon is not None:
            send(self.daemon.pid, signal.SIGTERM)
            self.daemon.wait(self.deadline_s)

    def left(self):
        """Pids of what should have ended, when it had time to."""
        end = time.monotonic() + END_S
        while marked(self.mark) and time.monotonic() < end:
            time.sleep(0.02)
        return marked(self.mark)

    def kill_all(self):
        kill_marked(self.mark)

    def logs(self):
        """The last lines of each node's log."""
        text = ""
        for name in sorted(os.listdir(self.folder.name)):
            if name.startswith("log."):
                with open(self.path(name), encoding="utf-8", errors="replace") as f:
                    text += "".join(f"{name[4:]} | {line}" for line in f.readlines()[-TAIL_LINES:])
        return text


def free_port(address):
    with socket.create_server((address, 0)) as server:
        return server.getsockname()[1]


def read_proc(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as f:
            return f.read()
    except OSError:
        return b""  # it ended meanwhile, or is another user's


def marked(mark):
    """Pids of the processes whose environment has a variable that begins so, or, where the mark names a node, is so."""
    whole = not mark.endswith(".")
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
            if any(word == mark.encode() if whole else word.startswith(mark.encode())
                   for word in read_proc(pid, "environ").split(b"\0"))]


def kill_marked(mark):
    """All of them, those that begin meanwhile included."""
    end = time.monotonic() + END_S
    while (pids := marked(mark)) and time.monotonic() < end:
        for pid in pids:
            send(pid, signal.SIGKILL)
        time.sleep(0.01)


def send(pid, sig):
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        pass  # it was quicker
