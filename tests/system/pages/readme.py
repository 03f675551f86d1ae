"""docs/how-to/two-nodes-on-one-machine.md: its commands, copied, with half as many epochs.

Covers: launcher/membership, launcher
"""
import os
import re
import subprocess
import tempfile
import unittest

PAGE = os.path.join(os.environ["SOURCE_ROOT"], "docs/how-to/two-nodes-on-one-machine.md")
BUILD = os.environ["BUILD_ROOT"]

# with namespaces and names of namespaces of its own; their names are kept below /run
APART = ["unshare", "--mount", "--net", "sh", "-c", 'mount -t tmpfs none /run && exec sh "$0"']


class TwoNodes(unittest.TestCase):
    def test_the_commands_train_on_two_nodes_and_then_on_one(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--net", "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("namespaces cannot be made here")
        with open(PAGE, encoding="utf-8") as f:
            page = re.search(r"^## Commands\n.*?^```sh\n(.*?)^```", f.read(), re.MULTILINE | re.DOTALL)[1]
        self.assertEqual(page.count(" --epochs 8'"), 1)
        commands = page.replace(" --epochs 8'", " --epochs 4'")
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "build"))
            for part in "launcher", "examples":
                os.symlink(os.path.join(BUILD, part), os.path.join(folder, "build", part))
            with open(os.path.join(folder, "commands"), "w", encoding="utf-8") as f:
                f.write(commands)
            done = subprocess.run([*APART, "commands"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=280)
        self.assertRegex(done.stdout, r"(?s)\n2 ranks, .*\n1 rank, .*\nepoch 4: .* accuracy 9[6789]\.", done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
