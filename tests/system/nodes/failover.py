"""Another node replaces the coordinator, without an outside service (--rdzv-conf failover=majority): docs/design/quorum.md. Its node
is killed, leaves, is suspended, is cut off, and is started again. All nodes are on this host, each with a loopback address of its own
or in a network namespace.

Covers: rendezvous/ballots, rendezvous/quorum, launcher/membership, launcher/node
"""
import os
import signal
import tempfile
import unittest

from harness import DDPRUN, DEADLINE_S, await_true, main
from node import TOKEN, Node
from party import SHOW, Party
from places import Loopback, Namespaces, NoPlace
from ports import free_port
from recovery_job import Nodes

CONF = "failover=majority"
ONCE = "failover=majority,endpoint=once"
LEADS = "this node is the coordinator now"
ENDED = "its ddprun, which hosted the coordinator, has ended"


class Group(Party):
    """The first node that is started is at the endpoint, and is named a."""

    def __init__(self, nodes, conf=CONF, place=None):
        self.dir = tempfile.TemporaryDirectory()
        super().__init__(os.path.join(self.dir.name, "end"))
        self.place = place = place or Loopback()
        self.port = place.port()
        self.words = ("-v", "--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{place.address(1)}:{self.port}",
                      "--rdzv-id", "job", "--rdzv-conf", conf, "--join-window", "0", *SHOW)

    def __exit__(self, *_):
        super().__exit__()
        self.dir.cleanup()

    def start_at(self, host, name):
        launcher, *words = self.place.command(host, [DDPRUN, "--local-addr", self.place.address(host), *self.words])
        self.nodes[name] = Node(*words, launcher=launcher, env={"TEST_END": self.end_file, "DDP_TOKEN": TOKEN})

    def begin(self, n):
        """-> names, and the ranks of the generation that has all of them, when all vote"""
        names, newest = self.name(n), -1
        for host, name in enumerate(names, 1):
            self.start_at(host, name)
            if host == 1:
                self.nodes["a"].read_until("1 node votes on the coordinator")
        ranks = {}
        while {rank.world for rank in ranks.values()} != {n}:
            ranks = self.hear_some(newest + 1, names)
            newest = max(rank.generation for rank in ranks.values())
        self.nodes["a"].read_until(f"{n} nodes vote on the coordinator")
        return names, ranks

    def drop(self, name):
        self.nodes.pop(name).__exit__()

    def finish(self, code=0):
        self.end(code)
        for name, node in self.nodes.items():
            found, _, err = node.finish()
            assert found == code, f"{name} ended with {found}: {err}"


class LastingGroup(Nodes):
    """Three nodes of one rank each, which outlives the end of a generation. Node 0 is at the endpoint."""

    def __init__(self):
        super().__init__(None, "1:3", 1, "-v", "--rdzv-id", "job", "--rdzv-conf", ONCE, "--max-restarts", "3",
                         endpoint=f"127.0.0.1:{free_port()}")
        self.logs = tempfile.TemporaryDirectory()
        self.logs_in = self.logs.name

    def __exit__(self, *_):
        super().__exit__()
        self.logs.cleanup()

    def begin(self):
        """-> {node: pids}, when all vote"""
        for i in range(3):
            self.start(i)
            if i == 0:
                self.await_world(1)
        before = self.await_world(3)
        await_true(lambda: "3 nodes vote on the coordinator" in self.told(), self.told, DEADLINE_S)
        return before

    def make_job(self, name, words, env=None, **kw):
        return super().make_job(name, ["--local-addr", Loopback().address(name + 1), *words], env={"DDP_TOKEN": TOKEN, **env}, **kw)


