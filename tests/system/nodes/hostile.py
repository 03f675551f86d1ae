#!/usr/bin/env python3
"""A store with hostile clients: it continues, stays within its memory, and answers the honest one.

usage: hostile.py [--conversations N] [--seed N] [--max-wait-ms MS] --memory-mb MB HOSTILE SERVER ARGUMENT...

HOSTILE is tests/support/hostile. SERVER serves a store on 127.0.0.1: "{port_file}" among its arguments stands
for a file that it writes the port to; without that it prints the port as the last word of its first line. It is
to keep within MB of memory in the end, in total. How long the honest client had to wait is printed, and
compared only with --max-wait-ms: for a machine that has nothing else to do.

Covers: rendezvous/server, rendezvous/store, rendezvous/net, rendezvous/daemon
"""
import argparse
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

DEADLINE_S = float(os.environ.get("TEST_DEADLINE_S", "120"))
HELLO = b"\x00\xce\xf7\x85\x3c"
GET_NUM_KEYS = b"\x07"


def fail(message):
    sys.exit(f"FAILED: {message}")


def await_value(what, look):
    """What look() gives, as soon as that is not None."""
    end = time.monotonic() + DEADLINE_S
    while (value := look()) is None:
        if time.monotonic() > end:
            fail(f"waited {DEADLINE_S} s for {what}")
        time.sleep(0.01)
    return value


class Server:
    def __init__(self, command, folder):
        port_file = os.path.join(folder, "port")
        self.errors = open(os.path.join(folder, "stderr"), "w+", encoding="utf-8")
        filled = [argument.replace("{port_file}", port_file) for argument in command]
        self.process = subprocess.Popen(filled, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True)
        if filled != command:
            self.port = int(await_value("the port", lambda: self.read(port_file)).split()[-1])
        else:
            self.port = int(self.process.stdout.readline().split()[-1])

    def read(self, path):
        self.check_running()
        try:
            with open(path, encoding="utf-8") as f:
                return f.read() or None
        except FileNotFoundError:
            return None

    def check_running(self):
        if self.process.poll() is not None:
            self.errors.seek(0)
            fail(f"the server ended with {self.process.returncode}: {self.errors.read()[-2000:]}")

    def peak_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as f:
            line = next(line for line in f if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def n_keys(self):
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as s:
            s.sendall(HELLO + GET_NUM_KEYS)
            reply = b""
            while len(reply) < 8:
                if not (more := s.recv(8 - len(reply))):
                    fail("the server hung up on an honest client")
                reply += more
        return struct.unpack("<q", reply)[0]

    def stop(self):
        self.process.stdin.close()
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(DEADLINE_S) not in (0, -signal.SIGTERM):
            self.check_running()


def check(args, server):
    n_before = server.n_descriptors()
    print(f"{args.conversations} conversations, seed {args.seed}", flush=True)
    run = subprocess.run([args.hostile, str(server.port), str(args.conversations), str(args.seed),
                          str(server.process.pid)], stdout=subprocess.PIPE, text=True)
    print(run.stdout)
    server.check_running()
    if run.returncode != 0:
        fail(f"hostile ended with {run.returncode}")
    result = json.loads(run.stdout)
    print(f"{server.n_keys()} keys are left, the server's memory was {server.peak_mb():.1f} MB at most, "
          f"the honest client waited {result['good_max_ms']} ms at most, in which the server worked for "
          f"{result['good_max_busy_ms']} ms at most")
    await_value("all connections to go", lambda: server.n_descriptors() <= n_before or None)
    if result["good_requests"] < 10:
        fail("the honest client got hardly an answer")
    if "SANITIZED" not in os.environ and server.peak_mb() > args.memory_mb:
        fail(f"the server's memory was {server.peak_mb():.1f} MB, more than {args.memory_mb}")
    if args.max_wait_ms is not None and result["good_max_ms"] > args.max_wait_ms:
        fail(f"the honest client waited {result['good_max_ms']} ms, more than {args.max_wait_ms}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--conversations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-wait-ms", type=float)
    parser.add_argument("--memory-mb", type=float, required=True)
    parser.add_argument("hostile")
    parser.add_argument("server", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddprun-hostile-") as folder:
        server = Server(args.server, folder)
        try:
            check(args, server)
            server.stop()
        finally:
            if server.process.poll() is None:
                server.process.kill()
    print("all right")


main()
