"""What goes wrong around a job: a suspended ddprun, a clock that jumps, a full disk, a closed terminal, no free
descriptors. Nothing hangs or crashes, and the messages name the process and the reason.

Covers: launcher/node, launcher/membership, launcher/stdio, launcher/reporting
"""
import fcntl
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import termios
import unittest

from facilities import lacks_namespaces
from harness import DDPRUN, RANK, Job, is_gone, main, run
from node import UP, Node, c10d, end
from ports import free_port

LEASE = ("--rdzv-conf", "keep_alive_interval=200ms,keep_alive_max_attempt=10")  # 2 s: no busy machine keeps a process waiting so long
STOP_S = float(os.environ.get("STOP_S", "0"))  # with the usual lease, which takes long; 0: with a short one


class Stopped(unittest.TestCase):
    """SIGSTOP, or a machine that is suspended."""

    @staticmethod
    def node(port, name, *more):
        return Node(*c10d(port, "--join-window", "0", "--rejoin-timeout", "0", "--local-addr", name, *(() if STOP_S else LEASE), *more, nodes="1:2"), RANK, "pid", *UP)

    def start(self, a, b):
        """Until both are in one generation; returns b's rank."""
        pid = next(line.split()[-1] for line in b.hear(2) if "pid" in line)
        self.assertEqual(len(a.hear(2)), 2)
        return int(pid)

    @staticmethod
    def stand_still(node):
        if STOP_S:
            try:
                node.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                pass

    def test_a_stopped_nodes_ranks_die_before_others_continue(self):
        port = free_port()
        with self.node(port, "127.0.0.1") as a:
            a.hear(2)
            with self.node(port, "127.0.0.2") as b:
                pid = self.start(a, b)
                b.signal(signal.SIGSTOP)
                a.hear(2)  # the next generation has begun
                self.assertTrue(is_gone(pid))
                a.read_until("ddprun: note: lost 127.0.0.2: no keep-alive for ")
                self.stand_still(b)
                b.signal(signal.SIGCONT)
                self.start(a, b)
                b.read_until("ddprun: note: this ddprun was suspended for ")
                b.read_until(": its lease expired, and all ranks on this node were killed; generation ")
                b.read_until(": 2 nodes, 2 ranks\n")
                end(self, b, a)

    def test_nodes_exit_if_the_coordinator_is_stopped(self):
        port = free_port()
        with self.node(port, "127.0.0.1") as a:
            a.hear(2)
            with self.node(port, "127.0.0.2") as b:
                pid = self.start(a, b)
                a.signal(signal.SIGSTOP)
                code, _, err = b.finish()
                self.assertEqual((code, is_gone(pid)), (75, True))
                self.assertIn(f"ddprun: error: lost contact with the rendezvous endpoint 127.0.0.1:{port}", err)
                self.stand_still(a)
                a.signal(signal.SIGCONT)
                self.assertEqual(len(a.hear(2)), 2)
                a.read_until("ddprun: note: lost 127.0.0.2: ")
                end(self, a)


@unittest.skipIf("SANITIZED" in os.environ, "the sanitizers want to be loaded first")
class Clock(unittest.TestCase):
    def test_a_jump_of_the_wall_clock_loses_no_node(self):
        port = free_port()
        env = {"LD_PRELOAD": os.environ["JUMPING_CLOCK"]}
        args = c10d(port, "--max-restarts", "6", *LEASE)
        # the pauses before the restarts last longer than the lease
        with Node(*args, "--node-rank", "0", "--events", "/dev/stdout", "sleep", "1000", env=env) as a, \
                Node(*args, "--node-rank", "1", "sh", "-c", "exit 3", env=env) as b:
            (code, out, err), other = a.finish(), b.finish()
        self.assertEqual((code, other[0]), (3, 3), err + other[2])
        events = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([e["why"] for e in events if e["ev"] == "stop"], ["failure"] * 7)
        self.assertEqual([e["ms"] for e in events], sorted(e["ms"] for e in events))
        times = [e["t"] for e in events]
        self.assertGreater(max(times) - min(times), 3600, "the clock does not jump")


