"""--store-relay: the ranks of a node use the store of another node through their ddprun, and no other process reaches it.

Other tests run with it as well if TEST_STORE_RELAY is set (tests/system/lib/harness.py).

Covers: rendezvous/relays, rendezvous/relay, launcher/generation, launcher/node
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from ctl import DDPCTL
from harness import DEADLINE_S, RANK, main
from machines import Machines
from node import TOKEN, UP, Node, c10d, static
from ports import free_port

RECOVERY_RANK = os.environ["RECOVERY_RANK"]
RELAY = ("--store-relay", "on")
OTHER_UID = 65534
KEY, VALUE = "a-key-of-the-job", "a-value-of-the-job"

# Tries each port of this address in the ways in which the store could be read, and prints what one of them returned.
PROBE = """
import socket, sys
address, key, ports = sys.argv[1], sys.argv[2].encode(), sys.argv[3:]
hello = bytes.fromhex("00cef7853c")
get = bytes([2]) + len(key).to_bytes(8, "little") + key
for port in map(int, ports):
    for request in hello + get, get, b"GET /status HTTP/1.0\\r\\n\\r\\n":
        with socket.socket() as s:
            s.settimeout(2)
            try:
                s.connect((address, port))
                s.sendall(request)
                s.shutdown(socket.SHUT_WR)
                answer = b""
                while some := s.recv(4096):
                    answer += some
            except OSError:
                pass
            else:
                print(port, answer.hex())
"""

# A Python rank that uses the store.
FORKED = """
import os, subprocess, sys
def store(*words):
    return subprocess.run([sys.argv[1], "store", "-t", "20", *words], check=True, capture_output=True, text=True).stdout.strip()
store("add", "n", "1")
store("set", "here" + os.environ["RANK"], "1")
store("wait", "here0", "here1", "here2", "here3")
with open(os.environ["TEST_FIFO"], "w") as f:
    os.write(f.fileno(), f"{os.environ['MASTER_ADDR']} {store('get', 'n')}\\n".encode())
"""

# Prints a line when it listens, and whether one of the texts has passed by when its stdin ends.
SNIFFER = """
import select, socket, sys
texts = [text.encode() for text in sys.argv[2:]]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
print("listens", flush=True)
seen, n = b"", 0
while True:
    ready = select.select([s, sys.stdin], [], [])[0]
    if s in ready:
        seen += s.recv(65536)
        n += 1
    elif sys.stdin in ready:
        break
