"""--report of a job of several nodes: one file for the whole job, whichever node fails or writes the file.

Covers: launcher/node, launcher/remote, launcher/reporting, rendezvous/jobs
"""
import json
import os
import signal
import tempfile
import unittest

from daemon import Daemon
from harness import RANK, main
from json_schema import check_report
from node import UP, Node, c10d, end, static
from ports import free_port
from ssh_hosts import stand_in

FAILS = 'test $RANK = {} && {{ echo oops >&2; exit 9; }}; exec sleep 1000'
# A test double of ssh: the command runs here.
LOCAL_SSH = "SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$2\"\n"


class Folder(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)

    def path(self, name):
        return os.path.join(self.temporary.name, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            report = json.load(f)
        check_report(report)
        return report

    def check_failure(self, report, rank, n_ranks, nodes):
        self.assertEqual((report["outcome"], report["exit_code"], report["verdict"]["rank"]), ("rank_failed", 9, rank))
        self.assertEqual([one["rank"] for one in report["ranks"]], list(range(n_ranks)))
        self.assertEqual([one["node"] for one in report["ranks"]], nodes)
        self.assertEqual(report["ranks"][rank]["exit_code"], 9)
        self.assertEqual({one["signal"] for one in report["ranks"] if one["rank"] != rank}, {signal.SIGTERM})
        root = report["root_cause"]
        self.assertEqual((root["rank"], root["node"], root["exit_code"], root["stderr"]), (rank, nodes[rank], 9, "oops\n"))
        self.assertEqual(root["pid"], report["ranks"][rank]["pid"])


class OneFile(Folder):
    def run_job(self, rank, file, arguments):
        """arguments: of each node, after its --report."""
        nodes = [Node("-p", "2", *(("--report", name) if name else ()), *words, "sh", "-c", FAILS.format(rank))
                 for name, words in zip(file, arguments)]
        try:
            for node in nodes:
                self.assertEqual(node.finish()[0], 9)
        finally:
            for node in nodes:
                node.__exit__()

    def test_the_first_static_node_writes_the_report(self):
        for rank in 0, 3:
            port = free_port()
            self.run_job(rank, [self.path("r.json")] * 2, [static(port, 0), static(port, 1)])
            self.check_failure(self.read("r.json"), rank, 4, [0, 0, 1, 1])
            self.assertEqual(os.listdir(self.temporary.name), ["r.json"])

    def test_on_separate_disks_one_node_has_the_report(self):
        port = free_port()
        self.run_job(3, [self.path("r0.json"), self.path("r1.json")], [static(port, 0), static(port, 1)])
        self.assertEqual(os.listdir(self.temporary.name), ["r0.json"])
        self.check_failure(self.read("r0.json"), 3, 4, [0, 0, 1, 1])

    def test_the_only_node_with_the_option_writes_the_report(self):
        port = free_port()
        self.run_job(0, [None, self.path("r.json")], [static(port, 0), static(port, 1)])
        self.check_failure(self.read("r.json"), 0, 4, [0, 0, 1, 1])

    def test_with_a_daemon_the_node_of_rank_0_writes_the_report(self):
        with Daemon() as daemon:
            files = [self.path("r0.json"), self.path("r1.json")]
            self.run_job(3, files, [c10d(daemon.port, "--node-rank", "0"), c10d(daemon.port, "--node-rank", "1")])
        self.assertEqual(os.listdir(self.temporary.name), ["r0.json"])
        self.check_failure(self.read("r0.json"), 3, 4, [0, 0, 1, 1])

    def test_each_node_writes_a_report_if_the_name_has_the_node_rank(self):
        port = free_port()
        self.run_job(3, [self.path("r.{node_rank}.json")] * 2, [static(port, 0), static(port, 1)])
        self.assertEqual(sorted(os.listdir(self.temporary.name)), ["r.0.json", "r.1.json"])
        first, second = self.read("r.0.json"), self.read("r.1.json")
        self.assertEqual([[one["rank"] for one in report["ranks"]] for report in (first, second)], [[0, 1], [2, 3]])
        self.assertEqual(second["root_cause"]["stderr"], "oops\n")
        self.assertEqual((first["root_cause"]["rank"], first["root_cause"]["stderr"]), (3, None))

    def test_a_killed_node_is_in_the_outcome(self):
        port = free_port()
        with Node(*static(port, 0, "--report", self.path("r.json")), RANK, *UP) as a, \
                Node(*static(port, 1, "--report", self.path("r.json")), RANK, *UP) as b:
            a.hear(1)
            b.hear(1)
            b.signal(signal.SIGKILL)
            self.assertEqual(a.finish()[0], 75)
        report = self.read("r.json")
        self.assertEqual((report["outcome"], report["exit_code"], report["root_cause"]), ("too_few", 75, None))
        self.assertEqual([one["rank"] for one in report["ranks"]], [0])
        self.assertIn("lost ", report["verdict"]["text"])

    def test_without_the_coordinator_a_node_writes_its_own_report(self):
        port = free_port()
        with Node(*static(port, 0, "--report", self.path("r.json")), RANK, *UP) as a, \
                Node(*static(port, 1, "--report", self.path("r.json")), RANK, *UP) as b:
            a.hear(1)
            b.hear(1)
            a.signal(signal.SIGKILL)
            self.assertEqual(b.finish()[0], 75)
        report = self.read("r.json")
        self.assertEqual((report["outcome"], report["exit_code"], report["restarts"]), ("too_few", 75, None))
        self.assertEqual([one["rank"] for one in report["ranks"]], [1])

    def test_the_report_counts_only_charged_restarts(self):
        port = free_port()
        file = self.path("r.json")
        with Node(*static(port, 0, "--join-window", "0", "--max-restarts", "3", "--report", file, nodes="1:2"), RANK, *UP) as a:
            a.hear(1)
            for _ in range(2):  # neither coming nor going is charged
                with Node(*static(port, 1, "--max-restarts", "3", "--report", file, nodes="1:2"), RANK, *UP) as b:
                    b.hear(1)
                    a.hear(1)
                    b.signal(signal.SIGKILL)
                    a.hear(1)
            end(self, a)
        report = self.read("r.json")
        self.assertEqual((report["restarts"], report["generations"], report["signal"]), (0, 5, signal.SIGTERM))


class Files(Folder):
    """What is in the files is JSON, whatever happens to those that write them."""

    def test_nodes_share_a_file_of_events(self):
        port = free_port()
        words = ("--events", self.path("events"), "sh", "-c", "exit 0")
        with Node(*static(port, 0, *words)) as a, Node(*static(port, 1, *words)) as b:
            self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))
        events = self.lines("events")
        self.assertEqual([e["node"] for e in events if e["ev"] == "job_start"], [None, None])
        for kind in "rdzv", "rank_start", "job_end":
            self.assertEqual(sorted(e["node"] for e in events if e["ev"] == kind), [0, 1])
        self.assertEqual({(e["restarts"], e["generations"]) for e in events if e["ev"] == "job_end"}, {(0, 1)})

    def lines(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def test_many_jobs_share_files(self):
        words = ("--events", self.path("events"), "--report", self.path("r.json"), "-n", "2", "sh", "-c", "exit 3")
        jobs = [Node("--rdzv-id", f"job{i}", *words) for i in range(64)]
        try:
            self.assertEqual({job.finish()[0] for job in jobs}, {3})
        finally:
            for job in jobs:
                job.__exit__()
        ended = [e["job"] for e in self.lines("events") if e["ev"] == "job_end"]
        self.assertEqual(sorted(ended), sorted(f"job{i}" for i in range(64)))
        self.assertEqual(self.read("r.json")["outcome"], "rank_failed")
        self.assertEqual(sorted(os.listdir(self.temporary.name)), ["events", "r.json"])

    def test_a_ddprun_that_is_killed_leaves_whole_lines_and_no_report(self):
        with open(self.path("r.json"), "w", encoding="utf-8") as f:
            f.write("{}")
        with Node("--events", self.path("events"), "--report", self.path("r.json"), "-n", "2", RANK, *UP) as job:
            job.hear(2)
            job.signal(signal.SIGKILL)
            job.finish()
            self.assertEqual([e["ev"] for e in self.lines("events")][0], "job_start")
        with open(self.path("r.json"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "{}")


class OtherHosts(Folder):
    """-H: the ddprun that starts the others writes it."""

    def run_job(self, hosts, *words):
        ssh = stand_in(self.temporary.name, LOCAL_SSH)
        with Node("-H", hosts, "--ssh-command", ssh, "--report", self.path("r.json"), *words) as job:
            return job.finish()

    def test_a_failure_on_any_host(self):
        for rank in range(3):
            code, _, err = self.run_job("n1:1,n2:1,n3:1", "sh", "-c", FAILS.format(rank))
            self.assertEqual(code, 9, err)
            self.check_failure(self.read("r.json"), rank, 3, [0, 1, 2])


main()
