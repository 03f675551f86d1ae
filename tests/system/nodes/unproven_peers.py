#!/usr/bin/env python3
"""Peers without the token, of another user on another machine, hold many connections to a coordinator: nodes with the token still
rendezvous, and restart.

Each machine is a network namespace. A file limit makes descriptors short: the flood exceeds it.

usage: unproven_peers.py [unittest's arguments]
       unproven_peers.py flood KIND N ADDRESS PORT     the flood, until standard input ends

Covers: rendezvous/server, rendezvous/jobs, rendezvous/net, rendezvous/daemon, launcher/membership, launcher/generation
"""
import os
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
import unittest

OTHER_UID = 65534
GREETING = b"DDP1" + bytes([1, 255, 1, 0]) + bytes(39)  # all of it but the last byte
REQUEST = b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n"
KINDS = {  # what is sent at once, what is sent each second
    "silent": (b"", b""),
    "greeting": (GREETING, b""),
    "byte": (b"", b"D"),
    "bytes_of_greeting": (b"", GREETING),
    "bytes_of_http": (b"", REQUEST),
    "slow_reader": (REQUEST * 100, b""),
}


class Peer:
    """A connection of the flood."""

    def __init__(self, kind, to):
        self.at_once, self.each_second = KINDS[kind]
        self.n_sent = 0
        self.socket = socket.socket(socket.AF_INET6 if ":" in to[0] else socket.AF_INET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.setblocking(False)
        self.socket.connect_ex(to)
        self.is_begun = False

    def begin(self):
        self.is_begun = True
        self.send(self.at_once)

    def tick(self):
        self.send(self.each_second[self.n_sent:self.n_sent + 1])
        self.n_sent += 1

    def send(self, data):
        try:
            self.socket.send(data)
        except OSError:
            pass


class Flood:
    """So many at a time: what was closed is opened again, some time later."""

    def __init__(self, kinds, n, to):
        self.kinds, self.n, self.to = kinds, n, to
        self.n_ever = self.n_begun = 0
        self.open = {}
        self.poll = select.poll()

    def fill(self):
        while len(self.open) < self.n:
            peer = Peer(self.kinds[self.n_ever % len(self.kinds)], self.to)
            self.n_ever += 1
            self.open[peer.socket.fileno()] = peer
            self.poll.register(peer.socket, select.POLLOUT | select.POLLRDHUP)

    def look(self):
        for fd, events in self.poll.poll(100):
            peer = self.open[fd]
            if events & select.POLLOUT and not peer.is_begun:
                peer.begin()
                self.n_begun += 1
                self.poll.modify(fd, select.POLLRDHUP)
            if events & (select.POLLHUP | select.POLLERR | select.POLLRDHUP):
                self.poll.unregister(fd)
                del self.open[fd]
                peer.socket.close()

    def tick(self):
        for peer in self.open.values():
            peer.tick()


def flood(kinds, n, address, port):
    resource.setrlimit(resource.RLIMIT_NOFILE, (n + 100, n + 100))
    os.setgroups([])
    os.setuid(OTHER_UID)
    flooding, is_told = Flood(kinds, n, (address, port)), False
    next_tick = next_fill = time.monotonic()
    while not select.select([0], [], [], 0)[0]:
        if time.monotonic() >= next_fill:
            next_fill += 0.1
            flooding.fill()
        flooding.look()
        if not is_told and flooding.n_begun >= n:
            print("all have connected", flush=True)
            is_told = True
        if time.monotonic() >= next_tick:
            next_tick += 1
            flooding.tick()


if sys.argv[1:2] == ["flood"]:
    flood(list(KINDS) if sys.argv[2] == "all" else [sys.argv[2]], int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
    sys.exit()

from daemon import DAEMON  # noqa: E402
from harness import DDPRUN, DEADLINE_S, await_true, main  # noqa: E402
from node import TOKEN, Node, c10d  # noqa: E402
from places import Namespaces, NoPlace  # noqa: E402

SERVER, A, B, FLOODING = 1, 2, 3, 4  # hosts
FAIL_ONCE = 'echo $RANK $TORCHELASTIC_RESTART_COUNT > $TEST_FIFO; test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0\n' \
            'test $RANK = 1 || exec sleep 1000\nwhile test ! -e "$GO"; do sleep 0.05; done; exit 7'
PAGE_KEY = "{ printf 'ddp pages 1\\n'; tr -d '\\n' < \"$0\"; } | sha256sum | cut -c -64"  # as in docs/how-to/monitor-jobs.md


def limit_files(n):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))


