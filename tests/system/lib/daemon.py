"""A ddp-rendezvous under way, and a client of its store."""
import http.client
import os
import signal
import socket
import struct
import subprocess
import tempfile

from harness import DEADLINE_S, await_true

DAEMON = os.environ["DDP_RENDEZVOUS"]
HELLO = b"\x00" + struct.pack("<I", 0x3C85F7CE)
SET, GET, CHECK, GETNUMKEYS = 1, 3, 5, 7


def string(data):
    return struct.pack("<Q", len(data)) + data


class Client:
    """Raw bytes of the newest dialect."""

    def __init__(self, port, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=DEADLINE_S)
        self.send(HELLO)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, n):
        data = b""
        while len(data) < n:
            piece = self.socket.recv(n - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def set(self, key, value):
        self.send(bytes([SET]) + string(key) + string(value))

    def get(self, key):
        self.send(bytes([GET]) + string(key))
        return self.receive(struct.unpack("<Q", self.receive(8))[0])

    def num_keys(self):
        self.send(bytes([GETNUMKEYS]))
        return struct.unpack("<q", self.receive(8))[0]

    def is_closed(self):
        """Wait until the other end has hung up."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class Daemon:
    """A running ddp-rendezvous, on a free port of loopback unless the arguments set another address."""

    def __init__(self, *words, bind=("--bind", "127.0.0.1:0"), **kw):
        self.dir = tempfile.TemporaryDirectory()
        self.port_file = os.path.join(self.dir.name, "ports")
        self.log_path = os.path.join(self.dir.name, "log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([DAEMON, *bind, "--port-file", self.port_file, *words],
                                            stdin=subprocess.DEVNULL, stderr=log, **kw)
        await_true(lambda: os.path.exists(self.port_file) or self.process.poll() is not None, self.log)
        if self.process.poll() is not None:
            raise AssertionError(f"it ended with {self.process.returncode}: {self.log()}")
        with open(self.port_file) as f:
            self.ports = [int(line) for line in f]
        self.port = self.ports[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.dir.cleanup()

    def log(self):
        with open(self.log_path) as f:
            return f.read()

    def await_log(self, text):
        await_true(lambda: text in self.log(), lambda: f"no {text!r} in {self.log()!r}")

    def stop(self, sig=signal.SIGTERM):
        self.process.send_signal(sig)
        return self.process.wait(DEADLINE_S)

    def http(self, path, method="GET", host=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        connection.request(method, path, headers={"Host": host} if host else {})
        reply = connection.getresponse()
        body = reply.read().decode()
        connection.close()
        return reply.status, body

    def metric(self, name):
        for line in self.http("/metrics")[1].splitlines():
            if line.startswith(f"ddp_rendezvous_{name} "):
                return float(line.split()[1])
        raise AssertionError(f"no {name}")


def run(*words, **kw):
    """To its end: (exit status, stdout, stderr)."""
    done = subprocess.run([DAEMON, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=DEADLINE_S, **kw)
    return done.returncode, done.stdout, done.stderr
