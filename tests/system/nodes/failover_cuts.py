"""A coordinator is lost in hard ways (--rdzv-conf failover=majority): the network is cut into parts or in one direction, two nodes are
lost at once, the successor dies as it takes over, and nodes join that know only the address of a lost host. Nodes are in network
namespaces, or on this host with a loopback address each.

Covers: rendezvous/ballots, rendezvous/quorum, launcher/membership, launcher/node, launcher/options
"""
import signal
import unittest

from failover_job import CONF, LEADS, ONCE, Group
from harness import main
from places import Namespaces, NoPlace


class Partitions(unittest.TestCase):
    def enter(self, n_hosts, nodes, conf=CONF, **kw):
        try:
            self.place = self.enterContext(Namespaces(n_hosts))
        except NoPlace as why:
            self.skipTest(str(why))
        return self.enterContext(Group(nodes, conf, self.place, **kw))

    def assert_continue(self, group, generation, names):
        again = group.hear(generation + 1, names)
        self.assertEqual({rank.world for rank in again.values()}, {len(names)})
        return again

    def test_the_majority_continues_without_the_coordinator(self):
        group = self.enter(5, "2:5", ONCE)
        names, ranks = group.begin(5)
        self.place.part(1, 2)
        self.assert_continue(group, ranks["c"].generation, names[2:])
        self.assertFalse(ranks["a"].lives() or ranks["b"].lives(), "ranks of the minority ran in the next generation")
        group.assert_end(75, ["a", "b"])
        group.finish()

    def test_the_coordinator_continues_with_the_majority(self):
        group = self.enter(5, "2:5", ONCE)
        names, ranks = group.begin(5)
        self.place.part(4, 5)
        self.assert_continue(group, ranks["c"].generation, names[:3])
        group.assert_end(75, ["d", "e"])
        for name in names[:3]:
            self.assertNotIn(LEADS.encode(), group.nodes[name].said_so_far())
        group.finish()

    def test_of_two_halves_the_one_with_the_coordinator_continues(self):
        group = self.enter(4, "2:4", ONCE)
        names, ranks = group.begin(4)
        self.place.part(3, 4)
        self.assert_continue(group, ranks["a"].generation, names[:2])
        for name in "c", "d":
            code, _, err = group.nodes[name].finish()
            self.assertEqual(code, 75)
            self.assertNotIn(LEADS, err)
            group.drop(name)
        group.finish()

    def lose_b(self, deaf, other):
        """-> the group, without b's ranks: it may end, or try to join again"""
        group = self.enter(3, "2:3")
        _, ranks = group.begin(3)
        self.place.deafen(deaf, other)
        self.assert_continue(group, ranks["a"].generation, ["a", "c"])
        self.assertFalse(ranks["b"].lives(), "ranks of a lost node ran in the next generation")
        for name in "a", "c":
            self.assertNotIn(LEADS.encode(), group.nodes[name].said_so_far())
        return group

    def test_a_node_that_the_coordinator_does_not_hear_is_lost(self):
        group = self.lose_b(1, 2)
        group.kill("b")
        group.finish()

    def test_a_node_that_does_not_hear_the_coordinator_is_lost(self):
        group = self.lose_b(2, 1)
        group.assert_end(75, ["b"])
        group.finish()

    def test_two_nodes_that_cannot_reach_each_other_do_not_both_continue(self):
        group = self.enter(3, "1:3", ONCE)
        group.begin(3)
        self.place.deafen(2, 3)
        group.kill("a")
        for name in "b", "c":
            code, _, err = group.nodes[name].finish()
            self.assertEqual(code, 75)
            self.assertNotIn(LEADS, err)
            group.drop(name)

    def test_a_node_that_knows_only_a_lost_host_waits_for_it(self):
        group = self.enter(4, "2:3", more=("--start-timeout", "2s", "--rejoin-timeout", "60s"))
        names, ranks = group.begin(3)
        group.kill("a")
        group.hear(ranks["b"].generation + 1, names[1:])
        group.start_at(4, "z")
        group.assert_end(69, ["z"])
        group.finish()

    def test_a_node_does_not_wait_for_a_coordinator_that_a_survivor_named_before_it_was_lost(self):
        group = self.enter(4, "2:3", endpoints=(1, 2, 3), seeks="10m")
        names, ranks = group.begin(3)
        group.kill("a")
        successor = group.await_leader(names[1:])
        group.hear(ranks["b"].generation + 1, names[1:])
        self.place.deafen(" abc".index(successor), 1)  # it does not hear the new node
        group.start_at(1, "z")  # at the first endpoint
        group.nodes["z"].read_until(f"{self.place.address(' abc'.index(successor))}:{group.port}: timed out")
        group.kill(successor)  # the survivor cannot replace it
        group.nodes["z"].read_until("no node names it any more: this node asks the endpoints again")
        group.start_at(4, "y")
        self.assertEqual({rank.world for rank in group.hear(0, ["z", "y"]).values()}, {2})
        left, = set(names[1:]) - {successor}
        group.kill(left)
        group.finish()

    def test_a_node_is_reported_whose_listener_cannot_be_reached(self):
        group = self.enter(2, "1:2")
        group.start_at(1, "a")
        group.hear(0, ["a"])
        group.start_at(2, "b", local_addr="10.78.0.77")
        names = ["a", "b"]
        group.n_names = 2
        group.hear(1, names)
        group.nodes["a"].read_until("no other node can replace the coordinator")
        said = group.nodes["a"].said_so_far()
        self.assertIn(b"cannot reach 10.78.0.77 port ", said)
        self.assertEqual(said.count(b"cannot reach"), 1)
        group.kill("a")
        group.assert_end(75, ["b"])


