#!/usr/bin/env python3
"""Record the messages between a torch client and torch's own server, in the format of tests/data/wire/talk.

usage: record_talk.py > tests/data/wire/talk/recorded-torch-VERSION      with the Python of that torch

A proxy between the two writes lines: N> is what client N sent in one piece, and N< what it received. Only one
side sends at a time, so that related lines are adjacent. For 1.13 insert a line "1 pauses" before the first
reply to a delete_key: torch's server needs no pause there, ours does.
"""
import datetime
import os
import select
import signal
import socket
import time

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
import torch.distributed as dist

REFUSAL = "cannot add to a value that is not a number"  # the text of our server, for the only request here that is refused
QUIET_S = 0.03  # when a side has sent nothing for so long, the other may send


def say(line):
    print(line, flush=True)


class Recorder:
    """In a process of its own, since old clients hold Python's lock while they connect."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.peers = {}  # socket -> (the other one's, number of the client, ">" or "<")
        self.n_clients = 0
        self.pid = os.fork()
        if self.pid == 0:
            self.run()

    def accept(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.server_port))
        self.n_clients += 1
        for s in client, server:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peers[client] = (server, self.n_clients, ">")
        self.peers[server] = (client, self.n_clients, "<")

    def forward(self, s):
        to, number, direction = self.peers[s]
        try:
            data = s.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            for gone in s, to:
                del self.peers[gone]
                gone.close()
            say(f"{number} leaves" if direction == ">" else f"{number} dropped: {REFUSAL}")
            return
        say(f"{number}{direction} {data.hex(' ')}")
        to.sendall(data)

    def run(self):
        while True:
            ready = select.select([self.listener, *self.peers], [], [])[0]
            if self.listener in ready:
                self.accept()
                continue
            self.forward(ready[0])
            while answers := select.select([s for s in self.peers if self.peers[s][2] == "<"], [], [], QUIET_S)[0]:
                self.forward(answers[0])


def operations(a, b):
    """(text, act) of all that this version's client can do."""
    soon = datetime.timedelta(milliseconds=300)

    def has(name):
        return hasattr(a, name)

    yield "set", lambda: a.set("k", b"v1")
    yield "get", lambda: a.get("k")
    yield "set, empty", lambda: a.set("e", "")
    yield "get, empty", lambda: a.get("e")
    yield "add", lambda: a.add("n", 5)
    yield "add, negative", lambda: a.add("n", -7)
    yield "get of a counter", lambda: a.get("n")
    yield "compare_set, missing", lambda: a.compare_set("c", "", "x")
    yield "compare_set, wrong", lambda: a.compare_set("c", "y", "z")
    yield "compare_set, right", lambda: a.compare_set("c", "x", "z")
    yield "compare_set, missing and wrong", lambda: a.compare_set("c2", "q", "z")
    if has("check"):
        yield "check", lambda: a.check(["k", "c2"])
        yield "check, all there", lambda: a.check(["k"])
    yield "num_keys", a.num_keys
    yield "delete_key", lambda: a.delete_key("k")
    yield "delete_key, missing", lambda: a.delete_key("k")
    yield "wait for two", lambda: a.wait(["e", "c"])
    yield "wait in vain", lambda: a.wait(["miss"], soon)
    yield "get after that", lambda: a.get("e")
    if has("append"):
        yield "append", lambda: a.append("ap", "one")
        yield "append again", lambda: a.append("ap", b"\0two")
        yield "get of both", lambda: a.get("ap")
        yield "multi_set", lambda: a.multi_set(["m1", "m2"], ["v1", "v22"])
        yield "multi_get", lambda: a.multi_get(["m1", "m2"])
        yield "multi_get of nothing", lambda: a.multi_get([])
    if has("queue_push"):
        yield "queue_push", lambda: a.queue_push("q", "item")
        yield "queue_len", lambda: a.queue_len("q")
        yield "check of a queue", lambda: a.check(["q"])
        yield "queue_pop", lambda: a.queue_pop("q")
        yield "queue_pop, empty", lambda: a.queue_pop("q", block=False)
    yield "add by the other", lambda: b.add("n", 40)
    yield "PrefixStore", lambda: dist.PrefixStore("pfx", a).set("k", "v")
    yield "num_keys by the other", b.num_keys
    yield "add to a text", lambda: a.add("c", 1)


def main():
    master = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    recorder = Recorder(master.port)
    def client(**options):
        store = dist.TCPStore("127.0.0.1", recorder.port, is_master=False, **options)
        time.sleep(3 * QUIET_S)  # or the proxy would hear the next thing before it has noted the last
        return store

    say(f"# torch {torch.__version__.split('+')[0]} and its own server, recorded by "
                 f"interop/record_talk.py")
    a = client(wait_for_workers=False)
    b = client(world_size=2, wait_for_workers=True)
    for text, act in operations(a, b):
        say(f"# {text}")
        try:
            act()
        except RuntimeError:
            pass  # as recorded: a wait that timed out, or the end of the connection
        time.sleep(3 * QUIET_S)  # or the proxy would hear the next thing before it has noted the last
    os.kill(recorder.pid, signal.SIGKILL)
    os._exit(0)


main()
