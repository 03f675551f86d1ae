"""An installed tree: each of its programs starts from its place there, without variables that point to libraries; links between its
pages lead to files.

Covers: perf, ctl, launcher, rendezvous/daemon
"""
import json
import os
import re
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

    def test_links_of_installed_pages_lead_to_installed_files(self):
        with tempfile.TemporaryDirectory(prefix="ddprun-install-") as folder:
            subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--tags", "doc", "--destdir", folder],
                           check=True, timeout=120, stdout=subprocess.DEVNULL)
            root = os.path.join(folder, prefix().lstrip("/"), "share/doc/ddprun")
            pages = [os.path.join(directory, name) for directory, _, names in os.walk(root) for name in names if name.endswith(".md")]
            self.assertIn(os.path.join(root, "docs/index.md"), pages)
            for page in pages:
                with open(page, encoding="utf-8") as file:
                    prose = re.sub(r"^```.*?^```", "", file.read(), flags=re.MULTILINE | re.DOTALL)
                targets = re.findall(r"\]\(([^)#\s]+)", prose)
                for target in targets:
                    path = os.path.relpath(os.path.join(os.path.dirname(page), target), root)
                    if "://" not in target and not path.startswith("man/"):  # man pages are where man looks for them
                        with self.subTest(page=os.path.relpath(page, root)):
                            self.assertTrue(os.path.exists(os.path.join(root, path)), target)


if __name__ == "__main__":
    unittest.main()
