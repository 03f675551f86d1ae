"""Nodes and their ranks come, go and die; the ranks that live are the same processes before and after: docs/recovery.md.
The ranks are tests/support/programs/recovery_rank.c, as in recovery.py.

Covers: launcher/node, launcher/membership, launcher/supervisor, rendezvous/membership, worker-runtime/group
"""
import contextlib
import itertools
import os
import queue
import signal
import tempfile
import threading
import unittest

from harness import DEADLINE_S, Job, await_true
from rendezvous import Daemon

RECOVERY_RANK = os.environ["RECOVERY_RANK"]
N_SAMPLES, BATCH = 300, 3  # where the world changes its size


class Step:
    def __init__(self):
        self.results = set()  # (parameter, momentum) as bits
        self.world, self.generation = None, None
        self.took = {}  # rank -> samples


class Nodes:
    """ddpruns of one job, and what their ranks tell."""

    numbers = itertools.count()  # of jobs: the daemon may still have the one before

    def __init__(self, daemon, nodes, n_local, *more, samples=0, step_ms=2, endpoint=None):
        self.words = ["--nnodes", nodes, "-p", str(n_local), "--rdzv-backend", "c10d", "--rdzv-endpoint",
                      endpoint or f"127.0.0.1:{daemon.port}", "--rdzv-id", f"job{next(self.numbers)}", *more, RECOVERY_RANK,
                      "1000000", "40", str(step_ms), "0", str(samples)]
        self.dir = tempfile.TemporaryDirectory()
        self.until = os.path.join(self.dir.name, "until")
        self.n_local = n_local
        self.jobs = {}  # name -> Job
        self.readers = []
        self.lines = queue.SimpleQueue()
        self.steps = {}
        self.pids = {}  # node -> {pid}, of the newest generation it was heard of
        self.ranks = {}  # rank -> (node, pid), likewise
        self.generation = -1
        self.n_starts = {}  # node -> number
        self.logs_in = None  # a folder for their stderr, a file each; None: it is ours

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for job in self.jobs.values():
            if job.process.poll() is None:
                job.process.kill()
        for reader in self.readers:
            reader.join()
        for job in self.jobs.values():
            job.__exit__()
        self.dir.cleanup()

    def start(self, name):
        with self.open_log(name) as log:
            job = self.jobs[name] = self.make_job(name, [*self.words_of(name), *self.words], stderr=log,
                                                  env={"MENDER_UNTIL": self.until})
        self.n_starts[name] = 0
        reader = threading.Thread(target=self.read, args=(name, job.process.stdout))
        reader.start()
        self.readers.append(reader)

    def make_job(self, _, words, **kw):
        """Of one node."""
        return Job(*words, **kw)

    def words_of(self, _):
        """Options of one node."""
        return ()

    def log_path(self, name):
        return os.path.join(self.logs_in, f"stderr.{name}")

    def open_log(self, name):
        return open(self.log_path(name), "wb") if self.logs_in is not None else contextlib.nullcontext()

    def told(self, most_bytes=0):
        """What each node has written to its log, or the last so many bytes of it."""
        texts = []
        for name in self.jobs:
            with open(self.log_path(name), "rb") as f:
                texts.append(f"--- node {name} ---\n{f.read()[-most_bytes:].decode(errors='replace')}")
        return "\n".join(texts)

    def read(self, name, stream):
        for line in stream:
            self.lines.put((name, line.decode().split()))

    def hear(self):
        try:
            name, words = self.lines.get(timeout=DEADLINE_S)
        except queue.Empty:
            raise AssertionError(f"nothing heard; at step {max(self.steps, default=0)}, generation {self.generation}") from None
        if words[0] == "start":
            self.n_starts[name] += 1
        if words[0] != "step":
            return
        number, generation, pid, rank, world = (int(words[i]) for i in (1, 5, 7, 9, 11))
        if generation > self.generation:
            self.generation, self.pids, self.ranks = generation, {}, {}
        step = self.steps.setdefault(number, Step())
        step.results.add((words[2], words[3]))
        step.world, step.generation = world, generation
        step.took[rank] = [int(i) for i in words[13].split(",")]
        if generation == self.generation:
            self.pids.setdefault(name, set()).add(pid)
            self.ranks[rank] = name, pid

    def hear_until(self, condition):
        while not condition():
            self.hear()

    def await_world(self, world, generation=None):
        """All ranks of a world of this size have completed a step. -> {node: pids}"""
        self.hear_until(lambda: len(self.ranks) == world and self.steps[max(self.steps)].world == world and
                        (generation is None or self.generation >= generation))
        return dict(self.pids)

    def kill_rank(self, rank, sig=signal.SIGKILL):
        os.kill(self.ranks[rank][1], sig)

    def finish(self, names):
        """No other epoch begins. -> exit statuses"""
        with open(self.until, "w"):
            pass
        codes = [self.jobs[name].process.wait(timeout=DEADLINE_S) for name in names]
        for reader in self.readers:
            reader.join(timeout=DEADLINE_S)
        while not self.lines.empty():
            self.hear()
        return codes


def without_faults(daemon, n_nodes, n_local, n_steps, step_ms=2):
    """The results of the first so many steps of a run in which nothing happens."""
    with Nodes(daemon, str(n_nodes), n_local, step_ms=step_ms) as nodes:
        for i in range(n_nodes):
            nodes.start(i)
        nodes.hear_until(lambda: max(nodes.steps, default=0) >= n_steps)
        assert nodes.finish(range(n_nodes)) == [0] * n_nodes
        return {number: nodes.steps[number].results for number in range(1, n_steps + 1)}


class Checked(unittest.TestCase):
    """Its tests are others'."""

    def setUp(self):
        self.daemon = Daemon(env={**os.environ, "HOME": "/nonexistent", "DDP_TOKEN": ""})
        self.daemon.__enter__()
        self.addCleanup(self.daemon.__exit__)

    def check_left(self, nodes):
        for job in nodes.jobs.values():
            await_true(lambda job=job: job.processes() == [])

    def check_results(self, nodes, expected):
        """No step is missing, and none was made in two ways."""
        self.assertEqual({number: step.results for number, step in nodes.steps.items()}, expected)

    def check_steps(self, nodes):
        """Each step was made once, the same on all ranks. Of each epoch no sample was left out nor seen twice, but for those
        that fill the last batch up, and those of a rank that died when it had no time to tell."""
        self.assertEqual(sorted(nodes.steps), list(range(1, max(nodes.steps) + 1)))
        self.assertEqual({len(step.results) for step in nodes.steps.values()}, {1})
        seen = [i for step in nodes.steps.values() for took in step.took.values() for i in took]
        untold = sum(step.world - len(step.took) for step in nodes.steps.values())
        n_epochs = round(len(seen) / N_SAMPLES)
        times = [seen.count(i) for i in range(N_SAMPLES)]
        self.assertLessEqual(sum(max(0, n_epochs - n) for n in times), BATCH * untold)
        most = max(step.world for step in nodes.steps.values())
        self.assertLessEqual(sum(max(0, n - n_epochs) for n in times), n_epochs * most)


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

    def test_a_node_whose_only_rank_dies_starts_another_and_the_others_live_on(self):
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

    def test_when_a_node_is_killed_the_others_go_on_without_it_as_the_same_processes(self):
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

    def test_a_node_may_come_while_the_others_meet_for_the_first_time(self):
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

    def test_when_the_budget_is_spent_the_failure_is_the_verdict_of_all_nodes(self):
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
