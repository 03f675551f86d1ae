"""Under the name torchrun, whatever leads to it, ddprun has torchrun's defaults and its exit statuses.

Covers: launcher/options, launcher
"""
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
import zipapp

from harness import DDPRUN, RANK, Job, main, run

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
SHELL = ("--no-python", "sh", "-c")


def torchrun(*args, **kw):
    return run(*args, name="torchrun", **kw)


def shell(*args, env=None):
    """Of a job whose ranks run the last word by sh: what they print, a line each, sorted."""
    code, out, err = torchrun(*args[:-1], *SHELL, args[-1], env=env)
    assert code == 0, err
    return sorted(out.splitlines())


class Name(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.dir = self.holder.name
        os.symlink(os.path.abspath(DDPRUN), self.dir + "/torchrun")

    def tearDown(self):
        self.holder.cleanup()

    def status(self, program, **kw):
        return subprocess.run([program, "--no-python", "sh", "-c", "exit 7"], stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=60, **kw).returncode

    def test_the_last_part_of_the_path_selects_torchrun(self):
        os.symlink("torchrun", self.dir + "/other")
        os.mkdir(self.dir + "/deep")
        os.symlink("../torchrun", self.dir + "/deep/torchrun")
        self.assertEqual(self.status(self.dir + "/torchrun"), 1)
        self.assertEqual(self.status("./torchrun", cwd=self.dir), 1)
        self.assertEqual(self.status("deep/torchrun", cwd=self.dir), 1)
        self.assertEqual(self.status("torchrun", env={**os.environ, "PATH": self.dir + ":" + os.environ["PATH"]}), 1)
        self.assertEqual(self.status("torchrun", executable=DDPRUN), 1)
        self.assertEqual(self.status(self.dir + "/other"), 7)
        self.assertEqual(self.status("torchrun-2", executable=DDPRUN), 7)


class ExitStatus(unittest.TestCase):
    def test_a_failed_rank_exits_with_1(self):
        for how in ("exit 2", "exit 3", "exit 124", "exit 127", "exit 255", "kill -9 $$", "kill -15 $$", "kill -11 $$"):
            code, _, err = torchrun(*SHELL, "ulimit -c 0; " + how)
            self.assertEqual(code, 1, how)
            self.assertIn("rank 0 failed", err)

    def test_a_program_that_cannot_start_exits_with_1(self):
        for words in (["/nowhere.py"], ["--no-python", "/nowhere"], ["--no-python", "/etc/passwd"], ["--no-python", "/"],
                      ["--run-path", "/nowhere.py"]):
            code, _, err = torchrun(*words)
            self.assertEqual((code, err.count("\n")), (1, 1), err)

    def test_an_impossible_job_exits_with_1(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            code, _, err = torchrun("--nproc-per-node", "2", "--master-port", str(s.getsockname()[1]), *SHELL, ":")
        self.assertEqual(code, 1, err)
        self.assertEqual(torchrun("--log-dir", "/proc/none", *SHELL, ":")[0], 1)
        self.assertEqual(torchrun("--timeout", "50ms", "--no-python", RANK, "wait")[0], 1)

    def test_an_internal_error_exits_with_1(self):
        with Job("--no-python", RANK, "tell", "up", "wait", name="torchrun") as job:
            job.hear(1)
            os.kill(job.spawner(), signal.SIGKILL)
            self.assertEqual(job.end()[0], 1)
        with open("/dev/full", "wb") as full, Job("--dry-run", "x.py", stdout=full, name="torchrun") as job:
            self.assertEqual(job.end()[0], 1)

    def test_used_up_restarts_exit_with_1(self):
        code, _, err = torchrun("--max-restarts", "1", *SHELL, "exit 9")
        self.assertEqual(code, 1)
        self.assertIn("restart 1 of 1", err)

    def test_wrong_usage_exits_with_2(self):
        for words in (["--nonsense", "x.py"], [], ["--nproc-per-node"], ["--nnodes", "x", "x.py"]):
            self.assertEqual(torchrun(*words)[0], 2, words)

    def test_success_exits_with_0(self):
        self.assertEqual(torchrun("--nproc-per-node", "2", *SHELL, ":")[0], 0)
        self.assertEqual(torchrun("--help")[0], 0)
        self.assertEqual(torchrun("--version")[0], 0)

    def test_a_signal_exits_with_1_although_all_ranks_exit_with_0(self):
        for sig in STOPPING:
            n = str(int(sig))
            with self.subTest(sig=sig.name), Job("--nproc-per-node", "2", "--no-python", RANK, "on", n, "0", "tell", "up",
                                                 "wait", name="torchrun") as job:
                job.hear(2)
                job.signal(sig)
                self.assertEqual(job.hear(2), [f"0 got {n}", f"1 got {n}"])
                self.assertEqual(job.end()[0], 1)
                self.assertEqual(job.processes(), [])


class Defaults(unittest.TestCase):
    def test_one_rank_and_no_name(self):
        self.assertEqual(shell("echo $WORLD_SIZE $TORCHELASTIC_RUN_ID"), ["1 none"])
        self.assertEqual(shell("--rdzv-id", "j", "echo $TORCHELASTIC_RUN_ID"), ["j"])
        self.assertRegex(shell("--standalone", "echo $TORCHELASTIC_RUN_ID")[0], "^[-0-9a-f]{36}$")

    def test_threads(self):
        say = "echo ${OMP_NUM_THREADS-unset}"
        self.assertEqual(shell(say), ["unset"])
        self.assertEqual(shell("--nproc-per-node", "2", say), ["1", "1"])
        self.assertEqual(shell("--nproc-per-node", "2", say, env={"OMP_NUM_THREADS": "5"}), ["5", "5"])

    def test_the_program_is_for_python(self):
        python = {"PYTHON_EXEC": "/bin/echo"}  # prints what it would run
        for words, shown in ((["/bin/sh", "-c", "exit 3"], "-u /bin/sh -c exit 3"), (["./no-suffix", "-x"], "-u ./no-suffix -x"),
                             (["-m", "package.train", "a"], "-u -m package.train a"), (["x.py", "--", "a", "--"], "-u x.py a --")):
            with self.subTest(words=words), tempfile.TemporaryDirectory() as folder:
                for name in "no-suffix", "x.py":
                    with open(os.path.join(folder, name), "wb") as f:
                        f.write(b"\x7fELF\n")
                code, out, err = torchrun(*words, env=python, cwd=folder)
                self.assertEqual((code, out), (0, shown + "\n"), err)
        self.assertEqual(torchrun("--no-python", "echo", "a", env=python)[1], "a\n")

    def test_a_directory_and_a_zip_archive_are_for_python_under_any_name(self):
        with tempfile.TemporaryDirectory() as folder:
            app = os.path.join(folder, "app")
            os.mkdir(app)
            with open(app + "/__main__.py", "w", encoding="utf-8") as f:
                f.write("import sys\nsys.stdout.write('it runs ' + sys.argv[1] + '\\n')\n")
            zipapp.create_archive(app, folder + "/plain.pyz")
            zipapp.create_archive(app, folder + "/marked.pyz", "/usr/bin/env python3")
            os.chmod(folder + "/marked.pyz", 0o644)
            shutil.copy(app + "/__main__.py", folder + "/-dash.py")
            for name in "ddprun", "torchrun":
                for program in "app", "./app", "plain.pyz", "marked.pyz":
                    with self.subTest(f"{name} {program}"):
                        code, out, err = run("-n", "2", program, "-x", name=name, cwd=folder)
                        self.assertEqual((code, out), (0, "it runs -x\n" * 2), err)
                code, out, err = run("-n", "2", "--", "-dash.py", "-x", name=name, cwd=folder)
                self.assertEqual((code, out), (0, "it runs -x\n" * 2), err)

    def test_no_labels_on_a_terminal(self):
        ours, theirs = pty.openpty()
        with Job("--nproc-per-node", "2", *SHELL, "echo word", stdout=theirs, stderr=theirs, name="torchrun") as job:
            self.assertEqual(job.end()[0], 0)
        os.close(theirs)
        text = b""
        try:
            while True:
                text += os.read(ours, 4096)
        except OSError:  # no process has the other end open any more
            os.close(ours)
        self.assertEqual(re.split(rb"\r?\n", text), [b"word", b"word", b""])


main()
