"""Health checks in a job of several nodes: an unhealthy node does not join, the others hear why, and it returns.

Covers: rendezvous/membership, launcher/node, launcher/remote, launcher/reporting, ctl/job
"""
import json
import os
import tempfile
import unittest

from ctl import ctl, status
from harness import RANK, await_true, main
from http_client import get, port_of
from json_schema import check_event, check_report
from node import UP, Node, await_endpoint, c10d, end
from ports import free_port
from recovery_job import N_SAMPLES, Checked, Nodes
from ssh_hosts import stand_in

# A test double of ssh: the command runs here.
LOCAL_SSH = "SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$2\"\n"
A, B = ("127.0.0.1", "127.0.0.2")  # names of the nodes


class HealthOfNodes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.port = free_port()

    def path(self, name):
        return os.path.join(self.folder, name)

    def words(self, name, *more, nodes="1:2"):
        """A node of that name, which is unhealthy while there is a file of its name."""
        check = f"test ! -e {self.path(name)} || {{ cat {self.path(name)}; exit 1; }}"
        return (*c10d(self.port, "--local-addr", name, "--join-window", "0", "--events", self.path(name + ".events"),
                      "--health-check", check, nodes=nodes), *more)

    def put(self, name, text):
        with open(self.path(name + ".new"), "w") as f:
            f.write(text)
        os.rename(self.path(name + ".new"), self.path(name))

    def health_events(self, name):
        with open(self.path(name + ".events")) as f:
            events = [json.loads(line) for line in f]
        for event in events:
            check_event(event)
        return [(e["about"], e["state"], e["reason"]) for e in events if e["ev"] == "health"]

    def test_an_unhealthy_node_never_joins_and_returns_when_it_is_healthy(self):
        self.put(B, "GPU 3 has fallen off the bus\n")
        with Node(*self.words(A, "--report", self.path("report")), RANK, *UP) as a:
            self.assertEqual(a.hear(1), ["0 up"])
            with Node(*self.words(B), RANK, *UP) as b:
                b.read_until(f"ddprun: warning: node {B} is unhealthy: GPU 3 has fallen off the bus; checking it again in 2 s\n")
                await_true(lambda: status(a)[0]["unhealthy"] != [])
                expected = [{"node": B, "reason": "GPU 3 has fallen off the bus"}]
                self.assertEqual((status(a)[0]["unhealthy"], status(b)[0]["unhealthy"]), (expected, expected))
                self.assertIn(f"node {B} is unhealthy: GPU 3 has fallen off the bus\n", ctl(a, "status")[1])
                b.read_until("checking")
                self.assertTrue(b.hear_nothing())
                self.assertEqual(status(a)[0]["generation"], 0)
                os.unlink(self.path(B))
                self.assertEqual(b.hear(1), ["1 up"])
                self.assertEqual(a.hear(1), ["0 up"])
                end(self, b)
                self.assertEqual(a.hear(1), ["0 up"])
                end(self, a)
        expected = [(B, "unhealthy", "GPU 3 has fallen off the bus"), (B, "healthy", None)]
        self.assertEqual((self.health_events(A), self.health_events(B)), (expected, expected))
        with open(self.path("report")) as f:
            report = json.load(f)
        check_report(report)
        self.assertEqual(report["unhealthy"],
                         [{"node": B, "reason": "GPU 3 has fallen off the bus", "times": 1, "unhealthy": False}])

    def test_the_page_of_another_node_has_the_reason(self):
        self.put(B, "link <mlx5_0/1> is down\n")
        with Node(*self.words(A, "--http", "0"), RANK, *UP) as a:
            port = port_of(a)
            self.assertEqual(a.hear(1), ["0 up"])
            self.assertNotIn('id="unhealthy"', get(port, "/")[2])
            with Node(*self.words(B), RANK, *UP) as b:
                await_true(lambda: '<table id="unhealthy">' in get(port, "/")[2])
                self.assertIn(f'<tr><td>{B}</td><td class="bad">link &lt;mlx5_0/1&gt; is down</td>', get(port, "/")[2])
                self.assertEqual(json.loads(get(port, "/status")[2])["unhealthy"], [{"node": B, "reason": "link <mlx5_0/1> is down"}])
                os.unlink(self.path(B))
                self.assertEqual(b.hear(1), ["1 up"])
                await_true(lambda: 'id="unhealthy"' not in get(port, "/")[2])
                end(self, b, a)

    def test_the_job_continues_without_a_node_that_is_unhealthy_after_its_failure(self):
        script = f"echo $RANK/$WORLD_SIZE > $TEST_FIFO; test -n \"$BAD\" && {{ echo worn out > {self.path(B)}; exit 1; }}; exec sleep 1000"
        with Node(*self.words(A, "--max-restarts", "3"), "sh", "-c", script) as a:
            self.assertEqual(a.hear(1), ["0/1"])
            with Node(*self.words(B, "--max-restarts", "3"), "sh", "-c", script, env={"BAD": "1"}) as b:
                self.assertEqual(a.hear(1), ["0/2"])
                self.assertEqual(a.hear(1), ["0/1"])
                b.read_until("is unhealthy: worn out;")
                end(self, b, a)

    def test_the_coordinators_own_node_may_be_unhealthy(self):
        self.put(A, "no\n")
        with Node(*self.words(A), RANK, *UP) as a:
            a.read_until(f"node {A} is unhealthy: no;")
            await_endpoint(self.port)
            with Node(*self.words(B), RANK, *UP) as b:
                self.assertEqual(b.hear(1), ["0 up"])
                self.assertTrue(a.hear_nothing())
                os.unlink(self.path(A))
                self.assertEqual(a.hear(1), ["1 up"])
                end(self, b, a)

    def test_a_job_whose_nodes_are_all_unhealthy_ends_with_their_reasons(self):
        for name in A, B:
            self.put(name, f"reason of {name}\n")
        more = ("--start-timeout", "3s", "true")
        with Node(*self.words(A, *more, nodes="2"), RANK) as a:
            await_endpoint(self.port)
            with Node(*self.words(B, *more, nodes="2"), RANK) as b:
                for node in a, b:
                    code, _, err = node.finish()
                    self.assertEqual(code, 69, err)
                    self.assertIn("timed out after 3 s (--start-timeout) waiting for healthy nodes: 0 of at least 2;", err)
                    for name in A, B:
                        self.assertIn(f"{name} is unhealthy: reason of {name}", err)

    def test_a_launching_ddprun_has_the_reasons_in_its_report(self):
        ssh = stand_in(self.folder, LOCAL_SSH)
        self.put("n2", "broken\n")
        # both nodes run it: the first one fails, and what it printed is read before the other one removes it
        check = f'text=$(cat {self.path("n2")}) && mkdir {self.path("once")} && echo "$text" && exit 1; rm -f {self.path("n2")}'
        with Node("-H", "n1,n2", "--ssh-command", ssh, "--report", self.path("report"), "--health-check", check, "true") as job:
            code, _, err = job.finish()
            self.assertEqual(code, 0, err)
            self.assertIn("is unhealthy: broken;", err)
        with open(self.path("report")) as f:
            report = json.load(f)
        check_report(report)
        self.assertEqual([(n["reason"], n["times"], n["unhealthy"]) for n in report["unhealthy"]], [("broken", 1, False)])


