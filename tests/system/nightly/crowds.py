"""Many of everything: nodes at one daemon, jobs at one daemon, hosts that a test double of ssh reaches, ddpruns that append to one file of
events. And what a node or a tool that stands still for a moment changes: nothing.

Covers: rendezvous/daemon, rendezvous/jobs, rendezvous/server, launcher/membership, launcher/remote, launcher/reporting, ctl
"""
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import unittest

from ctl import TIMEOUT, await_socket, ctl, status
from daemon import Daemon
from harness import DDPRUN, DEADLINE_S, RANK, Job, await_true, is_gone, main, run
from node import Node, c10d
from ports import free_port
from ssh_hosts import stand_in

N_NODES = int(os.environ.get("TEST_NODES", "201"))
N_JOBS = int(os.environ.get("TEST_JOBS", "50"))
N_HOSTS = int(os.environ.get("TEST_HOSTS", "100"))
N_WRITERS = 64
NO_TOKEN = {**os.environ, "HOME": "/nonexistent", "DDP_TOKEN": ""}
HERE = "SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$2\"\n"  # as if this host were another one
SAMPLE = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+=\"[^\"\n]*\"(,[a-z_]+=\"[^\"\n]*\")*\})? [-+0-9.eE]+")
PAUSE_S = 1  # of a lease of 3

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


