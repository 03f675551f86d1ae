"""How Python ranks end, and how users end a job: the exit status is right, the other ranks end, nothing is left. One table lists what a
rank does; the other lists what ends a job whose ranks have started processes of their own.

Covers: launcher/node, launcher/supervisor, launcher/spawner, launcher/reporting
"""
import contextlib
import fcntl
import os
import pty
import resource
import select
import signal
import subprocess
import termios
import time
import unittest

from harness import DEADLINE_S, RANK, Job, await_true, main, run

ADDRESS_SPACE = 2 << 30

# What rank 1 does while rank 0 sleeps: (Python, exit status, what ddprun or the rank prints)
ENDS = {
    "an exception": ("raise ValueError('batch 17')", 1, "ValueError: batch 17"),
    "sys.exit(7)": ("sys.exit(7)", 7, "exit status 7"),
    "sys.exit of a text": ("sys.exit('no data')", 1, "no data"),
    "os._exit": ("os._exit(9)", 9, "exit status 9"),
    "SIGSEGV": ("faulthandler.enable(); faulthandler._sigsegv()", 139, "killed by SIGSEGV"),
    "SIGABRT": ("os.abort()", 134, "killed by SIGABRT"),
    "SIGKILL of itself": ("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed by SIGKILL"),
    "too much recursion": ("def f(): f()\nf()", 1, "RecursionError"),
    "more memory than there may be": ("x = bytearray(1 << 40)", 1, "MemoryError"),
}

# How a job ends whose ranks have left processes in other sessions, and such as ignore SIGHUP: (what the ranks do then, the signal to
# ddprun, its status)
FAMILY = "setsid sleep 1000 & nohup sleep 1000 >/dev/null 2>&1 & (setsid nohup sleep 1000 >/dev/null 2>&1 &); exec \"$0\" \"$@\""
FAMILIES = {
    "all ranks succeed": (("on", "10", "0"), signal.SIGUSR1, 0),
    "a rank fails": (("only", "1", "on", "10", "3", "end"), signal.SIGUSR1, 3),
    "SIGTERM": ((), signal.SIGTERM, -signal.SIGTERM),
    "SIGINT": ((), signal.SIGINT, -signal.SIGINT),
    "SIGHUP": ((), signal.SIGHUP, -signal.SIGHUP),
    "SIGKILL": ((), signal.SIGKILL, -signal.SIGKILL),
}

SAVES = """
import os, signal, sys, time
def save(sig, _):
    os.write(fifo, f"{os.environ['RANK']} saved at {sig}\\n".encode())
    sys.exit(0)
fifo = os.open(os.environ["TEST_FIFO"], os.O_WRONLY)
for sig in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
    signal.signal(sig, save)
os.write(fifo, b"up\\n")
while True:
    time.sleep(0.01)  # a step
"""


def python(body, others="time.sleep(1000)"):
    body = "\n    ".join(body.split("\n"))
    return ("python3", "-c", f"import faulthandler, os, signal, sys, time\nif os.environ['RANK'] == '1':\n    {body}\n{others}\n")


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        return f.read().rpartition(")")[2].split()[0]


class Ranks(unittest.TestCase):
    def test_the_end_of_one_rank_ends_all_with_its_cause(self):
        for name, (body, status, said) in ENDS.items():
            limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))) if "memory" in name else None
            with self.subTest(name), Job("-n", "3", *python(body), preexec_fn=limit) as job:
                code, _, err = job.end()
                self.assertEqual((code, job.processes()), (status, []), err)
                self.assertIn(said, err.decode())
                self.assertIn("rank 1 ", err.decode())

    def test_a_rank_that_succeeds_while_another_fails_is_distinguished(self):
        # rank 0 fails only when rank 1 has been reaped
        body = "open(os.environ['TEST_FIFO'], 'w').write(f'{os.getpid()}\\n')\nsys.exit(0)"
        others = ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nopen(os.environ['TEST_FIFO'], 'w').write('0\\n')\n"
                  "signal.sigwait([signal.SIGUSR1])\nsys.exit(5)")
        with Job("-n", "2", *python(body, others)) as job:
            pid = int(job.hear(2)[-1])
            await_true(lambda: not os.path.exists(f"/proc/{pid}"))
            job.signal(signal.SIGUSR1)
            code, _, err = job.end()
        self.assertEqual(code, 5, err)
        self.assertRegex(err.decode(), r"rank 1: succeeded\n")

    def test_a_successful_job_prints_nothing(self):
        self.assertEqual(run("-n", "3", "python3", "-c", "import sys; sys.exit()"), (0, "", ""))


