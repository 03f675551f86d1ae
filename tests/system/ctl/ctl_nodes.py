"""ddpctl on a job of several nodes, each a ddprun of its own on this host.

Covers: ctl/job, ctl, console, launcher/membership
"""
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

from ctl import TIMEOUT, await_running, await_socket, ctl, status
from harness import DEADLINE_S, RANK, await_true, main
from node import Node, c10d
from ports import free_port

DDPCTL = os.environ["DDPCTL"]
RUN = (RANK, "tell", "up", "wait")


class Nodes(unittest.TestCase):
    def open(self, *more, nodes="2"):
        port = free_port()
        pair = [self.enterContext(Node(*c10d(port, *more, "--node-rank", str(i), nodes=nodes), *RUN)) for i in range(2)]
        for node in pair:
            node.hear(1)
        for node in pair:
            await_running(node)
        return pair

    def enterContext(self, context):  # Python 3.11 has it
        result = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return result

    def test_each_node_reports_its_place(self):
        a, b = self.open()
        (first,), (second,) = status(a), status(b)
        self.assertEqual([(n["node"], n["nodes"], n["world"]) for n in (first, second)], [(0, 2, 2), (1, 2, 2)])
        self.assertEqual([n["ranks"][0]["rank"] for n in (first, second)], [0, 1])
        self.assertEqual(ctl(b, "stack", "1", "-n")[0], 0)
        code, _, err = ctl(b, "logs", "0", *TIMEOUT)
        self.assertEqual((code, err), (1, "ddpctl: error: rank 0 of job job7 is not on this machine; run ddpctl on its node\n"))

    def test_stop_stops_all_nodes(self):
        a, b = self.open()
        self.assertEqual(ctl(b, "stop", *TIMEOUT)[0], 0)
        self.assertEqual(b.finish()[0], -signal.SIGTERM)
        code, _, err = a.finish()
        self.assertNotEqual(code, 0)
        self.assertIn("was stopped by SIGTERM", err)

    def test_the_others_continue_when_one_node_is_stopped(self):
        port = free_port()
        words = c10d(port, "--join-window", "0", nodes="1:2")
        a = self.enterContext(Node(*words, *RUN))
        a.hear(1)  # alone: the others rendezvous at this node, whichever node leaves
        b = self.enterContext(Node(*words, *RUN))
        b.hear(1)
        a.hear(1)
        await_running(b)
        self.assertEqual(ctl(b, "stop", "--node", *TIMEOUT)[0], 0)
        self.assertEqual(b.finish()[0], -signal.SIGTERM)
        await_true(lambda: status(a)[0]["nodes"] == 1 and status(a)[0]["state"] == "running")
        self.assertEqual(ctl(a, "stop", *TIMEOUT)[0], 0)
        self.assertEqual(a.finish()[0], -signal.SIGTERM)

    def test_a_restart_on_one_node_restarts_the_ranks_of_all(self):
        """Nothing is counted: there is no --max-restarts here."""
        a, b = self.open()
        before = [status(node)[0]["ranks"][0]["pid"] for node in (a, b)]
        self.assertEqual(ctl(b, "restart", *TIMEOUT)[0], 0)
        for node in a, b:
            node.hear(1)
            await_true(lambda: status(node)[0]["state"] == "running" and status(node)[0]["generation"] == 1)
        after = [status(node)[0]["ranks"][0] for node in (a, b)]
        self.assertEqual([r["restarts"] for r in after], [1, 1])
        self.assertTrue(set(before).isdisjoint(r["pid"] for r in after))
        self.assertEqual(ctl(a, "stop", *TIMEOUT)[0], 0)
        said = [node.finish()[2] for node in (a, b)]
        name = socket.gethostname().split(".")[0]
        for text in said:
            self.assertIn(f"ddprun: note: restart requested on {name}; generation 1: 2 nodes, 2 ranks\n", text)

    def test_a_restart_is_refused_while_other_nodes_are_missing(self):
        with Node(*c10d(free_port()), *RUN) as a:
            await_socket(a)
            code, _, err = ctl(a, "restart", *TIMEOUT)
            self.assertEqual((code, err),
                             (1, "ddpctl: error: no ranks are running on this node, or they are being stopped\n"))

    def test_a_node_that_waits_for_others_reports_it(self):
        port = free_port()
        with Node(*c10d(port), *RUN) as a:
            await_socket(a)
            await_true(lambda: "waiting" in (status(a)[0]["waiting"] or ""))
            self.assertIn("\nwaiting for ", ctl(a, "status", *TIMEOUT)[1])

    def test_nodes_that_share_a_directory_are_one_job(self):
        """Both are found: then the job is named by its run id, and a node by its pid."""
        a, b = self.open()
        shared = os.path.join(a.dir, "shared")
        os.mkdir(shared)
        for node in a, b:
            (folder,) = [d for d in os.listdir(node.runtime) if d.startswith("ddprun-")]
            os.rename(os.path.join(node.runtime, folder), os.path.join(shared, folder))
        env = {**os.environ, "XDG_RUNTIME_DIR": shared}
        done = subprocess.run([DDPCTL, "ps", "--json", *TIMEOUT], env=env, capture_output=True, timeout=3 * DEADLINE_S)
        pids = [a.process.pid, b.process.pid]
        self.assertEqual([n["pid"] for n in json.loads(done.stdout)["jobs"] if n["pid"] in pids], pids)
        for node in a, b:  # as ddprun has to find it
            folder = next(iter(os.listdir(shared)))
            os.rename(os.path.join(shared, folder), os.path.join(node.runtime, folder))


