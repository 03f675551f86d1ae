"""ddpctl report: a job's page, read by a parser and shown in Chromium.

Covers: history, ctl, launcher/reporting, launcher/node
"""
import html.parser
import json
import os
import re
import signal
import subprocess
import tempfile
import unittest
import urllib.request
import zlib

import browser
from ctl import TIMEOUT, await_running, ctl
from harness import DEADLINE_S, RANK, Job, await_true, main, run
from recovery_job import RECOVERY_RANK

DDPCTL = os.environ["DDPCTL"]
HANGER = os.environ["HANGER_PROGRAM"]
TEXT = "document.body.innerText"
NAME = 'job "7" <b>&</b>'


class Page(html.parser.HTMLParser):
    """All tags and texts; every tag that is opened must be closed."""

    VOID = {"meta", "br", "line", "rect", "path", "circle", "polyline"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.links = [], [], [], []
        self.feed(text)
        self.close()
        if self.open:
            raise AssertionError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        if tag not in ("meta", "br", "td", "th", "tr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if tag in ("td", "th", "tr"):
            return
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> behind {self.open}")

    def handle_data(self, data):
        self.texts.append(data)


def record(folder):
    """A job of which a rank fails, and then one hangs, in a file of events."""
    path = os.path.join(folder, "events.jsonl")
    run("--events", path, "--rdzv-id", NAME, "--max-restarts", "1", "-n", "4", RANK, "only", "2", "die",
        str(int(signal.SIGSEGV)), "end", "wait")
    return path


def report(*words):
    done = subprocess.run([DDPCTL, "report", *words], capture_output=True, timeout=DEADLINE_S)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Pages(unittest.TestCase):
    def test_a_page_is_complete_and_loads_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            code, text, err = report(record(folder))
        self.assertEqual((code, err), (0, ""))
        page = Page(text)
        self.assertEqual(page.links, [])
        self.assertNotIn("script", page.tags)
        self.assertNotIn("b", page.tags[:page.tags.index("p")])
        self.assertIn("Job " + NAME, page.texts)
        self.assertEqual(page.tags.count("rect"), 8)  # four ranks, twice
        whole = " ".join(page.texts)
        self.assertIn("Failed with exit status 139", whole)
        self.assertEqual(whole.count("killed by SIGSEGV"), 2)
        self.assertEqual(whole.count("rank 2 failed: stopping its peers"), 4)  # in the picture and in the list
        self.assertIsNone(re.search(r"https?:|url\(|@import", text))

    def test_it_finds_the_events_of_a_running_job(self):
        with tempfile.TemporaryDirectory() as folder, \
                Job("--events", "events.jsonl", "-n", "2", RANK, "pid", "wait", cwd=folder) as job:
            job.hear(2)
            await_running(job)
            code, text, err = ctl(job, "report", *TIMEOUT)
            self.assertEqual(code, 0, err)
            self.assertIn("Still running, or outcome unknown", " ".join(Page(text).texts))
        with Job("-n", "1", RANK, "pid", "wait") as job:
            job.hear(1)
            await_running(job)
            code, _, err = ctl(job, "report", *TIMEOUT)
            self.assertEqual((code, err),
                             (1, "ddpctl: error: this job was started without --events, so no events were recorded; start it with --events FILE\n"))

    def test_one_of_several_jobs_is_selected(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events")
            for name in "first", "second":
                run("--events", path, "--rdzv-id", name, "-n", "1", RANK, "exit", "0")
            self.assertIn("Job first", report(path)[1])
            code, text, _ = report(path, "--run-id", "second")
            self.assertEqual(code, 0)
            self.assertIn("Job second", text)
            code, _, err = report(path, "-r", "third")
            self.assertEqual((code, err), (1, "ddpctl: error: the file contains no events of third\n"))

    def test_a_file_without_events_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bytes")
            with open(path, "wb") as f:
                f.write(os.urandom(1 << 16) + b"x" * (3 << 20) + b"\n{}\n")
            code, _, err = report(path)
            self.assertEqual((code, err), (1, "ddpctl: error: the file contains no events of a job\n"))
            code, _, err = report(path, "-o", os.path.join(folder, "no", "page.html"))
            self.assertEqual(code, 1)
            code, _, err = report(os.path.join(folder, "nothing"))
            self.assertEqual(code, 1)
            self.assertIn("no such job: ", err)


def read_png(path):
    """Width, height and channels of an RGB or RGBA picture of 8 bits, and its rows as PNG filters them."""
    with open(path, "rb") as f:
        data = f.read()
    width, height = (int.from_bytes(data[16 + 4 * i:20 + 4 * i], "big") for i in range(2))
    channels = {2: 3, 6: 4}[data[25]]
    packed, at = b"", 8
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "big")
        if data[at + 4:at + 8] == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += size + 12
    raw = zlib.decompress(packed)
    return width, height, channels, raw


@unittest.skipUnless(browser.PROGRAM, "no Chromium is installed: scripts/install-deps --browser")
class InABrowser(unittest.TestCase):
    def browse(self, folder, *words):
        return subprocess.run([browser.PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                               "--disable-dev-shm-usage", f"--user-data-dir={folder}/profile", "--window-size=1100,1000",
                               *words], capture_output=True, text=True, timeout=120, cwd=folder)

    def test_a_browser_draws_the_page_without_requests(self):
        with browser.temporary_directory() as folder:
            events = os.path.join(folder, "events.jsonl")
            os.symlink(HANGER, os.path.join(folder, "digits"))  # no page shows where it was built
            run("--events", events, "--rdzv-id", "digits", "--hang-timeout", "2s", "--max-restarts", "1",
                "--on-failure", "restart", "-n", "4", "./digits", "sleep", cwd=folder)
            page = os.path.join(folder, "page.html")
            self.assertEqual(report(events, "-o", page), (0, "", ""))
            done = self.browse(folder, "--dump-dom", "file://" + page)
            dom = done.stdout
            self.assertEqual(done.returncode, 0, done.stderr)
            # as the browser understood it: all runs in the picture, the tables outside of it
            self.assertEqual(len(re.findall(r"<rect class=\"fate-", dom)), 8, dom)
            self.assertRegex(dom, r"(?s)</svg>.*<table id=\"failures\">.*<table id=\"events\">")
            self.assertIn("rank 1 hangs (missing): its peers wait in all_reduce #", dom)
            self.assertNotIn("Refused to", done.stderr)  # what the page's policy keeps out
            picture = os.path.join(folder, "page.png")
            done = self.browse(folder, f"--screenshot={picture}", "file://" + page)
            self.assertEqual(done.returncode, 0, done.stderr)
            width, height, channels, raw = read_png(picture)
            self.assertEqual((width, height), (1100, 1000))
            self.assertEqual(len(raw), height * (width * channels + 1))
            self.assertGreater(len(set(raw)), 20)  # something is drawn


@unittest.skipUnless(browser.PROGRAM, "no Chromium is installed: scripts/install-deps --browser")
class LivePage(unittest.TestCase):
    """ddprun --http: the same page while the job runs."""

    def status(self):
        with urllib.request.urlopen(self.url + "status", timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def begin(self, job):
        job.read_until("ddprun: note: serving http://")
        job.read_until("/\n")
        self.url = "http" + job.said.decode().split("serving http", 1)[1].split("\n", 1)[0]
        await_true(lambda: [rank["state"] for rank in self.status()["ranks"]] == 4 * ["running"])

    def test_a_rank_is_seen_to_die_and_to_come_back(self):
        script = 'echo "lost my <mind> in rank $RANK" >&2; "$@"'
        with tempfile.TemporaryDirectory() as folder, browser.Browser() as page, \
                Job("--http", "0", "--rdzv-id", "digits", "-n", "4", "--max-restarts", "3", "--no-python", "sh", "-c", script, "sh",
                    RECOVERY_RANK, "1000000", "40", "20", env={"RECOVERY_UNTIL": os.path.join(folder, "until")}, stdout=subprocess.DEVNULL) as job:
            self.begin(job)
            page.open(self.url)
            page.await_value("document.title", lambda title: title == "Job digits")
            page.await_value("document.querySelector('#now').rows.length", lambda n: n == 5)
            steps = "Number(document.querySelector('#now').rows[1].cells[5].innerText)"
            first = page.await_value(steps, lambda n: n > 0)
            page.await_value(steps, lambda n: n > first)  # it renews itself
            self.assertNotIn("Last lines of rank", page.value(TEXT))
            pid = "document.querySelector('#now').rows[3].cells[1].innerText"
            before = page.value(pid)
            os.kill(self.status()["ranks"][2]["pid"], signal.SIGKILL)
            page.await_value(pid, lambda now: now != before and now != "0")
            page.await_value("document.querySelector('#now').rows[3].cells[2].innerText", lambda state: state == "running")
            text = page.await_value(TEXT, lambda text: "Last lines of rank 2, which failed in generation 0" in text)
            self.assertIn("lost my <mind> in rank 2", text)
            self.assertIn("killed by SIGKILL", text)
            self.assertRegex(text, r"Goodput\s+\d+\.\d %")
            self.assertEqual(page.complaints(), [])
            job.signal(signal.SIGTERM)
            job.process.wait(DEADLINE_S)
            page.await_value("document.body.className", lambda name: name == "gone")
            self.assertIn("Last lines of rank 2", page.value(TEXT))


if __name__ == "__main__":
    main()
