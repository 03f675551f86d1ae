"""A node of a job of several: real processes, the real roster, the other nodes on paper.

Covers: launcher/membership, launcher/supervisor, launcher/node
"""
import json
import os
import pty
import signal
import socket
import tempfile
import unittest

from harness import RANK, Job, await_true, main
from json_schema import check_event
from ports import free_port

PAPER = os.environ["PAPER_DDPRUN"]
UP = ("tell", "up", "wait")
LEASE_MS = "2000"  # no busy machine keeps a process waiting so long


class Node(Job):
    """paper_ddprun; the commands of tests/support/paper_roster.h make the other nodes act."""

    def __init__(self, nodes, *args, env=None, **kw):
        read_end, self.commands_fd = os.pipe()
        path = f"/proc/{os.getpid()}/fd/{read_end}"
        super().__init__(nodes, *args, env=dict(env or {}, PAPER_COMMANDS=path), launcher=PAPER, **kw)
        self.read_end = read_end

    def __exit__(self, *what):
        super().__exit__(*what)
        os.close(self.read_end)
        os.close(self.commands_fd)

    def tell(self, *commands):
        os.write(self.commands_fd, "".join(c + "\n" for c in commands).encode())

    def finish(self):
        code, out, err = self.end()
        return code, out.decode(), (self.said + err).decode()

    def ranks(self):
        spawner = self.spawner()
        return [p for p in self.processes() if p not in (spawner, self.process.pid)]