class StandIn:
    """A mock of a ddprun: a node of a job that answers a request for stacks when the test allows it."""

    def __init__(self, parent, node, run_id):
        folder = os.path.join(parent, "ddprun-stand" + str(node))
        os.mkdir(folder, 0o700)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(os.path.join(folder, "socket"))
        self.server.listen(1)
        self.status = {"v": 1, "job": run_id, "node": node, "pid": os.getpid(), "ranks": []}
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        client, _ = self.server.accept()
        with client, client.makefile("rw") as lines:
            for line in lines:
                answer = self.status
                if line.startswith("stack"):
                    self.is_asked.set()
                    self.may_answer.wait()
                    answer = {"v": 1, "ranks": [], "text": f"node {self.status['node']}\n"}
                lines.write(json.dumps(answer) + "\n")
                lines.flush()


class LargeAnswer(StandIn):
    """A mock whose answer is larger than a socket buffer: only a client that reads can receive all of it."""

    def serve(self):
        self.is_taken = threading.Event()
        client, _ = self.server.accept()
        with client, client.makefile("rw") as lines:
            for line in lines:
                is_stack = line.startswith("stack")
                answer = {"v": 1, "ranks": [], "text": "x" * (4 << 20) + "\n"} if is_stack else self.status
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
                if is_stack:
                    self.is_taken.set()


class StandIns(unittest.TestCase):
    def test_ddpctl_takes_an_answer_while_it_waits_for_another(self):
        """As a ddprun gives up a client that does not take its answer in 30 s."""
        with tempfile.TemporaryDirectory() as parent:
            run_id = "stand-in-" + os.path.basename(parent)
            slow, large = StandIn(parent, 0, run_id), LargeAnswer(parent, 1, run_id)
            with subprocess.Popen([DDPCTL, "stack", *TIMEOUT, "all", run_id], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, env={**os.environ, "XDG_RUNTIME_DIR": parent}) as process:
                is_taken = slow.is_asked.wait(DEADLINE_S) and large.is_taken.wait(DEADLINE_S)
                slow.may_answer.set()
                out = process.communicate(timeout=3 * DEADLINE_S)[0]
            self.assertTrue(is_taken)
            self.assertEqual(out[:8], b"node 0\nx")
            for node in slow, large:
                node.thread.join()
                node.server.close()

    def test_ddpctl_requests_all_stacks_before_the_first_answer(self):
        with tempfile.TemporaryDirectory() as parent:
            run_id = "stand-in-" + os.path.basename(parent)
            nodes = [StandIn(parent, i, run_id) for i in range(3)]
            with subprocess.Popen([DDPCTL, "stack", *TIMEOUT, "all", run_id], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, env={**os.environ, "XDG_RUNTIME_DIR": parent}) as process:
                asked = [node.is_asked.wait(DEADLINE_S) for node in nodes]
                for node in nodes:
                    node.may_answer.set()
                self.assertEqual(process.communicate(timeout=3 * DEADLINE_S)[0], b"node 0\nnode 1\nnode 2\n")
            self.assertEqual(asked, [True] * 3)
            for node in nodes:
                node.thread.join()
                node.server.close()

    def test_a_job_name_sends_no_control_sequence_to_the_terminal(self):
        with tempfile.TemporaryDirectory() as parent:
            nodes = [StandIn(parent, i, f"job\x1b[2J{i}\n") for i in range(2)]
            done = subprocess.run([DDPCTL, "status", *TIMEOUT, str(os.getpid())], stdin=subprocess.DEVNULL, capture_output=True,
                                  env={**os.environ, "XDG_RUNTIME_DIR": parent})
            self.assertEqual((done.returncode, done.stderr), (1, b"ddpctl: error: several jobs are running; give one of: job0? job1?\n"))
            for node in nodes:
                node.thread.join()
                node.server.close()


if __name__ == "__main__":
    main()
