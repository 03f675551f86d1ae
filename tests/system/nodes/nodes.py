"""Several nodes, each a ddprun of its own, on this host: they rendezvous, or report why not.

Covers: launcher/membership, launcher/node, launcher/generation, rendezvous/membership, rendezvous/channel, rendezvous/net
"""
import os
import signal
import socket
import subprocess
import tempfile
import unittest
import urllib.request

from ctl import DDPCTL
from harness import DEADLINE_S, RANK, await_true, main
from machines import Machines
from node import SHOW, TOKEN, UP, Node, await_endpoint, c10d, end, finish, leaks, static
from ports import free_port

SCALER = os.environ["CHECKPOINTER_PROGRAM"]


class Meeting(unittest.TestCase):
    def test_ranks_are_numbered_across_nodes_of_different_size(self):
        port = free_port()
        with Node(*c10d(port, "-p", "2", "--node-rank", "1"), *SHOW) as b, \
                Node(*c10d(port, "-p", "1", "--node-rank", "0"), *SHOW) as a:
            self.assertEqual((a.finish(), b.finish()), ((0, "", ""), (0, "", "")))
            lines = [line.split() for line in a.hear(1) + b.hear(2)]
        self.assertEqual([line[0:3] for line in lines],
                         [["0/3", "0/1", "0/2"], ["1/3", "0/2", "1/2"], ["2/3", "1/2", "1/2"]])
        self.assertEqual({line[4] for line in lines}, {"job7"})
        master = {line[3] for line in lines}
        self.assertEqual(len(master), 1)
        self.assertRegex(master.pop(), r"127\.0\.0\.1:\d+")

    def test_every_node_reports_which_nodes_it_waits_for(self):
        port = free_port()
        with Node(*c10d(port, nodes="3"), RANK) as a:
            await_endpoint(port)
            with Node(*c10d(port, nodes="3"), RANK) as b:
                for node in a, b:
                    node.read_until("ddprun: note: waiting for 1 of 3 nodes, ")
                for node in b, a:
                    node.signal(signal.SIGTERM)
                    self.assertEqual(node.finish()[0], -signal.SIGTERM)

    def test_a_static_store_has_the_given_port_in_each_generation(self):
        port = free_port()
        # all ranks of a generation have reported before one of them fails
        script = 'echo $RANK $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT > $TEST_FIFO\n' \
                 f"{DDPCTL} store -t 20 add here$RANK 1 >/dev/null && {DDPCTL} store -t 20 wait here0 here1 || exit 9\n" \
                 "test $RANK$TORCHELASTIC_RESTART_COUNT = 10 && exit 3\n" \
                 "test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 1000"
        with Node(*static(port, 1, "--max-restarts", "1"), "sh", "-c", script) as b, \
                Node(*static(port, 0, "--max-restarts", "1"), "sh", "-c", script) as a:
            self.assertEqual(a.hear(2), [f"0 127.0.0.1:{port} none {n}" for n in "01"])
            self.assertEqual(b.hear(2), [f"1 127.0.0.1:{port} none {n}" for n in "01"])
            self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))

    def test_a_node_joins_while_the_store_has_the_port(self):
        port = free_port()
        with Node(*static(port, 0, "-p", "2", "--join-window", "0", nodes="1:2"), RANK, *UP) as a:
            self.assertEqual(a.hear(2), ["0 up", "1 up"])
            with Node(*static(port, 1, nodes="1:2"), RANK, *UP) as b:
                self.assertEqual(b.hear(1), ["2 up"])
                self.assertEqual(a.hear(2), ["0 up", "1 up"])
                b.signal(signal.SIGTERM)
                self.assertEqual(b.finish()[0], -signal.SIGTERM)
                self.assertEqual(a.hear(2), ["0 up", "1 up"])
            a.signal(signal.SIGTERM)
            self.assertEqual(a.finish()[0], -signal.SIGTERM)

    def test_the_job_continues_without_a_node_whose_ranks_keep_failing(self):
        port = free_port()
        script = 'echo $RANK $WORLD_SIZE $TORCHELASTIC_RESTART_COUNT > $TEST_FIFO; test -n "$BAD" && exit 7; exec sleep 1000'
        words = ("--max-restarts", "9", "--exclude-node-after", "2", "--join-window", "0", "sh", "-c", script)
        excluded = "excluded: 2 rank failures (--exclude-node-after); continuing without it\n"

        def hear_alone(node, more_than):
            while True:
                _, world, generation = map(int, node.hear(1)[0].split())
                if world == 1 and generation > more_than:
                    return generation
        with Node(*c10d(port, nodes="1:3"), *words) as a:
            generation = hear_alone(a, -1)
            with Node(*c10d(port, nodes="1:3"), *words, env={"BAD": "1"}) as b:
                code, _, err = b.finish()
                self.assertEqual(code, 7, err)
                self.assertIn(excluded, err)
                generation = hear_alone(a, generation + 1)
            with Node(*c10d(port, nodes="1:3"), *words) as b:  # on the same host
                code, _, err = b.finish()
                self.assertEqual((code, b.hear_nothing()), (7, True), err)
                self.assertIn(excluded, err)
            a.signal(signal.SIGTERM)
            self.assertEqual(a.finish()[0], -signal.SIGTERM)

    def test_the_endpoint_answers_probes(self):
        port = free_port()
        with Node(*c10d(port, "-v"), "true") as node:
            node.read_until("JOINING -> WAITING")
            for page, start in (("healthz", b"ok"), ("status", b'{"version": "0')):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=DEADLINE_S) as answer:
                    self.assertTrue(answer.read().startswith(start))
            node.signal(signal.SIGTERM)
            node.finish()

    def test_an_endpoint_of_ipv6(self):
        port = free_port()
        with Node(*c10d(port, host="[::1]"), *SHOW) as a, Node(*c10d(port, host="[::1]"), *SHOW) as b:
            self.assertEqual((a.finish(), b.finish()), ((0, "", ""), (0, "", "")))
            self.assertRegex(a.hear(1)[0], r" ::1:\d+ job7 0")

    def test_localhost_and_its_addresses_are_one_endpoint(self):
        port = free_port()
        with Node(*c10d(port, host="localhost"), *SHOW) as a:
            with Node(*c10d(port, host="127.0.0.1"), *SHOW) as b:
                self.assertEqual((a.finish(), b.finish()), ((0, "", ""), (0, "", "")))

    def test_many_nodes_start_together(self):
        port = free_port()
        nodes = [Node(*c10d(port, nodes="8"), *SHOW) for _ in range(8)]
        try:
            self.assertEqual([n.finish() for n in nodes], [(0, "", "")] * 8)
            self.assertEqual(sorted(n.hear(1)[0].split()[0] for n in nodes), [f"{r}/8" for r in range(8)])
        finally:
            for n in nodes:
                n.__exit__()

    def test_as_torchrun(self):
        port = free_port()
        with Node(*static(port, 1), *("--no-python",), *SHOW, name="torchrun") as b, \
                Node(*static(port, 0), *("--no-python",), *SHOW, name="torchrun") as a:
            self.assertEqual((a.finish(), b.finish()), ((0, "", ""), (0, "", "")))
            self.assertEqual(a.hear(1), [f"0/2 0/1 0/2 127.0.0.1:{port} none 0"])