def is_open(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class OrderedNode(unittest.TestCase):
    def test_a_single_required_node_runs_at_once(self):
        with Node("1:1", "-n", "2", "sh", "-c", "echo $RANK/$WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
                  "$MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_USE_AGENT_STORE") as node:
            code, out, err = node.finish()
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(out.splitlines()), ["0/2 0/1 127.0.0.1 0 True", "1/2 0/1 127.0.0.1 0 True"])

    def test_ranks_are_numbered_across_the_job(self):
        words = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR"
        with Node("2:2", "-n", "2", "sh", "-c", words + "; echo up > $TEST_FIFO") as node:
            node.tell("start a-first")  # its name sorts first: it leads
            node.hear(2)
            node.tell("done a-first")
            code, out, _ = node.finish()
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()), ["2/4 0/2 1/2 paper", "3/4 1/2 1/2 paper"])

    def test_it_reports_which_nodes_it_waits_for(self):
        with Node("2:2", "-n", "1", RANK, *UP) as node:
            node.read_until("ddprun: note: waiting for 1 of 2 nodes, 1 s of 60 s\n")
            node.tell("start zed")
            self.assertEqual(node.hear(1), ["0 up"])
            node.tell("fail zed 9")
            code, _, err = node.finish()
        self.assertEqual(code, 9)
        self.assertIn("ddprun: error: rank 1 on zed: failed on paper\n  rank 0: stopped by ddprun (SIGTERM)\n", err)

    def test_a_failure_here_restarts_all_with_another_store(self):
        script = 'echo $TORCHELASTIC_RESTART_COUNT $MASTER_PORT; test $RANK = 0 && exit 3; sleep 1000'
        with Node("2:2", "--max-restarts", "1", "-n", "2", "sh", "-c", script) as node:
            node.tell("start zed")
            code, out, err = node.finish()
        self.assertEqual(code, 3)
        lines = [line.split() for line in out.splitlines()]
        self.assertEqual({line[0] for line in lines}, {"0", "1"})
        self.assertEqual(len({line[1] for line in lines}), 2)
        self.assertRegex(err, r"ddprun: note: rank 0 on own: exit status 3, [0-9.]+ s after its start; "
                              r"generation 1: 2 nodes, 4 ranks\n")
        self.assertRegex(err, r"ddprun: error: rank 0 failed: exit status 3.*\n  host .*, local rank 0")
        self.assertIn("rank 1: stopped by ddprun (SIGTERM)", err)

    def test_a_failure_elsewhere_restarts_the_ranks(self):
        with Node("2:2", "--max-restarts", "1", "-n", "2", RANK, "on", "15", "0", *UP) as node:
            node.tell("start zed")
            self.assertEqual(node.hear(2), ["0 up", "1 up"])
            node.tell("fail zed 4")
            self.assertEqual(node.hear(4), ["0 got 15", "0 up", "1 got 15", "1 up"])
            node.tell("fail zed 5")
            self.assertEqual(node.hear(2), ["0 got 15", "1 got 15"])
            code, _, err = node.finish()
        self.assertEqual(code, 5)
        self.assertIn("ddprun: note: rank 2 on zed: failed on paper; generation 1: 2 nodes, 4 ranks\n", err)
        self.assertIn("ranks 0-1: exit status 0 after SIGTERM from ddprun", err)

    def test_one_rank_fails_after_the_others_have_succeeded(self):
        with Node("2:2", "--max-restarts", "1", "-n", "1", RANK, "on", "10", "0", *UP) as node:
            node.tell("start zed")
            node.hear(1)
            node.signal(signal.SIGUSR1)
            self.assertEqual(node.hear(1), ["0 got 10"])
            await_true(lambda: not node.ranks())
            node.tell("fail zed 4")
            self.assertEqual(node.hear(1), ["0 up"])
            node.signal(signal.SIGUSR1)
            node.tell("done zed")
            self.assertEqual(node.finish()[0], 0)

    def test_a_node_that_leaves_or_joins_changes_the_world(self):
        with Node("1:2", "-n", "1", RANK, *UP, env={"NODE_WINDOW_MS": "600000"}) as node:
            node.tell("start zed")
            node.hear(1)
            node.tell("kill zed")
            node.read_until("ddprun: note: lost zed: ")
            node.read_until("generation 1: 1 node, 1 rank\n")
            node.hear(1)
            node.tell("start zoe")
            node.read_until("generation 2: 2 nodes, 3 ranks\n")
            node.hear(1)
            node.tell("leave zoe")
            node.read_until("ddprun: note: zoe left: wants to; generation 3: 1 node, 1 rank\n")
            node.hear(1)
            node.signal(signal.SIGTERM)
            self.assertEqual(node.finish()[0], -signal.SIGTERM)

    def test_too_few_are_left(self):
        with Node("2:2", "-n", "1", RANK, *UP) as node:
            node.tell("start zed")
            node.hear(1)
            node.tell("leave zed")
            code, _, err = node.finish()
        self.assertEqual(code, 75)
        self.assertIn("zed left: wants to", err)

    def test_a_signal_ends_the_wait_for_nodes(self):
        for sig in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            with Node("2:2", "-v", "-n", "1", RANK, *UP) as node:
                node.read_until("JOINING -> WAITING")
                node.signal(sig)
                code, _, err = node.finish()
                self.assertEqual((code, node.processes()), (-sig, []))
                self.assertIn(f"ddprun: note: stopped by {sig.name} after", err)

    def test_a_signal_reaches_running_ranks_first(self):
        with Node("1:2", "-n", "2", RANK, "on", "2", "7", *UP, env={"NODE_WINDOW_MS": "1"}) as node:
            node.hear(2)
            node.signal(signal.SIGINT)
            self.assertEqual(node.hear(2), ["0 got 2", "1 got 2"])
            code, _, err = node.finish()
        self.assertEqual(code, -signal.SIGINT)
        self.assertIn("ranks 0-1: exit status 7 after SIGINT from ddprun", err)

    def test_ranks_that_ignore_the_signal_are_killed(self):
        with Node("2:2", "--shutdown-timeout", "100ms", "-n", "2", RANK, "ignore", "15", *UP) as node:
            node.tell("start zed")
            node.hear(2)
            node.tell("fail zed 4")
            code, _, err = node.finish()
            self.assertEqual((code, node.processes()), (4, []))
        self.assertIn("some ranks did not stop in time", err)

    def test_the_launching_node_ends_the_job(self):
        with Node("1:2", "-n", "1", RANK, *UP, env={"NODE_ENDS_JOB": "1", "NODE_WINDOW_MS": "1"}) as node:
            node.hear(1)
            node.signal(signal.SIGTERM)
            self.assertEqual(node.finish()[0], -signal.SIGTERM)

    def test_the_job_times_out(self):
        with Node("2:2", "--timeout", "50ms", "-n", "1", RANK, *UP) as node:
            code, _, err = node.finish()
        self.assertEqual(code, 124)
        self.assertIn("the job timed out on own (--timeout)", err)

    def test_nodes_that_do_not_join(self):
        with Node("2:2", "-n", "1", RANK, *UP, env={"NODE_TIMEOUT_MS": "50"}) as node:
            code, _, err = node.finish()
        self.assertEqual(code, 69)
        self.assertIn("waiting for nodes: 1 of at least 2 have joined", err)

    def test_a_program_that_cannot_be_executed_ends_the_job_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script")
            with open(script, "w", encoding="utf-8") as f:
                f.write("#!/nowhere/interpreter\n")
            os.chmod(script, 0o700)
            with Node("2:2", "--max-restarts", "3", "-n", "1", "--no-python", script) as node:
                node.tell("start zed")
                code, _, err = node.finish()
        self.assertEqual(code, 127)
        self.assertIn(f"cannot execute '{script}'", err)

    def test_a_taken_port_ends_the_job(self):
        with socket.create_server(("127.0.0.1", 0)) as s, \
                Node("1:1", "--master-port", str(s.getsockname()[1]), "-n", "2", RANK, *UP) as node:
            code, _, err = node.finish()
        self.assertEqual(code, 69)
        self.assertIn("cannot open the store", err)

    def test_the_store_ends_with_its_generation(self):
        for fixed in (), ("--master-port", "0"):
            with Node("2:2", "--max-restarts", "9", *fixed, "-n", "2", RANK, *UP) as node:
                node.tell("start zed")
                node.hear(2)
                with open(f"/proc/{node.ranks()[0]}/environ", "rb") as f:
                    port = int(dict(v.split(b"=", 1) for v in f.read().split(b"\0") if v)[b"MASTER_PORT"])
                self.assertTrue(is_open(port))
                node.tell("fail zed 1")
                node.hear(2)
                self.assertFalse(is_open(port))
                node.signal(signal.SIGKILL)
                node.await_gone()

    def test_a_fixed_port_is_used_again(self):
        port = free_port()
        script = "echo $MASTER_PORT; exit 1"
        with Node("1:1", "--max-restarts", "1", "--master-port", str(port), "-n", "2", "sh", "-c", script) as node:
            code, out, _ = node.finish()
        self.assertEqual((code, set(out.split())), (1, {str(port)}))