print(n, *[text.decode() for text in texts if text in seen], flush=True)
"""


class OnThisHost(unittest.TestCase):
    def run_job(self, script, *more, code=0):
        """Two nodes of two ranks. -> what the ranks report"""
        port = free_port()
        with Node(*c10d(port, "-p", "2", *RELAY, *more), "sh", "-c", script) as a, \
                Node(*c10d(port, "-p", "2", *RELAY, *more), "sh", "-c", script) as b:
            ends = a.finish(), b.finish()
            self.assertEqual([end[0] for end in ends], [code, code], ends)
            return sorted((a.unheard() + b.unheard()).decode().splitlines())

    def test_ranks_of_all_nodes_use_one_store(self):
        said = self.run_job(f"{DDPCTL} store -t 20 add n 1 >/dev/null && {DDPCTL} store -t 20 set here$RANK 1 && "
                            f"{DDPCTL} store -t 20 wait here0 here1 here2 here3 && "
                            f"echo $RANK $MASTER_ADDR $DDP_MASTER_HOST $({DDPCTL} store -t 20 get n) > $TEST_FIFO")
        self.assertEqual(said, [f"{rank} 127.0.0.1 127.0.0.1 4" for rank in range(4)])

    def test_each_generation_has_an_empty_store(self):
        said = self.run_job(f"n=$({DDPCTL} store -t 20 add n 1); {DDPCTL} store -t 20 set here$RANK 1; "
                            f"{DDPCTL} store -t 20 wait here0 here1 here2 here3 || exit 9; "
                            f"echo $TORCHELASTIC_RESTART_COUNT $({DDPCTL} store -t 20 get n) > $TEST_FIFO; "
                            f"[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; {DDPCTL} store -t 20 set told$RANK 1; "
                            f"[ $RANK = 3 ] && {DDPCTL} store -t 20 wait told0 told1 told2 && exit 5; sleep 1000",
                            "--max-restarts", "1")
        self.assertEqual(said, ["0 4"] * 4 + ["1 4"] * 4)

    def test_the_links_may_have_the_port_of_the_rendezvous(self):
        port = free_port()
        # all ranks of a generation have reported before one of them fails
        script = "echo $RANK $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT > $TEST_FIFO; " \
                 f"{DDPCTL} store -t 20 set here$RANK 1 && {DDPCTL} store -t 20 wait here0 here1 || exit 9; " \
                 "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && exit 3; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000"
        with Node(*static(port, 1, *RELAY, "--max-restarts", "1"), "sh", "-c", script) as b, \
                Node(*static(port, 0, *RELAY, "--max-restarts", "1"), "sh", "-c", script) as a:
            self.assertEqual(a.hear(2), [f"0 127.0.0.1 {n}" for n in "01"])
            self.assertEqual(b.hear(2), [f"1 127.0.0.1 {n}" for n in "01"])
            self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))

    def test_the_node_with_rank_0_decides(self):
        port = free_port()
        script = f"{DDPCTL} store -t 20 set here$RANK 1 && {DDPCTL} store -t 20 wait here0 here1 && " \
                 "echo $RANK ${DDP_MASTER_HOST-none} > $TEST_FIFO"
        for first, second, shown in ((RELAY, (), "127.0.0.1"), ((), RELAY, "none")):
            with Node(*c10d(port, "--node-rank", "1", *second), "sh", "-c", script) as b, \
                    Node(*c10d(port, "--node-rank", "0", *first), "sh", "-c", script) as a:
                self.assertEqual((a.finish()[0], b.finish()[0]), (0, 0))
                self.assertEqual(a.hear(1) + b.hear(1), [f"0 {shown}", f"1 {shown}"])

    def test_the_death_of_a_rank_that_waits_ends_its_wait(self):
        """The store would wake it, and a later rank of the same place would get what is not its own."""
        port = free_port()
        with Node(*c10d(port, *RELAY, "--node-rank", "0"), RANK, *UP) as a, \
                Node(*c10d(port, *RELAY, "--node-rank", "1"), "sh", "-c",
                     f"{DDPCTL} store -t 60 wait never & echo $! > $TEST_FIFO; wait $!; "
                     f"{DDPCTL} store -t 20 set after 1 && echo $({DDPCTL} store -t 20 get after) > $TEST_FIFO") as b:
            pid = int(b.hear(1)[0])
            a.hear(1)
            os.kill(pid, signal.SIGKILL)
            self.assertEqual(b.hear(1), ["1"])
            a.signal(signal.SIGTERM)
            a.finish()
            b.finish()

    def test_forked_ranks_use_the_relay(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w", encoding="utf-8") as f:
                f.write(FORKED)
            events = [os.path.join(folder, name) for name in "ab"]
            nodes = [Node(*c10d(port, "-p", "2", *RELAY, "--warm=start", "--events", path), script, DDPCTL)
                     for path in events]
            with nodes[0] as a, nodes[1] as b:
                ends = a.finish(), b.finish()
                self.assertEqual([end[0] for end in ends], [0, 0], ends)
                said = sorted((a.unheard() + b.unheard()).decode().splitlines())
            self.assertEqual(said, ["127.0.0.1 4"] * 4)
            for path in events:
                with open(path, encoding="utf-8") as f:
                    starts = [event["forked"] for event in map(json.loads, f) if event["ev"] == "rank_start"]
                self.assertEqual(starts, [True, True])

    def test_one_node_has_no_relay(self):
        with Node(*RELAY, "-p", "2", "sh", "-c", "echo ${DDP_MASTER_HOST-none} > $TEST_FIFO") as node:
            self.assertEqual(node.finish(), (0, "", ""))
            self.assertEqual(node.hear(2), ["none", "none"])


class OnAWire(Machines):
    SET = f"[ $RANK = 1 ] && {DDPCTL} store -rt 20 set {KEY} {VALUE}; {DDPCTL} store -rt 20 wait {KEY} && " \
          f"[ $({DDPCTL} store -rt 20 get {KEY}) = {VALUE} ] && "

    def run_nodes(self, script, *more, **kw):
        """A rank on machine 1, which has the store, and one on machine 2. Both run when this returns."""
        b = self.node(2, *c10d(29400, "--node-rank", "1", *more, host="10.77.0.1"), "sh", "-c", script, **kw)
        self.addCleanup(b.__exit__)
        a = self.node(1, *c10d(29400, "--node-rank", "0", *more, host="10.77.0.1"), "sh", "-c", script, **kw)
        self.addCleanup(a.__exit__)
        return a, b, a.hear(1, 2 * DEADLINE_S) + b.hear(1, 2 * DEADLINE_S)

    def listening(self, i):
        """Ports of machine i: [(is it on loopback only, number)]"""
        text = subprocess.run(["ip", "netns", "exec", self.names[i], "cat", "/proc/net/tcp", "/proc/net/tcp6"],
                              check=True, capture_output=True, text=True).stdout
        found = []
        for words in map(str.split, text.splitlines()):
            if words[3] == "0A":
                address, port = words[1].split(":")
                found.append((address in ("0100007F", "00000000000000000000000001000000"), int(port, 16)))
        return found

    def probe(self, i, address, ports, *as_user):
        """What machine i reads there."""
        done = subprocess.run(["ip", "netns", "exec", self.names[i], *as_user, "/usr/bin/python3", "-c", PROBE, address, KEY, *map(str, ports)],
                              check=True, capture_output=True, text=True, timeout=DEADLINE_S)
        return done.stdout

    def end(self, *nodes):
        for node in nodes:
            node.signal(signal.SIGTERM)
            node.finish()

    def test_no_other_host_reaches_the_store(self):
        script = self.SET + "echo $RANK $MASTER_ADDR $DDP_MASTER_HOST > $TEST_FIFO; sleep 1000"
        for token in TOKEN, "":
            a, b, said = self.run_nodes(script, *RELAY, DDP_TOKEN=token)
            self.assertEqual(said, ["0 127.0.0.1 10.77.0.1", "1 127.0.0.1 10.77.0.1"])
            ports = [port for _, port in self.listening(1) + self.listening(2)]
            self.assertGreaterEqual(len(ports), 4)  # the roster's, that of links, the store, the relay
            for i in 2, 3:  # a node of the job, and another machine
                for to in 1, 2:
                    self.assertNotIn(VALUE.encode().hex(), self.probe(i, f"10.77.0.{to}", ports))
            here = [port for is_local, port in self.listening(1) if is_local]
            self.assertIn(VALUE.encode().hex(), self.probe(1, "127.0.0.1", here))  # the probe can read it
            self.end(a, b)

    @unittest.skipUnless(shutil.which("setpriv"), "no setpriv")
    def test_no_other_user_reaches_the_store(self):
        a, b, _ = self.run_nodes(self.SET + "echo > $TEST_FIFO; sleep 1000", *RELAY)
        other = ("setpriv", "--reuid", str(OTHER_UID), "--clear-groups")
        for i in 1, 2:
            ports = [port for _, port in self.listening(i)]
            for address in "127.0.0.1", f"10.77.0.{i}":
                self.assertNotIn(VALUE.encode().hex(), self.probe(i, address, ports, *other))
            self.assertIn(VALUE.encode().hex(), self.probe(i, "127.0.0.1", ports))  # our own user reads it
        self.end(a, b)

    def test_without_a_relay_another_node_reads_the_store(self):
        """What the test above would find."""
        a, b, _ = self.run_nodes(self.SET + "echo > $TEST_FIFO; sleep 1000")
        ports = [port for _, port in self.listening(1)]
        self.assertIn(VALUE.encode().hex(), self.probe(2, "10.77.0.1", ports))
        self.end(a, b)

    def test_the_wire_shows_no_key_and_no_value(self):
        for more, shown in ((), [KEY, VALUE]), (RELAY, []):
            sniffer = subprocess.Popen(["ip", "netns", "exec", self.names[0], sys.executable, "-c", SNIFFER, "port1", KEY, VALUE],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.addCleanup(sniffer.communicate)
            self.assertEqual(sniffer.stdout.readline(), "listens\n")
            a, b, _ = self.run_nodes(self.SET + "echo > $TEST_FIFO; sleep 1000", *more)
            self.end(a, b)
            out, _ = sniffer.communicate(timeout=DEADLINE_S)
            n, *seen = out.split()
            self.assertGreater(int(n), 0)
            self.assertEqual(seen, shown)

    def test_libddp_finds_the_way_between_the_nodes(self):
        words = [*c10d(29400, *RELAY, "-p", "2", host="10.77.0.1"), RECOVERY_RANK, "2", "5", "0"]
        with self.node(2, *words) as b, self.node(1, *words) as a:
            ends = a.finish(), b.finish()
            self.assertEqual([end[0] for end in ends], [0, 0], ends)

    def test_a_node_that_is_cut_off_is_lost_as_without_a_relay(self):
        script = f"{DDPCTL} store -t 20 add n 1 > /dev/null; echo $RANK/$WORLD_SIZE > $TEST_FIFO; sleep 1000"
        more = (*RELAY, "--join-window", "0", "--max-restarts", "1")
        b = self.node(2, *c10d(29400, "--node-rank", "1", *more, nodes="1:2", host="10.77.0.1"), "sh", "-c", script)
        self.addCleanup(b.__exit__)
        with self.node(1, *c10d(29400, "--node-rank", "0", *more, nodes="1:2", host="10.77.0.1"), "sh", "-c", script) as a:
            while a.hear(1, 2 * DEADLINE_S) != ["0/2"]:
                pass
            self.ip("-n", self.names[2], "link", "set", "eth0", "down")
            self.assertEqual(a.hear(1, 3 * DEADLINE_S), ["0/1"])
            self.end(a)


if __name__ == "__main__":
    main()
