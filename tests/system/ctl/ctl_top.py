"""ddpctl top, in a terminal that tmux provides.

Covers: ctl/top, ctl
"""
import os
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from ctl import await_running
from harness import DEADLINE_S, RANK, Job, await_true, main

DDPCTL = os.environ["DDPCTL"]
STEPPER = os.environ["HANGER_PROGRAM"]  # tests/support/programs/hanger.c: libddp ranks, one of them slow
TMUX = shutil.which("tmux")


class Terminal:
    """A tmux server of its own, with one window in which a command runs."""

    def __init__(self, folder, width, height, command, env):
        self.socket = os.path.join(folder, "tmux")
        words = " ".join(f"'{word}'" for word in command)
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height),
                  f"exec env XDG_RUNTIME_DIR='{env}' {words}; ", ";", "set-option", "-g", "status", "off")

    def tmux(self, *words, check=True):
        env = {name: value for name, value in os.environ.items() if name != "TMUX"}
        return subprocess.run([TMUX, "-S", self.socket, *words], env={**env, "LC_ALL": "C.UTF-8", "TERM": "xterm"},
                              capture_output=True, text=True, timeout=DEADLINE_S, check=check)

    def screen(self):
        return self.tmux("capture-pane", "-p", check=False).stdout

    def await_screen(self, pattern):
        await_true(lambda: re.search(pattern, self.screen()), self.screen)
        return self.screen()

    def close(self):
        self.tmux("kill-server", check=False)


@unittest.skipUnless(TMUX, "tmux is not installed: scripts/install-deps --tools")
class InATerminal(unittest.TestCase):
    def open(self, job, width=110, height=20, words=()):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        terminal = Terminal(folder.name, width, height, [DDPCTL, "top", "-d", "0.1", *words, str(job.process.pid)],
                            job.runtime)
        self.addCleanup(terminal.close)
        return terminal

    def test_ranks_are_shown_with_their_steps(self):
        with Job("--rdzv-id", "digits", "-n", "4", STEPPER, "sleep") as job:
            await_running(job)
            terminal = self.open(job)
            screen = terminal.await_screen(r"(?m)^ +1 +\d+ +running .* 2 +\S+ ms +all_reduce #\d+")
            self.assertRegex(screen, r"^ddpctl \d\d:\d\d:\d\d  1 job node, 4 ranks running, sorted by rank\n")
            self.assertIn("job digits: running, generation 0", screen)

    def test_keys_change_the_order_and_quit(self):
        with Job("-n", "3", RANK, "only", "2", "use", "64", "end", "pid", "wait") as job:
            job.hear(3)
            await_running(job)
            terminal = self.open(job)
            terminal.await_screen(r"(?s)by rank\n.*\n +0 +\d+ .*\n +2 +\d+ ")
            terminal.tmux("send-keys", "m")
            terminal.await_screen(r"(?s)by memory\n.*\n +2 +\d+ .*\n +[01] +\d+ ")
            terminal.tmux("send-keys", "q")
            await_true(lambda: terminal.tmux("list-sessions", check=False).returncode != 0)

    def test_a_frame_fits_a_terminal_that_shrinks(self):
        with Job("-n", "8", RANK, "pid", "wait") as job:
            job.hear(8)
            await_running(job)
            terminal = self.open(job)
            terminal.await_screen(r"(?m)^ +7 +\d+ +running")
            terminal.tmux("resize-window", "-x", "40", "-y", "8")
            screen = terminal.await_screen(r"(?m)^\.\.\. \d+ more lines$")
            lines = screen.rstrip("\n").split("\n")
            self.assertLessEqual(len(lines), 8)
            self.assertLessEqual(max(map(len, lines)), 40)
            self.assertTrue(lines[0].startswith("ddpctl "), screen)
            terminal.tmux("resize-window", "-x", "110", "-y", "20")
            terminal.await_screen(r"(?m)^ +7 +\d+ +running")

    def test_top_ends_with_the_job(self):
        with Job("-n", "1", RANK, "pid", "wait") as job:
            job.hear(1)
            await_running(job)
            terminal = self.open(job)
            terminal.await_screen("running")
            job.signal(signal.SIGTERM)
            job.end()
            await_true(lambda: terminal.tmux("list-sessions", check=False).returncode != 0)


class ElseWhere(unittest.TestCase):
    def test_once_prints_one_frame_anywhere(self):
        with Job("-n", "2", RANK, "pid", "wait") as job:
            job.hear(2)
            await_running(job)
            env = {**os.environ, "XDG_RUNTIME_DIR": job.runtime}
            done = subprocess.run([DDPCTL, "top", "--once", "-t", str(DEADLINE_S), str(job.process.pid)], env=env,
                                  capture_output=True, text=True, timeout=3 * DEADLINE_S)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertNotIn("\033", done.stdout)
            self.assertRegex(done.stdout, r"(?m)^ +1 +\d+ +running")

    def test_an_output_that_is_not_a_terminal_is_an_error(self):
        done = subprocess.run([DDPCTL, "top"], stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S)
        self.assertEqual((done.returncode, done.stdout), (74, b""))
        self.assertIn(b"stdin and stdout are not terminals; use --once", done.stderr)

    def test_a_signal_leaves_the_terminal_as_it_was(self):
        ours, theirs = pty.openpty()
        with subprocess.Popen([DDPCTL, "top", "-d", "10m"], stdin=theirs, stdout=theirs, stderr=theirs) as top:
            out = b""
            while b"ranks running" not in out:
                out += os.read(ours, 65536)
            top.send_signal(signal.SIGTERM)
            while b"\033[?1049l" not in out:
                out += os.read(ours, 65536)
            self.assertEqual(top.wait(DEADLINE_S), 0)
        self.assertIn(b"\033[?25h", out)
        os.close(theirs)
        os.close(ours)


if __name__ == "__main__":
    main()
