"""A DNS server whose names appear, change, and vanish at given times, as those of a cluster's pods do.

It answers questions for one name over UDP: the address that the name has at that moment, or NXDOMAIN. It listens in a network namespace.
"""
import ctypes
import socket
import struct
import threading
import time

CLONE_NEWNET = 0x40000000
TYPE_A, CLASS_IN = 1, 1
FLAG_RESPONSE, FLAG_AUTHORITATIVE, FLAG_RECURSION_DESIRED, FLAG_RECURSION_AVAILABLE = 0x8000, 0x0400, 0x0100, 0x0080
NXDOMAIN = 3
TTL_S = 1
LOOK_S = 0.1  # how often the thread sees that it is to end


def enter_namespace(namespace):
    """The calling thread uses this named network namespace from here on."""
    with open(f"/run/netns/{namespace}", "rb") as f:
        if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def socket_in(namespace):
    """A UDP socket of a named network namespace. The calling thread stays there."""
    enter_namespace(namespace)
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def read_question(packet):
    """-> (name, type, the bytes of the question)"""
    labels, at = [], 12
    while packet[at] != 0:
        labels.append(packet[at + 1:at + 1 + packet[at]])
        at += 1 + packet[at]
    kind, _ = struct.unpack_from(">HH", packet, at + 1)
    return b".".join(labels).decode("ascii").lower(), kind, packet[12:at + 5]


def make_answer(packet, address):
    """address: None if the name does not exist. A question for another type than A is answered with no record."""
    ident, flags = struct.unpack_from(">HH", packet)
    _, kind, question = read_question(packet)
    has_record = address is not None and kind == TYPE_A
    flags = (FLAG_RESPONSE | FLAG_AUTHORITATIVE | FLAG_RECURSION_AVAILABLE | (flags & FLAG_RECURSION_DESIRED) |
             (NXDOMAIN if address is None else 0))
    answer = struct.pack(">HHHHHH", ident, flags, 1, int(has_record), 0, 0) + question
    if has_record:
        answer += struct.pack(">HHHLH", 0xc00c, TYPE_A, CLASS_IN, TTL_S, 4) + socket.inet_aton(address)
    return answer


class DnsServer:
    """In a `with`: it serves at an address of a network namespace."""

    def __init__(self, namespace, address):
        self.namespace, self.address = namespace, address
        self.lock = threading.Lock()
        self.records = {}  # name -> [(from when, address or None)], in the order of times
        self.n_unknown = 0  # questions that were answered with NXDOMAIN
        self.ends = threading.Event()
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.failure = None

    def __enter__(self):
        self.thread.start()
        self.is_ready.wait()
        if self.failure is not None:
            raise self.failure
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()

    def set(self, name, address, in_s=0.0):
        """From then on the name leads to this address; None: it does not exist. What was to happen later is forgotten."""
        at = time.monotonic() + in_s
        with self.lock:
            self.records[name] = [record for record in self.records.get(name, []) if record[0] < at] + [(at, address)]

    def find(self, name):
        now = time.monotonic()
        with self.lock:
            return next((address for at, address in reversed(self.records.get(name, [])) if at <= now), None)

    def serve(self):
        try:
            with socket_in(self.namespace) as s:
                s.bind((self.address, 53))
                s.settimeout(LOOK_S)
                self.is_ready.set()
                while not self.ends.is_set():
                    self.answer_one(s)
        except OSError as failure:
            self.failure = failure
            self.is_ready.set()

    def answer_one(self, s):
        try:
            packet, client = s.recvfrom(512)
        except TimeoutError:
            return
        try:
            name, _, _ = read_question(packet)
            address = self.find(name)
            self.n_unknown += address is None
            s.sendto(make_answer(packet, address), client)
        except (IndexError, struct.error, UnicodeDecodeError):
            pass  # not a question
        except OSError:
            pass  # the client's pod is gone