def python_of(page):
    """The first Python example of a page of docs."""
    with open(os.path.join(os.path.dirname(__file__), "../../../docs", page), encoding="utf-8") as f:
        return f.read().split("```python\n")[1].split("```")[0]


def exe_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


class Scaling(unittest.TestCase):
    """A node joins a job that runs, with --admit-at checkpoint."""
    SAVES = (*UP[:2], "note", str(int(signal.SIGURG)), "asked", "await", str(int(signal.SIGUSR1)), "tell", "saved", "saved",
             "wait")  # reported first: a rank that has saved may be stopped
    SAVES_IN_PYTHON = python_of("how-to/checkpoint-on-signal.md") + """
fifo = open(os.environ["TEST_FIFO"], "w", buffering=1)
print(os.environ["RANK"], "up", file=fifo)
select.select([CHECKPOINT_FD], [], [])
checkpoint_done()
print(os.environ["RANK"], "saved", checkpoint_requested(), file=fifo)
select.select([], [], [])
"""

    @staticmethod
    def job(port, *more, nodes="2:3"):
        return c10d(port, "--admit-at", "checkpoint", "--join-window", "0", *more, nodes=nodes)

    def test_a_node_is_admitted_when_the_ranks_have_saved(self):
        port = free_port()
        with Node(*self.job(port, "-p", "2", "--node-rank", "0"), RANK, *self.SAVES) as a:
            await_endpoint(port)
            with Node(*self.job(port), "python3", "-c", self.SAVES_IN_PYTHON) as b:
                self.assertEqual(a.hear(2) + b.hear(1), ["0 up", "1 up", "2 up"])
                with Node(*self.job(port), RANK, *UP) as c:
                    self.assertEqual(a.hear(6), [f"{r} {word}" for r in "01" for word in ("asked", "awaits 10", "got 23")])
                    self.assertEqual(b.hear(1), ["2 saved False"])
                    a.read_until("ddprun: note: a node is waiting to join: asking the ranks to save their state\n")
                    c.read_until("ddprun: note: waiting for the job's next checkpoint, to join it, ")
                    a.signal(signal.SIGUSR1)
                    self.assertEqual(a.hear(4), ["0 saved", "0 up", "1 saved", "1 up"])
                    self.assertEqual(b.hear(1) + c.hear(1), ["2 up", "3 up"])
                    a.read_until("the ranks have saved their state; admitting new nodes; generation 1: 3 nodes, 4 ranks\n")
                    end(self, c, b, a)

    def test_libddp_programs_save_once_and_together(self):
        port = free_port()
        with Node(*self.job(port, "-p", "2", "-v", "--node-rank", "0", nodes="1:2"), SCALER) as a:
            a.read_until("generation 0: 1 node, 2 ranks\n")
            with Node(*self.job(port, nodes="1:2"), SCALER) as b:
                self.assertEqual(a.hear(4), ["0 of 3", "0 saved", "1 of 3", "1 saved"])
                self.assertEqual(b.hear(1), ["2 of 3"])
                self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))

    def test_ranks_that_do_not_know_the_request_continue(self):
        port = free_port()
        with Node(*self.job(port, nodes="1:2"), RANK, "note", "10", *UP) as a:
            self.assertEqual(a.hear(1), ["0 up"])
            with Node(*self.job(port, nodes="1:2"), "true") as b:
                a.read_until("asking the ranks to save their state")
                end(self, b)
            a.signal(signal.SIGUSR1)
            self.assertEqual(a.hear(1), ["0 got 10"])
            end(self, a)

    def test_a_node_that_gets_a_signal_leaves_when_all_have_saved(self):
        port = free_port()
        both = c10d(port, "--join-window", "600s", nodes="1:2")
        with Node(*both, "-p", "2", "--node-rank", "0", SCALER) as a:
            await_endpoint(port)
            with Node(*both, "--on-term", "600s", SCALER) as b:
                await_true(lambda: sum(os.path.basename(exe_of(p)) == os.path.basename(SCALER) for p in b.processes()) == 1)
                b.signal(signal.SIGTERM)
                self.assertEqual(a.hear(4), ["0 of 2", "0 saved", "1 of 2", "1 saved"])
                self.assertEqual(b.hear(1), ["2 saved"])
                self.assertEqual((a.finish()[0], b.finish()[0]), (0, -signal.SIGTERM))

    def test_without_a_checkpoint_a_node_is_admitted_after_the_timeout(self):
        port = free_port()
        with Node(*self.job(port, "--admit-timeout", "300ms", nodes="1:2"), RANK, *UP) as a:
            self.assertEqual(a.hear(1), ["0 up"])
            with Node(*self.job(port, "--admit-timeout", "300ms", nodes="1:2"), RANK, *UP) as b:
                self.assertEqual(a.hear(1) + b.hear(1), ["0 up", "1 up"])
                a.read_until("timed out after 300 ms waiting for all ranks to save their state (--admit-timeout); admitting new nodes; generation 1: 2 nodes, 2 ranks\n")
                end(self, b, a)


