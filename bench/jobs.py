"""Jobs whose ranks write a line into a FIFO, $TEST_FIFO."""
import os
import select
import signal
import subprocess
import tempfile
import time

LIMIT_S = 60
END_S = 10  # torchrun 2.15 loses a SIGTERM that arrives just after the start of its workers


class Fifo:
    """Where the ranks of one run report; at the end of the block, the run's launchers and ranks end."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "fifo")
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.launchers = []

    def __enter__(self):
        return self

    def start(self, command, env):
        self.launchers.append(subprocess.Popen(command, env=dict(env, TEST_FIFO=self.path), stdin=subprocess.DEVNULL,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def await_lines(self, n):
        end = time.monotonic() + LIMIT_S
        heard = b""
        while heard.count(b"\n") < n:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise SystemExit(f"no {n} lines from the workers within {LIMIT_S} s; received {heard!r}")
            heard += os.read(self.fd, 4096)

    def processes(self, *variables):
        """Pids of all processes of this run, the launchers included, that also have these variables (NAME=VALUE)."""
        wanted = {word.encode() for word in (f"TEST_FIFO={self.path}", *variables)}
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if wanted <= set(f.read().split(b"\0")):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def __exit__(self, *_):
        for launcher in self.launchers:
            launcher.terminate()
        end = time.monotonic() + END_S
        for launcher in self.launchers:
            try:
                launcher.wait(max(0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                launcher.kill()
                launcher.wait()
        for pid in self.processes():  # ranks that outlive their launcher
            os.kill(pid, signal.SIGKILL)
        os.close(self.fd)
        self.folder.cleanup()
