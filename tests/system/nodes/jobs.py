"""Jobs of ddprun at a ddp-rendezvous: several at a time, faults of the daemon and of its guests.

Covers: rendezvous/jobs, rendezvous/daemon, launcher/membership
"""
import json
import os
import re
import signal
import socket
import struct
import tempfile
import unittest

from ctl import DDPCTL
from daemon import Client, Daemon, run
from harness import DEADLINE_S, RANK, await_true, main
from node import SHOW, TOKEN, UP, Node, finish
from ports import free_port

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../rendezvous/channel/channel_wire.h"), encoding="utf-8") as f:
    VERSION = int(re.search(r"^#define CHANNEL_WIRE_VERSION +(\d+)$", f.read(), re.MULTILINE)[1])
GREETING = b"DDP1" + bytes([VERSION, VERSION, 0, 0]) + bytes(8) + bytes(range(32))  # docs/design/membership.md, in the clear
ANSWER_BYTES = 40
NO_TOKEN = {**os.environ, "HOME": "/nonexistent", "DDP_TOKEN": ""}
WITH_TOKEN = {**NO_TOKEN, "DDP_TOKEN": TOKEN}


def at(daemon, job, *more, nodes="2"):
    return ("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{daemon.port}", "--rdzv-id", job, *more)


def jobs_daemon(*words, **kw):
    return Daemon(*words, **{"env": NO_TOKEN, **kw})


def jobs_of(daemon):
    """By run id."""
    return {job["id"]: job for job in json.loads(daemon.http("/status")[1])["jobs"]}