class Refusals(unittest.TestCase):
    def test_an_endpoint_that_refuses_connections_is_reported(self):
        port = free_port()
        with Node(*static(port, 1), "true") as node:
            node.read_until(f"ddprun: note: waiting for the rendezvous endpoint 127.0.0.1:{port}, ")
            node.read_until(f" s of 600 s: 127.0.0.1:{port}: connection refused\n")
            node.signal(signal.SIGTERM)
            self.assertEqual(node.finish()[0], -signal.SIGTERM)

    def test_without_master_addr_this_machine_is_the_endpoint(self):
        port, hint = free_port(), "; without --master-addr, only nodes on this machine can join\n"
        args = ("--nnodes", "2", "--master-port", str(port), "true")
        with Node("--node-rank", "1", *args) as node:
            node.read_until(f" of 600 s: 127.0.0.1:{port}: connection refused{hint}")
            with Node("--node-rank", "0", *args) as other:
                self.assertEqual((other.finish()[0], node.finish()[0]), (0, 0))
        with Node("--node-rank", "0", *args) as node:
            node.read_until(f" s of 600 s: --node-rank=1{hint}")
            node.signal(signal.SIGTERM)
            self.assertEqual(node.finish()[0], -signal.SIGTERM)

    def test_a_name_without_an_address_is_reported(self):
        with Node(*c10d(29400, host="no-such-node.invalid"), "true", env={"DDP_TOKEN": TOKEN}) as node:
            node.read_until("cannot resolve 'no-such-node.invalid'")
            node.signal(signal.SIGINT)
            self.assertEqual(node.finish()[0], -signal.SIGINT)

    def test_no_node_joins_in_time(self):
        code, _, err = finish(*c10d(free_port(), "--start-timeout", "1"), "true")
        self.assertEqual(code, 69)
        self.assertIn("waiting for nodes: 1 of at least 2 have joined", err)

    def test_the_endpoints_port_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
            code, _, err = finish(*static(port, 0), "true")
        self.assertEqual(code, 69)
        self.assertRegex(err, rf"127\.0\.0\.1 port {port}: address already in use by python[^ ]* \(pid {os.getpid()}\)")

    def test_another_program_is_the_endpoint(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            with Node(*static(s.getsockname()[1], 1, "--start-timeout", "1"), "true") as node:
                conn = s.accept()[0]
                conn.sendall(b"220 mail.example ESMTP\r\n")
                code, _, err = node.finish()
                conn.close()
        self.assertEqual(code, 69)
        self.assertRegex(err, r"127\.0\.0\.1:\d+: ")

    def test_tokens_that_differ(self):
        for ours, theirs in ((TOKEN, TOKEN[::-1]), (TOKEN, ""), ("", TOKEN)):
            port = free_port()
            with Node(*static(port, 0), "true", env={"DDP_TOKEN": ours}) as a:
                await_endpoint(port)
                code, _, err = finish(*static(port, 1, "--start-timeout", "1"), "true", env={"DDP_TOKEN": theirs})
                self.assertEqual(code, 77)
                self.assertRegex(err, "warning: .* token.*; any process at that address can answer this, so this node keeps trying")
                self.assertRegex(err, "error: timed out after 1 s waiting for the rendezvous endpoint .* token")
                a.read_until("token")  # the other terminal also has it
                a.signal(signal.SIGTERM)
                self.assertEqual(a.finish()[0], -signal.SIGTERM)

    def test_a_node_that_another_process_rejects_joins_once_that_is_gone(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
            with Node(*static(port, 1), "true", env={"DDP_TOKEN": TOKEN}) as node:
                with s.accept()[0] as conn:
                    versions = conn.recv(48, socket.MSG_WAITALL)[4:6]
                    conn.sendall(b"DDP1\0\3" + versions + bytes(32))  # another token
                    node.read_until("keeps trying")
                s.close()
                with Node(*static(port, 0), "true", env={"DDP_TOKEN": TOKEN}) as host:
                    self.assertEqual((host.finish()[0], node.finish()[0]), (0, 0))

    def test_a_node_of_another_version_receives_our_versions(self):
        port = free_port()
        with Node(*static(port, 0), "true", env={"DDP_TOKEN": TOKEN}) as host:
            await_endpoint(port)
            with socket.create_connection(("127.0.0.1", port)) as s:  # its key is made in another way
                s.sendall(b"DDP1\5\5\1\0" + b"another!" + bytes(range(32)))
                answer = s.recv(40, socket.MSG_WAITALL)
            self.assertEqual(answer[:6], b"DDP1\0\1")
            self.assertGreater(answer[6], 5)
            host.read_until("use the same version of ddprun on all nodes")
            host.signal(signal.SIGTERM)
            host.finish()

    def test_no_token_where_one_is_required(self):
        code, _, err = finish(*static(free_port(), 0, "--require-token"), "true")
        self.assertEqual(code, 77)
        self.assertIn("--require-token: no token: create one, the same on all nodes, in ~/.config/ddprun/token or DDP_TOKEN", err)
        self.assertEqual(err.count("\n"), 1)

    def test_a_token_that_others_can_read(self):
        with Node("true") as any_job:  # for a directory
            path = os.path.join(any_job.dir, "token")
            with open(path, "w", encoding="ascii") as f:
                f.write(TOKEN)
            os.chmod(path, 0o644)
            code, _, err = finish(*static(free_port(), 0, "--token-file", path), "true")
        self.assertEqual(code, 77)
        self.assertIn("chmod 600", err)

    def test_the_same_node_rank_twice(self):
        port = free_port()
        with Node(*c10d(port, "--node-rank", "1", "--local-addr", "127.0.0.1", "-v", nodes="3"), "true") as a:
            a.read_until("JOINING -> WAITING")
            code, _, err = finish(*c10d(port, "--node-rank", "1", "--local-addr", "127.0.0.2", nodes="3"), "true")
            self.assertEqual(code, 78)
            self.assertIn("127.0.0.1", err)
            a.signal(signal.SIGTERM)
            a.finish()

    def test_another_job_at_the_endpoint(self):
        port = free_port()
        with Node(*c10d(port, "-v"), "true") as a:
            a.read_until("JOINING -> WAITING")
            words = [word if word != "job7" else "job8" for word in c10d(port)]
            code, _, err = finish(*words, "true")
            self.assertEqual(code, 78)
            self.assertIn("belongs to job 'job8', but this endpoint serves job 'job7'", err)
            a.read_until("belongs to job 'job8', but this endpoint serves job 'job7'")
            a.signal(signal.SIGTERM)
            self.assertEqual(a.finish()[0], -signal.SIGTERM)

    def test_conflicting_numbers_of_nodes(self):
        port = free_port()
        with Node(*c10d(port, "-v", nodes="2"), "true") as a:
            a.read_until("JOINING -> WAITING")
            code, _, err = finish(*c10d(port, nodes="2:3"), "true")
            self.assertEqual(code, 78)
            self.assertIn("--nnodes", err)
            a.signal(signal.SIGTERM)
            a.finish()


class Secrets(unittest.TestCase):
    def test_the_token_is_in_no_process(self):
        port = free_port()
        env = {"DDP_TOKEN": TOKEN}
        with Node(*c10d(port), RANK, *UP, env=env) as a, Node(*c10d(port), RANK, *UP, env=env) as b:
            a.hear(1)
            b.hear(1)
            for node in (a, b):
                pids = node.processes()
                self.assertEqual(len(pids), 3)  # ddprun, spawner, rank
                self.assertEqual(leaks(pids, TOKEN), [])
            a.signal(signal.SIGTERM)
            b.signal(signal.SIGTERM)
            a.finish()
            b.finish()

    def test_a_token_that_is_not_used_is_in_no_process_either(self):
        other = TOKEN[::-1]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
                f.write(other + "\n")
            for args in (("-n", "1"), c10d(free_port(), "--token-file", path, nodes="1"),
                         c10d(free_port(), "--token-file", path, nodes="1:2")):
                with Node(*args, RANK, *UP, env={"DDP_TOKEN": TOKEN}) as node:
                    node.hear(1)
                    pids = node.processes()
                    self.assertEqual(len(pids), 3)
                    self.assertEqual(leaks(pids, TOKEN) + leaks(pids, other), [])
                    node.signal(signal.SIGTERM)
                    node.finish()

    def test_a_token_in_the_home_directory_is_found(self):
        port = free_port()
        with Node("true") as any_job:
            folder = os.path.join(any_job.dir, ".config", "ddprun")
            os.makedirs(folder)
            with open(os.open(os.path.join(folder, "token"), os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
                f.write(TOKEN + "\n")
            with Node(*c10d(port, "--require-token"), *SHOW, env={"HOME": any_job.dir}) as a, \
                    Node(*c10d(port), *SHOW, env={"DDP_TOKEN": TOKEN}) as b:
                self.assertEqual((a.finish(), b.finish()), ((0, "", ""), (0, "", "")))


class Namespaces(Machines):
    STORE = ("sh", "-c", f"{DDPCTL} store -t 20 add here 1 >/dev/null && echo $RANK $MASTER_ADDR > $TEST_FIFO")

    def meet(self, args, n_nodes=2):
        """Ranks of nodes 1 to n use the store; -> their reports"""
        nodes = [self.node(i, *args(i), *self.STORE) for i in range(n_nodes, 0, -1)]
        try:
            for node in nodes:
                code, _, err = node.finish()
                # a wire that has just been laid may lose the first packets: then they look for a while
                lines = [line for line in err.splitlines() if "looking for the others" not in line]
                self.assertEqual((code, lines), (0, []))
            return sorted(node.hear(1)[0] for node in nodes)
        finally:
            for node in nodes:
                node.__exit__()

    def test_nodes_publish_the_address_of_their_connection(self):
        for host, shown in (("10.77.0.1", "10.77.0.1"), ("[fd77::1]", "fd77::1")):
            said = self.meet(lambda i, host=host: c10d(29400, "--node-rank", str(i - 1), nodes="3", host=host), 3)
            self.assertEqual(said, [f"{rank} {shown}" for rank in range(3)])

    def test_rank_0_may_be_elsewhere_than_the_endpoint(self):
        said = self.meet(lambda i: c10d(29400, "--node-rank", str(2 - i), host="10.77.0.1"))
        self.assertEqual(said, ["0 10.77.0.2", "1 10.77.0.2"])

    def test_the_endpoint_may_be_a_daemon_on_another_machine(self):
        env = {**os.environ, "HOME": "/nonexistent", "DDP_TOKEN": TOKEN}
        daemon = subprocess.Popen(["ip", "netns", "exec", self.names[3], os.environ["DDP_RENDEZVOUS"], "-b", "10.77.0.3"],
                                  env=env, stderr=subprocess.DEVNULL)
        try:
            said = self.meet(lambda i: c10d(29400, "--node-rank", str(i - 1), host="10.77.0.3"))
            self.assertEqual(said, ["0 10.77.0.1", "1 10.77.0.1"])
        finally:
            daemon.kill()
            daemon.wait()

    def test_a_host_that_has_its_own_name_for_the_loopback_interface(self):
        self.hosts(1, "127.0.1.1 node1")
        self.hosts(2, "10.77.0.1 node1")
        said = self.meet(lambda i: c10d(29400, "--node-rank", str(i - 1), host="node1"))
        self.assertEqual(said, ["0 node1", "1 node1"])
        said = self.meet(lambda i: static(29500, i - 1, host="node1"))
        self.assertEqual(said, ["0 node1", "1 node1"])

    def test_a_name_that_each_node_takes_for_its_own(self):
        self.hosts(1, "10.77.0.1 head", "127.0.1.1 node1")
        self.hosts(2, "10.77.0.1 head", "127.0.1.1 node2")
        said = self.meet(lambda i: c10d(29400, "--node-rank", str(i - 1), host="head"))
        self.assertEqual(said, ["0 10.77.0.1", "1 10.77.0.1"])

    def test_a_name_for_several_machines_has_one_endpoint(self):
        lines = ["10.77.0.3 all", "10.77.0.2 all", "10.77.0.1 all"]
        for i in range(1, 4):
            self.hosts(i, *lines[i - 1:], *lines[:i - 1])
        said = self.meet(lambda i: c10d(29400, "--node-rank", str(i - 1), nodes="3", host="all"), 3)
        self.assertEqual(said, [f"{rank} 10.77.0.1" for rank in range(3)])

    def test_the_master_was_started_on_another_machine(self):
        with self.node(2, *static(29500, 0, host="10.77.0.1"), "true") as a, \
                self.node(1, *static(29500, 1, host="10.77.0.1"), "true") as b:
            a.read_until("warning: this node is the rendezvous endpoint, but '10.77.0.1' (10.77.0.1:29500) does not reach it")
            b.read_until("10.77.0.1:29500: connection refused")
            for node in (a, b):
                node.signal(signal.SIGTERM)
                self.assertEqual(node.finish()[0], -signal.SIGTERM)

    def test_other_hosts_do_not_use_the_store(self):
        for more, code in (((), 1), (("--store-allow", "10.77.0.3"), 0)):
            with self.node(1, *static(29500, 0, *more, host="10.77.0.1"), RANK, *UP) as a, \
                    self.node(2, *static(29500, 1, host="10.77.0.1"), RANK, *UP) as b:
                self.assertEqual(a.hear(1) + b.hear(1), ["0 up", "1 up"])
                done = subprocess.run(["ip", "netns", "exec", self.names[3], DDPCTL, "store", "-t", "20", "-e",
                                       "10.77.0.1:29500", "add", "n"], capture_output=True)
                self.assertEqual(done.returncode == 0, code == 0, done.stderr)
                if code != 0:
                    a.read_until("10.77.0.3")  # ddprun reports the refused address
                for node in (a, b):
                    node.signal(signal.SIGTERM)
                    node.finish()

    def test_an_absent_machine_is_reported(self):
        with self.node(2, *c10d(29400, host="10.77.0.9"), "true") as node:
            node.read_until("ddprun: note: waiting for the rendezvous endpoint 10.77.0.9:29400")
            node.read_until(": 10.77.0.9:29400: ")
            node.signal(signal.SIGTERM)
            self.assertEqual(node.finish()[0], -signal.SIGTERM)


if __name__ == "__main__":
    main()
