"""mnist with ranks that are killed, and replaced, ends with the bits of one without. KILLS sets how many are. Batch
normalisation is left out: its running averages are each rank's own."""
import os
import random
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from harness import Job  # noqa: E402

MNIST = os.environ["MNIST_DOUBLE"]
KILLS = int(os.environ.get("KILLS", "10"))
RANKS = 4
STEPS = 40 + 8 * KILLS


def ranks_of(job):
    """Pids of the processes that are mnist."""
    found = []
    for pid in job.processes():
        try:
            with open(f"/proc/{pid}/comm") as f:
                if f.read().strip() == os.path.basename(MNIST)[:15]:
                    found.append(pid)
        except OSError:
            pass
    return found


class Mended(unittest.TestCase):
    def run_mnist(self, folder, name, n_kills, *words):
        """-> {step: its loss, as text}, the network"""
        draw = random.Random(3)
        network = os.path.join(folder, name)
        losses = {}
        with Job("-n", str(RANKS), "--max-restarts", str(n_kills), *words, MNIST, "--data", os.path.join(folder, "data"),
                 "--draw", "640", "--batch", "64", "--epochs", "1000", "--steps", str(STEPS), "--print-loss-every", "1",
                 "--checkpoint", network, "--norm", "none") as job:
            for line in job.process.stdout:
                words = line.decode().split()
                if words[0] != "step":
                    continue
                step = int(words[1])
                self.assertNotIn(step, losses)
                losses[step] = words[3]
                if n_kills > 0 and step % 8 == 0:
                    pids = ranks_of(job)
                    if len(pids) == RANKS:
                        os.kill(draw.choice(pids), signal.SIGKILL)
                        n_kills -= 1
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(n_kills, 0)
            with open(network, "rb") as f:
                return losses, f.read(), err.decode()

    def test_the_network_is_the_same_bit_by_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            expected, network, _ = self.run_mnist(folder, "undisturbed", 0)
            losses, mended, err = self.run_mnist(folder, "mended", KILLS)
        self.assertEqual(err.count("it is replaced"), KILLS)
        self.assertEqual(mended, network)
        # what rank 0 had not written yet when it was killed is missing, nothing else
        self.assertEqual([step for step in losses if losses[step] != expected[step]], [])
        self.assertGreaterEqual(len(losses), STEPS - KILLS)


if __name__ == "__main__":
    unittest.main()