class Guest:
    """Raw bytes of the control channel."""

    def __init__(self, daemon):
        self.socket = socket.create_connection(("127.0.0.1", daemon.port), timeout=DEADLINE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def greet(self):
        self.socket.sendall(GREETING)
        answer = b""
        while len(answer) < ANSWER_BYTES:
            answer += self.socket.recv(ANSWER_BYTES - len(answer))
        return answer

    def await_end(self):
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            pass


class Jobs(unittest.TestCase):
    def test_nodes_rendezvous_by_their_run_id(self):
        with jobs_daemon() as daemon:
            nodes = [Node(*at(daemon, f"job{i % 3}"), *SHOW) for i in range(6)]
            try:
                self.assertEqual([node.finish() for node in nodes], [(0, "", "")] * 6)
                lines = [node.hear(1)[0].split() for node in nodes]
            finally:
                for node in nodes:
                    node.__exit__()
            for i in range(3):
                self.assertEqual(sorted(line[0] for line in lines[i::3]), ["0/2", "1/2"])
                self.assertEqual({line[4] for line in lines[i::3]}, {f"job{i}"})
            self.assertEqual(len({line[3] for line in lines}), 3)  # a store each
            self.assertEqual(daemon.metric("jobs_total"), 3)
            self.assertEqual(daemon.stop(), 0)
            self.assertNotIn("refused", daemon.log())

    def test_the_daemon_serves_pages_and_the_store_on_one_port(self):
        with jobs_daemon() as daemon:
            self.assertEqual(jobs_of(daemon), {})
            with Node(*at(daemon, 'a "job" ü'), RANK, *UP) as a, Node(*at(daemon, 'a "job" ü'), RANK, *UP) as b, \
                    Client(daemon.port) as client:
                a.hear(1)
                b.hear(1)
                client.set(b"/k", b"value")
                self.assertEqual(client.get(b"/k"), b"value")
                job = jobs_of(daemon)['a "job" ü']
                self.assertEqual((job["state"], job["generation"], job["nodes"], job["exit_code"]), ("RUNNING", 0, 2, None))
                self.assertEqual((daemon.metric('jobs{state="RUNNING"}'), daemon.metric("nodes")), (1, 2))
                for node in (a, b):
                    node.signal(signal.SIGTERM)
                self.assertEqual(sorted(node.finish()[0] for node in (a, b))[0], -signal.SIGTERM)

    def test_a_failed_rank_restarts_all_with_another_store(self):
        script = "echo $RANK $MASTER_PORT $TORCHELASTIC_RESTART_COUNT > $TEST_FIFO\n" \
                 f"{DDPCTL} store -t 20 add here$RANK 1 >/dev/null && {DDPCTL} store -t 20 wait here0 here1 || exit 9\n" \
                 "test $RANK$TORCHELASTIC_RESTART_COUNT = 10 && exit 3\n" \
                 "test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 1000"
        with jobs_daemon() as daemon, Node(*at(daemon, "job7", "--max-restarts", "1"), "sh", "-c", script) as a, \
                Node(*at(daemon, "job7", "--max-restarts", "1"), "sh", "-c", script) as b:
            lines = [line.split() for line in a.hear(2) + b.hear(2)]
            self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))
        self.assertEqual(sorted((rank, count) for rank, _, count in lines), [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")])
        self.assertEqual(len({port for _, port, _ in lines}), 2)

    def test_a_late_node_receives_the_outcome_and_a_new_job_may_begin(self):
        with jobs_daemon() as daemon:
            names = [("--local-addr", f"127.0.0.{i}") for i in range(1, 4)]
            for code in (3, 4):
                with Node(*at(daemon, "job7", *names[0]), "sh", "-c", f"exit {code}") as a, \
                        Node(*at(daemon, "job7", *names[1]), "sleep", "1000") as b:
                    self.assertEqual((a.finish()[0], b.finish()[0]), (code, code))
                self.assertEqual(jobs_of(daemon)["job7"]["exit_code"], code)
            late, _, err = finish(*at(daemon, "job7", *names[2]), "true")
            self.assertEqual(late, 4)
            self.assertIn("127.0.0.1", err)
            self.assertEqual(daemon.metric("jobs_total"), 2)

    def test_a_node_that_was_not_needed_reports_it(self):
        for nodes, code, said in (("2", 69, "was not needed: job 'job7' succeeded on 2 other nodes"),
                                  ("1:2", 0, "this node was a spare: the job succeeded without it")):
            with self.subTest(nodes), jobs_daemon() as daemon:
                work = [Node(*at(daemon, "job7", nodes=nodes), RANK, "await", str(int(signal.SIGUSR1))) for _ in range(2)]
                with work[0], work[1]:
                    self.assertEqual(sorted(node.hear(1)[0] for node in work), ["0 awaits 10", "1 awaits 10"])
                    # in the middle, and when it is over
                    with Node(*at(daemon, "job7", "-v", nodes=nodes), "true") as spare:
                        spare.read_until("JOINING -> WAITING")
                        for node in work:
                            for pid in node.processes():
                                if pid != node.process.pid:
                                    os.kill(pid, signal.SIGUSR1)
                        ended, _, err = spare.finish()
                        self.assertEqual([node.finish()[0] for node in work], [0, 0])
                    self.assertEqual(ended, code)
                    self.assertIn(said, err)
                ended, _, err = finish(*at(daemon, "job7", "--local-addr", "127.0.0.9", nodes=nodes), "true")
                self.assertEqual(ended, code)
                self.assertIn(said, err)

    def test_a_job_without_waiting_nodes_is_forgotten(self):
        with jobs_daemon() as daemon:
            with Node(*at(daemon, "job7", "-v", nodes="3"), "true") as a:
                a.read_until("JOINING -> WAITING")
                self.assertEqual(jobs_of(daemon)["job7"]["state"], "GATHERING")
                a.signal(signal.SIGTERM)
                self.assertEqual(a.finish()[0], -signal.SIGTERM)
            await_true(lambda: not jobs_of(daemon), daemon.log)
            with Node(*at(daemon, "job7"), "true") as a, Node(*at(daemon, "job7"), "true") as b:
                self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))

    def test_verbose_prints_the_states_of_jobs(self):
        with jobs_daemon("-v") as daemon:
            self.assertEqual(finish(*at(daemon, "job7", "--join-window", "0", nodes="1:2"), "false")[0], 1)
            daemon.await_log("job 'job7': RUNNING -> ")
            daemon.await_log("-> CLOSED: ")


