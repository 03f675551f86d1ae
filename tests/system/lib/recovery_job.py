"""Jobs of which some ranks die and others survive, and what the ranks report. They are tests/support/programs/recovery_rank.c: each
reports each step with the bits of a parameter and of a momentum, so that a run with deaths can be compared with one without.
"""
import contextlib
import itertools
import os
import queue
import signal
import tempfile
import threading
import unittest

from daemon import Daemon
from harness import DEADLINE_S, Job, await_true

RECOVERY_RANK = os.environ["RECOVERY_RANK"]
STEP_MS = "2"
N_SAMPLES, BATCH = 300, 3  # where the world changes its size


class Endless(Job):
    """A job of such ranks that runs until the test has seen what it waits for: a test may be slower than its ranks."""

    def __init__(self, *args, env=None, **kw):
        self.folder = tempfile.TemporaryDirectory()
        self.until = os.path.join(self.folder.name, "until")
        super().__init__(*args, env={"RECOVERY_UNTIL": self.until, **(env or {})}, **kw)

    def __exit__(self, *args):
        super().__exit__(*args)
        self.folder.cleanup()

    def end_training(self):
        """No other epoch begins."""
        with open(self.until, "w"):
            pass


class Ranks:
    """What the ranks of a job have reported so far."""

    def __init__(self, job):
        self.stream = job.process.stdout
        self.steps = {}  # number -> what the ranks report of it
        self.pids = {}  # rank -> its last
        self.killed = set()  # pids, by us: their earlier reports may arrive later
        self.started = []  # pids
        self.generation = 0
        self.took = []  # samples
        self.worlds, self.n_told = {}, {}  # step -> ranks that made it, and those that reported it

    def hear(self):
        """One line; False at the end."""
        words = self.stream.readline().decode().split()
        if not words:
            return False
        if words[0] == "start":
            self.started.append(int(words[2]))
        if words[0] != "step":
            return True
        step = int(words[1])
        self.steps.setdefault(step, set()).add((words[2], words[3]))
        self.worlds[step] = int(words[11])
        self.n_told[step] = self.n_told.get(step, 0) + 1
        self.generation = max(self.generation, int(words[5]))
        if int(words[7]) not in self.killed:
            self.pids[int(words[9])] = int(words[7])
        self.took += map(int, words[13].split(","))
        return True

    def kill(self, rank, sig=signal.SIGKILL):
        pid = self.pids.pop(rank)
        self.killed.add(pid)
        os.kill(pid, sig)

    def hear_until(self, condition):
        while not condition():
            if not self.hear():
                raise AssertionError(f"the job ended at step {max(self.steps, default=0)}")

    def hear_all(self):
        while self.hear():
            pass
        return self.steps

    def n_silent(self):
        """How many reports of steps are missing."""
        return sum(self.worlds[step] - n for step, n in self.n_told.items())


def alone(n, epochs, batches):
    """The steps of a run in which nothing happens."""
    with Job("-n", str(n), RECOVERY_RANK, str(epochs), str(batches), "0") as job:
        steps = Ranks(job).hear_all()
        assert job.process.wait(DEADLINE_S) == 0
        return steps


class Step:
    def __init__(self):
        self.results = set()  # (parameter, momentum) as bits
        self.world, self.generation = None, None
        self.took = {}  # rank -> samples


class Nodes:
    """ddpruns of one job, and what their ranks report."""

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
        self.pids = {}  # node -> {pid}, of the newest generation that it reported
        self.ranks = {}  # rank -> (node, pid), of the same
        self.generation = -1
        self.since = 0  # a generation: reports of earlier ones are left out
        self.n_starts = {}  # node -> number
        self.logs_in = None  # a directory for their stderr, a file each; None: it is ours

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
                                                  env={"RECOVERY_UNTIL": self.until})
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
        if generation < self.since:
            return
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
        """Each step was made once, the same on all ranks. No sample of an epoch was left out or used twice, except those that fill
        the last batch, and those of a rank that died before it could report them."""
        self.assertEqual(sorted(nodes.steps), list(range(1, max(nodes.steps) + 1)))
        self.assertEqual({len(step.results) for step in nodes.steps.values()}, {1})
        seen = [i for step in nodes.steps.values() for took in step.took.values() for i in took]
        untold = sum(step.world - len(step.took) for step in nodes.steps.values())
        n_epochs = round(len(seen) / N_SAMPLES)
        times = [seen.count(i) for i in range(N_SAMPLES)]
        self.assertLessEqual(sum(max(0, n_epochs - n) for n in times), BATCH * untold)
        most = max(step.world for step in nodes.steps.values())
        self.assertLessEqual(sum(max(0, n - n_epochs) for n in times), n_epochs * most)
