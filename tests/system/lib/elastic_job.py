"""A job of several nodes whose workers report what they observe: tests/support/programs/elastic_rank.c, or tests/interop/elastic_steps.py
with torch. The launcher is ddprun or torchrun, with the same options. Used by elastic_cases.py."""
import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import tempfile
import threading
import time

from harness import RELAYED, Job
from json_schema import check_event

TOKEN = "0123456789abcdef0123456789abcdef"
LISTENS, CONNECTED = "0A", "01"  # in /proc/net/tcp


class Failed(Exception):
    """What was not as it should be."""


@dataclasses.dataclass
class Launcher:
    name: str
    words: list  # the program, and what comes before the options
    env: dict
    is_ours: bool  # it is held to what docs/design/membership.md promises, beyond what any launcher should do

    def options(self, place, host, endpoint, port, plan):
        """endpoint: the number of the host of the rendezvous endpoint."""
        which = 0 if self.is_ours else 1
        conf = [f"last_call_timeout={plan.window_s[which]}"]
        if not self.is_ours:  # it looks for its host name, and all of these have the same
            conf.append(f"is_host={'true' if host == endpoint else 'false'}")
        more = ["-v"] if self.is_ours else []
        return [*more, "--nnodes", plan.nodes, "--nproc-per-node", str(plan.n_local), "--rdzv-backend", "c10d",
                "--rdzv-endpoint", f"{place.address(endpoint)}:{port}", "--rdzv-id", "elastic", "--rdzv-conf", ",".join(conf),
                "--local-addr", place.address(host), "--max-restarts", str(plan.restarts[which])]


@dataclasses.dataclass
class Workers:
    name: str
    words: list  # what the launcher is to start
    env: dict
    n_local: int  # on each node


@dataclasses.dataclass
class Plan:
    """Of one job; pairs are for ddprun and for torchrun."""
    nodes: str
    n_local: int
    restarts: tuple
    window_s: tuple  # how long it waits for more nodes when there are enough
    has_child: bool


@dataclasses.dataclass
class Rank:
    node: str
    pid: int
    began_ns: int
    rank: int
    world: int
    generation: int
    store: str
    sum: int = None
    summed_ns: int = None


@dataclasses.dataclass
class Generation:
    ranks: list

    @property
    def began_ns(self):
        return max(r.began_ns for r in self.ranks)

    @property
    def summed_ns(self):
        return max(r.summed_ns for r in self.ranks)

    def of(self, node):
        return [r for r in self.ranks if r.node == node]


