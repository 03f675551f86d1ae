"""--encrypt: what is on the wire between the ranks of two nodes, and what becomes of a job whose bytes an attacker on the path changes or
repeats. The path is a program in a network namespace between those of the nodes: it copies packets from one end to the other. It sees
what tcpdump sees there, by the same packet sockets.

Covers: worker-runtime/cipher, worker-runtime/tcp, worker-runtime/join, launcher/membership, launcher/start
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from harness import main
from machines import Machines
from node import TOKEN, Node, c10d, static
from ports import free_port

SUMMER = os.environ["SUMMER_PROGRAM"]
PORT, SUMS = 29431, 1 << 16
LARGE = 1000  # bytes in a packet; only the ranks send such

# Copies Ethernet frames between two interfaces. HOW: pass; flip: inverts a bit of a large packet; repeat: sends the bytes of an earlier
# packet instead of a later one's. FILE gets the bytes of each large packet once, with their length before them. Prints a line when
# it is ready.
PATH = """
import select, socket, struct, sys
how, file = sys.argv[1], open(sys.argv[2], "wb")
FROM, LARGE, OUTGOING = 60, int(sys.argv[3]), 4
ends = []
for name in sys.argv[4:6]:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    s.bind((name, 0))
    s.setsockopt(263, 1, struct.pack("iHH8s", socket.if_nametoindex(name), 1, 0, b""))  # PACKET_ADD_MEMBERSHIP, promiscuous
    ends.append(s)
n_of, old, ends_of = {}, {}, {}

def total(data):
    return sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\\0" * (len(data) % 2)))

def rewrite(frame, tcp, end, at, content):
    frame = bytearray(frame)
    frame[at:end] = content
    frame[tcp + 16:tcp + 18] = b"\\0\\0"
    value = total(frame[26:34]) + 6 + end - tcp + total(bytes(frame[tcp:end]))
    while value >> 16:
        value = (value & 0xffff) + (value >> 16)
    frame[tcp + 16:tcp + 18] = struct.pack("!H", ~value & 0xffff)
    return bytes(frame)

def look(frame):
    if len(frame) < 54 or frame[12:14] != b"\\x08\\0" or frame[23] != 6:
        return frame
    tcp, end = 14 + (frame[14] & 15) * 4, 14 + struct.unpack("!H", frame[16:18])[0]
    at = tcp + (frame[tcp + 12] >> 4) * 4
    if end - at < LARGE:
        return frame
    flow = frame[26:34] + frame[tcp:tcp + 4]
    content, number = frame[at:end], struct.unpack("!I", frame[tcp + 4:tcp + 8])[0]
    if (number - ends_of.get(flow, number)) & 0xffffffff < 1 << 31:  # not sent before
        ends_of[flow] = number + len(content) & 0xffffffff
        file.write(struct.pack("!I", len(content)) + content)
        file.flush()
    n = n_of[flow] = n_of.get(flow, 0) + 1
    if how == "flip" and n == FROM:
        return rewrite(frame, tcp, end, at, content[:500] + bytes([content[500] ^ 4]) + content[501:])
    if how == "repeat" and n == FROM - 10:
        old[flow] = content
    if how == "repeat" and n >= FROM and len(old.get(flow, b"")) == len(content):
        return rewrite(frame, tcp, end, at, old.pop(flow))
    return frame

print("ready", flush=True)
while True:
    for s in select.select(ends, [], [])[0]:
        frame, address = s.recvfrom(70000)
        if address[2] != OUTGOING:
            ends[s is ends[0]].send(look(frame))