class Failover(unittest.TestCase):
    def test_a_killed_coordinator_is_replaced_and_no_other_rank_ends_before(self):
        with Group("2:3") as group:
            names, ranks = group.begin(3)
            group.kill("a")
            group.nodes["b"].read_until(ENDED)
            again = group.hear(ranks["b"].generation + 1, names[1:])
            self.assertEqual({rank.world for rank in again.values()}, {2})
            group.finish()

    def test_losses_one_after_the_other(self):
        with Group("1:4", ONCE) as group:
            names, ranks = group.begin(4)
            for name in "a", "b":  # the coordinator, and most likely its successor
                generation = max(rank.generation for rank in ranks.values())
                group.kill(name)
                names.remove(name)
                ranks = group.hear(generation + 1, names)
                if name == "a":
                    self.await_voters(group, names)
            group.finish()

    def await_voters(self, group, names):
        """The new coordinator has its list: one of the nodes reports it."""
        text = f"{len(names)} nodes vote on the coordinator".encode()
        await_true(lambda: any(text in group.nodes[name].said_so_far() for name in names), deadline_s=DEADLINE_S)

    def test_a_coordinator_that_leaves_hands_over(self):
        for nodes in "2:3", "1:3":  # also where a lost one is not replaced
            with self.subTest(nodes), Group(nodes) as group:
                names, ranks = group.begin(3)
                group.nodes["a"].signal(signal.SIGTERM)
                self.assertEqual(group.nodes["a"].finish()[0], -signal.SIGTERM)
                group.drop("a")
                group.hear(ranks["b"].generation + 1, names[1:])
                group.finish()

    def test_a_coordinator_that_is_alone_ends_its_job(self):
        with Group("1:3") as group:
            group.start_at(1, "a")
            group.hear(0, ["a"])
            group.nodes["a"].signal(signal.SIGTERM)
            self.assertEqual(group.nodes["a"].finish()[0], -signal.SIGTERM)

    def test_a_stopped_coordinator_is_replaced_and_its_node_rejoins(self):
        with Group("2:3") as group:
            names, ranks = group.begin(3)
            stopped = group.nodes["a"]
            stopped.signal(signal.SIGSTOP)
            again = group.hear(ranks["b"].generation + 1, names[1:])
            self.assertFalse(ranks["a"].lives(), "ranks of a lost node ran in the next generation")
            stopped.signal(signal.SIGCONT)
            last = group.hear(again["b"].generation + 1, names)
            self.assertEqual({rank.world for rank in last.values()}, {3})
            group.finish()

    def test_the_endpoint_that_is_started_again_joins_the_job(self):
        with Group("2:3") as group:
            names, ranks = group.begin(3)
            group.kill("a")
            again = group.hear(ranks["b"].generation + 1, names[1:])
            group.start_at(1, "z")
            last = group.hear(again["b"].generation + 1, [*names[1:], "z"])
            self.assertEqual({rank.world for rank in last.values()}, {3})
            group.finish()

    def test_a_killed_coordinator_is_not_replaced_where_it_could_begin_the_job_again(self):
        with Group("1:3") as group:
            names, _ = group.begin(3)
            self.assertIn(b"a lost coordinator is not replaced with --nnodes 1:3", group.nodes["a"].said_so_far())
            group.kill("a")
            self.assertEqual([group.nodes[name].finish()[0] for name in names[1:]], [75, 75])

    def test_ranks_live_on_in_place(self):
        with LastingGroup() as nodes:
            before = nodes.begin()
            n_starts = dict(nodes.n_starts)
            nodes.jobs[0].process.kill()
            after = nodes.await_world(2, nodes.generation + 1)
            self.assertEqual({node: after[node] for node in (1, 2)}, {node: before[node] for node in (1, 2)})
            self.assertEqual(nodes.n_starts, n_starts)
            self.assertEqual(nodes.finish([1, 2]), [0, 0])


class Cuts(unittest.TestCase):
    def setUp(self):
        try:
            self.place = Namespaces()
        except NoPlace as why:
            self.skipTest(str(why))

    def test_a_coordinator_that_is_cut_off_is_replaced_when_its_ranks_are_dead(self):
        with self.place, Group("2:3", place=self.place) as group:
            names, ranks = group.begin(3)
            self.place.cut(1)
            again = group.hear(ranks["b"].generation + 1, names[1:])
            self.assertFalse(ranks["a"].lives(), "ranks of the old coordinator's node ran in the next generation")
            self.assertEqual({rank.world for rank in again.values()}, {2})
            self.assertEqual(group.nodes["a"].finish()[0], 75)
            group.drop("a")
            group.finish()

    def test_a_coordinator_keeps_its_job_when_another_node_is_cut_off(self):
        with self.place, Group("2:3", place=self.place) as group:
            _, ranks = group.begin(3)
            self.place.cut(2)
            group.hear(ranks["a"].generation + 1, ["a", "c"])
            self.assertFalse(ranks["b"].lives())
            self.assertEqual(group.nodes["b"].finish()[0], 75)
            self.assertNotIn(LEADS.encode(), group.nodes["c"].said_so_far())
            group.drop("b")
            group.finish()


if __name__ == "__main__":
    main()
