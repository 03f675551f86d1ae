"""Nodes and their ranks join, leave and die; the survivors are the same processes before and after: docs/design/recovery.md.
The ranks are tests/support/programs/recovery_rank.c, as in recovery.py.

Covers: launcher/node, launcher/membership, launcher/supervisor, rendezvous/membership, worker-runtime/group
"""
import json
import os
import signal
import tempfile
import unittest

from ctl import status
from harness import DEADLINE_S, await_true
from recovery_job import N_SAMPLES, Checked, Nodes, without_faults


class Lives(Checked):
    def test_a_killed_rank_is_replaced_and_no_other_process_on_any_node_ends(self):
        with Nodes(self.daemon, "2", 2, "--max-restarts", "3") as nodes:
            for i in range(2):
                nodes.start(i)
            before = nodes.await_world(4)
            for generation, rank in enumerate((3, 0, 2), 1):  # rank 0's node has the store
                node, pid = nodes.ranks[rank]
                nodes.kill_rank(rank)
                after = nodes.await_world(4, generation)
                self.assertEqual(after[1 - node], before[1 - node])
                self.assertEqual(after[node] & before[node], before[node] - {pid})
                before = after
            self.assertEqual(nodes.finish(range(2)), [0, 0])
            self.assertEqual(sum(nodes.n_starts.values()), 4 + 3)
            self.check_left(nodes)
        self.check_results(nodes, without_faults(self.daemon, 2, 2, max(nodes.steps)))

    def test_a_node_whose_only_rank_dies_starts_another(self):
        with Nodes(self.daemon, "2", 1, "--max-restarts", "2") as nodes:
            for i in range(2):
                nodes.start(i)
            before = nodes.await_world(2)
            for generation, rank in enumerate((1, 0), 1):
                node = nodes.ranks[rank][0]
                nodes.kill_rank(rank)
                after = nodes.await_world(2, generation)
                self.assertEqual(after[1 - node], before[1 - node])
                before = after
            self.assertEqual(nodes.finish(range(2)), [0, 0])
            self.assertEqual(sum(nodes.n_starts.values()), 2 + 2)
            self.check_left(nodes)
        self.check_results(nodes, without_faults(self.daemon, 2, 1, max(nodes.steps)))

    def test_the_same_processes_continue_without_a_killed_node(self):
        for nodes_word, n_nodes, n_local, victim_rank in ("1:2", 2, 2, 0), ("2:3", 3, 1, 2), ("2:3", 3, 2, 0), ("1:2", 2, 1, 1):
            with self.subTest(nodes=nodes_word, n_local=n_local, victim_rank=victim_rank), \
                    Nodes(self.daemon, nodes_word, n_local, samples=N_SAMPLES) as nodes:
                for i in range(n_nodes):
                    nodes.start(i)
                before = nodes.await_world(n_nodes * n_local)
                victim = nodes.ranks[victim_rank][0]
                nodes.jobs[victim].process.kill()
                after = nodes.await_world((n_nodes - 1) * n_local)
                del before[victim]
                self.assertEqual(after, before)
                rest = list(before)
                self.assertEqual(nodes.finish(rest), [0] * len(rest))
                self.assertEqual(sum(nodes.n_starts.values()), n_nodes * n_local)
                self.check_steps(nodes)
                self.check_left(nodes)

    def test_a_node_that_joins_ends_no_process(self):
        for more in (), ("--admit-at", "checkpoint"):
            for n_local in 1, 2:
                with self.subTest(more=more, n_local=n_local), \
                        Nodes(self.daemon, "1:3", n_local, "--join-window", "0", *more, samples=N_SAMPLES) as nodes:
                    nodes.start(0)
                    before = nodes.await_world(n_local)
                    nodes.start(1)
                    both = nodes.await_world(2 * n_local)
                    self.assertEqual(both[0], before[0])
                    nodes.start(2)
                    all_three = nodes.await_world(3 * n_local)
                    self.assertEqual({i: all_three[i] for i in range(2)}, both)
                    self.assertEqual(nodes.finish(range(3)), [0, 0, 0])
                    self.assertEqual(sum(nodes.n_starts.values()), 3 * n_local)
                    self.check_steps(nodes)
                    self.check_left(nodes)

    def test_a_node_may_join_during_the_first_rendezvous(self):
        for _ in range(6):
            with Nodes(self.daemon, "2:3", 1, "--join-window", "0", samples=N_SAMPLES) as nodes:
                for i in range(3):
                    nodes.start(i)
                nodes.await_world(3)
                self.assertEqual(nodes.finish(range(3)), [0, 0, 0])
                self.check_left(nodes)

    def test_ranks_wait_for_a_node_when_too_few_are_left(self):
        with Nodes(self.daemon, "2", 2, "--max-restarts", "1", samples=N_SAMPLES) as nodes:
            for i in range(2):
                nodes.start(i)
            before = nodes.await_world(4)
            nodes.jobs[1].process.kill()
            nodes.start(2)
            after = nodes.await_world(4, 1)
            self.assertEqual(after[0], before[0])
            self.assertEqual(nodes.finish((0, 2)), [0, 0])
            self.check_steps(nodes)
            self.check_left(nodes)

    def test_the_seconds_of_a_killed_node_are_booked_on_recovery(self):
        for nodes_word, next_node, causes in ("1:2", None, {"recovery"}), ("2", 2, {"recovery", "waiting_for_nodes"}):
            with self.subTest(nodes=nodes_word), tempfile.TemporaryDirectory() as folder, \
                    Nodes(self.daemon, nodes_word, 2, "--max-restarts", "1", "--report", folder + "/{node_rank}", samples=N_SAMPLES) as nodes:
                for i in range(2):
                    nodes.start(i)
                nodes.await_world(4)
                nodes.jobs[1].process.kill()
                nodes.jobs[1].process.wait(timeout=DEADLINE_S)
                if next_node is not None:
                    await_true(lambda: status(nodes.jobs[0])[0]["goodput"]["now"] == "waiting_for_nodes")
                    nodes.start(next_node)
                nodes.await_world(4 if next_node else 2, 1)
                rest = [0] if next_node is None else [0, next_node]
                self.assertEqual(nodes.finish(rest), [0] * len(rest))
                self.check_left(nodes)
                goodputs = []
                for name in os.listdir(folder):
                    with open(os.path.join(folder, name)) as f:
                        goodputs.append(json.load(f)["goodput"])
                self.assertEqual(len(goodputs), len(rest))
                for g in goodputs:
                    self.assertAlmostEqual(sum(g["seconds"].values()), g["total_s"], delta=0.01)
                    self.assertEqual((g["by_steps"], g["seconds"]["restart"]), (True, 0))
                survivor = max(goodputs, key=lambda g: g["total_s"])
                self.assertLessEqual(causes, {cause for cause, s in survivor["seconds"].items() if s > 0})

    def test_ranks_that_wait_end_with_the_job(self):
        with Nodes(self.daemon, "2", 2, "--max-restarts", "1", "--rejoin-timeout", "200ms", samples=N_SAMPLES) as nodes:
            for i in range(2):
                nodes.start(i)
            nodes.await_world(4)
            nodes.jobs[1].process.kill()
            self.assertEqual(nodes.finish((0,)), [75])
            self.check_left(nodes)

    def test_a_signal_ends_ranks_that_were_kept(self):
        with Nodes(self.daemon, "2", 2, "--max-restarts", "1", samples=N_SAMPLES) as nodes:
            for i in range(2):
                nodes.start(i)
            before = nodes.await_world(4)
            nodes.jobs[1].process.kill()
            nodes.jobs[1].process.wait(timeout=DEADLINE_S)
            nodes.jobs[0].signal(signal.SIGTERM)
            self.assertEqual(nodes.finish((0,)), [-signal.SIGTERM])
            self.assertEqual(nodes.n_starts[0], len(before[0]))
            self.check_left(nodes)

    def test_after_the_budget_the_failure_is_the_outcome_of_all_nodes(self):
        with Nodes(self.daemon, "2", 2, "--max-restarts", "1", samples=N_SAMPLES) as nodes:
            for i in range(2):
                nodes.start(i)
            for generation in range(2):
                nodes.await_world(4, generation)
                nodes.kill_rank(3)
            self.assertEqual(nodes.finish(range(2)), [137, 137])
            self.assertEqual(sum(nodes.n_starts.values()), 5)
            self.check_left(nodes)


if __name__ == "__main__":
    unittest.main()
