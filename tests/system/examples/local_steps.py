"""A training with local steps: a rank that is killed between two outer steps is replaced, and a node is killed and another one joins. EXAMPLE is
the built chargpt_double.

Covers: examples, worker-runtime/group, worker-runtime/model
"""
import contextlib
import glob
import os
import re
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../lib"))
from harness import DEADLINE_S, Job, await_true, is_gone  # noqa: E402
from ports import free_port  # noqa: E402

EXAMPLE = os.environ["EXAMPLE"]
HERE = os.path.dirname(os.path.abspath(__file__))
H = 8
NETWORK = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch", "12", "--test-every", "0", "--print-every", "0",
           "--local-steps", str(H), HERE, os.path.join(HERE, "../lib")]


def losses_of(path):
    """-> {step after which ranks communicated: its loss}, each of them once: none is repeated after it counted"""
    with contextlib.suppress(FileNotFoundError), open(path, encoding="ascii") as f:
        lines = [line.split() for line in f if line.endswith("\n")]
        steps = [int(words[0]) for words in lines]
        assert path.endswith("fragments") or len(set(steps)) == len(steps), steps
        return dict(zip(steps, (float(words[1]) for words in lines), strict=True))
    return {}


def await_step(path, step):
    await_true(lambda: max(losses_of(path), default=0) >= step, lambda: losses_of(path))


def pid_of_rank(job, rank):
    for pid in job.named(os.path.basename(EXAMPLE)):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as f:
            if f"RANK={rank}".encode() in f.read().split(b"\0"):
                return pid
    return None


class LocalSteps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check_losses(self, path, steps):
        losses = losses_of(path)
        self.assertEqual(list(losses), list(range(H, steps + 1, H)))
        self.assertLess(losses[steps], losses[H] - 0.5)

    def test_a_killed_rank_costs_the_steps_since_the_last_outer_step(self):
        for more in [], ["--fragments"]:
            with self.subTest(more=more):
                steps, kills, part = 50 * H, 2, "".join(more)
                losses, saved = os.path.join(self.folder, "losses" + part), os.path.join(self.folder, "saved" + part)
                with Job("-n", "3", "--max-restarts", str(kills), EXAMPLE, "--steps", str(steps), "--loss-file", losses, "--checkpoint", saved,
                         *NETWORK, *more) as job:
                    for rank in range(1, 1 + kills):
                        await_step(losses, 8 * H * rank)
                        pid = pid_of_rank(job, rank)
                        os.kill(pid, signal.SIGKILL)
                        await_true(lambda pid=pid: is_gone(pid))
                    code, out, err = job.end()
                self.assertEqual(code, 0, err)
                self.assertEqual(err.count(b"replacing it"), kills, err)
                self.assertEqual(out.count(b"3 ranks, float64"), 1 + kills)  # the generations
                self.check_losses(losses, steps)
                path, = glob.glob(saved + "/*.safetensors")
                with open(path, "rb") as f:
                    self.assertIn(b'"outer.wte.weight"', f.read(65536))

    def test_a_training_continues_from_its_outer_state(self):
        steps = 12 * H
        whole, first, second, saved = (os.path.join(self.folder, name) for name in ("whole", "first", "second", "saved"))
        for losses, *more in [whole], [first, "--checkpoint", saved, "--stop-at", str(steps // 2)], [second, "--checkpoint", saved, "--resume"]:
            with Job("-n", "1", EXAMPLE, "--steps", str(steps), "--loss-file", losses, *more, *NETWORK) as job:
                self.assertEqual(job.end()[0], 0)
        self.assertEqual(len(losses_of(second)), steps // H // 2)
        self.assertEqual(losses_of(whole), {**losses_of(first), **losses_of(second)})

    def test_a_node_is_killed_and_another_joins_between_outer_steps(self):
        steps = 400 * H
        losses = os.path.join(self.folder, "losses")
        words = ["--nnodes", "1:3", "-p", "1", "--join-window", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
                 "--rdzv-id", "local", EXAMPLE, "--steps", str(steps), "--loss-file", losses, *NETWORK]
        with Job(*words) as first, contextlib.ExitStack() as others:
            lines = iter(first.process.stdout.readline, b"")
            worlds = (int(found[1]) for found in map(re.compile(rb"(\d+) ranks?, float64").match, lines) if found)
            await_world(self, worlds, 1)  # the first node coordinates, and has rank 0
            second = others.enter_context(Job(*words))
            await_world(self, worlds, 2)
            at = max(losses_of(losses), default=0)
            await_step(losses, at + 4 * H)
            second.process.kill()
            await_world(self, worlds, 1)
            at = max(losses_of(losses), default=0)
            await_step(losses, at + 4 * H)
            third = others.enter_context(Job(*words))
            await_world(self, worlds, 2)
            for job in third, first:
                self.assertEqual(job.process.wait(5 * DEADLINE_S), 0, job.said_so_far())  # some thousand steps
        self.check_losses(losses, steps)


def await_world(case, worlds, size):
    for world in worlds:
        if world == size:
            return
    case.fail(f"no world of {size} ranks")


if __name__ == "__main__":
    unittest.main()
