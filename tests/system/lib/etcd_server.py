"""An etcd that a test starts, with the certificates, users and signals that the test needs. None if it is not installed."""
import base64
import contextlib
import http.server
import json
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from harness import DEADLINE_S, await_true
from ports import free_port

INSTALLED = shutil.which("etcd") is not None
WHY_NOT = "etcd is not installed: scripts/install-deps --etcd"


def make_certificates(folder):
    """An authority, and by it certificates for a server at 127.0.0.1 and for a client; and another authority that has
    signed nothing."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    for name in "ca", "other":
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-addext", "keyUsage=critical,keyCertSign", "-keyout", f"{name}.key", "-out", f"{name}.pem")
    with open(os.path.join(folder, "names"), "w") as f:
        # Python 3.13 and newer wants the identifiers, and the authority's keyUsage
        f.write("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"
                "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n")
    for name in "server", "client":
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "names", "-out", f"{name}.pem")


class Etcd:
    def __init__(self, tls=False):
        self.dir = tempfile.mkdtemp()
        self.port, self.peer_port = free_port(), free_port()
        self.scheme = "https" if tls else "http"
        self.context = None
        self.token = None
        self.words = []
        self.process = None
        if tls:
            make_certificates(self.dir)
            self.words = ["--cert-file", self.file("server.pem"), "--key-file", self.file("server.key"),
                          "--trusted-ca-file", self.file("ca.pem"), "--client-cert-auth"]
            self.context = ssl.create_default_context(cafile=self.file("ca.pem"))
            self.context.load_cert_chain(self.file("client.pem"), self.file("client.key"))
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.dir)

    def file(self, name):
        return os.path.join(self.dir, name)

    def start(self):
        here, peer = f"{self.scheme}://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        with open(self.file("log"), "ab") as log:
            self.process = subprocess.Popen(
                ["etcd", "--data-dir", self.file("data"), "--listen-client-urls", here, "--advertise-client-urls", here,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                 "--unsafe-no-fsync" if self.takes("--unsafe-no-fsync") else "--log-level=warn", *self.words],
                stdout=log, stderr=log)
        try:
            await_true(self.answers, self.last_words, 2 * DEADLINE_S)
        except BaseException:
            self.kill()
            raise

    def last_words(self):
        with open(self.file("log"), errors="replace") as log:
            return log.read()[-2000:]

    def takes(self, option):
        return option in subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False).stdout

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None

    def forget(self):
        """Its data. It is not running."""
        shutil.rmtree(self.file("data"))

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def ask(self, path, body):
        headers = {"Authorization": self.token} if self.token else {}
        request = urllib.request.Request(f"{self.scheme}://127.0.0.1:{self.port}/v3/{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=DEADLINE_S, context=self.context) as answer:
            return json.load(answer)

    def answers(self):
        assert self.process.poll() is None, self.last_words()
        try:
            self.ask("kv/range", {"key": encode("x")})
            return True
        except (OSError, urllib.error.URLError):
            return False

    def get(self, key):
        """What is under a key, as JSON; None: nothing."""
        kvs = self.ask("kv/range", {"key": encode(key)}).get("kvs", [])
        return json.loads(base64.b64decode(kvs[0]["value"])) if kvs else None

    def all_keys(self):
        kvs = self.ask("kv/range", {"key": encode("\0"), "range_end": encode("\0")}).get("kvs", [])
        return [base64.b64decode(kv["key"]).decode() for kv in kvs]

    def require_users(self, password):
        """Only root may come in, with this password."""
        self.ask("auth/user/add", {"name": "root", "password": password})
        self.ask("auth/role/add", {"name": "root"})
        self.ask("auth/user/grant", {"user": "root", "role": "root"})
        self.ask("auth/enable", {})
        self.token = self.ask("auth/authenticate", {"name": "root", "password": password})["token"]


class Front(http.server.ThreadingHTTPServer):
    """In front of an etcd: passes all on."""

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), PassOn)
        self.behind = f"http://127.0.0.1:{port}"
        self.thread = threading.Thread(target=self.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *_):
        """A ddprun that was killed resets its connection."""

    def delay(self, path, body):
        """Called when etcd has answered, before the answer is passed on."""


class SlowLogin(Front):
    """Answers logins later than other requests may take."""
    LOGIN_S = 2

    def delay(self, path, body):
        if path.endswith("/auth/authenticate"):
            time.sleep(self.LOGIN_S)


class HeldRecord(Front):
    """Holds the answer to the first write of the record of a generation, until release(). It is written."""

    def __init__(self, port, generation):
        super().__init__(port)
        self.generation = generation
        self.is_held, self.is_released = threading.Event(), threading.Event()

    def __exit__(self, *_):
        self.release()
        super().__exit__()

    def release(self):
        self.is_released.set()

    def delay(self, path, body):
        puts = [op["request_put"] for op in json.loads(body).get("success", []) if "request_put" in op]
        values = [json.loads(base64.b64decode(put["value"])) for put in puts]
        if any(value.get("generation") == self.generation for value in values) and not self.is_held.is_set():
            self.is_held.set()
            self.is_released.wait(2 * DEADLINE_S)


class PassOn(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name: self.headers[name] for name in ("Authorization",) if name in self.headers}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.server.behind + self.path, body, headers)) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        self.server.delay(self.path, body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        with contextlib.suppress(ConnectionError):  # ddprun did not wait for it
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_):
        pass


def encode(text):
    return base64.b64encode(text.encode()).decode()