class FullDisk(unittest.TestCase):
    def setUp(self):
        self.unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
        if lacks_namespaces(*self.unshare[1:]):
            self.skipTest(lacks_namespaces(*self.unshare[1:]))

    def job(self, *args, size="64k", outside=":", inside=""):
        """Below ./small is a disk of that size. outside, inside: what the shell around ddprun does before and after it; 3 is
        standard output then."""
        run = f'"$0" "$@"; code=$?; {inside}; exit $code' if inside else 'exec "$0" "$@"'
        script = f'cd "${{TEST_FIFO%/*}}" && mkdir small && mount -t tmpfs -o size={size} none small && exec 3>&1 && {{ {outside}; }} && {run}'
        return Job(*self.unshare[1:], "sh", "-c", script, DDPRUN, *args, launcher=shutil.which("unshare"))

    def test_a_full_disk_leaves_a_hole_in_the_log_file(self):
        with self.job("-n", "1", "-t", "3", "--log-dir", "small/logs", "sh", "-c",
                      "head -c 200000 /dev/zero | tr '\\0' x; echo; echo done; echo well >&2") as job:
            code, out, err = job.end()
        self.assertEqual((code, out.count(b"x"), out.endswith(b"done\n")), (0, 200000, True))
        said = err.decode().splitlines()
        self.assertEqual(len(said), 2, said)
        note = next(line for line in said if not line.endswith("well"))
        self.assertRegex(note, r"^ddprun: warning: cannot write log file /.*/small/logs/.*/attempt_0/0/stdout\.log: "
                               r"No space left on device: output is missing there$")

    def test_output_arrives_when_the_disk_has_space_again(self):
        script = ("dd if=/dev/zero of=small/blob 2>/dev/null; echo first; "
                  "until grep -q 'cannot write standard output' said && grep -q 'cannot write log file' said; do sleep 0.05; done; "
                  "echo second >&2; rm small/blob; echo third; until grep -q third small/out; do sleep 0.05; done; echo fourth")
        with self.job("--label", "-n", "1", "-t", "3", "--log-dir", "small/logs", "--report", "report", "sh", "-c", script,
                      outside="mkdir -p small/logs; exec > small/out 2> said",
                      inside="cat small/out small/logs/*/*/0/stdout.log said report >&3") as job:
            code, out, _ = job.end()
        text, _, report = out.decode().partition("{\n")
        lines = text.splitlines()
        self.assertEqual(code, 0, lines)
        said = [line for line in lines if line.startswith("ddprun: ") and "cannot write" in line]
        self.assertEqual(len(said), 2, lines)
        self.assertIn(LostOutput.WARNING, said)
        rest = [line for line in lines if line not in said and not line.startswith("ddprun: note: log files")]
        self.assertRegex("|".join(rest), r"^[^|]*: first\|[^|]*: third\|[^|]*: fourth\|+"
                         r"ddprun: warning: output is missing here: the file could not be written\|third\|fourth\|[^|]*: second$")
        self.assertRegex(json.loads("{" + report)["output_error"], "^cannot write .*: No space left on device")

    def test_a_disk_that_stays_full_blocks_no_rank(self):
        script = ("dd if=/dev/zero of=small/blob 2>/dev/null; yes a line of the rank | head -n 50000; echo end >&2; "
                  "until grep -q end said; do sleep 0.05; done; rm small/blob; until echo end && grep -q end small/out; do sleep 0.05; done")
        with self.job("--label", "-n", "1", "sh", "-c", script, size="2m", outside="exec > small/out 2> said",
                      inside="tail -n 1 small/out >&3; grep -v end said >&3") as job:
            code, out, _ = job.end()
        self.assertEqual((code, out.decode().splitlines()), (74, [f"{os.uname().nodename}:0: end", LostOutput.WARNING]))

    def test_a_log_directory_that_cannot_be_made(self):
        with self.job("-n", "1", "-t", "3", "--log-dir", "small/logs", "true", size="64k,nr_inodes=1") as job:
            code, _, err = job.end()
        self.assertEqual(code, 70)
        self.assertRegex(err, rb"^ddprun: error: cannot make log directory 'small/logs': No space left on device\n$")

    def test_a_report_and_events_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as folder:
            full = os.path.join(folder, "full")  # a link: a report must not take the place of what is in /dev
            os.symlink("/dev/full", full)
            with Job("-n", "1", "--report", full, "--events", full, "sh", "-c", "exit 3") as job:
                code, _, err = job.end()
            self.assertTrue(os.path.islink(full))
        self.assertEqual(code, 3)
        self.assertIn(f"cannot write {full}: No space left on device\n", err.decode())
        self.assertEqual(err.decode().count(f"ddprun: warning: cannot write all events to {full}: "
                                            "No space left on device\n"), 1)


