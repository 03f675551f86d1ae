"""Chromium without a window, driven through its debugging pipe: a page is opened, and asked what it shows.

The protocol is JSON, each message ended by a NUL: Chromium reads descriptor 3 and writes descriptor 4.
"""
import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

from harness import DEADLINE_S, await_true

PROGRAM = next(filter(None, map(shutil.which, ["chromium-headless-shell", "chromium", "google-chrome"])), None)
WORDS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--window-size=1100,1000",
         "--remote-debugging-pipe")
# Moves the pipes to descriptors 3 and 4: by way of higher ones, which neither of them overwrites.
PLACE_PIPES = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def is_removed(folder):
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
    return not os.path.exists(folder)


@contextlib.contextmanager
def temporary_directory():
    """For a browser's files: its helper processes may still write some when the browser itself has ended."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        await_true(lambda: is_removed(folder), lambda: f"{folder} is not empty: {os.listdir(folder)}")


class Browser:
    """One page. With its end, the browser ends."""

    def __enter__(self):
        self.at_end = contextlib.ExitStack()
        folder = self.at_end.enter_context(temporary_directory())
        to_read, self.to = os.pipe()
        self.of, to_write = os.pipe()
        self.log = open(os.path.join(folder, "log"), "w+b")
        self.process = subprocess.Popen([sys.executable, "-c", PLACE_PIPES, str(to_read), str(to_write), PROGRAM, *WORDS,
                                         f"--user-data-dir={folder}/profile", "about:blank"],
                                        pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(to_read)
        os.close(to_write)
        self.number, self.bytes, self.session, self.events = 0, b"", None, []
        target = next(t for t in self.ask("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self.ask("Log.enable")
        self.ask("Page.enable")
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.of)
        self.log.close()
        self.at_end.close()

    def message(self, end):
        while b"\0" not in self.bytes:
            if not select.select([self.of], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("the browser does not answer")
            some = os.read(self.of, 1 << 20)
            if not some:
                self.log.seek(0)
                raise AssertionError(f"the browser has ended: {self.log.read().decode(errors='replace')}")
            self.bytes += some
        one, self.bytes = self.bytes.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        end = time.monotonic() + DEADLINE_S
        while True:
            answer = self.message(end)
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise AssertionError(f"{method}: {answer['error']}")
            else:
                return answer["result"]

    def open(self, url):
        self.ask("Page.navigate", url=url)

    def value(self, expression):
        """Of JavaScript in the page; None before the page has it."""
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def await_value(self, expression, check):
        """Once it is as the check wants it."""
        end = time.monotonic() + DEADLINE_S
        while True:
            value = self.value(expression)
            if value is not None and check(value):
                return value
            if time.monotonic() > end:
                raise AssertionError(f"{expression} stays {value!r}")
            time.sleep(0.1)

    def complaints(self):
        """The messages in the browser's console about the page: what its policy keeps out, errors of its script."""
        return [e["params"]["entry"]["text"] for e in self.events if e.get("method") == "Log.entryAdded"]

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
