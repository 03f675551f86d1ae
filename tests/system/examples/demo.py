"""examples/demo: it shows what it promises, and leaves nothing, however it ends.

Covers: examples, ctl/top, rendezvous/daemon, launcher/membership
"""
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../lib"))
from harness import Job  # noqa: E402

DEMO = os.environ["DEMO"]
BUILD = os.environ["BUILD_ROOT"]
WORDS = ["--build", BUILD, "--seed", "1", "--ranks", "1", "--quiet", "0"]
DEADLINE_S = 300


def network():
    """What the demo makes, by the names that it gives, as far as others can see it."""
    places = [path for path in ("/run/netns", "/sys/class/net") if os.path.isdir(path)]
    return {name for path in places for name in os.listdir(path) if re.fullmatch(r"node\d|port\d|switch", name)}


class Demo(unittest.TestCase):
    def start(self, *words):
        before = network()
        self.addCleanup(lambda: self.assertEqual(network(), before))
        demo = Job(*WORDS, *words, launcher=DEMO, stderr=subprocess.STDOUT)
        demo.__enter__()
        self.addCleanup(demo.__exit__)
        return demo

    def await_training(self, demo):
        said = ""
        for line in demo.process.stdout:
            said += line.decode()
            if "nodes train" in said:
                return
        self.fail(said)

    def test_a_network_learns_while_ranks_and_nodes_join_and_leave(self):
        demo = self.start("--disturbances", "7")
        said = demo.process.communicate(timeout=DEADLINE_S)[0].decode()
        self.assertEqual(demo.process.returncode, 0, said)
        for kind in "a rank of node .: SIG", "its ddprun", "it leaves the job", "joins", "power off|all its processes":
            self.assertRegex(said, rf"\n *[\d.]+ s +\d+ +[\d.]+ +[\d.]+ m?s  .*({kind})")
        fell = re.search(r"the loss fell: ([\d.]+) at first, ([\d.]+) at last\nnothing is left running\n$", said)
        self.assertIsNotNone(fell, said)
        self.assertLess(float(fell[2]), float(fell[1]))
        self.assertEqual(demo.processes(), [])

    def test_nodes_replace_their_coordinator(self):
        demo = self.start("--failover", "--quiet", "3", "--disturbances", "2", "--seed", "12")
        said = demo.process.communicate(timeout=DEADLINE_S)[0].decode()
        self.assertEqual(demo.process.returncode, 0, said)
        self.assertIn("node 1: kill -9 of its ddprun", said)
        self.assertEqual(demo.processes(), [])

    def test_an_interrupted_demo_leaves_nothing(self):
        demo = self.start("--loopback")
        self.await_training(demo)
        demo.signal(signal.SIGINT)
        said = demo.process.communicate(timeout=DEADLINE_S)[0].decode()
        self.assertIn("SIGINT: the end\nnothing is left running\n", said)
        self.assertEqual(demo.process.returncode, 128 + signal.SIGINT)
        self.assertEqual(demo.processes(), [])

    def test_a_killed_demo_leaves_nothing(self):
        demo = self.start()
        self.await_training(demo)
        demo.process.kill()
        demo.await_gone()

    def test_a_missing_build_is_reported(self):
        done = subprocess.run([DEMO, "--build", "/nonexistent"], stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no launcher/ddprun in /nonexistent: build first", done.stderr)


if __name__ == "__main__":
    unittest.main()
