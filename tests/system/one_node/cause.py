"""Which rank is named when several fail: the one with an error of its own, also where another one that lost it as a peer ends
before it. Ranks are Python programs that print a traceback; their collective is a socket.

Covers: launcher/node, launcher/supervisor, launcher/diagnosis, launcher/reporting, launcher/stdio, launcher/membership
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from harness import DDPRUN, main, run
from node import Node, await_endpoint, c10d
from ports import free_port

# Rank 1 fails by the way that argv[2] names, and then is held at its exit until rank 0 is gone, or for good.
PROGRAM = r"""
import atexit, logging, os, signal, socket, sys, time
path, way = sys.argv[1:]
rank = int(os.environ["RANK"])
if rank == 0:
    here = socket.socket(socket.AF_UNIX)
    here.bind(path + ".new")
    here.listen()
    os.rename(path + ".new", path)
    life, peer = here.accept()[0], here.accept()[0]
    life.send(b"%d" % os.getpid())
    peer.recv(1)
    raise RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:17554")
if rank > 1:
    signal.pause()
while not os.path.exists(path):
    time.sleep(0.01)
life, peer = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
life.connect(path)
peer.connect(path)
def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
def hold():
    pid = int(life.recv(16))
    while not is_gone(pid):
        time.sleep(0.01)
    if way != "ends":
        signal.pause()
atexit.register(hold)
try:
    if way == "handles":
        try:
            raise ValueError("handled")
        except ValueError:
            logging.exception("trying again")
        print("\n".join(f"epoch {n}" for n in range(9)), file=sys.stderr)
    elif way != "silent":
        raise RuntimeError("the real cause")
finally:
    sys.stderr.flush()
    peer.close()
"""
CAUSE = "ddprun: error: rank 1 failed: exit status 1"
PLACES = {"as it is": (), "-r 3": ("-r", "3"), "-t 3": ("-t", "3"), "--label": ("--label",)}


class Cause(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program = os.path.join(self.folder, "train.py")
        with open(self.program, "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        self.n_runs = 0

    def words(self, way):
        self.n_runs += 1
        return self.program, os.path.join(self.folder, f"socket{self.n_runs}"), way

    def run_ranks(self, way, *options, n=2):
        return run("-n", str(n), "--log-dir", os.path.join(self.folder, "logs"), *options, *self.words(way))

    def test_the_error_that_caused_a_lost_peer_is_the_root_cause(self):
        for name, options in PLACES.items():
            with self.subTest(name):
                code, _, err = self.run_ranks("ends", *options)
                report = err[err.index("ddprun: error: rank"):]
                self.assertEqual(code, 1)
                self.assertTrue(report.startswith(CAUSE), err)
                self.assertIn("| RuntimeError: the real cause", report)
                self.assertIn("rank 0 lost a peer: RuntimeError: [pair.cc:547] Connection closed by peer", report)
                self.assertIn("rank 0: exit status 1 after a peer was lost", report)

    def test_ranks_that_have_not_failed_are_stopped_when_the_cause_is_known(self):
        code, _, err = self.run_ranks("ends", n=4)
        self.assertEqual(code, 1)
        self.assertIn(CAUSE, err)
        self.assertIn("ranks 2-3: stopped by ddprun (SIGTERM)", err)

    def test_the_output_of_a_rank_that_does_not_exit_names_the_cause(self):
        path = os.path.join(self.folder, "report.json")
        code, _, err = self.run_ranks("stays", "--report", path)
        self.assertEqual(code, 1)
        self.assertIn("ddprun: error: rank 1 failed: stopped by ddprun (SIGTERM) while it failed", err)
        self.assertIn("| RuntimeError: the real cause", err)
        with open(path, encoding="utf-8") as f:
            report = json.load(f)
        self.assertEqual((report["root_cause"]["rank"], report["exit_code"]), (1, 1))
        self.assertEqual([(rank["lost_peer"], rank["was_failing"]) for rank in report["ranks"]], [(True, False), (False, True)])

    def test_a_lost_peer_is_the_cause_if_no_other_error_is_known(self):
        for way in ("silent", "handles"):
            with self.subTest(way):
                code, _, err = self.run_ranks(way)
                self.assertEqual(code, 1)
                self.assertIn("ddprun: error: rank 0 failed: exit status 1", err)
                self.assertIn("rank 1: stopped by ddprun (SIGTERM)\n", err)

    def test_the_error_of_another_node_is_the_cause_of_the_job(self):
        port = free_port()
        words = (*c10d(port), "-p", "1", *self.words("ends"))
        with Node(*words) as first:
            await_endpoint(port)
            with Node(*words) as second:
                ends = [second.finish(), first.finish()]
        self.assertEqual([code for code, _, _ in ends], [1, 1])
        failed = [err for _, _, err in ends if "RuntimeError: the real cause" in err]
        self.assertEqual(len(failed), 1)
        self.assertIn(CAUSE, failed[0])
        for _, _, err in ends:
            self.assertNotIn("ddprun: error: rank 0", err)
            if err not in failed:
                self.assertRegex(err, r"ddprun: error: rank 1 on \S+: exit status 1")

    def test_the_report_names_the_log_files(self):
        code, _, err = self.run_ranks("ends", "-r", "3")
        self.assertEqual(code, 1)
        path = err.split("its standard error is in ")[1].split("\n")[0]
        with open(path, encoding="utf-8") as f:
            self.assertIn("the real cause", f.read())
        self.assertNotIn("may be incomplete", err)
        self.assertNotIn("its standard error is in", self.run_ranks("ends")[2])

    def test_the_report_names_a_full_log_disk(self):
        disk = os.path.join(self.folder, "disk")
        os.mkdir(disk)
        enter = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() != 0 else []), "sh", "-ec",
                 'mount -t tmpfs -o size=64k none "$0"; exec "$@"', disk]
        if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no mount namespace with a tmpfs can be made here")
        fills = "import sys; sys.stdout.write('x' * 10_000_000); sys.stdout.flush()"  # tmpfs may hold some pages above its limit
        done = subprocess.run([*enter, DDPRUN, "-n", "2", "-r", "3", "--log-dir", disk, sys.executable, "-c", fills],
                              capture_output=True, text=True, check=False)
        self.assertIn("ddprun: error: rank ", done.stderr)
        self.assertRegex(done.stderr, f"its standard error is in {disk}/.*/stderr.log\n")
        self.assertIn("its log files may be incomplete: No space left on device\n", done.stderr)


if __name__ == "__main__":
    main()
