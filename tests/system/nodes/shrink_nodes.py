"""With --on-failure shrink, a rank that dies on one of several nodes is dropped: its peers on all nodes continue, with new numbers,
as the same processes (docs/design/recovery.md). The ranks are tests/support/programs/recovery_rank.c.

Covers: launcher/node, launcher/membership, launcher/supervisor, rendezvous/membership, worker-runtime/group
"""
import json
import os
import random
import signal
import unittest

from harness import DDPRUN, Job
from places import Namespaces, NoPlace
from recovery_job import N_SAMPLES, Checked, Nodes

SEED = int(os.environ.get("SEED", "1"))


class Shrinking(Nodes):
    """With each node's events."""

    def __init__(self, daemon, nodes, n_local, *more):
        super().__init__(daemon, nodes, n_local, "--on-failure", "shrink", *more, samples=N_SAMPLES)

    def words_of(self, name):
        return "--events", self.events_of(name)

    def events_of(self, name):
        return os.path.join(self.dir.name, f"events-{name}")

    def events(self, name, what):
        with open(self.events_of(name), encoding="utf-8") as f:
            return [event for event in map(json.loads, f) if event["ev"] == what]


class Wired(Nodes):
    """Each node in a network namespace; the first one has the roster."""

    def __init__(self, place, n_nodes, n_local, *more):
        super().__init__(None, str(n_nodes), n_local, *more, samples=N_SAMPLES, endpoint=f"{place.address(1)}:{place.port()}")
        self.place = place

    def make_job(self, name, words, **kw):
        host = name + 1
        program, *first = self.place.command(host, [DDPRUN])
        return Job(*first, "--local-addr", self.place.address(host), *words, launcher=program, **kw)


def shrink(nodes, rank, generation, world):
    """Kill it. -> what is left is the same processes: {node: pids}"""
    node, pid = nodes.ranks[rank]
    before = {name: pids - {pid} for name, pids in nodes.pids.items()}  # its last words may be on their way
    nodes.kill_rank(rank)
    after = nodes.await_world(world, generation)
    assert after == before, (rank, before, after)
    assert sorted(nodes.ranks) == list(range(world)), nodes.ranks
    return node


class OfSeveralNodes(Checked):
    def check_end(self, nodes, names, n_starts):
        self.assertEqual(nodes.finish(names), [0] * len(names))
        self.assertEqual(sum(nodes.n_starts.values()), n_starts)
        self.check_steps(nodes)
        self.check_left(nodes)

    def test_all_nodes_continue_without_a_killed_rank(self):
        with Shrinking(self.daemon, "2", 3, "--max-restarts", "9") as nodes:
            for i in range(2):
                nodes.start(i)
            nodes.await_world(6)
            killed = {0: [], 1: []}
            for generation, rank in enumerate((4, 0, 1, 2), 1):  # two of each node; with rank 0 goes its node's number of it
                killed[shrink(nodes, rank, generation, 6 - generation)].append(rank)
            self.check_end(nodes, range(2), 6)
            for name, ranks in killed.items():
                self.assertEqual([e["rank"] for e in nodes.events(name, "rank_exit") if e["signal"] is not None], ranks)
                self.assertEqual([e["world"] for e in nodes.events(name, "rdzv")], [6, 5, 4, 3, 2])
            self.assertEqual([nodes.events(i, "rdzv")[-1]["ranks"] for i in range(2)], [1, 1])

    def test_a_node_whose_last_rank_dies_restarts_all_of_its_ranks(self):
        with Shrinking(self.daemon, "2", 2, "--max-restarts", "9") as nodes:
            for i in range(2):
                nodes.start(i)
            nodes.await_world(4)
            victim = shrink(nodes, 3, 1, 3)
            before = dict(nodes.pids)
            nodes.kill_rank(2)
            after = nodes.await_world(4, 2)
            self.assertEqual(after[1 - victim], before[1 - victim])
            self.check_end(nodes, range(2), 6)

    def test_a_wait_for_survivors_skips_ranks_that_die_meanwhile(self):
        with Shrinking(self.daemon, "2", 3, "--max-restarts", "9") as nodes:
            for i in range(2):
                nodes.start(i)
            before = nodes.await_world(6)
            pids = {rank: nodes.ranks[rank][1] for rank in range(6) if nodes.ranks[rank][0] == 0}
            nodes.jobs[1].process.kill()
            dead = set(list(pids.values())[:2])
            for pid in dead:
                os.kill(pid, signal.SIGKILL)
            nodes.start(2)
            after = nodes.await_world(4, 1)
            self.assertEqual(after[0], before[0] - dead)
            self.check_end(nodes, (0, 2), 9)

    def test_after_the_budget_the_failure_is_the_outcome(self):
        with Shrinking(self.daemon, "2", 2, "--max-restarts", "1") as nodes:
            for i in range(2):
                nodes.start(i)
            nodes.await_world(4)
            shrink(nodes, 0, 1, 3)
            nodes.kill_rank(0)
            self.assertEqual(nodes.finish(range(2)), [137, 137])
            self.check_left(nodes)


class OnAWire(Checked):
    def setUp(self):
        try:
            self.place = Namespaces().__enter__()
        except NoPlace as error:
            self.skipTest(str(error))
        self.addCleanup(self.place.__exit__)

    def test_three_machines_shrink_rank_by_rank(self):
        chance = random.Random(SEED)
        with Wired(self.place, 3, 3, "--on-failure", "shrink", "--max-restarts", "9") as nodes:
            for i in range(3):
                nodes.start(i)
            nodes.await_world(9)
            for generation in range(1, 7):  # as long as each node keeps one
                left = [r for r, (node, _) in nodes.ranks.items() if len(nodes.pids[node]) > 1]
                shrink(nodes, chance.choice(left), generation, 9 - generation)
            self.assertEqual(nodes.finish(range(3)), [0, 0, 0])
            self.assertEqual(sum(nodes.n_starts.values()), 9)
            self.check_steps(nodes)
            self.check_left(nodes)


if __name__ == "__main__":
    unittest.main(verbosity=2)
