"""libddp ranks are killed one by one and in bursts, with each kind of recovery; ddprun is killed and the job is started again from its
checkpoint; ranks run on three machines. The result has the same bits as that of a job without failures. SEED selects the ranks; the
report of a failed test has it. KILLS is the number of kills for each kind of recovery.

Covers: launcher/supervisor, launcher/node, worker-runtime/group, worker-runtime/checkpoint, rendezvous/membership
"""
import contextlib
import os
import random
import select
import signal
import subprocess
import tempfile
import unittest

from harness import DDPRUN, DEADLINE_S, Job, await_true
from places import Namespaces, NoPlace
from recovery_job import RECOVERY_RANK, STEP_MS, Checked, Nodes, alone

SEED = os.environ.get("SEED", "1")
KILLS = int(os.environ.get("KILLS", "20"))
RESTARTS = 6  # of ranks that are younger than a pause each comes after a longer pause
RESUME = os.environ.get("RESUME")  # examples/resume.c
RESUME_STEPS = "6000"
BATCHES = 40
THREAD = {"DDP_PROGRESS_THREAD": "1"}

# (options, the most ranks of four that are killed at once, environment)
WAYS = {
    "replace": (("--on-failure", "replace"), 1, {}),
    "restart": (("--on-failure", "restart"), 1, {}),
    "standby": (("--standby", "2"), 1, {}),
    "replace, bursts": (("--on-failure", "replace"), 3, {}),
    "restart, bursts": (("--on-failure", "restart"), 3, {}),
    "standby, bursts": (("--standby", "2"), 3, {}),
    "replace, bursts, progress thread": (("--on-failure", "replace"), 3, THREAD),
    "standby, bursts, progress thread": (("--standby", "2"), 3, THREAD),
}


class Told:
    """What the ranks of a job report of their steps: the bits of each, and which ranks are alive in the newest generation."""

    def __init__(self, job):
        self.stream = job.process.stdout.fileno()
        self.rest = b""
        self.steps, self.pids, self.generation = {}, {}, 0

    def read_line(self):
        """b"": it is the end."""
        while b"\n" not in self.rest:
            if not select.select([self.stream], [], [], DEADLINE_S)[0]:
                raise AssertionError(f"no line comes, after step {max(self.steps, default=0)} in generation {self.generation}, "
                                     f"in which {sorted(self.pids)} made steps")
            some = os.read(self.stream, 65536)
            if not some:
                return b""
            self.rest += some
        line, _, self.rest = self.rest.partition(b"\n")
        return line + b"\n"

    def hear(self):
        words = self.read_line().decode().split()
        if words and words[0] == "step":
            generation, pid, rank = int(words[5]), int(words[7]), int(words[9])
            self.steps.setdefault(int(words[1]), set()).add((words[2], words[3]))
            if generation > self.generation:
                self.generation, self.pids = generation, {}
            if generation == self.generation:
                self.pids[rank] = pid
        return words != []

    def await_all(self, n, generation):
        """All n ranks have made a step, in that generation or a later one."""
        while self.generation < generation or len(self.pids) < n:
            if not self.hear():
                raise AssertionError(f"the job ended at step {max(self.steps, default=0)}, generation {self.generation}")