class LostOutput(unittest.TestCase):
    """What ddprun writes for the ranks does not get out."""
    WARNING = "ddprun: warning: cannot write standard output: No space left on device: output of the ranks may be lost"

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.logs = temporary.name

    def run_job(self, *words, to="/dev/full", name=None):
        with open(to, "wb") as out, Job(*words, stdout=out, name=name) as job:
            code, _, err = job.end()
        return code, err.decode().splitlines()

    def test_it_is_reported_once_and_by_the_exit_status(self):
        script = ("sh", "-c", "seq 1000; echo well >&2")
        for way in ("--label",), ("-t", "1", "--log-dir", self.logs), ("--label", "--fold"):
            code, err = self.run_job(*way, "-n", "2", *script)
            self.assertEqual((code, err.count(self.WARNING)), (74, 1), (way, err))
            self.assertEqual(sum("cannot write" in line for line in err), 1, err)

    def test_the_status_of_a_failed_rank_counts_more(self):
        code, err = self.run_job("--label", "-n", "1", "sh", "-c", "echo x; exit 3")
        self.assertEqual((code, err.count(self.WARNING)), (3, 1))

    def test_torchrun_still_succeeds(self):
        code, err = self.run_job("--nproc-per-node", "1", "--tee", "3", "--log-dir", self.logs, "--no-python", "echo", "x",
                                 name="torchrun")
        self.assertEqual((code, err.count(self.WARNING)), (0, 1), err)

    def test_a_loss_of_standard_error_is_reported_on_standard_output(self):
        with open("/dev/full", "wb") as full, Job("--label", "-n", "1", "sh", "-c", "echo x >&2; echo y", stderr=full) as job:
            code, out, _ = job.end()
        self.assertEqual(code, 74)
        self.assertEqual(sorted(line.rpartition(": y")[1] or line for line in out.decode().splitlines()),
                         [": y", self.WARNING.replace("standard output", "standard error")])

    def test_the_report_has_the_exit_status_and_the_reason(self):
        path = os.path.join(self.logs, "report.json")
        for form in ("-n", "1"), ("-H", "localhost:2"):
            code, err = self.run_job("--label", *form, "--report", path, "sh", "-c", "echo x")
            self.assertEqual((code, err), (74, [self.WARNING]), form)
            with open(path, encoding="utf-8") as f:
                report = json.load(f)
            self.assertEqual((report["outcome"], report["exit_code"], report["output_error"]),
                             ("ok", 74, "cannot write standard output: No space left on device"))

    def test_a_closed_pipe_is_not_an_error(self):
        reader, writer = os.pipe()
        os.close(reader)
        with Job("--label", "-n", "1", "seq", "1000", stdout=writer) as job:
            os.close(writer)
            code, _, err = job.end()
        self.assertEqual((code, err), (0, b""))


class Terminal(unittest.TestCase):
    """It is closed: its session's first process gets SIGHUP, and what is written to it is lost."""

    def job(self, *args, sig=signal.SIG_DFL, of=Job):
        self.ours, theirs = pty.openpty()

        def lead():
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGHUP, sig)

        try:
            return of(*args, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=lead)
        finally:
            os.close(theirs)

    def test_the_job_ends(self):
        with self.job("-n", "2", RANK, "on", "1", "0", "tell", "up", "wait") as job:
            job.hear(2)
            os.close(self.ours)
            self.assertEqual(job.hear(2), ["0 got 1", "1 got 1"])
            self.assertEqual(job.end()[0], -signal.SIGHUP)
            self.assertEqual(job.processes(), [])

    def test_a_node_leaves_and_the_others_know_why(self):
        port = free_port()
        args = c10d(port, "--join-window", "0", nodes="1:2")
        with Node(*args, "--local-addr", "127.0.0.1", RANK, *UP) as a:
            a.hear(1)
            with self.job(*args, "--local-addr", "127.0.0.2", RANK, *UP, of=Node) as b:
                self.assertEqual(a.hear(1) + b.hear(1), ["0 up", "1 up"])
                os.close(self.ours)
                self.assertEqual(b.end()[0], -signal.SIGHUP)
                self.assertEqual(a.hear(1), ["0 up"])
                a.read_until("ddprun: note: 127.0.0.2 left: SIGHUP; generation 2: 1 node, 1 rank\n")
                a.signal(signal.SIGTERM)
                a.finish()

    def test_with_nohup_the_job_continues(self):
        words = ("say", "before", "tell", "up", "await", str(int(signal.SIGUSR1)), "say", "after", "exit", "3")
        with self.job("-n", "1", RANK, *words, sig=signal.SIG_IGN) as job:
            job.hear(2)
            os.close(self.ours)
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.end()[0], 3)


class Descriptors(unittest.TestCase):
    def test_too_few_descriptors_at_the_start(self):
        for nodes in (), c10d(free_port(), "--join-window", "0", nodes="1:2"):
            n_refused = 0
            for limit in range(5, 80):
                with Job(*nodes, "-p", "4", RANK, "exit", "0",
                         preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))) as job:
                    code, _, err = job.end()
                if code != 0:
                    n_refused += 1
                    self.assertEqual(code, 70)
                    found = re.search(rb"^ddprun: error: 4 ranks on this node need (\d+) open files, but the hard limit is %d; raise "
                                      rb"it as root with 'ulimit -n (\d+)'\n$" % limit, err)
                    self.assertIsNotNone(found, err)
                    self.assertGreater(int(found[1]), limit)
                    self.assertEqual(found[1], found[2])
            self.assertTrue(20 < n_refused < 70, n_refused)

    def test_the_limit_that_the_message_names_is_enough(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        code, _, err = run("-p", "4", RANK, "exit", "0",
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, hard)))
        found = re.search(r"^ddprun: error: 4 ranks on this node need (\d+) open files, but the soft limit is 20; raise it with "
                          r"'ulimit -Sn (\d+)'$", err, re.MULTILINE)
        self.assertEqual(code, 70)
        self.assertIsNotNone(found, err)
        for raised in (int(found[2]), hard), (int(found[2]), int(found[2])):
            code, _, err = run("-p", "4", RANK, "exit", "0",
                               preexec_fn=lambda raised=raised: resource.setrlimit(resource.RLIMIT_NOFILE, raised))
            self.assertEqual(code, 0, err)


if __name__ == "__main__":
    main()
