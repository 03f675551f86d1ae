"""--http of a job of several nodes: the first node shows the ranks of all of them.

Covers: launcher/node, launcher/reporting, rendezvous/jobs, rendezvous/channel
"""
import contextlib
import json
import os
import signal
import unittest

import prometheus
from daemon import Daemon
from harness import RANK, await_true, main
from http_client import get, port_of
from node import UP, Node, c10d, static
from ports import free_port


def status_of(port):
    return json.loads(get(port, "/status")[2])


class WholeJob(unittest.TestCase):
    def check(self, first, second):
        """Arguments of the two nodes. The second one has pages of its own ranks."""
        with Node("--http", "0", "-p", "2", *first, RANK, *UP) as a, Node("--http", "0", "-p", "2", *second, RANK, *UP) as b:
            port, other_port = port_of(a), port_of(b)
            a.hear(2)
            b.hear(2)
            await_true(lambda: (status_of(port)["others"] or [{}])[0].get("ranks"))
            (other,) = status_of(port)["others"]
            ranks = status_of(other_port)["ranks"]
            self.assertEqual((other["node"], other["stale"]), (1, False))
            self.assertEqual([(rank["rank"], rank["state"], rank["restarts"]) for rank in other["ranks"]], [(2, "running", 0), (3, "running", 0)])
            self.assertEqual([rank["pid"] for rank in other["ranks"]], [rank["pid"] for rank in ranks])
            metrics = prometheus.parse(get(port, "/metrics")[2])
            self.assertEqual(metrics["ddprun_rank_up"][2], {(("rank", str(rank)),): 1 for rank in range(4)})
            ((labels, age),) = metrics["ddprun_node_age_seconds"][2].items()
            self.assertEqual((dict(labels)["node"], age < 15), ("1", True))
            page = get(port, "/")[2]
            self.assertIn('<table id="others">', page)
            self.assertIn(f'<td class="n">3</td><td class="n">{ranks[1]["pid"]}</td><td>running</td>', page)
            self.assertIsNone(status_of(other_port)["others"])
            self.assertEqual(len(prometheus.parse(get(other_port, "/metrics")[2])["ddprun_rank_up"][2]), 2)

    def test_the_first_node_has_the_ranks_of_all(self):
        port = free_port()
        self.check(static(port, 0), static(port, 1))

    def test_the_coordinator_may_be_a_daemon(self):
        with Daemon() as daemon:
            self.check(c10d(daemon.port, "--node-rank", "0"), c10d(daemon.port, "--node-rank", "1"))

    def test_another_node_may_be_the_coordinator(self):
        port = free_port()
        self.check(c10d(port, "--node-rank", "0", "--rdzv-conf", "is_host=false"), c10d(port, "--node-rank", "1", "--rdzv-conf", "is_host=true"))

    def test_a_restart_of_another_node_s_rank_is_shown(self):
        port = free_port()
        with contextlib.ExitStack() as stack:
            a = stack.enter_context(Node("--http", "0", "--max-restarts", "1", *static(port, 0), RANK, *UP))
            b = stack.enter_context(Node("--max-restarts", "1", *static(port, 1), RANK, *UP))
            http = port_of(a)
            a.hear(1)
            b.hear(1)
            await_true(lambda: (status_of(http)["others"] or [{}])[0].get("ranks"))
            os.kill(status_of(http)["others"][0]["ranks"][0]["pid"], signal.SIGKILL)
            a.hear(1)
            b.hear(1)
            await_true(lambda: [rank["restarts"] for rank in (status_of(http)["others"] or [{"ranks": []}])[0]["ranks"]] == [1])
            self.assertEqual(status_of(http)["generation"], 1)


main()