class Refusals(unittest.TestCase):
    def test_without_a_token_only_own_processes_are_admitted(self):
        for words in (("-b", "0.0.0.0:0"), ("-b", "[::]:0"), ("-b", "127.0.0.1:0", "--allow", "127.0.0.1"),
                      ("-b", "127.0.0.1:0", "--allow", "10.0.0.0/8")):
            code, out, err = run(*words, env=NO_TOKEN)
            self.assertEqual((code, out), (77, ""), words)
            for remedy in ("~/.config/ddprun/token", "DDP_TOKEN", "--token-file", "--no-jobs"):
                self.assertIn(remedy, err)
        with tempfile.NamedTemporaryFile() as token:
            token.write(TOKEN.encode())
            token.flush()
            for words in ("--no-jobs",), ("--token-file", token.name):
                with jobs_daemon(*words, bind=("-b", "0.0.0.0:0")) as daemon:
                    self.assertEqual(daemon.http("/healthz")[0], 200)

    def test_an_invalid_token_is_refused(self):
        with tempfile.NamedTemporaryFile() as token:
            token.write(b"short")
            token.flush()
            code, _, err = run("-b", "127.0.0.1:0", "--token-file", token.name, env=NO_TOKEN)
            self.assertEqual(code, 77)
            self.assertIn("use at least 16", err)
            os.chmod(token.name, 0o644)
            code, _, err = run("-b", "127.0.0.1:0", "--token-file", token.name, env=NO_TOKEN)
            self.assertEqual(code, 77)
            self.assertIn("chmod 600", err)
        self.assertEqual(run("-b", "127.0.0.1:0", "--token-file", token.name, env=NO_TOKEN)[0], 77)

    def test_different_tokens_are_refused(self):
        with jobs_daemon(env=WITH_TOKEN) as daemon:
            for theirs in (TOKEN[::-1], ""):
                code, _, err = finish(*at(daemon, "job7", "--start-timeout", "1"), "true", env={"DDP_TOKEN": theirs})
                self.assertEqual(code, 77)
                self.assertIn("token", err)
                daemon.await_log("token")
            with Node(*at(daemon, "job7"), "true", env={"DDP_TOKEN": TOKEN}) as a, \
                    Node(*at(daemon, "job7"), "true", env={"DDP_TOKEN": TOKEN}) as b:
                self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))

    def test_the_environment_of_the_daemon_has_no_token(self):
        with jobs_daemon(env=WITH_TOKEN) as daemon:
            with open(f"/proc/{daemon.process.pid}/environ", "rb") as f:
                self.assertNotIn(TOKEN.encode(), f.read())

    def test_conflicting_terms_are_reported_at_both_ends(self):
        def local(i):
            return "--local-addr", f"127.0.0.{i}"

        for first, second, more, text in (("2", "2:3", (), "127.0.0.2 was started with --nnodes=2:3, 127.0.0.1 with --nnodes=2:2"),
                                          ("3", "3", ("--node-rank", "1"), "127.0.0.1 and 127.0.0.2 were both started with --node-rank=1")):
            with jobs_daemon() as daemon, Node(*at(daemon, "job7", *local(1), *more, "-v", nodes=first), "true") as a:
                a.read_until("JOINING -> WAITING")
                code, _, err = finish(*at(daemon, "job7", *local(2), *more, nodes=second), "true")
                self.assertEqual(code, 78)
                self.assertIn(text, err)
                daemon.await_log("job 'job7': refused: ")
                daemon.await_log(text)
                a.signal(signal.SIGTERM)
                a.finish()

    def test_a_daemon_without_jobs(self):
        with jobs_daemon("--no-jobs") as daemon, Node(*at(daemon, "job7"), "true") as a:
            daemon.await_log("refused: a control connection, but this port manages no jobs")
            a.read_until(f"waiting for the rendezvous endpoint 127.0.0.1:{daemon.port}")
            a.signal(signal.SIGTERM)
            self.assertEqual(a.finish()[0], -signal.SIGTERM)

    def test_a_job_above_the_limit_waits(self):
        with jobs_daemon("--max-jobs", "1") as daemon, Node(*at(daemon, "job7", "-v"), "true") as a:
            a.read_until("JOINING -> WAITING")
            with Node(*at(daemon, "job8", "--join-window", "0", nodes="1:2"), "true") as b:
                b.read_until("the rendezvous endpoint already manages 1 jobs, its maximum: raise ddp-rendezvous --max-jobs")
                daemon.await_log("the rendezvous endpoint already manages 1 jobs, its maximum: raise ddp-rendezvous --max-jobs")
                a.signal(signal.SIGTERM)
                self.assertEqual(a.finish()[0], -signal.SIGTERM)
                self.assertEqual(b.finish()[0], 0)

    def test_a_connection_above_the_limit_is_closed(self):
        with jobs_daemon("--max-nodes", "1") as daemon, Guest(daemon) as first, Guest(daemon) as second:
            first.greet()
            second.socket.sendall(GREETING)
            second.await_end()
            daemon.await_log("refused a control connection: too many connections")
            self.assertEqual(daemon.metric("node_connections"), 1)