class AtOneDaemon(unittest.TestCase):
    def setUp(self):
        self.daemon = self.enterContext(Daemon("--max-nodes", "1000", env=NO_TOKEN))
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def start(self, stack, nodes, job, *program):
        """A node without a pipe or a FIFO of its own: there are many. -> what ends it, if the test has not"""
        process = subprocess.Popen([DDPRUN, "--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.daemon.port}",
                                    "--rdzv-id", job, *program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env={**NO_TOKEN, "XDG_RUNTIME_DIR": self.folder})
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process

    def check(self, sizes):
        """A job of each of these sizes, whose ranks write down their world; all begin together."""
        script = 'echo $RANK of $WORLD_SIZE >"$0/$TORCHELASTIC_RUN_ID.$RANK"'
        with contextlib.ExitStack() as stack:
            nodes = [self.start(stack, str(size), f"job{number}", "sh", "-c", script, self.folder)
                     for number, size in enumerate(sizes) for _ in range(size)]
            self.assertEqual({node.wait(3 * DEADLINE_S) for node in nodes}, {0})
        for number, size in enumerate(sizes):
            for rank in range(size):
                with open(f"{self.folder}/job{number}.{rank}", encoding="utf-8") as f:
                    self.assertEqual(f.read(), f"{rank} of {size}\n")

    def test_a_job_of_many_nodes(self):
        self.check([N_NODES])

    def test_many_jobs_of_two_nodes(self):
        self.check([2] * N_JOBS)

    def test_the_metrics_are_prometheus_s(self):
        with Node("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.daemon.port}", "--rdzv-id",
                  'a "b" \\ ü', "true") as node:
            await_true(lambda: len(json.loads(self.daemon.http("/status")[1])["jobs"]) == 1)
            code, text = self.daemon.http("/metrics")
            self.assertEqual(code, 200)
            self.assertTrue(text.endswith("\n"))
            typed = set()
            for line in text.splitlines():
                if line.startswith("# TYPE "):
                    self.assertRegex(line, r"^# TYPE \S+ (counter|gauge|histogram|summary|untyped)$")
                    self.assertNotIn(line.split()[2], typed)
                    typed.add(line.split()[2])
                elif not line.startswith("# HELP "):
                    self.assertRegex(line, f"^{SAMPLE.pattern}$")
                    self.assertIn(re.match(r"[^ {]+", line)[0], typed)
            node.signal(signal.SIGTERM)
            node.finish()


class Hosts(unittest.TestCase):
    def ssh(self, before=""):
        return ("--ssh-command", stand_in(self.enterContext(tempfile.TemporaryDirectory()), before + HERE))

    def test_many(self):
        code, out, err = run(*self.ssh(), "-H", f"h[1-{N_HOSTS}]", "sh", "-c", "echo $RANK of $WORLD_SIZE")
        self.assertEqual((code, sorted(out.splitlines())), (0, sorted(f"{rank} of {N_HOSTS}" for rank in range(N_HOSTS))), err)

    def test_a_login_banner_does_not_count_as_an_answer(self):
        banner = "echo 'Welcome to node 7!' >&2; printf '\\n*** maintenance on Monday ***\\n' >&2; echo 'Last login: today'\n"
        code, out, err = run(*self.ssh(banner), "-H", "h1,h2", "sh", "-c", "echo $RANK")
        self.assertEqual((code, sorted(out.split())), (0, ["0", "1"]), err)

    def test_a_host_file_of_windows(self):
        with tempfile.NamedTemporaryFile("w", newline="") as f:
            f.write("# hosts\r\nh1 slots=2\r\n\r\nh2 slots=1\r\n")
            f.flush()
            code, out, err = run(*self.ssh(), "--hostfile", f.name, "sh", "-c", "echo $RANK of $WORLD_SIZE")
        self.assertEqual((code, sorted(out.splitlines())), (0, [f"{rank} of 3" for rank in range(3)]), err)

    def test_a_host_is_never_an_option_of_ssh(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = stand_in(folder, f'echo "$@" >>{folder}/called\n')
            for hosts in "-oProxyCommand=touch x", "h1,-F/etc/passwd", "root@-oX=y", "h1;touch x", "$(touch x)", "h1 -oX=y":
                with self.subTest(hosts):
                    self.assertEqual(run("--ssh-command", ssh, "-H", hosts, "true")[:2], (2, ""))
            self.assertFalse(os.path.exists(os.path.join(folder, "called")))

    def test_events_of_many_nodes_in_one_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events")
            script = "[ $RANK = 33 ] && exit 9; exec sleep 1000"
            code, _, err = run(*self.ssh(), "-H", f"h[1-{N_WRITERS}]", "--events", path, "sh", "-c", script)
            self.assertEqual(code, 9, err)
            events = read_events(path)
        self.assertEqual({e["rank"] for e in events if e["ev"] == "rank_start"}, set(range(N_WRITERS)))


def read_events(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


class Events(unittest.TestCase):
    def test_events_of_killed_ddpruns_are_complete_lines(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            path = os.path.join(folder, "events")
            words = ("-n", "1", "--max-restarts", "1000", "--events", path, "sh", "-c", "exit 3")
            jobs = [stack.enter_context(Job(*words)) for _ in range(16)]
            for job in jobs[::2]:
                job.read_until("restart 2 of ")
                job.signal(signal.SIGKILL)
            for job in jobs[1::2]:
                job.read_until("restart 2 of ")
                job.signal(signal.SIGTERM)
            for job in jobs:
                job.end()
                job.await_gone()
            events = read_events(path)
        self.assertEqual(len([e for e in events if e["ev"] == "job_start"]), len(jobs))


class Still(unittest.TestCase):
    def test_a_node_stopped_for_less_than_a_lease_is_not_lost(self):
        port = free_port()
        words = c10d(port, "--join-window", "30s", nodes="2:3")
        with Node(*words, "--local-addr", "127.0.0.1", RANK, "pid", "tell", "up", "wait") as a, \
                Node(*words, "--local-addr", "127.0.0.2", RANK, "pid", "tell", "up", "wait") as b, \
                Node(*words, "--local-addr", "127.0.0.3", RANK, "pid", "tell", "up", "wait") as c:
            pids = [int(line.split()[-1]) for node in (a, b, c) for line in node.hear(2) if "pid" in line]
            b.signal(signal.SIGSTOP)
            with contextlib.suppress(subprocess.TimeoutExpired):
                a.process.wait(PAUSE_S)
            b.signal(signal.SIGCONT)
            for node in c, b, a:
                node.signal(signal.SIGUSR1)  # not theirs: each answers by its end, and is alive until then
            ends = [node.finish() for node in (c, b, a)]
        self.assertEqual(len(pids), 3)
        for code, _, err in ends:
            self.assertEqual(code, 128 + signal.SIGUSR1, err)
            self.assertNotIn("lost ", err)
            self.assertNotIn("generation 1", err)

    def test_a_stop_request_that_timed_out_is_not_executed_later(self):
        with Job("-n", "2", RANK, "pid", "tell", "up", "wait") as job:
            pids = [int(line.split()[-1]) for line in job.hear(4) if "pid" in line]
            await_socket(job)
            job.signal(signal.SIGSTOP)
            code, out, err = ctl(job, "stop", "-t", "0.2")
            self.assertEqual((code, out), (69, ""), err)
            job.signal(signal.SIGCONT)
            for _ in range(2):  # requests are answered in turn
                self.assertEqual(status(job)[0]["state"], "running")
            self.assertFalse(any(map(is_gone, pids)))
            self.assertEqual(ctl(job, "stop", *TIMEOUT)[0], 0)
            self.assertEqual(job.end()[0], -signal.SIGTERM)


main()
