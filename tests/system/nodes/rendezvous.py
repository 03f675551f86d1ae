"""ddp-rendezvous as it is built: signals, addresses, limits, HTTP on the port of the store.

Covers: rendezvous/daemon, rendezvous/server, rendezvous/net
"""
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import time
import unittest

from daemon import DAEMON, SET, Client, Daemon, run, string
from harness import DEADLINE_S, await_true, main

class Serving(unittest.TestCase):
    def test_keys_remain_when_clients_leave(self):
        with Daemon() as daemon:
            with Client(daemon.port) as client:
                client.set(b"/k", b"value")
                self.assertEqual(client.num_keys(), 1)
            with Client(daemon.port) as client:
                self.assertEqual(client.get(b"/k"), b"value")

    def test_it_exits_with_0_on_a_signal_and_leaves_nothing(self):
        for sig in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            with self.subTest(sig), Daemon() as daemon, Client(daemon.port) as client:
                self.assertEqual(client.num_keys(), 0)
                self.assertEqual(daemon.stop(sig), 0)
                self.assertEqual(os.listdir(daemon.dir.name), ["log"])
                self.assertTrue(client.is_closed())

    def test_its_pages_are_for_clients_that_name_this_machine(self):
        with Daemon("--http-host", "gate.example.org") as daemon:
            for host in "localhost", "gate.example.org:443", socket.gethostname():
                self.assertEqual(daemon.http("/status", host=host)[0], 200, host)
            for path in "/status", "/metrics":
                code, body = daemon.http(path, host="evil.example.org")
                self.assertEqual(code, 421)
                self.assertIn("or start ddp-rendezvous with --http-host evil.example.org\n", body)
            self.assertEqual(daemon.http("/healthz", host="evil.example.org"), (200, "ok\n"))

    def test_it_serves_its_pages(self):
        with Daemon() as daemon, Client(daemon.port) as client:
            client.set(b"/k", b"value")
            self.assertEqual(client.num_keys(), 1)
            self.assertEqual(daemon.http("/healthz"), (200, "ok\n"))
            status, body = daemon.http("/status")
            page = json.loads(body)
            self.assertEqual((status, page["store"]["keys"], page["clients"]["connected"]), (200, 1, 1))
            self.assertEqual(page["requests"]["SET"], 1)
            self.assertEqual(daemon.metric("keys"), 1)
            self.assertEqual(daemon.http("/healthz", "HEAD"), (200, ""))
            self.assertEqual(daemon.http("/healthz", "POST")[0], 405)
            self.assertEqual(daemon.http("/")[0], 404)
            self.assertEqual(client.num_keys(), 1)

    def test_several_addresses_lead_to_one_store(self):
        with Daemon(bind=("-b", "127.0.0.1:0", "-b", "127.0.0.2:0")) as daemon:
            with Client(daemon.ports[0]) as one, Client(daemon.ports[1], "127.0.0.2") as two:
                one.set(b"/k", b"1")
                self.assertEqual(one.num_keys(), 1)
                self.assertEqual(two.num_keys(), 1)

    def test_sockets_of_a_service_manager_are_used(self):
        with socket.socket() as listener, tempfile.TemporaryDirectory() as folder:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port_file = os.path.join(folder, "ports")
            start = f'exec 3<&{listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" --port-file "$1"'
            process = subprocess.Popen(["sh", "-c", start, DAEMON, port_file],
                                       pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
            try:
                await_true(lambda: os.path.exists(port_file) or process.poll() is not None)
                port = listener.getsockname()[1]
                with open(port_file) as f:
                    self.assertEqual(f.read(), f"{port}\n")
                with Client(port) as client:
                    self.assertEqual(client.num_keys(), 0)
                process.terminate()
                self.assertEqual(process.wait(DEADLINE_S), 0)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def test_an_open_address_causes_a_warning_that_names_allow(self):
        with Daemon("--no-jobs", bind=("--bind", "0.0.0.0:0")) as daemon:
            daemon.await_log("with --allow ADDR/BITS")
        with Daemon("--no-jobs", "--allow", "10.0.0.0/8", bind=("--bind", "0.0.0.0:0")) as daemon:
            self.assertEqual(daemon.stop(), 0)
            self.assertNotIn("warning", daemon.log())
        with Daemon() as daemon:
            self.assertEqual(daemon.stop(), 0)
            self.assertNotIn("warning", daemon.log())

    def test_verbose_prints_limits_and_figures(self):
        with Daemon("--verbose", "--max-memory", "512M") as daemon, Client(daemon.port) as client:
            self.assertEqual(client.num_keys(), 0)
            self.assertEqual(daemon.stop(), 0)
            self.assertIn("256 MiB of keys and values", daemon.log())
            self.assertIn("stopped by signal 15", daemon.log())
            self.assertIn("1 connections, 0 refused, 2 requests", daemon.log())


class Failing(unittest.TestCase):
    def test_wrong_usage_exits_with_2(self):
        for words in ["--bind"], ["--bind", "localhost:1"], ["--max-memory", "1K"], ["extra"], ["--nope"]:
            code, out, err = run(*words)
            self.assertEqual((code, out), (2, ""), words)
            self.assertRegex(err, r"\Addp-rendezvous: error: .*\n\Z")

    def test_a_taken_port_exits_with_69_and_is_named(self):
        with Daemon() as daemon:
            code, _, err = run("--bind", f"127.0.0.1:{daemon.port}")
            self.assertEqual(code, 69)
            self.assertRegex(err, rf"port {daemon.port}: address already in use by ddp-rendezvous \(pid \d+\)")
        code, _, err = run("--bind", "192.0.2.1:1")
        self.assertEqual(code, 69)
        self.assertIn("192.0.2.1", err)

    def test_a_port_file_that_cannot_be_written_exits_with_73(self):
        code, _, err = run("--bind", "127.0.0.1:0", "--port-file", "/nonexistent/ports")
        self.assertEqual(code, 73)
        self.assertIn("--port-file: cannot write /nonexistent/ports: No such file or directory", err)

    def test_help_and_version_go_to_stdout(self):
        code, out, err = run("--help")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("--max-value", out)
        self.assertIn("\nExit status:\n", out)
        code, out, err = run("-h")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("--max-memory", out)
        self.assertNotIn("--max-value", out)
        code, out, err = run("--version")
        self.assertRegex(out, r"\Addp-rendezvous \d+\.\d+\.\d+\n\Z")

    def test_a_full_output_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([DAEMON, "--help"], stdout=full, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 70)


class Limits(unittest.TestCase):
    """What is too much is refused with its reason, and the others live on."""

    def test_clients(self):
        with Daemon("--max-clients", "2") as daemon:
            with Client(daemon.port) as one, Client(daemon.port) as two:
                self.assertEqual(one.num_keys() + two.num_keys(), 0)
                with Client(daemon.port) as third:
                    self.assertTrue(third.is_closed())
                daemon.await_log("refused: 2 clients are connected, the maximum")
                self.assertEqual(daemon.http("/healthz"), (200, "ok\n"))
                self.assertEqual(one.num_keys(), 0)
            await_true(lambda: daemon.metric("clients") == 0)
            with Client(daemon.port) as again:
                self.assertEqual(again.num_keys(), 0)

    def test_memory(self):
        with Daemon("--max-memory", "64M") as daemon, Client(daemon.port) as other:
            other.set(b"/mine", b"1")
            value = bytes(1 << 20)
            with Client(daemon.port) as greedy:
                try:
                    for i in range(100):
                        greedy.set(b"/%d" % i, value)
                        greedy.num_keys()
                    self.fail("100 MiB went in")
                except (EOFError, ConnectionError):
                    pass
            daemon.await_log("the store is full: ")
            self.assertEqual(other.get(b"/mine"), b"1")
            self.assertLess(daemon.metric("store_bytes"), 32 << 20)
            self.assertGreater(daemon.metric("keys"), 30)
            other.set(b"/0", b"")  # the store frees the memory of clients that have some
            other.set(b"/more", bytes(1 << 19))
            self.assertEqual(len(other.get(b"/more")), 1 << 19)

    def test_values(self):
        with Daemon("--max-value", "8M") as daemon, Client(daemon.port) as other:
            with Client(daemon.port) as client:
                client.set(b"/k", bytes(8 << 20))
                self.assertEqual(client.num_keys(), 1)
                client.send(bytes([SET]) + string(b"/k") + struct.pack("<Q", (8 << 20) + 1))
                self.assertTrue(client.is_closed())
            daemon.await_log("SET: a value of 8388609 bytes (at most 8388608)")
            self.assertEqual(len(other.get(b"/k")), 8 << 20)

    def test_time_in_mid_request(self):
        with Daemon("--mid-frame-timeout", "100ms") as daemon, Client(daemon.port) as other:
            with Client(daemon.port) as slow:
                slow.send(bytes([SET]) + b"\x01")
                self.assertTrue(slow.is_closed())
            daemon.await_log("timed out after 100 ms waiting for the rest of a request")
            self.assertEqual(other.num_keys(), 0)

    def test_open_files(self):
        def few_files():
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

        with Daemon("--max-clients", "1000", "--max-nodes", "1000", preexec_fn=few_files) as daemon:
            daemon.await_log("limited to 36 nodes instead of 1000: the limit of open files is 200")
            daemon.await_log("limited to 36 clients instead of 1000: the limit of open files is 200")
        with Daemon("--no-jobs", "--max-clients", "1000", preexec_fn=few_files) as daemon, Client(daemon.port) as first:
            daemon.await_log("limited to 72 clients instead of 1000: the limit of open files is 200")
            others = [Client(daemon.port) for _ in range(250)]

            def is_refused():  # one line a second is printed, perhaps about a connection whose first bytes are still on their way
                with Client(daemon.port):
                    return "refused: 72 clients are connected, the maximum" in daemon.log()

            await_true(is_refused, daemon.log)
            self.assertEqual(first.num_keys(), 0)
            for client in others:
                client.socket.close()
            await_true(lambda: daemon.metric("clients") == 1)

    def test_refusals_are_printed_once_a_second(self):
        begin = time.monotonic()
        with Daemon() as daemon, Client(daemon.port) as other:
            for _ in range(300):
                with Client(daemon.port) as scanner:
                    scanner.send(b"\xff")
                    self.assertTrue(scanner.is_closed())
            self.assertEqual(other.num_keys(), 0)
            self.assertEqual(daemon.metric("refused_total"), 300)
            lines = daemon.log().count("unknown opcode 255")
            self.assertGreaterEqual(lines, 1)
            self.assertLessEqual(lines, time.monotonic() - begin + 1)


if __name__ == "__main__":
    main()