class Flooded(unittest.TestCase):
    def setUp(self):
        try:
            self.place = self.enter(Namespaces())
        except NoPlace as why:
            self.skipTest(str(why))
        self.dir = self.enter(tempfile.TemporaryDirectory())
        self.token = os.path.join(self.dir, "token")
        with open(os.open(self.token, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write(TOKEN + "\n")
        self.go = os.path.join(self.dir, "go")

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def start(self, host, words, **kw):
        process = subprocess.Popen(self.place.command(host, words), stdin=subprocess.PIPE, **kw)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.communicate()

    def node(self, host, endpoint, n_files=None):
        words = c10d(29400, "--max-restarts", "2", "--require-token", "--token-file", self.token, host=self.place.address(endpoint))
        netns, *words = self.place.command(host, [DDPRUN, *words, "sh", "-c", FAIL_ONCE])
        return self.enter(Node(*words, launcher=netns, env={"GO": self.go}, preexec_fn=n_files and limit_files(n_files)))

    def run_in(self, host, code, *args):
        done = subprocess.run(self.place.command(host, [sys.executable, "-c", code, *args]), capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)
        return done.stdout.strip(), done.stderr

    def await_port(self, host):
        code = "import socket, sys; print(socket.socket().connect_ex((sys.argv[1], 29400)))"
        await_true(lambda: self.run_in(FLOODING, code, self.place.address(host))[0] == "0")

    def flood(self, kind, n, host):
        process = self.start(FLOODING, [sys.executable, __file__, "flood", kind, str(n), self.place.address(host), "29400"],
                             stdout=subprocess.PIPE)
        self.assertTrue(select.select([process.stdout], [], [], DEADLINE_S)[0], "the flood has not begun")
        self.assertEqual(process.stdout.readline(), b"all have connected\n")

    def expect_restart(self, a, b):
        """Both nodes are in generation 0, one fails, and generation 1 succeeds."""
        self.assertEqual(a.hear(1)[0][1:] + b.hear(1)[0][1:], " 0 0")
        with open(self.go, "w", encoding="ascii"):
            pass
        ends = a.finish(), b.finish()
        self.assertEqual([code for code, _, _ in ends], [0, 0], ends)

    def flood_ddprun(self, kind, n):
        a = self.node(SERVER, SERVER, 256)
        self.await_port(SERVER)
        self.flood(kind, n, SERVER)
        self.expect_restart(a, self.node(B, SERVER, 256))

    def flood_daemon(self, kind, n):
        self.start(SERVER, [DAEMON, "-b", "0.0.0.0:29400", "--token-file", self.token], preexec_fn=limit_files(512),
                   stderr=subprocess.DEVNULL)
        self.await_port(SERVER)
        self.flood(kind, n, SERVER)
        self.expect_restart(self.node(A, SERVER), self.node(B, SERVER))

    def test_silent_connections_do_not_end_a_job(self):
        self.flood_ddprun("silent", 400)

    def test_handshakes_that_never_end_do_not_end_a_job(self):
        self.flood_ddprun("greeting", 400)

    def test_slow_peers_of_all_kinds_do_not_end_a_job(self):
        self.flood_ddprun("all", 400)

    def test_silent_connections_keep_no_node_from_a_daemon(self):
        self.flood_daemon("silent", 600)

    def test_slow_peers_of_all_kinds_keep_no_node_from_a_daemon(self):
        self.flood_daemon("all", 600)

    def page(self, path, *fields):
        """A page of the coordinator, for another user of another machine: its status."""
        code = "import os, socket, sys\nos.setuid(65534)\ns = socket.socket()\n" \
               "s.connect((sys.argv[1], 29400))\n" \
               "s.sendall('\\r\\n'.join(sys.argv[2:]).encode() + b'\\r\\n\\r\\n')\nprint(s.recv(12).split()[1].decode())"
        out, err = self.run_in(FLOODING, code, self.place.address(SERVER), f"GET {path} HTTP/1.1", "Host: x", *fields)
        self.assertNotEqual(out, "", err)
        return int(out)

    def expect_pages_for_the_key(self):
        key = subprocess.run(["sh", "-c", PAGE_KEY, self.token], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        self.await_port(SERVER)
        self.assertEqual(self.page("/healthz"), 200)
        for path in "/status", "/metrics":
            self.assertEqual(self.page(path), 401)
            self.assertEqual(self.page(path, f"Authorization: Bearer {TOKEN}"), 401)
            self.assertEqual(self.page(path, f"Authorization: Bearer {key}"), 200)

    def test_pages_of_a_job_with_a_token_need_the_page_key(self):
        self.node(SERVER, SERVER)
        self.expect_pages_for_the_key()

    def test_pages_of_a_daemon_with_a_token_need_the_page_key(self):
        self.start(SERVER, [DAEMON, "-b", "0.0.0.0:29400", "--token-file", self.token], stderr=subprocess.DEVNULL)
        self.expect_pages_for_the_key()


if __name__ == "__main__":
    main()
