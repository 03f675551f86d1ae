"""Command lines as users type them: how a program is named, where it lies, what the environment already has. A row each: the words,
what the script is called, and what each rank prints.

Covers: launcher/options, launcher/job
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from harness import DDPRUN, Job, main, run

# one write() of a whole line: the ranks share a pipe
SHOW = "import json, os, sys\nos.write(1, (json.dumps([os.environ['RANK'], sys.argv[1:]]) + '\\n').encode())\n"
VARIABLES = "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS"

# name: (words of ddprun, files of the working directory, the arguments that the program gets)
TAKEN = {
    "spaces and quotes": (["-n", "2", "a b's \"script\".py", "x y", "it's", 'say "hi"', "$HOME", "*", ""], ["a b's \"script\".py"],
                          ["x y", "it's", 'say "hi"', "$HOME", "*", ""]),
    "-n2 in one word": (["-n2", "train.py", "a"], ["train.py"], ["a"]),
    "a module": (["-n", "2", "-m", "train", "a"], ["train.py"], ["a"]),
    "a package": (["-n", "2", "-m", "pkg", "a"], ["pkg/__init__.py", "pkg/__main__.py"], ["a"]),
    "a module of a package": (["-n", "2", "-m", "pkg.train", "a"], ["pkg/__init__.py", "pkg/train.py"], ["a"]),
    "-- after a module": (["-n", "2", "-m", "train", "--", "-x"], ["train.py"], ["-x"]),
    "underscores": (["--nproc_per_node", "2", "--max_restarts=0", "train.py"], ["train.py"], []),
    "--use_env": (["--use_env", "-n", "2", "train.py"], ["train.py"], []),
    "options after the script": (["-n", "2", "train.py", "-n", "5", "--help"], ["train.py"], ["-n", "5", "--help"]),
    "a path": (["-n", "2", "./deep/er/train.py"], ["deep/er/train.py"], []),
    "a name with unicode": (["-n", "2", "tränen.py", "größe"], ["tränen.py"], ["größe"]),
}

# name: (words, exit status, what the message names)
REFUSED = {
    "a bad number": (["-n", "two", "true"], 2, "'two'"),
    "a missing script": (["-n", "2", "missing.py"], 127, "missing.py"),
    "a missing program": (["-n", "2", "./missing"], 127, "./missing"),
    "a missing module": (["-n", "2", "-m", "no_such_module"], 1, "no_such_module"),
    "module and no Python": (["-m", "--no-python", "train"], 2, "--no-python"),
    "a value of a flag": (["--standalone=1", "train.py"], 2, "--standalone"),
}


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def write(self, name, text=SHOW):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(text)
        return path

    def expect(self, words, told, n=2, **kw):
        code, out, err = run(*words, cwd=self.folder, **kw)
        self.assertEqual((code, err), (0, ""))
        shown = sorted(json.loads(line) for line in out.splitlines())
        self.assertEqual([(rank, words) for rank, words in shown], [(str(r), told) for r in range(n)])


class Words(Folder):
    def test_a_program_gets_its_arguments(self):
        for name, (words, files, told) in TAKEN.items():
            with self.subTest(name):
                for path in files:
                    self.write(path, "" if path.endswith("__init__.py") else SHOW)
                self.expect(words, told)

    def test_impossible_options_are_refused_by_name(self):
        for name, (words, status, named) in REFUSED.items():
            with self.subTest(name):
                code, out, err = run(*words, cwd=self.folder)
                self.assertEqual((code, out), (status, ""), err)
                self.assertIn(named, err)

    def test_a_dry_run_is_quoted_for_a_shell(self):
        script = self.write("a b.py")
        code, out, err = run("--dry-run", "-n", "1", script, "it's", "$x", "", "a\\b")
        self.assertEqual((code, err), (0, ""))
        command = next(line for line in out.splitlines() if line.startswith("rank 0: "))[len("rank 0: "):]
        shell = subprocess.run(["sh", "-c", f"set -- {command}\nshift\nprintf '%s\\n' \"$@\""], capture_output=True, text=True,
                               check=True)
        self.assertEqual(shell.stdout.splitlines()[-5:], [script, "it's", "$x", "", "a\\b"])


class Programs(Folder):
    def test_a_script_with_lines_of_windows(self):
        self.write("train.py", SHOW.replace("\n", "\r\n"))
        self.expect(["-n", "2", "train.py", "a"], ["a"])

    def test_a_link_to_a_script(self):
        os.symlink(self.write("real/train.py"), os.path.join(self.folder, "link.py"))
        self.expect(["-n", "2", "link.py", "a"], ["a"])

    def test_a_script_from_standard_input(self):
        with Job("-n", "1", "python3", "/dev/stdin", "a", cwd=self.folder, stdin=subprocess.PIPE) as job:
            job.process.stdin.write(SHOW.encode())
            job.process.stdin.close()
            job.process.stdin = None
            code, out, err = job.end()
        self.assertEqual((code, err, json.loads(out)[1]), (0, b"", ["a"]))

    def test_a_working_directory_that_is_deleted(self):
        script = self.write("train.py")
        gone = os.path.join(self.folder, "gone")
        os.mkdir(gone)
        shell = f'rmdir "{gone}" && exec "$0" "$@"'
        with Job("-c", shell, DDPRUN, "-n", "2", script, "a", launcher=shutil.which("sh"), cwd=gone) as job:
            code, out, err = job.end()
        self.assertEqual((code, out.count(b'["a"]')), (0, 2), err)

    def test_several_programs_in_one_job(self):
        self.write("one.py")
        self.write("two.py")
        code, out, err = run("-n", "2", "one.py", "1", ":", "-n", "1", "two.py", "2", cwd=self.folder)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(json.loads(line) for line in out.splitlines()), [["0", ["1"]], ["1", ["1"]], ["2", ["2"]]])


class Environment(unittest.TestCase):
    def shown(self, *words, env):
        names = " ".join(f"${name}" for name in VARIABLES)
        code, out, err = run(*words, "sh", "-c", f"echo {names}", env=env)
        self.assertEqual((code, err), (0, ""))
        return [dict(zip(VARIABLES, line.split())) for line in sorted(out.splitlines())]

    def test_variables_of_an_outer_job_are_replaced(self):
        around = {"RANK": "7", "LOCAL_RANK": "7", "WORLD_SIZE": "9", "LOCAL_WORLD_SIZE": "9", "GROUP_RANK": "5",
                  "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "outer", "OMP_NUM_THREADS": "3"}
        seen = self.shown("-n", "2", "--rdzv-id", "inner", env=around)
        self.assertEqual(seen, [dict(zip(VARIABLES, (str(r), str(r), "2", "2", "0", "inner", "3"))) for r in range(2)])

    def test_variables_of_torchrun_are_options(self):
        seen = self.shown(env={"PET_NPROC_PER_NODE": "2", "PET_RDZV_ID": "of-pet", "OMP_NUM_THREADS": "1"})
        self.assertEqual([(rank["WORLD_SIZE"], rank["TORCHELASTIC_RUN_ID"]) for rank in seen], [("2", "of-pet")] * 2)

    def test_names_of_jobs(self):
        for name in ("a b", "a/b/../c", "größe 训练", "x" * 60, "-1", "%s{rank}"):
            with self.subTest(name), tempfile.TemporaryDirectory() as logs:
                code, out, err = run("-n", "2", "--rdzv-id", name, "-t", "1", "--log-dir", logs, "sh", "-c",
                                     'echo "$TORCHELASTIC_RUN_ID"')
                self.assertEqual((code, out.count(name)), (0, 2), err)
                self.assertEqual(len(os.listdir(logs)), 1)
        for name in ("a\nb", "a\tb", "\x1b[31m"):
            with self.subTest(name):
                self.assertEqual(run("-n", "2", "--rdzv-id", name, "true")[:2], (2, ""))


main()