class Signals(unittest.TestCase):
    def test_ranks_save_and_ddprun_dies_of_the_signal(self):
        for sig in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            with self.subTest(sig), Job("-n", "2", "python3", "-c", SAVES) as job:
                job.hear(2)
                job.signal(sig)
                self.assertEqual(job.hear(2), [f"{rank} saved at {int(sig)}" for rank in range(2)])
                self.assertEqual((job.end()[0], job.processes()), (-sig, []))

    def test_ddprun_may_be_stopped_and_continued(self):
        with Job("-n", "2", RANK, "pid", "await", str(int(signal.SIGUSR1)), "tell", "over") as job:
            pids = [int(line.split()[-1]) for line in job.hear(4) if "pid" in line]
            job.signal(signal.SIGSTOP)
            await_true(lambda: state_of(job.process.pid) == "T")
            for pid in pids:
                os.kill(pid, signal.SIGUSR1)
            self.assertEqual(job.hear(2), ["0 over", "1 over"])
            self.assertEqual([state_of(job.process.pid)], ["T"])
            job.signal(signal.SIGCONT)
            self.assertEqual(job.end()[0], 0)

    def test_processes_started_by_ranks_end_with_the_job(self):
        for name, (words, sig, status) in FAMILIES.items():
            words = (*words, "only", "0", "note", "10", "end") if "rank fails" in name else words
            with self.subTest(name), Job("-n", "2", "sh", "-c", FAMILY, RANK, *words, "tell", "up", "wait", stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL) as job:
                job.hear(2)
                await_true(lambda: len(job.named("sleep")) == 6)
                job.signal(sig)
                self.assertEqual(job.process.wait(DEADLINE_S), status)
                job.await_gone()


class Terminal(unittest.TestCase):
    """ddprun in the foreground of a terminal, at which keys are pressed."""

    @contextlib.contextmanager
    def job(self, *args):
        ours, theirs = pty.openpty()
        try:
            job = Job(*args, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
                      preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0))
        finally:
            os.close(theirs)
        with job:
            yield job, ours
        os.close(ours)

    def read_until(self, ours, text):
        end, seen = time.monotonic() + DEADLINE_S, b""
        while text not in seen:
            if not select.select([ours], [], [], max(0, end - time.monotonic()))[0]:
                self.fail(f"no {text!r} in {seen!r}")
            seen += os.read(ours, 4096)

    def test_ctrl_c_reaches_each_rank_once(self):
        with self.job("-n", "2", RANK, "on", "2", "0", "tell", "up", "wait") as (job, ours):
            job.hear(2)
            os.write(ours, b"\x03")
            self.assertEqual(job.hear(2), ["0 got 2", "1 got 2"])
            self.assertEqual((job.process.wait(DEADLINE_S), job.processes()), (-signal.SIGINT, []))

    def test_ctrl_c_twice_ends_ranks_that_ignore_it(self):
        with self.job("-n", "2", "--shutdown-timeout", "600s", RANK, "note", "2", "ignore", "15", "child", "tell", "up",
                      "wait") as (job, ours):
            job.hear(4)
            os.write(ours, b"\x03")
            self.assertEqual(job.hear(2), ["0 got 2", "1 got 2"])
            os.write(ours, b"\x03")
            self.assertEqual(job.process.wait(DEADLINE_S), -signal.SIGINT)
            job.await_gone()

    def test_input_of_python_reads_the_terminal(self):
        for n in "1", "2":
            script = "import os\nif os.environ['RANK'] == '0':\n    print('hello', input('name? '))\n"
            with self.subTest(n), self.job("-n", n, "--stdin", "0", "python3", "-c", script) as (job, ours):
                self.read_until(ours, b"name? ")
                os.write(ours, b"you\n")
                self.read_until(ours, b"hello you")
                self.assertEqual(job.process.wait(DEADLINE_S), 0)


main()
