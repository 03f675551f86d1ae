"""`ddpctl store` as it is built, on a ddp-rendezvous.

Covers: ctl
"""
import os
import pty
import signal
import socket
import subprocess
import unittest

from daemon import Daemon
from harness import DEADLINE_S, await_true, main

DDPCTL = os.environ["DDPCTL"]


class StoreTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name in "MASTER_ADDR", "MASTER_PORT":
            os.environ.pop(name, None)

    def setUp(self):
        self.daemon = Daemon("--max-memory", "64M")
        self.addCleanup(self.daemon.__exit__)

    def run_ctl(self, *words, **kw):
        if "input" not in kw:
            kw["stdin"] = subprocess.DEVNULL
        return subprocess.run([DDPCTL, *words], capture_output=True, timeout=DEADLINE_S, **kw)

    def store(self, action, *words, code=0, err="", **kw):
        """Exit status and stderr must be these; gives stdout."""
        done = self.run_ctl("store", action, "-e", f"127.0.0.1:{self.daemon.port}", *words, **kw)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.decode(), f"ddpctl: {'error' if code else 'note'}: {err}\n" if err else "")
        return done.stdout

    def test_get_returns_the_value_that_was_set(self):
        self.assertEqual(self.store("set", "k", "value"), b"")
        self.assertEqual(self.store("get", "k"), b"value")
        self.assertEqual(self.store("get", "--raw", "/k"), b"value")
        self.assertEqual(self.store("get", "--raw", "k", code=1, err="no such key in the store: 'k'"), b"")
        self.store("set", "empty", "")
        self.assertEqual(self.store("get", "empty"), b"")

    def test_values_of_any_bytes_pass_through_pipes(self):
        value = bytes(range(256)) * 4096
        self.store("set", "k", "-", input=value)
        self.assertEqual(self.store("get", "k"), value)

    def test_a_terminal_gets_no_control_characters(self):
        self.store("set", "k", "-", input=b"\x1b[2Jred\n")
        ours, theirs = pty.openpty()
        done = subprocess.run([DDPCTL, "store", "get", "-e", f"127.0.0.1:{self.daemon.port}", "k"],
                              stdout=theirs, timeout=DEADLINE_S)
        os.close(theirs)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(os.read(ours, 1000), b"\\x1b[2Jred\\n\r\n")
        os.close(ours)

    def test_counters(self):
        self.assertEqual(self.store("add", "n"), b"1\n")
        self.assertEqual(self.store("add", "n", "-5"), b"-4\n")
        self.store("set", "text", "abc")
        self.store("add", "text", code=69,
                   err="lost the connection to the store: is the value of '/text' a number?")

    def test_a_wait_ends_when_the_last_key_is_set(self):
        self.store("set", "a", "1")
        waiter = subprocess.Popen([DDPCTL, "store", "wait", "-e", f"127.0.0.1:{self.daemon.port}", "a", "b"])
        await_true(lambda: 'requests_total{op="WAIT"} 2' in self.daemon.http("/metrics")[1])
        self.store("set", "b", "1")
        self.assertEqual(waiter.wait(DEADLINE_S), 0)

        def is_missed():  # the time includes the connection: a busy machine may need all of it for that
            done = self.run_ctl("store", "wait", "-t", "50ms", "-e", f"127.0.0.1:{self.daemon.port}", "b", "c")
            return done.returncode == 1 and b"timed out waiting for the key '/c' in the store" in done.stderr

        await_true(is_missed)

    def test_a_wait_can_be_interrupted(self):
        waiter = subprocess.Popen([DDPCTL, "store", "wait", "-e", f"127.0.0.1:{self.daemon.port}", "a"])
        await_true(lambda: 'requests_total{op="WAIT"} 1' in self.daemon.http("/metrics")[1])
        waiter.send_signal(signal.SIGINT)
        self.assertEqual(waiter.wait(DEADLINE_S), -signal.SIGINT)

    def test_keys_are_deleted_by_name_and_by_prefix(self):
        for key in "job1.a", "job1.b", "job2.a":
            self.store("set", key, "1")
        self.store("delete", "job1.a")
        self.store("delete", "job1.a", code=1, err="no such key: '/job1.a'")
        self.assertEqual(self.store("delete", "--prefix", "job"), b"2\n")
        self.assertEqual(self.store("delete", "--prefix", "job", code=1), b"0\n")
        self.assertEqual(self.daemon.metric("keys"), 0)

    def test_a_dump_is_a_line_for_each_key(self):
        self.store("set", "b\n", "-", input=b"\0\xff")
        self.store("set", "a", "x" * 300)
        self.store("set", "--raw", "init/", "2")
        self.assertEqual(self.store("dump", err="1 keys without a leading '/' are not shown; use --raw to show all"),
                         b"a\t" + b"x" * 200 + b"... (300 bytes)\n" + b"b\\n\t\\x00\\xff\n")
        self.assertEqual(self.store("dump", "--raw", "--full"),
                         b"/a\t" + b"x" * 300 + b"\n/b\\n\t\\x00\\xff\ninit/\t2\n")
        self.assertEqual(self.store("dump", "--raw", "init"), b"init/\t2\n")

    def test_a_value_that_is_refused_is_an_error(self):
        self.store("set", "k", "-", input=bytes(9 << 20), code=69,
                   err="lost the connection to the store: it may not accept a key of 2 and a value of "
                       "9437184 bytes, or be full")
        self.assertEqual(self.daemon.metric("keys"), 0)

    def test_the_environment_of_a_rank_names_its_store(self):
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.daemon.port))
        self.store("set", "k", "value")
        done = self.run_ctl("store", "get", "k", env=env)
        self.assertEqual((done.returncode, done.stdout), (0, b"value"))

    def test_without_a_store_the_exit_status_is_69(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))  # and does not listen
            port = s.getsockname()[1]
            done = self.run_ctl("store", "get", "-e", f"127.0.0.1:{port}", "k")
            self.assertEqual(done.returncode, 69)
            self.assertEqual(done.stderr.decode(),
                             f"ddpctl: error: cannot reach the store at 127.0.0.1 port {port}: Connection refused\n")
            s.listen()  # and never answers
            done = self.run_ctl("store", "get", "-t", "100ms", "-e", f"127.0.0.1:{port}", "k")
            self.assertEqual(done.returncode, 69)
            self.assertIn(b"timed out waiting for the store to answer", done.stderr)

    def test_wrong_usage_exits_with_2(self):
        for words in [], ["stroe"], ["store"], ["store", "get"], ["--nope"], ["store", "set", "-x", "k", "v"]:
            done = self.run_ctl(*words)
            self.assertEqual((done.returncode, done.stdout), (2, b""), words)
            self.assertRegex(done.stderr.decode(), r"\Addpctl: error: .*\n\Z")

    def test_help_and_version(self):
        self.assertRegex(self.run_ctl("--help").stdout, rb"(?s)Commands:\n.*\n  store  .*\nOptions of store:\n.*--prefix")
        self.assertRegex(self.run_ctl("-h").stdout, rb"(?s)Commands:\n.*\n  store  ")
        self.assertNotIn(b"--prefix", self.run_ctl("-h").stdout)
        self.assertIn(b"dump   [PREFIX]", self.run_ctl("store", "--help").stdout)
        self.assertRegex(self.run_ctl("-V").stdout, rb"\Addpctl \d+\.\d+\.\d+\n\Z")

    def test_a_full_output_exits_with_74(self):
        self.store("set", "k", "value")
        with open("/dev/full", "w") as full:
            done = subprocess.run([DDPCTL, "store", "get", "-e", f"127.0.0.1:{self.daemon.port}", "k"],
                                  stdout=full, stderr=subprocess.PIPE, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 74)
        self.assertIn(b"cannot write to standard output: No space left on device", done.stderr)


if __name__ == "__main__":
    main()
