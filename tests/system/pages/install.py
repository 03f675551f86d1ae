"""An installed tree: each of its programs starts from where it was installed to, with nothing in the environment that says where
libraries are.

Covers: perf, ctl, launcher, rendezvous/daemon
"""
import json
import os
import subprocess
import tempfile
import unittest

BUILD = os.environ["BUILD_ROOT"]
PROGRAMS = {"ddprun", "ddp-perf", "ddp-rendezvous", "ddpctl"}


def prefix():
    with open(os.path.join(BUILD, "meson-info/intro-buildoptions.json"), encoding="utf-8") as file:
        return next(option["value"] for option in json.load(file) if option["name"] == "prefix")


class Install(unittest.TestCase):
    def test_every_installed_program_starts_without_a_library_path(self):
        if prefix() == "/usr":
            self.skipTest("the prefix is /usr, where the loader looks itself, and that cannot be installed to here")
        with tempfile.TemporaryDirectory(prefix="ddprun-install-") as folder:
            # the tree is not where it was configured for: programs find their library relative to themselves
            subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--tags", "runtime", "--destdir", folder],
                           check=True, timeout=120, stdout=subprocess.DEVNULL)
            bin_folder = os.path.join(folder, prefix().lstrip("/"), "bin")
            self.assertLessEqual(PROGRAMS, set(os.listdir(bin_folder)))
            environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
            for name in sorted(os.listdir(bin_folder)):
                with self.subTest(program=name):
                    run = subprocess.run([os.path.join(bin_folder, name), "--version"], env=dict(environment, LD_LIBRARY_PATH=""),
                                         capture_output=True, text=True, timeout=60, check=False)
                    self.assertEqual(run.returncode, 0, run.stderr)
                    self.assertIn(name, run.stdout)


if __name__ == "__main__":
    unittest.main()