class OneNode(unittest.TestCase):
    def kill_on(self, n, most, words, env, draw):
        """-> what the ranks have reported, when the job has succeeded"""
        with tempfile.TemporaryDirectory() as folder:
            until = os.path.join(folder, "until")
            with open(os.path.join(folder, "stderr"), "wb") as err, \
                    Job("-n", str(n), "--max-restarts", "1000000", *words, RECOVERY_RANK, "1000000", str(BATCHES), STEP_MS, stderr=err,
                        env={"RECOVERY_UNTIL": until, **env}) as job:
                told, n_killed = Told(job), 0
                told.await_all(n, 0)
                while n_killed < KILLS:
                    victims = draw.sample(sorted(told.pids), min(draw.randint(1, most), KILLS - n_killed))
                    generation = told.generation
                    for rank in victims:
                        with contextlib.suppress(ProcessLookupError):  # ddprun has ended it because of the one before
                            os.kill(told.pids[rank], signal.SIGKILL)
                    n_killed += len(victims)
                    told.await_all(n, generation + 1)
                    if "restart" in words and told.generation >= RESTARTS:
                        break
                with open(until, "wb"):
                    pass
                while told.hear():
                    pass
                code = job.process.wait(DEADLINE_S)
                await_true(lambda: not job.processes())
            with open(os.path.join(folder, "stderr"), encoding="utf-8") as f:
                self.assertEqual(code, 0, f.read()[-4000:])
        return told

    def test_the_bits_equal_those_of_a_job_without_kills(self):
        n = 4
        for name, (words, most, env) in WAYS.items():
            with self.subTest(name, SEED=SEED):
                steps = self.kill_on(n, most, words, env, random.Random(f"{SEED} {name}")).steps
                expected = alone(n, max(steps) // BATCHES, BATCHES)
                self.assertEqual([number for number in sorted(expected) if steps.get(number) != expected[number]], [])
                self.assertEqual(len(steps), len(expected))

    def test_the_remaining_ranks_agree(self):
        """Of eight ranks seven die, one by one and two at once."""
        draw = random.Random(SEED)
        with tempfile.TemporaryDirectory() as folder:
            until = os.path.join(folder, "until")
            with self.subTest(SEED=SEED), Job("-n", "8", "--max-restarts", "100", "--on-failure", "shrink", RECOVERY_RANK, "1000000",
                                              str(BATCHES), STEP_MS, "0", "300", env={"RECOVERY_UNTIL": until}) as job:
                told, left = Told(job), 8
                told.await_all(left, 0)
                while left > 1:
                    victims = draw.sample(sorted(told.pids), min(draw.randint(1, 2), left - 1))
                    generation = told.generation
                    for rank in victims:
                        os.kill(told.pids[rank], signal.SIGKILL)
                    left -= len(victims)
                    told.await_all(left, generation + 1)
                with open(until, "wb"):
                    pass
                while told.hear():
                    pass
                code, _, err = job.end()
                self.assertEqual(code, 0, err)
                self.assertEqual(sorted(told.steps), list(range(1, max(told.steps) + 1)))
                self.assertEqual({len(results) for results in told.steps.values()}, {1})

    @unittest.skipIf(RESUME is None, "the examples are not built")
    def test_a_job_whose_ddprun_is_killed_resumes_from_its_checkpoint(self):
        draw = random.Random(SEED)

        def train(folder, kill_after):
            """kill_after: so many lines. -> (exit status, the output of rank 0)"""
            said = []
            with Job("-n", "3", RESUME, folder, RESUME_STEPS) as job:
                for line in job.process.stdout:
                    said.append(line.decode())
                    if len(said) == kill_after:
                        job.signal(signal.SIGKILL)
                code = job.end()[0]
                job.await_gone()
                return code, said

        with self.subTest(SEED=SEED), tempfile.TemporaryDirectory() as undisturbed, tempfile.TemporaryDirectory() as folder:
            code, expected = train(undisturbed, 0)
            self.assertEqual(code, 0)
            n_killed, code = 0, None
            while code != 0:
                code, said = train(folder, draw.randint(1, 3) if n_killed < KILLS else 0)
                self.assertIn(code, (0, -signal.SIGKILL))
                n_killed += code != 0
            self.assertGreater(n_killed, 0)
            self.assertEqual(said[-1], expected[-1])


class Wired(Nodes):
    """Each node in a network namespace; the first one has the roster."""

    def __init__(self, place, n_nodes, n_local, *more):
        super().__init__(None, str(n_nodes), n_local, *more, endpoint=f"{place.address(1)}:{place.port()}")
        self.place = place

    def make_job(self, name, words, **kw):
        host = name + 1
        program, *first = self.place.command(host, [DDPRUN])
        return Job(*first, "--local-addr", self.place.address(host), *words, launcher=program, **kw)


class OnAWire(Checked):
    def setUp(self):
        try:
            self.place = self.enterContext(Namespaces())
        except NoPlace as error:
            self.skipTest(str(error))

    def run_job(self, n_nodes, kills, n_steps=1):
        """-> {step: its bits}, of so many steps at least"""
        with Wired(self.place, n_nodes, 2, "--max-restarts", "100") as nodes:
            for i in range(n_nodes):
                nodes.start(i)
            nodes.await_world(2 * n_nodes)
            for generation, rank in enumerate(kills, 1):
                nodes.kill_rank(rank)
                nodes.await_world(2 * n_nodes, generation)
            nodes.hear_until(lambda: max(nodes.steps) >= n_steps)
            try:
                self.assertEqual(nodes.finish(range(n_nodes)), [0] * n_nodes)
            except subprocess.TimeoutExpired as late:
                raise AssertionError(f"at step {max(nodes.steps)}, generation {nodes.generation}: {late}") from None
            self.check_left(nodes)
            return {number: step.results for number, step in nodes.steps.items()}

    def test_five_kills_on_two_machines_change_no_bit(self):
        draw = random.Random(SEED)
        with self.subTest(SEED=SEED):
            disturbed = self.run_job(2, [draw.randrange(4) for _ in range(5)])
            expected = self.run_job(2, [], max(disturbed))
            self.assertEqual([number for number in disturbed if disturbed[number] != expected[number]], [])
            self.assertEqual(sorted(disturbed), list(range(1, max(disturbed) + 1)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