class Lease(unittest.TestCase):
    def test_a_disconnected_node_kills_its_ranks_and_ends(self):
        with Node("1:1", "-n", "2", RANK, "ignore", "15", "child", "daemon", *UP, env={"PAPER_LEASE_MS": LEASE_MS}) as node:
            node.hear(6)
            node.tell("deaf")
            code, _, err = node.finish()
            self.assertEqual((code, node.processes()), (75, []))
        self.assertIn("ddprun: error: lost contact with the rendezvous endpoint paper:29400", err)

    def test_the_ranks_of_a_stopped_ddprun_die_and_it_joins_again(self):
        with Node("1:2", "--shutdown-timeout", "1s", "-n", "2", RANK, "ignore", "15", "child", "daemon", *UP,
                  env={"PAPER_LEASE_MS": LEASE_MS, "NODE_WINDOW_MS": "1"}) as node:
            node.hear(6)
            node.signal(signal.SIGSTOP)
            await_true(lambda: not node.ranks(), node.ranks)
            node.signal(signal.SIGCONT)
            self.assertEqual(len(node.hear(6)), 6)
            node.signal(signal.SIGTERM)
            self.assertEqual(node.finish()[0], -signal.SIGTERM)
            self.assertEqual(node.processes(), [])


class Seen(unittest.TestCase):
    def test_on_a_terminal_the_line_is_redrawn(self):
        ours, theirs = pty.openpty()
        with Node("2:2", "-n", "1", RANK, *UP, stderr=theirs) as node:
            seen = b""
            while seen.count(b"\r\x1b[Kddprun: note: waiting for 1 of 2 nodes, ") < 1:
                seen += os.read(ours, 4096)
            node.tell("start zed")
            node.hear(1)
            node.signal(signal.SIGTERM)
            while not seen.endswith(b"stopped by ddprun (SIGTERM)\r\n"):
                seen += os.read(ours, 4096)
            self.assertEqual(node.end()[0], -signal.SIGTERM)
        os.close(ours)
        os.close(theirs)
        last = seen.rindex(b"\r\x1b[K")
        self.assertTrue(seen[last:].startswith(b"\r\x1b[Kddprun: note: stopped by SIGTERM"), seen)

    def test_the_events_of_two_generations(self):
        with Node("2:2", "--events", "/dev/stdout", "--max-restarts", "1", "-n", "2", RANK, *UP) as node:
            node.tell("start a-first")
            node.hear(2)
            node.tell("fail a-first 4")
            node.hear(2)
            node.tell("fail a-first 5")
            _, out, _ = node.finish()
        events = [json.loads(line) for line in out.splitlines()]
        for event in events:
            check_event(event)
        names = [(e["gen"], e["ev"]) for e in events]
        for generation in 0, 1:
            of = [e for e in events if e["gen"] == generation]
            rdzv = next(e for e in of if e["ev"] == "rdzv")
            self.assertEqual((rdzv["world"], rdzv["nodes"], rdzv["rank"], rdzv["node"]), (4, 2, 2, 1))
            starts = [(e["rank"], e["lrank"]) for e in of if e["ev"] == "rank_start"]
            self.assertEqual(sorted(starts), [(2, 0), (3, 1)])
        stops = [(e["gen"], e["why"], e["text"]) for e in events if e["ev"] == "stop"]
        self.assertEqual(stops[0], (0, "failure", "rank 0 on a-first: failed on paper"))
        self.assertEqual(len(stops), 2)
        self.assertEqual(names[0], (0, "job_start"))
        self.assertEqual((names[-1], events[-1]["code"]), ((1, "job_end"), 5))

    def test_the_report_of_another_nodes_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            with Node("2:2", "-n", "2", "--report", path, RANK, *UP) as node:
                node.tell("start a-first")
                node.hear(2)
                node.tell("fail a-first 5")
                node.finish()
            with open(path, encoding="utf-8") as f:
                report = json.load(f)
        self.assertEqual((report["outcome"], report["exit_code"]), ("rank_failed", 5))
        root = report["root_cause"]  # as far as this node knows it
        self.assertEqual((root["rank"], root["exit_code"], root["pid"], root["stderr"]), (0, 5, None, None))
        self.assertEqual(report["verdict"], {"node": "a-first", "rank": 0,
                                             "text": "rank 0 on a-first: failed on paper"})
        self.assertEqual([(r["rank"], r["local_rank"]) for r in report["ranks"]], [(2, 0), (3, 1)])


main()