class Node(Job):
    """A launcher under way."""

    def __init__(self, name, host, command, env, folder):
        self.name, self.host = name, host
        self.is_killed = False
        self.output_path = os.path.join(folder, name + ".txt")
        with open(self.output_path, "wb") as output:
            super().__init__(*command[1:], launcher=shutil.which(command[0]), env={**env, "TEST_NODE": name}, stdout=output,
                             stderr=output)

    def output(self):
        with open(self.output_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def kill_all(self):
        """The launcher, what helps it and the ranks, by kill -9 in one go; the time of it."""
        self.is_killed = True
        pids = [self.process.pid, *(p for p in self.processes() if p != self.process.pid)]
        begin_ns = time.monotonic_ns()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # the spawner was faster
        return begin_ns

    def kill_launcher(self):
        """Only that one, by kill -9; the time of it."""
        self.is_killed = True
        begin_ns = time.monotonic_ns()
        self.signal(signal.SIGKILL)
        return begin_ns

    def is_at(self, port):
        """Does it listen there, or is it connected to there?"""
        own = own_sockets(self.process.pid)
        return any(inode in own and (local == port and state == LISTENS or remote == port and state == CONNECTED)
                   for local, remote, state, inode in sockets_seen_by(self.process.pid))


class Ends(threading.Thread):
    """The exits of these processes, whatever their parent is."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.fds = [os.pidfd_open(pid) for pid in pids]
        self.last_ns = None  # when the last of them has ended
        self.start()

    def run(self):
        with contextlib.suppress(PermissionError):  # what it measures is not to be its own delay
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        for fd in self.fds:
            select.select([fd], [], [])
            os.close(fd)
        self.last_ns = time.monotonic_ns()


class Trial:
    """A job from its first node to its end. Each wait fails with Failed after limit_s."""

    def __init__(self, launcher, workers, place, plan, endpoint, limit_s):
        self.launcher, self.workers, self.place, self.plan, self.endpoint = launcher, workers, place, plan, endpoint
        self.limit_s = limit_s
        self.port = place.port()
        self.folder = tempfile.mkdtemp(prefix="elastic-")
        self.fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(self.fifo)
        self.fifo_fd = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.heard = b""
        self.nodes, self.ranks = {}, []
        self.daemons = []  # the name of its node for each

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            node.__exit__()
        os.close(self.fifo_fd)
        shutil.rmtree(self.folder)

    def start(self, name, host):
        options = self.launcher.options(self.place, host, self.endpoint, self.port, self.plan)
        if self.launcher.is_ours:
            options += ["--events", os.path.join(self.folder, name + ".json")]
        env = {**self.launcher.env, **self.workers.env, "TEST_FIFO": self.fifo, "TEST_FOLDER": self.folder, "TMPDIR": self.folder,
               "HOME": "/nonexistent", "DDP_TOKEN": TOKEN, "GLOO_SOCKET_IFNAME": self.place.interface, "OMP_NUM_THREADS": "1"}
        if self.plan.has_child:
            env["TEST_CHILD"] = "1"
        command = self.place.command(host, [*self.launcher.words, *options, *self.workers.words])
        self.nodes[name] = node = Node(name, host, command, env, self.folder)
        return node

    def start_endpoint(self, name):
        """Start the first node, until the others can find it; torchrun needs is_host for it."""
        node = self.start(name, self.endpoint)
        if self.launcher.is_ours:
            self.await_at_endpoint(node)
        return node

    def tell(self, what):
        with open(os.path.join(self.folder, what), "wb"):
            pass

    def stops(self, name):
        """The reasons that a ddprun reports for the ends of its generations, each with its last message: [(why, text)]."""
        with open(os.path.join(self.folder, name + ".json"), encoding="utf-8") as f:
            events = [json.loads(line) for line in f]
        for event in events:
            check_event(event)
        last = {e["gen"]: (e["why"], e.get("text")) for e in events if e["ev"] == "stop"}
        return [last[generation] for generation in sorted(last)]

    def logs(self):
        return "\n".join(f"--- {node.name}:\n{node.output()}" for node in self.nodes.values())

    # --- Waiting ---

    def deadline(self):
        return time.monotonic() + self.limit_s

    def await_at_endpoint(self, node):
        end = self.deadline()
        while not node.is_at(self.port):
            if time.monotonic() > end or node.process.poll() is not None:
                raise Failed(f"{node.name} did not come to where the nodes meet")
            time.sleep(0.002)

    def await_generation(self, names, since_ns):
        """The ranks of these nodes, begun since then, when each has made a step; names are in the order of their ranks."""
        end = self.deadline()
        while True:
            found = self.find_generation(names, since_ns)
            if found is not None:
                break
            for name in names:
                if self.nodes[name].process.poll() is not None:
                    raise Failed(f"{name}'s launcher ended with {self.nodes[name].process.returncode}")
            if time.monotonic() > end:
                raise Failed(f"no step after {self.limit_s:.0f} s, {self.describe(since_ns)}")
            self.listen(0.05)
        if self.launcher.is_ours:
            self.check_promises(found, names, since_ns)
        return found

    def find_generation(self, names, since_ns):
        ranks = []
        for name in names:
            ranks += [r for r in self.ranks if r.node == name and r.began_ns >= since_ns][-self.plan.n_local:]
        world = len(names) * self.plan.n_local
        is_whole = sorted(r.rank for r in ranks) == list(range(world)) and {r.world for r in ranks} == {world} \
            and {r.sum for r in ranks} == {world * (world + 1) // 2} \
            and len({r.store for r in ranks}) == (len(names) if RELAYED else 1)
        return Generation(ranks) if is_whole else None

    def check_promises(self, found, names, since_ns):
        """No generation between, ranks in the order of the nodes, one number."""
        begun = [r for r in self.ranks if r.began_ns >= since_ns]
        if len(begun) != len(found.ranks):
            raise Failed(f"more was started than one generation: {self.describe(since_ns)}")
        if [r.node for r in sorted(found.ranks, key=lambda r: r.rank)] != [n for n in names for _ in range(self.plan.n_local)]:
            raise Failed(f"the ranks are in another order than {names}: {self.describe(since_ns)}")
        if len({r.generation for r in found.ranks}) != 1:
            raise Failed(f"the nodes count generations differently: {self.describe(since_ns)}")

    def await_daemons(self, node):
        """That each rank of the node has its own."""
        end = self.deadline()
        while self.daemons.count(node.name) < self.plan.n_local:
            if time.monotonic() > end:
                raise Failed(f"{self.daemons.count(node.name)} daemons of {node.name} have begun")
            self.listen(0.05)

    def await_ends(self, nodes):
        """Until these launchers have ended: when the last one did."""
        watch = Ends([n.process.pid for n in nodes])
        watch.join(self.limit_s)
        if watch.last_ns is None:
            running = [n.name for n in nodes if n.process.poll() is None]
            raise Failed(f"after {self.limit_s:.0f} s the launchers of {', '.join(running)} are still running")
        for node in nodes:
            node.process.wait()
        return watch.last_ns

    def await_nothing_left(self, node):
        """Until no process of the node is there: when that was seen."""
        end = self.deadline()
        while node.processes():
            if time.monotonic() > end:
                raise Failed(f"after {self.limit_s:.0f} s {len(node.processes())} processes of {node.name} are still running")
            time.sleep(0.001)
        return time.monotonic_ns()

    def finish(self):
        """All ranks exit with 0 after the same step, and all launchers with 0."""
        self.tell("stop")
        nodes = [n for n in self.nodes.values() if n.process.returncode is None and not n.is_killed]
        self.await_ends(nodes)
        codes = {n.name: n.process.returncode for n in nodes}
        if any(codes.values()):
            raise Failed(f"the job was to end well, but the launchers ended with {codes}")
        self.check_left(nodes)

    def check_left(self, nodes):
        for node in nodes:
            if node.processes():
                raise Failed(f"processes of {node.name} are left")
            if self.launcher.is_ours and os.listdir(node.runtime):
                raise Failed(f"{node.name} left {os.listdir(node.runtime)} in the runtime folder")

    # --- What the ranks report ---

    def listen(self, seconds):
        if not select.select([self.fifo_fd], [], [], seconds)[0]:
            return
        *lines, self.heard = (self.heard + os.read(self.fifo_fd, 65536)).split(b"\n")
        for line in lines:
            self.note(*line.decode().split())

    def note(self, what, node, pid, *words):
        if what == "began":
            at, rank, world, generation, store = words
            self.ranks.append(Rank(node, int(pid), int(at), int(rank), int(world), int(generation), store))
        elif what == "daemon":
            self.daemons.append(node)
        else:
            rank = next(r for r in reversed(self.ranks) if r.pid == int(pid))
            rank.summed_ns, rank.sum = int(words[0]), int(words[1])

    def describe(self, since_ns):
        """The ranks begun since then, in few words."""
        texts = [f"{r.node}: rank {r.rank} of {r.world}, generation {r.generation}, store {r.store}, sum {r.sum}"
                 for r in self.ranks if r.began_ns >= since_ns]
        return "; ".join(texts) or "no rank has begun"


def own_sockets(pid):
    """Inodes, as text."""
    found = set()
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if link.startswith("socket:["):
                found.add(link[8:-1])
    except OSError:
        pass  # it has ended
    return found


def sockets_seen_by(pid):
    """(local port, remote port, state, inode) of each TCP socket in the network namespace of a process."""
    for table in "tcp", "tcp6":
        try:
            with open(f"/proc/{pid}/net/{table}", encoding="ascii") as f:
                rows = [line.split() for line in f.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            yield int(row[1].split(":")[1], 16), int(row[2].split(":")[1], 16), row[3], row[9]