class Named(Nodes):
    def words_of(self, name):
        return "--local-addr", f"127.0.0.{name + 1}"


class Parked(Checked):
    def test_parked_ranks_of_an_unhealthy_node_end_and_those_of_other_nodes_live_on(self):
        with tempfile.TemporaryDirectory() as folder:
            check = f"test ! -e {folder}/$PPID || {{ echo tired; exit 1; }}"
            with Named(self.daemon, "1:3", 1, "--join-window", "0", "--health-check", check, samples=N_SAMPLES) as nodes:
                nodes.start(0)
                nodes.await_world(1)
                nodes.start(1)
                before = nodes.await_world(2)
                flag = os.path.join(folder, str(nodes.jobs[1].process.pid))
                with open(flag, "w"):
                    pass
                nodes.start(2)
                await_true(lambda: [n["reason"] for n in status(nodes.jobs[0])[0]["unhealthy"]] == ["tired"])
                await_true(lambda: status(nodes.jobs[0])[0]["nodes"] == 2 and status(nodes.jobs[2])[0]["nodes"] == 2)
                os.unlink(flag)
                after = nodes.await_world(3)
                self.assertEqual(after[0], before[0])
                self.assertNotEqual(after[1], before[1])
                self.assertEqual(nodes.finish(range(3)), [0, 0, 0])
                self.check_steps(nodes)
                self.check_left(nodes)

    def test_the_job_continues_without_the_steps_that_only_an_unhealthy_node_has(self):
        with tempfile.TemporaryDirectory() as folder:
            check = f"test ! -e {folder}/$PPID || {{ echo tired; exit 1; }}"
            with Named(self.daemon, "1:2", 1, "--join-window", "0", "--health-check", check, samples=N_SAMPLES) as nodes:
                nodes.start(0)
                nodes.hear_until(lambda: max(nodes.steps, default=0) >= 20)
                _, alone = nodes.ranks[0]
                flag = os.path.join(folder, str(nodes.jobs[0].process.pid))
                with open(flag, "w"):
                    pass
                nodes.steps, nodes.since = {}, 1
                nodes.start(1)  # its rank has no state; that of node 0 is parked, and the check fails
                nodes.hear_until(lambda: len(nodes.steps) >= 5)
                self.assertEqual((min(nodes.steps), nodes.steps[1].world, list(nodes.pids)), (1, 1, [1]))
                await_true(lambda: not os.path.exists(f"/proc/{alone}"))
                self.assertEqual([n["reason"] for n in status(nodes.jobs[1])[0]["unhealthy"]], ["tired"])
                os.unlink(flag)
                nodes.await_world(2)  # the new rank of node 0 has the state of node 1
                self.assertEqual(nodes.n_starts, {0: 2, 1: 1})
                self.assertEqual(nodes.finish(range(2)), [0, 0])
                self.check_steps(nodes)
                self.check_left(nodes)


if __name__ == "__main__":
    main()
