"""--http: health, metrics, status and the live page of a job while it runs; what others may not read, and how many may ask.

Covers: launcher/node, launcher/reporting, launcher/options, rendezvous/server, history
"""
import base64
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import prometheus
from ctl import await_running
from harness import DDPRUN, DEADLINE_S, RANK, Job, await_true, main, run
from http_client import get, port_of
from ports import free_port
from recovery_job import RECOVERY_RANK, Ranks

OTHER_UID = 65534


class Pages(unittest.TestCase):
    def test_a_running_job_serves_all_pages(self):
        with Job("--http", "0", "--rdzv-id", "a \"b\" <c>\\", "-n", "2", RANK, "err", "<b>", "tell", "up", "wait") as job:
            port = port_of(job)
            job.hear(2)
            await_true(lambda: get(port, "/readyz")[0] == 200)
            self.assertEqual(get(port, "/healthz"), (200, "text/plain; charset=utf-8", "ok\n"))
            code, kind, text = get(port, "/status")
            status = json.loads(text)
            self.assertEqual((code, kind, status["state"]), (200, "application/json", "running"))
            self.assertEqual(status["http"], f"localhost:{port}")
            self.assertEqual([rank["last_line"] for rank in status["ranks"]], ["<b>", "<b>"])
            code, kind, text = get(port, "/metrics")
            self.assertEqual((code, kind), (200, "text/plain; version=0.0.4; charset=utf-8"))
            metrics = prometheus.parse(text)
            self.assertEqual(dict(next(iter(metrics["ddprun_info"][2])))["job"], "a \"b\" <c>\\")
            self.assertEqual(metrics["ddprun_world_size"][2], {(): 2})
            self.assertEqual(metrics["ddprun_rank_up"][2], {(("rank", "0"),): 1, (("rank", "1"),): 1})
            seconds = metrics["ddprun_job_seconds"][2]
            self.assertAlmostEqual(sum(seconds.values()), metrics["ddprun_uptime_seconds"][2][()], delta=0.01)
            code, kind, page = get(port, "/")
            self.assertEqual((code, kind), (200, "text/html; charset=utf-8"))
            self.assertIn("<h1>Job a &quot;b&quot; &lt;c&gt;\\</h1>", page)
            self.assertEqual(page.count("<td>&lt;b&gt;</td>"), 2)
            self.assertEqual(get(port, "/nothing")[0], 404)
            self.assertEqual(get(port, "/healthz", method="HEAD")[2], "")
            for method in "POST", "PUT", "DELETE":
                self.assertEqual(get(port, "/status", method=method)[0], 405)
            self.assertEqual(get(port, "/healthz", host="::1")[0], 200)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.end()[0], -signal.SIGTERM)

    def test_the_policy_of_the_page_names_its_script(self):
        with Job("--http", "0", "-n", "1", RANK, "tell", "up", "wait") as job:
            page = get(port_of(job), "/")[2]
        script = re.search(r"<script>(.*?)</script>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self.assertEqual(re.search(r"script-src '([^']*)'", page)[1], "sha256-" + digest)

    def test_it_is_not_ready_while_ranks_are_started_again(self):
        with Job("--http", "0", "--max-restarts", "1", "-n", "2", RANK, "tell", "up", "wait") as job:
            port = port_of(job)
            job.hear(2)
            await_true(lambda: get(port, "/readyz")[0] == 200)
            victim = json.loads(get(port, "/status")[2])["ranks"][1]["pid"]
            os.kill(victim, signal.SIGKILL)
            job.hear(2)
            await_true(lambda: get(port, "/readyz")[0] == 200)
            status = json.loads(get(port, "/status")[2])
            self.assertEqual((status["generation"], [rank["restarts"] for rank in status["ranks"]]), (1, [1, 1]))
            self.assertGreater(status["goodput"]["seconds"]["restart"], 0)
            page = get(port, "/")[2]
            self.assertIn("killed by SIGKILL", page)

    def test_the_last_lines_of_a_failed_rank_stay(self):
        script = 'test $TORCHELASTIC_RESTART_COUNT != 0 || test $RANK = 0 || { echo "it <broke>" >&2; exit 3; }; exec sleep 1000'
        with Job("--http", "0", "--max-restarts", "1", "-n", "2", "sh", "-c", script) as job:
            port = port_of(job)
            await_true(lambda: json.loads(get(port, "/status")[2])["generation"] == 1 and get(port, "/readyz")[0] == 200)
            page = get(port, "/")[2]
        self.assertRegex(page, r"(?s)Last lines of rank 1, which failed in generation 0.*<pre id=\"tail\">it &lt;broke&gt;\n</pre>")

    def metrics_after_a_recovery(self):
        """A page with all kinds of metrics: steps, and a rank that was replaced."""
        with tempfile.TemporaryDirectory() as folder:
            until = os.path.join(folder, "until")
            with Job("--http", "0", "-n", "2", "--max-restarts", "1", RECOVERY_RANK, "1000000", "40", "5", env={"RECOVERY_UNTIL": until}) as job:
                port = port_of(job)
                ranks = Ranks(job)
                ranks.hear_until(lambda: len(ranks.steps) > 20 and len(ranks.pids) == 2)
                ranks.kill(1)
                ranks.hear_until(lambda: ranks.generation == 1 and len(ranks.pids) == 2)
                page = get(port, "/metrics")[2]
                with open(until, "w"):
                    pass
                ranks.hear_all()
                self.assertEqual(job.end()[0], 0)
        return page

    def test_steps_are_in_the_metrics(self):
        metrics = prometheus.parse(self.metrics_after_a_recovery())
        self.assertGreater(metrics["ddprun_steps"][2][()], 20)
        self.assertEqual(metrics["ddprun_steps_reported"][2][()], 1)
        self.assertGreater(metrics["ddprun_job_seconds"][2][(("cause", "recovery"),)], 0)
        self.assertEqual(metrics["ddprun_rank_restarts_total"][2], {(("rank", "0"),): 0, (("rank", "1"),): 1})
        self.assertIn("ddprun_last_step_age_seconds", metrics)

    @unittest.skipIf(shutil.which("promtool") is None, "promtool is not installed (Debian's package prometheus)")
    def test_promtool_accepts_the_metrics(self):
        done = subprocess.run(["promtool", "check", "metrics"], input=self.metrics_after_a_recovery(), text=True, capture_output=True,
                              timeout=DEADLINE_S, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


class Limits(unittest.TestCase):
    def test_silent_connections_keep_no_other_out(self):
        with Job("--http", "0", "-n", "1", RANK, "tell", "up", "wait") as job, contextlib.ExitStack() as stack:
            port = port_of(job)
            for _ in range(300):
                stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", port), DEADLINE_S)))
            for _ in range(100):
                half = stack.enter_context(contextlib.closing(socket.create_connection(("127.0.0.1", port), DEADLINE_S)))
                with contextlib.suppress(OSError):
                    half.sendall(b"GET /status HTTP/1.1\r\n")
            self.assertEqual(get(port, "/healthz")[0], 200)
            self.assertLess(len(os.listdir(f"/proc/{job.process.pid}/fd")), 250)

    def test_noise_ends_no_job(self):
        with Job("--http", "0", "-n", "1", RANK, "tell", "up", "wait") as job:
            port = port_of(job)
            for noise in b"\0" * 5000, b"GET " * 5000, b"DDP1" + os.urandom(3000), os.urandom(9000), b"\x16\x03\x01" + os.urandom(500):
                with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as s, contextlib.suppress(OSError):
                    s.sendall(noise)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(65536):
                        pass
            self.assertEqual(get(port, "/healthz")[0], 200)

    def test_pages_are_for_clients_that_name_this_machine(self):
        own = socket.gethostname()
        accepted = ("localhost", "LOCALHOST.", "127.0.0.1:1", "10.1.2.3", "[::1]:80", own, own.split(".")[0], "Gate.example.org:443",
                    "gate2")
        refused = ("evil.example.org", "127.0.0.1.evil.example.org", "localhost.evil.example.org", own + "x", "gate.example.orgx", "gate",
                   "a b", "[::1", "", "@localhost")
        with Job("--http", "0", "--http-host", "gate.example.org,gate2", "-n", "1", RANK, "tell", "up", "wait") as job:
            port = port_of(job)
            for host in accepted:
                self.assertEqual(get(port, "/status", headers={"Host": host})[0], 200, host)
            for host in refused:
                for path in "/", "/status", "/metrics":
                    code, kind, body = get(port, path, headers={"Host": host})
                    self.assertEqual((code, kind), (421, "text/plain; charset=utf-8"), host)
                    self.assertIn("is not a name of this machine; use an address, or start the job with --http-host", body)
                self.assertEqual(get(port, "/healthz", headers={"Host": host})[0], 200, host)
                self.assertEqual(get(port, "/nothing", headers={"Host": host})[0], 404, host)
        with Job("--http", "0", "--http-host", "*", "-n", "1", RANK, "tell", "up", "wait") as job:
            port = port_of(job)
            self.assertEqual([get(port, "/status", headers={"Host": host})[0] for host in ("evil.example.org", "a b")], [200, 421])

    def test_the_coordinator_s_pages_are_for_clients_that_name_it(self):
        port = free_port()
        nodes = "--nnodes", "1:2", "--join-window", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "j"
        with Job("--http-host", "gate", *nodes, "--nproc-per-node", "1", RANK, "tell", "up", "wait") as job:
            job.hear(1)
            for host, code in ("gate", 200), ("localhost", 200), ("evil.example.org", 421):
                for path in "/status", "/metrics":
                    self.assertEqual(get(port, path, headers={"Host": host})[0], code, host)
            self.assertIn("start the job with --http-host evil.example.org", get(port, "/status", headers={"Host": "evil.example.org"})[2])

    def test_the_page_key_opens_the_pages_by_any_name(self):
        token = "0123456789abcdef" * 4
        key = hashlib.sha256(b"ddp pages 1\n" + token.encode()).hexdigest()
        nodes = "--nnodes", "1:2", "--join-window", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "j"
        with Job("--http", "0", *nodes, "--nproc-per-node", "1", RANK, "tell", "up", "wait", env={"DDP_TOKEN": token}) as job:
            port = port_of(job)
            for bearer, code in (key, 200), (key[:-1] + "x", 421):
                headers = {"Host": "node1.example.org", "Authorization": "Bearer " + bearer}
                self.assertEqual(get(port, "/status", headers=headers)[0], code)

    @unittest.skipUnless(os.geteuid() == 0, "not root: cannot become another user")
    def test_other_users_of_the_machine_read_nothing(self):
        with Job("--http", "0", "-n", "1", RANK, "tell", "up", "wait") as job:
            port = port_of(job)
            program = ("import socket; s = socket.create_connection(('127.0.0.1', %d), 30); "
                       "s.sendall(b'GET /status HTTP/1.0\\r\\n\\r\\n'); print(len(s.recv(100)))" % port)
            done = subprocess.run(["setpriv", "--reuid", str(OTHER_UID), "--clear-groups", "/usr/bin/python3", "-c", program], capture_output=True,
                                  text=True, timeout=DEADLINE_S)
            self.assertNotRegex(done.stdout, r"^[1-9]")
            self.assertEqual(get(port, "/status")[0], 200)


class Options(unittest.TestCase):
    def test_torchs_variable_is_the_same_option(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            busy = taken.getsockname()[1]
            code, _, err = run("-n", "1", "true", env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(busy)})
            self.assertEqual(code, 0)
            self.assertRegex(err, rf"(?m)^ddprun: warning: cannot serve the pages of --http: .* port {busy}: address already in use")
            code, _, err = run("-n", "1", "--http", str(busy), "true")
            self.assertEqual(code, 69)
            self.assertRegex(err, rf"(?m)^ddprun: error: cannot serve the pages of --http: .* port {busy}: address already in use")
        with Job("-v", "-n", "1", RANK, "tell", "up", "wait", env={"TORCHELASTIC_HEALTH_CHECK_PORT": "0"}) as job:
            self.assertEqual(get(port_of(job), "/healthz")[0], 200)

    def test_a_job_without_the_option_listens_nowhere(self):
        with Job("-n", "1", RANK, "tell", "up", "wait") as job:
            job.hear(1)
            await_running(job)
            done = subprocess.run([DDPRUN, "--http", "nonsense", "true"], capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertEqual(done.returncode, 2)
            self.assertIn("invalid value 'nonsense' for --http", done.stderr)


main()