"""

# A network card in which a packet is complete when it leaves: without, packets have checksums and sizes that later devices make good.
PLAIN_CARD = """
import array, fcntl, socket, struct
value = array.array("B", struct.pack("II", 0x17, 0))  # ETHTOOL_STXCSUM
s = socket.socket()
fcntl.ioctl(s, 0x8946, struct.pack("16sQ16x", b"eth0", value.buffer_info()[0]))  # SIOCETHTOOL
"""

# A rank that waits, for a look at its process.
WAITER = "echo $$ $DDP_ENCRYPT $DDP_ENCRYPT_FD $(stat -Lc %a /proc/self/fd/$DDP_ENCRYPT_FD) > $TEST_FIFO; sleep 1000"


class OnThePath(Machines):
    """Two of the machines are joined by the path, not by the bridge."""

    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(prefix="ddp-encryption-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.file, self.captured = os.path.join(self.folder, "end"), os.path.join(self.folder, "captured")
        for port in "port1", "port2":
            self.ip("-n", self.names[0], "link", "set", port, "nomaster")
        for name in self.names[1:3]:
            self.ip("netns", "exec", name, sys.executable, "-c", PLAIN_CARD)

    def open_path(self, how):
        path = subprocess.Popen(["ip", "netns", "exec", self.names[0], sys.executable, "-c", PATH, how, self.captured, str(LARGE), "port1",
                                 "port2"], stdout=subprocess.PIPE)

        def close():
            path.kill()
            path.wait()
            path.stdout.close()
        self.addCleanup(close)
        self.assertEqual(path.stdout.readline(), b"ready\n")

    def start(self, i, *more, count=SUMS, **env):
        return self.node(i + 1, *static(PORT, i, *more, host="10.77.0.1"), SUMMER, self.file, str(count), DDP_SEGMENT_BYTES="256M", **env)

    def contents(self):
        """The bytes of each large packet."""
        found = []
        with open(self.captured, "rb") as f:
            while len(length := f.read(4)) == 4:
                found.append(f.read(struct.unpack("!I", length)[0]))
        return found

    def run_well(self, *more, **how):
        self.open_path("pass")
        with open(self.file, "w", encoding="ascii"):
            pass  # the ranks end after a round
        with self.start(0, *more, **how) as a, self.start(1, *more, **how) as b:
            ends = a.finish(), b.finish()
            self.assertEqual([end[0] for end in ends], [0, 0], ends)
        return self.contents()

    @staticmethod
    def shows_values(contents):
        """Whether numbers that the ranks add up are in there."""
        values = struct.pack("<8f", *range(7, 63, 7))
        return any(values in content for content in contents)

    @staticmethod
    def n_repeated(contents):
        """How many pieces of 32 bytes are there more than once."""
        pieces = [content[at:at + 32] for content in contents for at in range(0, len(content) - 31, 32)]
        return len(pieces) - len(set(pieces))

    def test_the_wire_shows_no_values_and_nothing_twice(self):
        self.expect_secrecy("1")

    def test_lanes_show_no_values_and_nothing_twice(self):
        self.expect_secrecy("4")

    def expect_secrecy(self, lanes):
        contents = self.run_well("--encrypt", count=SUMS << 3, DDP_SOCKET_LANES=lanes)
        self.assertGreater(sum(map(len, contents)), (SUMS << 3) * 4)
        self.assertFalse(self.shows_values(contents))
        self.assertEqual(self.n_repeated(contents), 0)

    def test_without_encryption_the_wire_shows_both(self):
        contents = self.run_well()
        self.assertTrue(self.shows_values(contents))
        self.assertGreater(self.n_repeated(contents), 0)

    def expect_rejection(self, how, **more):
        self.open_path(how)
        with self.start(0, "--encrypt", **more) as a, self.start(1, "--encrypt", **more) as b:
            ends = a.finish(), b.finish()
        self.assertNotIn(0, [end[0] for end in ends], ends)
        said = ends[0][2] + ends[1][2]
        self.assertRegex(said, r"rank [01] on node [01] \(.*\), lane \d+ to rank [01] on node [01] \(.*\), sent bytes that fail authentication: "
                         "something on the path changed, repeated or left out bytes, or inserted its own")
        self.assertNotIn("instead of", said)  # no sum is wrong

    def test_a_flipped_bit_ends_the_job_with_the_reason(self):
        self.expect_rejection("flip")

    def test_a_flipped_bit_on_a_lane_ends_the_job_with_the_reason(self):
        self.expect_rejection("flip", count=SUMS << 3, DDP_SOCKET_LANES="4")

    def test_repeated_bytes_end_the_job_with_the_reason(self):
        self.expect_rejection("repeat")

    def test_without_encryption_a_flipped_bit_is_a_wrong_sum(self):
        """So the path does change what the ranks receive."""
        self.open_path("flip")
        with self.start(0) as a, self.start(1) as b:
            ends = a.finish(), b.finish()
        self.assertIn("instead of", ends[0][2] + ends[1][2])


class OnThisHost(unittest.TestCase):
    def test_without_a_token_nothing_starts(self):
        with Node(*c10d(free_port(), "--encrypt"), "true") as node:
            code, _, said = node.finish()
        self.assertEqual(code, 77)
        self.assertIn("ddprun: error: --encrypt requires a token: the keys of the ranks are derived from it; create one with", said)

    def test_ranks_find_their_key_in_a_descriptor_only(self):
        port, env = free_port(), {"DDP_TOKEN": TOKEN}
        with Node(*c10d(port, "--encrypt"), "sh", "-c", WAITER, env=env) as a, \
                Node(*c10d(port, "--encrypt"), "sh", "-c", WAITER, env=env) as b:
            for node in a, b:
                pid, encrypt, fd, mode = node.hear(1)[0].split()
                self.assertEqual((encrypt, fd, mode), ("1", "7", "600"))
                with open(f"/proc/{pid}/fd/{fd}", "rb") as f:
                    magic, secret = f.read(8), f.read()
                self.assertEqual((magic, len(secret)), (b"DDPKEY1\0", 32))
                for name in "environ", "cmdline":
                    with open(f"/proc/{pid}/{name}", "rb") as f:
                        text = f.read()
                    self.assertNotIn(secret, text)
                    self.assertNotIn(secret.hex().encode(), text)
                    self.assertNotIn(TOKEN.encode(), text)
            for node in a, b:
                node.signal(15)
                node.finish()

    def test_nodes_that_differ_do_not_run(self):
        port, env = free_port(), {"DDP_TOKEN": TOKEN, "DDP_SEGMENT_BYTES": "256M"}
        with Node(*c10d(port, "--encrypt"), SUMMER, "/nonexistent", "100", env=env) as a, \
                Node(*c10d(port), SUMMER, "/nonexistent", "100", env=env) as b:
            ends = a.finish(), b.finish()
        self.assertNotIn(0, [end[0] for end in ends], ends)
        self.assertRegex(ends[0][2] + ends[1][2], r"rank \d \(.*\) (encrypts|does not encrypt) and rank \d \(.*\) (encrypts|does not): "
                         "start ddprun with --encrypt, or set DDP_ENCRYPT, on all nodes or on none")

    def test_torch_s_own_backends_are_named(self):
        port, env = free_port(), {"DDP_TOKEN": TOKEN}
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write("pass\n")
            script.flush()
            with Node(*c10d(port, "--encrypt"), script.name, env=env) as a, Node(*c10d(port, "--encrypt"), script.name, env=env) as b:
                ends = a.finish(), b.finish()
        self.assertEqual([end[0] for end in ends], [0, 0], ends)
        self.assertIn("ddprun: warning: --encrypt encrypts the connections of libddp, also of torch's backend ddp; what ranks send by "
                      "torch's gloo or nccl is not encrypted", ends[0][2])


if __name__ == "__main__":
    main()
