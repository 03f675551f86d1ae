"""Nodes of jobs whose coordinator another node may replace (--rdzv-conf failover=majority)."""
import json
import os
import tempfile

from harness import DDPRUN, DEADLINE_S, await_true
from node import TOKEN, Node
from party import SHOW, Party
from places import Loopback
from recovery_job import Nodes

CONF = "failover=majority"
ONCE = "failover=majority,endpoint=once"
AGAIN = "endpoint=again"
LEADS = "this node is the coordinator now"
MOVED = "the coordinator moved to another node"
ENDED = "its ddprun, which hosted the coordinator, has ended"


class Group(Party):
    """The first node that is started is at the endpoint, and is named a."""

    def __init__(self, nodes, conf=CONF, place=None, endpoints=(1,), more=(), script=SHOW, window="0", seeks="0"):
        """endpoints: hosts, the first one is where the job begins
        seeks: for how long a node without a lease looks for the coordinator"""
        self.dir = tempfile.TemporaryDirectory()
        super().__init__(os.path.join(self.dir.name, "end"))
        self.place = place = place or Loopback()
        self.port = place.port()
        listed = ",".join(f"{place.address(host)}:{self.port}" for host in endpoints)
        self.words = ("-v", "--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", listed, "--rdzv-id", "job", *(("--rdzv-conf", conf) if conf else ()),
                      "--rejoin-timeout", seeks, "--join-window", window, *more, *script)

    def __exit__(self, *_):
        super().__exit__()
        self.dir.cleanup()

    def start_at(self, host, name, local_addr=None):
        launcher, *words = self.place.command(host, [DDPRUN, "--local-addr", local_addr or self.place.address(host), *self.words])
        env = {"TEST_END": self.end_file, "DDP_TOKEN": TOKEN, "GLOO_SOCKET_IFNAME": self.place.interface}
        self.nodes[name] = Node(*words, launcher=launcher, env=env)

    def begin(self, n, n_voters=None):
        """-> names, and the ranks of the generation that has all of them, when all vote, or so many"""
        names, newest = self.name(n), -1
        for host, name in enumerate(names, 1):
            self.start_at(host, name)
            if host == 1:
                self.nodes["a"].read_until("1 node votes on the coordinator")
        ranks = {}
        while {rank.world for rank in ranks.values()} != {n}:
            ranks = self.hear_some(newest + 1, names)
            newest = max(rank.generation for rank in ranks.values())
        self.nodes["a"].read_until(f"{n_voters or n} nodes vote on the coordinator")
        return names, ranks

    def drop(self, name):
        self.nodes.pop(name).__exit__()

    def await_said(self, text, names):
        """-> the first of these nodes that has printed it"""
        found = []

        def is_said():
            found[:] = [name for name in names if text.encode() in self.nodes[name].said_so_far()]
            return found
        await_true(is_said, deadline_s=DEADLINE_S)
        return found[0]

    def await_leader(self, names):
        return self.await_said(LEADS, names)

    def await_voters(self, names):
        """The list is made again: the coordinator, one of these nodes, reports it."""
        self.await_said(f"{len(names)} nodes vote on the coordinator", names)

    def assert_end(self, code, names):
        for name in names:
            found, _, err = self.nodes[name].finish()
            assert found == code, f"{name} ended with {found}: {err}"
            self.drop(name)

    def finish(self, code=0):
        self.end(code)
        for name, node in self.nodes.items():
            found, _, err = node.finish()
            assert found == code, f"{name} ended with {found}: {err}"


class LastingGroup(Nodes):
    """Three nodes of one rank each, which outlives the end of a generation. Node 0 is at the endpoint."""

    def __init__(self, nodes="1:3", place=None, conf=ONCE, has_events=False):
        self.place = place or Loopback()
        super().__init__(None, nodes, 1, "-v", "--rdzv-id", "job", "--rdzv-conf", conf, "--max-restarts", "3",
                         endpoint=f"{self.place.address(1)}:{self.place.port()}")
        self.logs = tempfile.TemporaryDirectory()
        self.logs_in = self.logs.name
        self.has_events = has_events

    def words_of(self, name):
        return ("--events", os.path.join(self.logs_in, f"events.{name}")) if self.has_events else ()

    def events(self, node, name):
        """What this node has written of one kind."""
        with open(os.path.join(self.logs_in, f"events.{node}")) as f:
            return [event for event in map(json.loads, f) if event["ev"] == name]

    def __exit__(self, *_):
        super().__exit__()
        self.logs.cleanup()

    def begin(self):
        """-> {node: pids}, when all vote"""
        for i in range(3):
            self.start(i)
            if i == 0:
                await_true(lambda: "1 node votes on the coordinator" in self.told(), self.told, DEADLINE_S)
        before = self.await_world(3)
        await_true(lambda: "3 nodes vote on the coordinator" in self.told(), self.told, DEADLINE_S)
        return before

    def make_job(self, name, words, env=None, **kw):
        host = name + 1
        launcher, *words = self.place.command(host, [DDPRUN, "--local-addr", self.place.address(host), *words])
        return super().make_job(name, words, launcher=launcher, env={"DDP_TOKEN": TOKEN, **env}, **kw)
