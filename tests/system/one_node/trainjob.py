"""--trainjob-progress: the steps of a job, posted to a TrainJob. The status server of Kubeflow Trainer is a mock: an HTTPS server that
keeps what it receives. Its certificate is made by openssl(1).

Covers: launcher/node, launcher/trainjob
"""
import contextlib
import http.server
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from harness import DEADLINE_S, Job, await_true, main

EVERY_S = 5  # launcher/trainjob/trainjob_poster.h
# steps are reported until the file ends them
STEPS = ("sh", "-c", 'n=0; until [ -e "$TEST_END" ]; do n=$((n + 1)); echo "step $n" >&$DDP_PROGRESS_FD; sleep 0.2; done; '
         'echo "step $TOTAL" >&$DDP_PROGRESS_FD; sleep 0.5')
TOTAL = 100000


def make_certificate(folder, name):
    """-> the file of the certificate, that of its key"""
    files = [os.path.join(folder, f"{name}.{kind}") for kind in ("crt", "key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", files[0], "-keyout", files[1]],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return files


class StatusServer:
    """A mock, in a `with`. posts: (token, body) of each."""

    def __init__(self, certificate, key, status=200, answer=b"{}", silent=False):
        self.posts, self.ends = [], threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.posts.append((self.headers["Authorization"], self.headers["Content-Type"], self.path, body))
                if silent:
                    outer.ends.wait(DEADLINE_S)
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the client reads no more
                    self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://localhost:{self.server.server_address[1]}/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def statuses(self):
        return [json.loads(body)["trainerStatus"] for _, _, _, body in self.posts]


@unittest.skipIf(shutil.which("openssl") is None, "openssl(1) is not installed")
class Progress(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.certificate, self.key = make_certificate(self.folder, "server")
        self.end_file = os.path.join(self.folder, "end")
        self.token_file = os.path.join(self.folder, "token")
        self.write_token("first.token")

    def write_token(self, text):
        """As a kubelet does it: the file is replaced."""
        with open(self.token_file + ".new", "w", encoding="ascii") as f:
            f.write(text)
        os.rename(self.token_file + ".new", self.token_file)

    def job(self, url, ca_cert=None, **env):
        return Job("--trainjob-progress", str(TOTAL), *STEPS, env={
            "KUBEFLOW_TRAINER_SERVER_URL": url, "KUBEFLOW_TRAINER_SERVER_CA_CERT": ca_cert or self.certificate,
            "KUBEFLOW_TRAINER_SERVER_TOKEN": self.token_file, "TEST_END": self.end_file, "TOTAL": str(TOTAL), **env})

    def end(self, job):
        with open(self.end_file, "w", encoding="ascii"):
            pass
        code, _, err = job.end()
        self.assertEqual(code, 0, err)
        return (job.said + err).decode()

    def test_steps_are_posted_with_the_present_token(self):
        begun = time.monotonic()
        with StatusServer(self.certificate, self.key) as server, self.job(server.url) as job:
            await_true(lambda: server.posts)
            self.write_token("second.token\n")
            await_true(lambda: len(server.posts) > 1)
            self.assertEqual(self.end(job), "")
            took_s = time.monotonic() - begun
            tokens = [token for token, _, _, _ in server.posts]
            self.assertEqual((tokens[0], tokens[-1]), ("Bearer first.token", "Bearer second.token"))
            self.assertLessEqual(len(server.posts), took_s / EVERY_S + 1)
            _, kind, path, body = server.posts[-1]
            self.assertEqual(kind, "application/json")
            self.assertTrue(server.url.endswith(path))
            self.assertLess(len(body), 65536)
            last = server.statuses()[-1]
            self.assertEqual((last["progressPercentage"], last["estimatedRemainingSeconds"]), (100, 0))
            metrics = {metric["name"]: metric["value"] for metric in last["metrics"]}
            self.assertEqual((metrics["steps"], metrics["generation"], metrics["world_size"]), (str(TOTAL), "0", "1"))
            self.assertRegex(last["lastUpdatedTime"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(server.statuses()[0]["progressPercentage"], 0)

    def test_a_server_that_refuses_is_reported_once(self):
        with StatusServer(self.certificate, self.key, status=403) as server, self.job(server.url) as job:
            await_true(lambda: len(server.posts) > 1)
            self.assertEqual(self.end(job).count("was not posted"), 1)

    def test_a_server_that_does_not_answer_holds_nothing_up(self):
        with StatusServer(self.certificate, self.key, silent=True) as server, self.job(server.url) as job:
            await_true(lambda: server.posts)
            self.end(job)

    def test_a_long_answer_is_not_read_to_its_end(self):
        with StatusServer(self.certificate, self.key, answer=b"x" * (1 << 20)) as server, self.job(server.url) as job:
            await_true(lambda: server.posts)
            self.assertNotIn("was not posted", self.end(job))

    def test_another_certificate_is_refused(self):
        other, _ = make_certificate(self.folder, "other")
        with StatusServer(self.certificate, self.key) as server, self.job(server.url, other) as job:
            job.read_until("was not posted")
            self.end(job)
            self.assertEqual(server.posts, [])

    def test_a_connection_without_encryption_is_refused(self):
        with self.job("http://localhost:1/status") as job:
            job.read_until("was not posted")
            self.end(job)

    def test_a_bad_token_is_reported(self):
        self.write_token("two\nlines\n")
        with self.job("https://localhost:1/status") as job:
            job.read_until("not allowed in a header")
            self.end(job)

    def test_outside_of_a_train_job_the_option_is_ignored(self):
        with Job("--trainjob-progress", "5", "true") as job:
            code, _, err = job.end()
            self.assertEqual(code, 0)
            self.assertIn(b"--trainjob-progress ignored", err)


main()
