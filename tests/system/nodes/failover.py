"""Another node replaces the coordinator, without an outside service (--rdzv-conf failover=majority): docs/design/quorum.md. Its node
is killed, leaves, is suspended, is cut off, and is started again. All nodes are on this host, each with a loopback address of its own
or in a network namespace.

Covers: rendezvous/ballots, rendezvous/quorum, launcher/membership, launcher/node
"""
import signal
import unittest

from failover_job import AGAIN, ENDED, LEADS, ONCE, Group, LastingGroup
from harness import DEADLINE_S, await_true, main
from places import Namespaces, NoPlace


class Failover(unittest.TestCase):
    def test_by_default_a_job_continues_without_the_node_where_it_began(self):
        with Group("1:3", conf=None) as group:
            names, ranks = group.begin(3)
            self.assertIn(b"note: another node replaces the coordinator if this node is lost or leaves", group.nodes["a"].said_so_far())
            self.assertNotIn(b"replaces the coordinator", group.nodes["b"].said_so_far())
            group.kill("a")
            again = group.hear(ranks["b"].generation + 1, names[1:])
            self.assertEqual({rank.world for rank in again.values()}, {2})
            group.finish()

    def test_two_nodes_continue_without_the_coordinator_only_if_it_leaves(self):
        for leaves in True, False:
            with self.subTest(leaves=leaves), Group("1:2", conf=None) as group:
                names, ranks = group.begin(2)
                self.assertIn(b"the other node continues if this node, the coordinator, leaves, but not if it is lost",
                              group.nodes["a"].said_so_far())
                if not leaves:
                    group.kill("a")
                    group.assert_end(75, names[1:])
                    continue
                group.nodes["a"].signal(signal.SIGTERM)
                group.assert_end(-signal.SIGTERM, ["a"])
                group.hear(ranks["b"].generation + 1, ["b"])
                group.finish()

    def test_a_stopped_coordinator_keeps_its_ranks_where_no_other_can_replace_it(self):
        with Group("1:3", conf=None) as group:
            names, ranks = group.begin(3)
            needless = b"the ranks of this node need no lease"
            n_said = group.nodes["a"].said_so_far().count(needless)
            group.kill("c")
            ranks = group.hear(ranks["a"].generation + 1, names[:2])
            await_true(lambda: group.nodes["a"].said_so_far().count(needless) > n_said, deadline_s=DEADLINE_S)
            group.nodes["a"].signal(signal.SIGSTOP)
            group.assert_end(75, ["b"])  # its lease is over
            self.assertTrue(ranks["a"].lives())
            group.nodes["a"].signal(signal.SIGCONT)
            again = group.hear(ranks["a"].generation + 1, ["a"])
            self.assertEqual(again["a"].world, 1)
            group.finish()

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
                    group.await_voters(names)
            group.finish()

    def test_a_coordinator_that_leaves_hands_over(self):
        for nodes in "2:3", "1:3":  # also where a lost one is not replaced
            with self.subTest(nodes), Group(nodes, AGAIN) as group:
                names, ranks = group.begin(3)
                group.nodes["a"].signal(signal.SIGTERM)
                self.assertEqual(group.nodes["a"].finish()[0], -signal.SIGTERM)
                group.drop("a")
                group.hear(ranks["b"].generation + 1, names[1:])
                group.finish()

    def test_a_failure_ends_the_job_on_all_nodes(self):
        for nodes in "3", "1:3":
            with self.subTest(nodes), Group(nodes, ONCE) as group:
                group.begin(3)
                group.finish(7)

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

    def test_the_first_endpoint_of_a_list_asks_the_others_before_it_begins_the_job_again(self):
        with Group("1:3", ONCE, endpoints=(1, 2, 3)) as group:
            names, ranks = group.begin(3)
            group.kill("a")
            again = group.hear(ranks["b"].generation + 1, names[1:])
            group.start_at(1, "z")
            last = group.hear(again["b"].generation + 1, [*names[1:], "z"])
            self.assertEqual({rank.world for rank in last.values()}, {3})
            self.assertNotIn(b"generation 0:", group.nodes["z"].said_so_far())
            group.finish()

    def test_a_killed_coordinator_is_not_replaced_where_it_could_begin_the_job_again(self):
        with Group("1:3", AGAIN) as group:
            names, _ = group.begin(3)
            self.assertIn(b"a lost coordinator is not replaced with --nnodes 1:3", group.nodes["a"].said_so_far())
            group.kill("a")
            self.assertEqual([group.nodes[name].finish()[0] for name in names[1:]], [75, 75])

    def test_nodes_whose_coordinator_is_lost_join_a_job_that_is_begun_again_at_the_endpoint(self):
        with Group("1:3", AGAIN, seeks="10m") as group:
            names, _ = group.begin(3)
            group.kill("a")
            for name in names[1:]:
                group.nodes[name].read_until("waiting for the rendezvous endpoint")
            self.begin_again(group, names[1:])

    def test_a_node_whose_second_coordinator_is_lost_joins_a_job_that_is_begun_again_at_the_endpoint(self):
        with Group("1:3", ONCE, seeks="10m") as group:
            names, ranks = group.begin(3)
            group.kill("a")
            group.hear(ranks["b"].generation + 1, names[1:])
            leader = group.await_leader(names[1:])
            group.await_voters(names[1:])
            group.kill(leader)
            left = [name for name in names[1:] if name != leader]
            group.nodes[left[0]].read_until("waiting for the rendezvous endpoint")
            self.begin_again(group, left)

    def begin_again(self, group, names):
        """These nodes join the job, and vote."""
        group.start_at(1, "z")
        everyone = ["z", *names]
        ranks, n = {}, 0
        while {rank.world for rank in ranks.values()} != {len(everyone)}:
            ranks, n = group.hear_some(n, everyone), n + 1
        self.assertIn(b"generation 0:", group.nodes["z"].said_so_far())
        group.await_voters(everyone)
        group.finish()

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

    def test_a_coordinator_that_was_cut_off_joins_again_when_the_network_is_back(self):
        with self.place, Group("2:3", place=self.place, seeks="10m") as group:
            names, ranks = group.begin(3)
            self.place.cut(1)
            again = group.hear(ranks["b"].generation + 1, names[1:])
            group.nodes["a"].read_until("waiting for the rendezvous endpoint")
            self.place.rejoin(1)
            last = group.hear(again["b"].generation + 1, names)
            self.assertEqual({rank.world for rank in last.values()}, {3})
            group.finish()

    def test_a_node_that_was_cut_off_joins_again_when_the_network_is_back(self):
        with self.place, Group("2:3", place=self.place, seeks="10m") as group:
            names, ranks = group.begin(3)
            self.place.cut(2)
            again = group.hear(ranks["a"].generation + 1, ["a", "c"])
            group.nodes["b"].read_until("waiting for the rendezvous endpoint")
            self.place.rejoin(2)
            last = group.hear(again["a"].generation + 1, names)
            self.assertEqual({rank.world for rank in last.values()}, {3})
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