class Losses(unittest.TestCase):
    def test_two_of_five_are_lost_at_once(self):
        with Group("2:5", ONCE) as group:
            names, ranks = group.begin(5)
            for name in "a", "b":
                group.nodes[name].process.kill()
            group.kill("a")
            group.kill("b")
            again = group.hear(ranks["c"].generation + 1, names[2:])
            self.assertEqual({rank.world for rank in again.values()}, {3})
            group.finish()

    def test_two_of_three_at_once_end_the_job(self):
        with Group("1:3", ONCE) as group:
            group.begin(3)
            for name in "a", "b":
                group.nodes[name].process.kill()
            group.kill("a")
            group.kill("b")
            group.assert_end(75, ["c"])

    def test_the_successor_dies_as_it_takes_over(self):
        with Group("2:5", ONCE) as group:
            names, ranks = group.begin(5)
            group.kill("a")
            successor = group.await_leader(names[1:])
            group.kill(successor)
            left = [name for name in names[1:] if name != successor]
            again = group.hear_some(ranks["b"].generation + 1, left)
            while {rank.world for rank in again.values()} != {3}:
                again = group.hear_some(max(rank.generation for rank in again.values()) + 1, left)
            group.finish()

    def test_a_coordinator_that_dies_as_the_job_ends_leaves_one_verdict(self):
        for code in 0, 7:
            with self.subTest(code), Group("2:3") as group:
                names, _ = group.begin(3)
                group.end(code)
                group.kill("a")
                codes = {group.nodes[name].finish()[0] for name in names[1:]}
                self.assertIn(code, codes)
                self.assertLessEqual(codes, {code, 75})  # 75: killed after it had sent the verdict to the other node only

    def test_a_coordinator_that_was_stopped_returns_to_the_second_successor(self):
        with Group("2:4", ONCE) as group:
            names, ranks = group.begin(4)
            stopped = group.nodes["a"]
            stopped.signal(signal.SIGSTOP)
            again = group.hear(ranks["b"].generation + 1, names[1:])
            group.await_voters(names[1:])
            second = group.await_leader(names[1:])
            group.kill(second)
            left = [name for name in names[1:] if name != second]
            group.hear(again["b" if second != "b" else "c"].generation + 1, left)
            stopped.signal(signal.SIGCONT)
            last = group.hear_some(again["b" if second != "b" else "c"].generation + 2, ["a", *left])
            self.assertEqual({rank.world for rank in last.values()}, {3})
            group.finish()

    def test_the_endpoint_is_started_again_while_another_node_takes_over(self):
        with Group("2:4") as group:
            names, ranks = group.begin(4)
            group.kill("a")
            group.start_at(1, "z")
            left = [*names[1:], "z"]
            again = group.hear_some(ranks["b"].generation + 1, left)
            while {rank.world for rank in again.values()} != {4}:
                again = group.hear_some(max(rank.generation for rank in again.values()) + 1, left)
            group.finish()


class Joins(unittest.TestCase):
    def lose_host(self, group, n):
        names, ranks = group.begin(n)
        group.kill("a")
        again = group.hear(ranks["b"].generation + 1, names[1:])
        return names[1:], again["b"].generation

    def test_a_list_of_endpoints_leads_to_the_job(self):
        with Group("2:3", endpoints=(1, 2, 3)) as group:
            names, generation = self.lose_host(group, 3)
            group.start_at(4, "z")
            last = group.hear(generation + 1, [*names, "z"])
            self.assertEqual({rank.world for rank in last.values()}, {3})
            group.finish()

    def test_a_node_that_does_not_vote_leads_to_the_job(self):
        with Group("2:6", ONCE, endpoints=(1, 6)) as group:
            names, ranks = group.begin(6, n_voters=5)
            group.kill("a")
            again = group.hear(ranks["b"].generation + 1, names[1:])
            group.start_at(7, "z")
            last = group.hear(again["b"].generation + 1, [*names[1:], "z"])
            self.assertEqual({rank.world for rank in last.values()}, {6})
            group.finish()

    def test_ranks_have_a_term_that_grows_with_each_coordinator(self):
        script = ("sh", "-c", "echo $DDP_TERM $DDP_GENERATION > $TEST_FIFO; until [ -e $TEST_END ]; do sleep 0.05; done")
        with Group("2:3", script=script) as group:
            for host, name in enumerate(group.name(3), 1):
                group.start_at(host, name)
                if host == 1:
                    group.nodes["a"].read_until("1 node votes on the coordinator")
            group.nodes["a"].read_until("3 nodes vote on the coordinator")
            terms = {}
            for name in "abc":
                terms[name] = group.nodes[name].hear(1)[0].split()
            group.kill("a")
            for name in "bc":
                new = terms[name]
                while new[0] == terms[name][0]:
                    new = group.nodes[name].hear(1)[0].split()
                self.assertGreater(int(new[0]), int(terms[name][0]))
                self.assertGreater(int(new[1]), int(terms[name][1]))
            group.finish()


if __name__ == "__main__":
    main()
