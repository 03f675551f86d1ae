"""The tutorials of docs/get-started and the program of README.md: their programs and commands, copied, print what the pages show.

The PyTorch tutorial needs $TORCH_PYTHON, by default that of scripts/install-deps --interop.

Covers: launcher, launcher/membership, worker-runtime/group
"""
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../lib"))
from ports import free_port  # noqa: E402

ROOT = os.environ["SOURCE_ROOT"]
DDPRUN = os.path.abspath(os.environ["DDPRUN"])
LIBRARY = os.environ.get("DDP_LIBRARY", "")
DEADLINE_S = 280
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
PYTHON = os.environ.get("TORCH_PYTHON") or os.path.join(CACHE, "ddprun/torch/bin/python")


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """Its code blocks: [(language, text)]"""
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def section(text, number):
    return re.search(rf"^## {number}\. .*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[0]


def without_figures(text):
    return re.sub(r"loss [\d.]+", "loss X", text)


class Programs(unittest.TestCase):
    """C programs that a page shows whole."""

    def compile_and_run(self, text, folder):
        with open(os.path.join(folder, "hello.c"), "w", encoding="utf-8") as f:
            f.write(text)
        subprocess.run([*shlex.split(os.environ.get("CC") or "cc"), "-Wall", "-Werror", "-I" + os.path.join(ROOT, "include"), "hello.c", LIBRARY,
                        "-Wl,-rpath," + os.path.dirname(LIBRARY), "-o", "hello"], cwd=folder, check=True, timeout=DEADLINE_S)
        return subprocess.run([DDPRUN, "-n", "4", "./hello"], cwd=folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              text=True, timeout=DEADLINE_S).stdout

    def test_the_first_libddp_program_prints_what_the_tutorial_shows(self):
        if shutil.which("cc") is None or os.environ.get("SANITIZED"):
            self.skipTest("needs cc, and a library without sanitizers")
        shown = [text for language, text in blocks(section(read("docs/get-started/libddp.md"), 1)) if language == ""]
        for page in "README.md", "docs/get-started/libddp.md":
            program, = [text for language, text in blocks(read(page)) if language == "c" and "int main" in text]
            with self.subTest(page), tempfile.TemporaryDirectory() as folder:
                self.assertEqual(self.compile_and_run(program, folder), shown[0])


class PyTorch(unittest.TestCase):
    """docs/get-started/pytorch.md"""

    @classmethod
    def setUpClass(cls):
        if not os.access(PYTHON, os.X_OK):
            raise unittest.SkipTest(f"PyTorch is not installed: {PYTHON}")

    def setUp(self):
        self.page = read("docs/get-started/pytorch.md")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        script, = [text for language, text in blocks(section(self.page, 1)) if language == "python"]
        with open(os.path.join(self.folder, "train.py"), "w", encoding="utf-8") as f:
            f.write(script)
        os.mkdir(os.path.join(self.folder, "bin"))
        os.symlink(DDPRUN, os.path.join(self.folder, "bin/ddprun"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PET_", "DDP_"))}
        self.env = clean | {"PATH": self.folder + "/bin:" + os.environ["PATH"], "PYTHON_EXEC": PYTHON, "CUDA_VISIBLE_DEVICES": "",
                            "OMP_NUM_THREADS": "1"}

    def commands(self, number):
        return [text for language, text in blocks(section(self.page, number)) if language == "sh"]

    def shown(self, number):
        return [text for language, text in blocks(section(self.page, number)) if language == ""]

    def start(self, commands):
        return subprocess.Popen(["bash", "-c", commands], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run_commands(self, commands):
        with self.start(commands) as shell:
            out, err = shell.communicate(timeout=DEADLINE_S)
        return shell.returncode, out, err

    def test_two_ranks_train(self):
        code, out, err = self.run_commands(self.commands(2)[0])
        self.assertEqual((code, without_figures(out)), (0, without_figures(self.shown(2)[0])), err)

    def test_a_killed_rank_is_the_root_cause(self):
        _, out, err = self.run_commands(self.commands(3)[0])
        self.assertEqual(out.splitlines()[-1], "137", err)
        self.assertRegex(err, "rank 1 failed: killed by SIGKILL")

    def test_a_restart_resumes_from_the_checkpoint(self):
        code, out, err = self.run_commands(self.commands(4)[0])
        self.assertEqual((code, without_figures(out)), (0, without_figures(self.shown(4)[0])), err)

    def test_two_nodes_train(self):
        commands = self.commands(5)[0].replace("127.0.0.1", f"127.0.0.1:{free_port()}")
        with contextlib.ExitStack() as stack:
            nodes = [stack.enter_context(self.start(commands)) for _ in range(2)]
            ends = [node.communicate(timeout=DEADLINE_S) for node in nodes]
        self.assertEqual([node.returncode for node in nodes], [0, 0], ends)
        self.assertEqual(without_figures("".join(out for out, _ in ends)), without_figures(self.shown(2)[0]))


if __name__ == "__main__":
    unittest.main()