class Faults(unittest.TestCase):
    """Of a guest: it costs its own connection. Of the daemon: all hear the same, and nothing is left."""

    def meet(self, daemon):
        with Node(*at(daemon, "after"), "true") as a, Node(*at(daemon, "after"), "true") as b:
            self.assertEqual((a.finish(), b.finish()), ((0, "", ""), (0, "", "")))

    @staticmethod
    def give(path, line):
        """To the rank that has this FIFO open; OSError: it has ended."""
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, line.encode() + b"\n")
        os.close(fd)

    def test_a_guest_that_stalls_is_closed(self):
        for sent, said in ((b"", "timed out waiting for the peer's answer to the handshake"), (struct.pack("<I", 100) + b"x", "timed out waiting for the rest of a frame")):
            with jobs_daemon("--mid-frame-timeout", "1s") as daemon, Guest(daemon) as guest:
                if sent:
                    guest.greet()
                    guest.socket.sendall(sent)
                else:
                    guest.socket.sendall(GREETING[:20])
                guest.await_end()
                daemon.await_log(said)
                self.meet(daemon)

    def test_a_guest_that_sends_garbage_is_closed(self):
        for frame in (struct.pack("<I", 65537), struct.pack("<I", 0), struct.pack("<I", 3) + b"\xff\xff\xff",
                      struct.pack("<I", 5) + b"\x01" + bytes(4)):
            with jobs_daemon() as daemon, Guest(daemon) as guest:
                guest.greet()
                guest.socket.sendall(frame)
                guest.await_end()
                daemon.await_log("control connection")
                self.meet(daemon)
                self.assertEqual(daemon.metric("nodes_refused_total"), 1)

    def test_the_daemon_is_killed(self):
        with jobs_daemon("--lease", "2s") as daemon, \
                Node(*at(daemon, "job7"), RANK, *UP) as a, Node(*at(daemon, "job7"), RANK, *UP) as b:
            a.hear(1)
            b.hear(1)
            daemon.process.kill()
            for node in (a, b):
                code, _, err = node.finish()
                self.assertEqual(code, 75)
                self.assertEqual(err.count(f"lost contact with the rendezvous endpoint 127.0.0.1:{daemon.port}: "), 1)
                self.assertEqual(node.processes(), [])

    def test_ranks_continue_when_a_new_daemon_replaces_a_killed_one(self):
        # A rank that prints its number, and again with each line that it reads; 9 fails it. It is a writer of the FIFO as well: it
        # reads no end of file when the test closes it.
        script = "exec 3<>$0; echo $RANK $TORCHELASTIC_RESTART_COUNT up > $TEST_FIFO\n" \
                 "while read line <&3; do test $line = 9 && exit 9; echo $RANK $line > $TEST_FIFO; done\n"
        bind = ("-b", f"127.0.0.1:{free_port()}")
        with tempfile.TemporaryDirectory() as folder, jobs_daemon(bind=bind) as daemon:
            words, logs = [[os.path.join(folder, name + what) for name in "ab"] for what in (".fifo", ".log")]
            for path in words:
                os.mkfifo(path)
            a, b = [Node(*at(daemon, "job7", "--max-restarts", "1", "--events", log), "sh", "-c", script, path)
                    for path, log in zip(words, logs)]
            with a, b:
                self.assertEqual(sorted(a.hear(1) + b.hear(1)), ["0 0 up", "1 0 up"])
                for n in (1, 2):  # a second time: the members report the budget
                    daemon.process.kill()
                    daemon.process.wait()
                    daemon = jobs_daemon(bind=bind).__enter__()
                    self.addCleanup(daemon.__exit__)
                    for node, path in zip((a, b), words):
                        node.read_until("was replaced")
                        self.give(path, "hello")
                    self.assertEqual(sorted(a.hear(1) + b.hear(1)), ["0 hello", "1 hello"])
                    # a note of the daemon before is in the same output
                    await_true(lambda: jobs_of(daemon).get("job7", {}).get("nodes") == 2, daemon.log)
                    self.assertEqual(jobs_of(daemon)["job7"]["generation"], n - 1)
                    self.give(words[0], "9")
                    if n == 1:
                        self.assertEqual(sorted(a.hear(1) + b.hear(1)), ["0 1 up", "1 1 up"])
                self.assertEqual((a.finish()[0], b.finish()[0]), (9, 9))
            for log in logs:
                with open(log) as f:
                    events = [json.loads(line) for line in f]
                self.assertEqual([e["gen"] for e in events if e["ev"] == "coordinator"], [0, 1])
                self.assertEqual(len([e for e in events if e["ev"] == "rank_start"]), 2)

    def test_the_daemon_is_stopped_for_longer_than_a_lease(self):
        with jobs_daemon() as daemon, Node(*at(daemon, "job7"), RANK, *UP) as a, Node(*at(daemon, "job7"), RANK, *UP) as b:
            a.hear(1)
            b.hear(1)
            daemon.process.send_signal(signal.SIGSTOP)
            for node in (a, b):
                code, _, err = node.finish()
                self.assertEqual(code, 75)
                self.assertIn(f"lost contact with the rendezvous endpoint 127.0.0.1:{daemon.port}: no reply for", err)
                self.assertEqual(node.processes(), [])
            daemon.process.send_signal(signal.SIGCONT)
            await_true(lambda: "job7" not in jobs_of(daemon) or jobs_of(daemon)["job7"]["nodes"] == 0, daemon.log)
            self.meet(daemon)


if __name__ == "__main__":
    main()
