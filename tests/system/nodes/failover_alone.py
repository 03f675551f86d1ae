"""One of two nodes continues without the other one (--rdzv-conf failover=alone): docs/design/quorum.md. The coordinator's node is
killed, suspended, cut off while both live, and started again while it is cut off. Nodes are on this host with a loopback address each, or in
network namespaces.

Covers: rendezvous/ballots, rendezvous/quorum, rendezvous/membership, launcher/membership, launcher/node, launcher/options
"""
import signal
import unittest

from failover_job import CONF, LEADS, MOVED, Group
from harness import main
from places import Namespaces, NoPlace

ALONE = "failover=alone"
NOT_ANSWERED = "the other node that votes does not answer, and this one continues alone"
CONTINUED = "without this node, which was not heard there (--rdzv-conf failover=alone)"


class Alone(unittest.TestCase):
    def enter(self, nodes="1:2", conf=ALONE, **kw):
        return self.enterContext(Group(nodes, conf, seeks="10m", **kw))

    def assert_worlds(self, ranks, n):
        self.assertEqual({rank.world for rank in ranks.values()}, {n})

    def test_a_node_continues_without_a_coordinator_that_is_killed(self):
        group = self.enter(endpoints=(1, 2))  # else it may begin the job again, for a moment
        _, ranks = group.begin(2)
        self.assertIn(b"each continues without the other one (--rdzv-conf failover=alone)", group.nodes["a"].said_so_far())
        group.kill("a")
        again = group.hear(ranks["b"].generation + 1, ["b"])
        self.assert_worlds(again, 1)
        self.assertIn(NOT_ANSWERED.encode(), group.nodes["b"].said_so_far())
        group.start_at(1, "z")  # at the endpoint
        last = group.hear(again["b"].generation + 1, ["b", "z"])
        self.assert_worlds(last, 2)
        self.assertNotIn(b"generation 0:", group.nodes["z"].said_so_far())
        group.finish()

    def test_the_coordinator_continues_without_the_other_node(self):
        group = self.enter()
        _, ranks = group.begin(2)
        group.kill("b")
        self.assert_worlds(group.hear(ranks["a"].generation + 1, ["a"]), 1)
        self.assertNotIn(NOT_ANSWERED.encode(), group.nodes["a"].said_so_far())
        group.finish()

    def test_a_coordinator_that_was_suspended_joins_the_node_that_continued(self):
        group = self.enter()
        names, ranks = group.begin(2)
        group.nodes["a"].signal(signal.SIGSTOP)
        again = group.hear(ranks["b"].generation + 1, ["b"])
        self.assert_worlds(again, 1)
        self.assertFalse(ranks["a"].lives(), "ranks of a lost node ran in the next generation")
        group.nodes["a"].signal(signal.SIGCONT)
        last = group.hear(again["b"].generation + 1, names)
        self.assert_worlds(last, 2)
        self.assertIn(MOVED.encode(), group.nodes["a"].said_so_far())
        group.finish()

    def test_three_nodes_still_need_most_of_them(self):
        group = self.enter("1:3")
        group.begin(3)
        for name in "a", "b":
            group.nodes[name].process.kill()
        group.kill("a")
        group.kill("b")
        group.nodes["c"].read_until("waiting for the rendezvous endpoint")
        self.assertNotIn(LEADS.encode(), group.nodes["c"].said_so_far())
        group.kill("c")

    def test_a_node_without_the_setting_does_not_vote(self):
        group = self.enter()
        group.start_at(1, "a")
        group.hear(0, ["a"])
        group.words = tuple(CONF if word == ALONE else word for word in group.words)
        group.start_at(2, "b")
        group.hear(1, ["a", "b"])
        group.nodes["a"].read_until("it was started without --rdzv-conf failover=alone, unlike this node")
        group.finish()


class Cuts(unittest.TestCase):
    def setUp(self):
        try:
            self.place = self.enterContext(Namespaces(2))
        except NoPlace as why:
            self.skipTest(str(why))
        self.group = self.enterContext(Group("1:2", ALONE, self.place, seeks="10m"))

    def assert_one_job(self, generation, names, ended):
        """The part of this node ends, and it joins the other one."""
        self.group.nodes[ended].read_until(CONTINUED)
        last = self.group.hear(generation + 1, names)
        self.assertEqual({rank.world for rank in last.values()}, {2})
        self.group.finish()

    def test_two_parts_run_while_the_network_is_cut_and_are_one_job_afterwards(self):
        names, ranks = self.group.begin(2)
        self.place.cut(1)
        parts = {name: self.group.hear(ranks[name].generation + 1, [name])[name] for name in names}
        self.assertEqual([parts[name].world for name in names], [1, 1])
        self.assertTrue(parts["a"].lives() and parts["b"].lives(), "the documented split")
        self.place.rejoin(1)
        self.assert_one_job(max(part.generation for part in parts.values()), names, ended="a")
        self.assertFalse(parts["a"].lives())

    def test_an_endpoint_that_is_started_again_while_it_is_cut_off_joins_the_job_afterwards(self):
        _, ranks = self.group.begin(2)
        self.place.cut(1)
        self.group.kill("a")
        part = self.group.hear(ranks["b"].generation + 1, ["b"])["b"]
        self.group.start_at(1, "z")
        self.group.hear(0, ["z"])
        self.assertTrue(part.lives(), "the documented split")
        self.place.rejoin(1)
        self.assert_one_job(part.generation, ["b", "z"], ended="z")


if __name__ == "__main__":
    main()
