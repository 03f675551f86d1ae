"""What the system tests share: start ddprun, receive reports of its ranks through a FIFO, look for leftovers.

No test waits for time to pass: each waits for an event, with a deadline that only a failure reaches.
"""
import contextlib
import faulthandler
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from json_schema import check_files

DDPRUN = os.environ.get("DDPRUN")  # not set for bench/failures.py, whose launchers are others
RANK = os.environ.get("RANK_PROGRAM")  # tests/support/programs/rank.c
DEADLINE_S = float(os.environ.get("TEST_DEADLINE_S", "30")) * float(os.environ.get("TEST_PATIENCE", "1"))
RELAYED = "TEST_STORE_RELAY" in os.environ  # jobs of several nodes have --store-relay on
NAME_MAX = 15  # bytes of a process's name that the kernel keeps

# What the test runner has for itself must not look like a job around ddprun.
for name in ("PYTHONPATH", "RANK", "WORLD_SIZE", "TORCHELASTIC_ERROR_FILE", "OMP_NUM_THREADS"):
    os.environ.pop(name, None)

# Nor may a hangup of the terminal matter while the tests run: ddprun leaves an ignored SIGHUP ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# meson ends a test that takes too long with SIGTERM: the log then has the line where each thread waits.
faulthandler.register(signal.SIGTERM, chain=True)


def with_relay(words):
    """The words of a ddprun, if it is to relay the store."""
    at = words.index("--nnodes") if RELAYED and "--nnodes" in words else len(words)
    return [*words[:at], "--store-relay", "on", *words[at:]] if at < len(words) else [*words]


class Job:
    """A ddprun under way, or another launcher: anything that starts ranks."""

    def __init__(self, *args, env=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, name=None,
                 launcher=DDPRUN, **kw):
        self.dir = tempfile.mkdtemp()
        self.fifo = os.path.join(self.dir, "fifo")
        os.mkfifo(self.fifo)
        self.fifo_fd = os.open(self.fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.heard = self.said = b""  # by ranks, and what of ddprun's messages was read
        self.mark = "TEST_MARK=" + uuid.uuid4().hex
        runtime = os.path.join(self.dir, "runtime")
        os.mkdir(runtime)
        self.runtime = runtime
        full = {**os.environ, "TEST_FIFO": self.fifo, "XDG_RUNTIME_DIR": runtime, **(env or {})}
        key, value = self.mark.split("=")
        full[key] = value
        args = with_relay(args)
        program = launcher
        if name is not None:
            program = os.path.join(self.dir, name)
            os.symlink(os.path.abspath(launcher), program)
        self.args, self.cwd = args, kw.get("cwd") or os.getcwd()
        self.process = subprocess.Popen([program, *args], env=full, stdin=stdin, stdout=stdout, stderr=stderr, **kw)

    def __enter__(self):
        return self

    def __exit__(self, failure=None, *_):
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
            self.process.stdin = None
        self.process.wait(DEADLINE_S)
        kill_all(self.processes())  # one of them may hold the pipes open that communicate() reads to their ends
        try:
            self.close_output()
            if failure is None:
                check_files(self.args, self.cwd)  # what it has written to --events and --report
        finally:
            shutil.rmtree(self.dir)

    def close_output(self):
        try:
            self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"a process without the job's mark holds its output open after {DEADLINE_S:g} s") from error
        finally:
            for stream in filter(None, (self.process.stdout, self.process.stderr)):
                stream.close()
            os.close(self.fifo_fd)

    def signal(self, sig):
        self.process.send_signal(sig)

    def hear(self, n_lines, deadline_s=DEADLINE_S):
        """The next n lines that ranks report, sorted."""
        end = time.monotonic() + deadline_s
        while self.heard.count(b"\n") < n_lines:
            if not select.select([self.fifo_fd], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"waited in vain for {n_lines} lines; heard {self.heard!r}")
            self.heard += os.read(self.fifo_fd, 65536)
        lines = self.heard.split(b"\n")
        self.heard = b"\n".join(lines[n_lines:])
        return sorted(line.decode() for line in lines[:n_lines])

    def unheard(self):
        """What ranks have reported after the lines that hear() returned, so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.heard += os.read(self.fifo_fd, 65536)
        return self.heard

    def read_stderr(self, deadline_s=DEADLINE_S):
        """What ddprun prints next; b"": no more."""
        if not select.select([self.process.stderr], [], [], max(0, deadline_s))[0]:
            raise AssertionError(f"ddprun says no more; what was read is {self.said!r}")
        return os.read(self.process.stderr.fileno(), 65536)

    def read_until(self, text):
        """Stderr up to this text."""
        end = time.monotonic() + DEADLINE_S
        while text.encode() not in self.said:
            some = self.read_stderr(end - time.monotonic())
            if not some:
                raise AssertionError(f"waited in vain for {text!r} in {self.said!r}")
            self.said += some

    def said_so_far(self):
        """All that ddprun has printed."""
        while select.select([self.process.stderr], [], [], 0)[0]:
            some = os.read(self.process.stderr.fileno(), 65536)
            if not some:
                break
            self.said += some
        return self.said

    def end(self):
        """Wait for ddprun: (exit status as subprocess has it, stdout, stderr)."""
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, err

    def processes(self):
        """Pids of all that still has this job's mark in its environment, ddprun included."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if self.mark.encode() in f.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def named(self, name):
        """Pids of those of these processes that have this name."""
        return [pid for pid in self.processes() if name_of(pid) == name[:NAME_MAX]]

    def spawner(self):
        found = self.named("ddp-spawner")
        if not found:
            raise AssertionError("no spawner")
        return found[0]

    def await_gone(self):
        """Until no process of the job is left."""
        await_true(lambda: not self.processes(), lambda: [describe(p) for p in self.processes()])


def await_true(condition, explain=lambda: "", deadline_s=DEADLINE_S):
    """For what sends no event: look again and again, the less often the longer it takes."""
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        if waited_s > deadline_s:
            raise AssertionError(f"timed out; {explain()}")
        time.sleep(min(max(0.002, waited_s / 8), 0.05))


def name_of(pid):
    """"": it is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as f:
            return f.read().strip()
    except OSError:
        return ""


def is_gone(pid):
    """A zombie also counts as gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def describe(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return pid, f.read().replace(b"\0", b" ")
    except OSError:
        return pid, "gone"


def numbers_of(text):
    """Those of "0-3,8"."""
    pairs = [part.partition("-") for part in text.split(",")]
    return {number for first, _, last in pairs for number in range(int(first), int(last or first) + 1)}


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def run(*args, **kw):
    """ddprun to its end: (exit status, stdout, stderr as text)."""
    with Job(*args, **kw) as job:
        code, out, err = job.end()
        left = job.processes()
        assert not left, f"left running: {[describe(p) for p in left]}"
        assert os.listdir(job.runtime) == [], f"left in the runtime folder: {os.listdir(job.runtime)}"
        return code, out.decode(), err.decode()


def main():
    if DDPRUN is None or RANK is None:
        sys.exit("DDPRUN and RANK_PROGRAM must name the built ones")
    unittest.main(verbosity=2, argv=[sys.argv[0]] + sys.argv[1:])
