"""A training whose ranks are killed and replaced has the same result, bit for bit, as one without failures. EXAMPLE is the built
mnist_double or chargpt_double, KILLS the number of ranks that are killed, EXAMPLE_OPTIONS further options. mnist runs without batch
normalization, because each rank has running averages of its own.

Covers: examples, worker-runtime/group, worker-runtime/tools
"""
import glob
import os
import random
import re
import select
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../lib"))
from harness import DEADLINE_S, Job, await_true, is_gone  # noqa: E402

EXAMPLE = os.environ["EXAMPLE"]
IS_MNIST = "mnist" in os.path.basename(EXAMPLE)
KILLS = int(os.environ.get("KILLS", "10"))
OPTIONS = os.environ.get("EXAMPLE_OPTIONS", "").split()
RANKS = 4
STEPS = 40 + 8 * KILLS
APART = 4  # steps from one kill to the next: after them all ranks are in a step again
STEP = re.compile(rb"step (\d+):?  ?loss ([\d.e+-]+)")


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as f:
        return dict(word.split(b"=", 1) for word in f.read().split(b"\0") if b"=" in word)[b"RANK"].decode()


def words_of(folder, network):
    """-> the example's command line: a short training that prints each step and writes its network to that path."""
    if IS_MNIST:
        return [EXAMPLE, "--data", os.path.join(folder, "data"), "--draw", "640", "--batch", "64", "--epochs", "1000", "--steps",
                str(STEPS), "--print-loss-every", "1", "--checkpoint", network, "--norm", "none", *OPTIONS]
    return [EXAMPLE, "--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch", "8", "--test-every", "0",
            "--steps", str(STEPS), "--print-every", "1", "--checkpoint", network, *OPTIONS,
            os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib")]


def read_network(network):
    """For mnist, it is a file; for chargpt, a directory with the last checkpoint, including the optimizer."""
    path, = [network] if IS_MNIST else glob.glob(os.path.join(network, "*.safetensors"))
    with open(path, "rb") as f:
        return f.read()


class Losses:
    """What a job prints, read as far as it is printed: what is done next does not refer to steps of the past."""

    def __init__(self, job):
        self.fd, self.rest = job.process.stdout.fileno(), b""
        self.of_step = {}  # as texts

    def read(self, wait_s):
        """False: it is the end."""
        while select.select([self.fd], [], [], wait_s)[0]:
            some = os.read(self.fd, 65536)
            if not some:
                return False
            *lines, self.rest = (self.rest + some).split(b"\n")
            for found in filter(None, map(STEP.match, lines)):
                assert int(found[1]) not in self.of_step, found[0]
                self.of_step[int(found[1])] = found[2]
            wait_s = 0
        return True

    def last(self):
        return max(self.of_step, default=0)


class Recovered(unittest.TestCase):
    def train(self, folder, name, n_kills, *words):
        """-> {step: its loss, as text}, the network"""
        draw = random.Random(3)
        network = os.path.join(folder, name)
        with Job("-n", str(RANKS), "--max-restarts", str(n_kills), *words, *words_of(folder, network)) as job:
            losses, kill_at = Losses(job), APART
            while losses.read(DEADLINE_S):
                if n_kills == 0 or losses.last() < kill_at:
                    continue
                pids = job.named(os.path.basename(EXAMPLE))
                if len(pids) == RANKS:
                    victim = draw.choice(pids)
                    os.kill(victim, signal.SIGKILL)
                    await_true(lambda pid=victim: is_gone(pid))
                    losses.read(0)
                    n_kills, kill_at = n_kills - 1, losses.last() + APART
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(n_kills, 0)
            return losses.of_step, read_network(network), err.decode()

    def test_the_network_is_the_same_bit_by_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            expected, network, _ = self.train(folder, "undisturbed", 0)
            losses, recovered, err = self.train(folder, "recovered", KILLS)
        self.assertEqual(err.count("replacing it"), KILLS)
        self.assertEqual(recovered, network)
        # what rank 0 had not written yet when it was killed is missing, nothing else
        self.assertEqual([step for step in losses if losses[step] != expected[step]], [])
        self.assertGreaterEqual(len(losses), STEPS - KILLS)

    @unittest.skipUnless(IS_MNIST and "--zero1" in OPTIONS, "of mnist's sharded optimiser")
    def test_a_rank_that_dies_with_the_holder_of_its_copy_is_lost(self):
        with tempfile.TemporaryDirectory() as folder:
            with Job("-n", str(RANKS), "--max-restarts", "2", EXAMPLE, "--data", os.path.join(folder, "data"), "--draw",
                     "640", "--batch", "64", "--epochs", "1000", "--steps", "2000", "--print-loss-every", "1", *OPTIONS) as job:
                for line in job.process.stdout:
                    if line.startswith(b"step 5 "):
                        break
                both = [pid for pid in job.named(os.path.basename(EXAMPLE)) if rank_of(pid) in ("1", "2")]
                self.assertEqual(len(both), 2)
                for with_signal in (signal.SIGSTOP, signal.SIGKILL):  # no recovery between the two deaths
                    for pid in both:
                        os.kill(pid, with_signal)
                _, _, err = job.end()
        self.assertIn(b"is lost: no rank has the shard of 1 rank (1)", err)


if __name__ == "__main__":
    unittest.main()
