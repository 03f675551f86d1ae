"""The site that scripts/docs builds: Chromium opens its pages, and its search finds "exit status 75".

Chromium is driven over its DevTools protocol: a WebSocket on the loopback interface.

Covers: launcher/options
"""
import base64
import functools
import glob
import http.server
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

ROOT = os.environ["SOURCE_ROOT"]
BROWSER = next(filter(None, map(shutil.which, ["chromium-headless-shell", "chromium", "google-chrome"])), None)
DEADLINE_S = 120


class DevTools:
    """One page of the browser."""

    def __init__(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=DEADLINE_S) as answer:
            page = next(one for one in json.load(answer) if one["type"] == "page")
        path = page["webSocketDebuggerUrl"].split("/", 3)[3]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.file = self.socket.makefile("rb")
        while self.file.readline() not in (b"\r\n", b""):
            pass
        self.n = 0

    def close(self):
        self.file.close()
        self.socket.close()

    def read_message(self):
        text, is_last = b"", False
        while not is_last:
            first, second = self.file.read(2)
            is_last = bool(first & 0x80)
            length = second & 0x7f
            if length >= 126:
                length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
            text += self.file.read(length)
        return json.loads(text)

    def call(self, method, **params):
        self.n += 1
        text = json.dumps({"id": self.n, "method": method, "params": params}).encode()
        size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
        self.socket.sendall(b"\x81" + size + bytes(4) + text)  # a mask of zeros
        while True:
            message = self.read_message()
            if message.get("id") == self.n:
                return message["result"]

    def value(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def await_value(self, expression):
        """The first value that is true."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            value = self.value(expression)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"timed out waiting for {expression}; the page is {self.value('document.body.innerText')[:2000]!r}")

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.await_value(f"location.href.startsWith({json.dumps(url)}) && document.readyState == 'complete'")


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@unittest.skipUnless(BROWSER, "no Chromium is installed: scripts/install-deps --browser")
@unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed: scripts/install-deps --lint")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.site = os.path.join(cls.directory, "site")
        done = subprocess.run([os.path.join(ROOT, "scripts/docs"), cls.site], capture_output=True, text=True, timeout=1500)
        if done.returncode != 0 and "No matching distribution" in done.stderr:
            raise unittest.SkipTest("mkdocs-material cannot be installed: no package index is reachable")
        if done.returncode != 0:
            raise AssertionError(f"scripts/docs: {done.stdout}{done.stderr}")
        handler = functools.partial(QuietHandler, directory=cls.site)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.base = f"http://127.0.0.1:{cls.server.server_address[1]}/"
        profile = os.path.join(cls.directory, "profile")
        cls.browser = subprocess.Popen([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                        "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.browser.wait)
        cls.addClassCleanup(cls.browser.kill)
        end = time.monotonic() + DEADLINE_S
        port_file = os.path.join(profile, "DevToolsActivePort")
        line = ""
        while not line.endswith("\n"):
            if time.monotonic() > end:
                raise AssertionError("Chromium does not open its DevTools port")
            time.sleep(0.05)
            if os.path.exists(port_file):
                with open(port_file, encoding="utf-8") as f:
                    line = f.readline()
        cls.page = DevTools(int(line))
        cls.addClassCleanup(cls.page.close)
        cls.page.call("Page.enable")

    def test_pages_have_a_title_and_navigation(self):
        pages = [os.path.relpath(path, self.site) for path in glob.glob(os.path.join(self.site, "**/*.html"), recursive=True)]
        self.assertGreater(len(pages), 40)
        # one of each directory
        for path in {os.path.dirname(path): path for path in sorted(set(pages) - {"404.html"})}.values():
            with self.subTest(path):
                self.page.open(self.base + path)
                self.assertTrue(self.page.await_value("document.querySelector('h1')?.innerText"))
                self.assertGreater(self.page.value("document.querySelectorAll('.md-nav__link').length"), 10)

    def test_the_search_finds_exit_status_75(self):
        self.page.open(self.base + "index.html")
        self.page.await_value("document.querySelector('.md-search__input') !== null")
        self.page.value("""(() => {
            const input = document.querySelector('.md-search__input');
            document.querySelector('#__search').click();
            input.focus();
            input.value = 'exit status 75';
            input.dispatchEvent(new Event('input', {bubbles: true}));
            input.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true, key: '5'}));
        })()""")
        found = self.page.await_value("[...document.querySelectorAll('a.md-search-result__link')].map(a => a.href).join('\\n')")
        self.assertIn("reference/exit-status.html", found)
        link = next(line for line in found.split("\n") if "exit-status.html" in line)
        self.page.open(link.split("#")[0].split("?")[0])
        self.assertIn("75", self.page.await_value("document.querySelector('table')?.innerText"))


unittest.main(verbosity=2)
