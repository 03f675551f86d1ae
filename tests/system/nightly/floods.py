"""Output in amounts and of kinds that no other test has, each with every way it can take: nothing is lost, lines stay whole.

Covers: launcher/stdio, launcher/lines, launcher/reporting
"""
import collections
import glob
import json
import os
import pty
import re
import select
import subprocess
import tempfile
import time
import unittest

from harness import DDPRUN, DEADLINE_S, Job, main

LINES_PROGRAM = os.environ["LINES_PROGRAM"]
N_LINES = int(os.environ.get("TEST_LINES", "200000"))  # of each of two ranks
N_LONG = 5 << 20  # bytes of a line
GIB = 1 << 30
ALL_BYTES = (bytes(b for b in range(256) if b != 13) + b"\n") * 40
LATIN_1 = "Grüße, façade, ½ µm\n".encode("latin-1") * 500
PROGRAMS_PYTHON = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ddprun/programs/bin/python")
LABEL = "--label={rank}|"

# The options of ddprun, what it puts before a rank's lines on its own stdout (None: it writes none there), and whether files have them.
WAYS = {
    "nothing": ((), b"", False),
    "tee": (("-t", "3"), b"[default%d]:", True),
    "redirect": (("-r", "3"), None, True),
    "label": ((LABEL,), b"%d|", False),
    "fold": ((LABEL, "--fold"), b"%d|", False),
}


def script(body):
    """A rank in Python, that writes to file descriptor 1 with nothing in between."""
    return ("python3", "-c", f"import os\nrank = int(os.environ['RANK'])\n"
            f"def put(data):\n    while data:\n        data = data[os.write(1, data):]\n{body}")


def read(path):
    with open(path, "rb") as f:
        return f.read()


class Ways(unittest.TestCase):
    def run_job(self, words, *program, n=2):
        """-> stdout, and what the log file of each rank has; both may be large."""
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
            logs = ("--log-dir", folder) if any(word in ("-t", "-r") for word in words) else ()
            done = subprocess.run([DDPRUN, "-n", str(n), *logs, *words, *program], stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.PIPE, timeout=5 * DEADLINE_S, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            out.seek(0)
            files = [b"".join(map(read, glob.glob(f"{folder}/*/attempt_0/{rank}/stdout.log"))) for rank in range(n)]
            return out.read(), files

    def by_rank(self, out, prefix):
        """The lines after their prefixes; folded ones count for each of their ranks."""
        found = collections.defaultdict(list)
        for line in re.findall(rb"[^\n]+", out) if prefix else ():
            who, text = re.fullmatch(rb"(?s)(?:\[default)?([0-9,-]+)(?:\]:|\|)(.*)", line).groups()
            for rank in (0, 1) if who == b"0-1" else (int(who),):
                found[rank].append(text)
        return found

    def each_way(self, *program, expected, is_whole=True):
        """expected: of each rank, its bytes. is_whole: no line is so long that it comes in pieces."""
        for name, (words, prefix, has_files) in WAYS.items():
            with self.subTest(name):
                out, files = self.run_job(words, *program)
                if has_files:
                    self.assertEqual([len(data) for data in files], [len(data) for data in expected])
                    self.assertTrue(files == expected, "a log file has other bytes")
                if prefix is None:
                    self.assertEqual(out, b"")
                elif prefix == b"":
                    self.assertEqual(len(out), sum(map(len, expected)))
                    self.assertTrue(not is_whole or sorted(out.split(b"\n")) == sorted(b"".join(expected).split(b"\n")),
                                    "a line on stdout is not whole")
                else:
                    found = self.by_rank(out, prefix)
                    for rank, data in enumerate(expected):
                        lines = data.split(b"\n")[:-1]
                        got = found[rank] if is_whole else [b"".join(found[rank])]
                        self.assertTrue(got == (lines if is_whole else [b"".join(lines)]), f"rank {rank} has other lines on stdout")

    def test_400000_lines(self):
        def of(rank):
            return b"".join((b"%d %d " % (rank, i)).ljust(99, b"x") + b"\n" for i in range(N_LINES))
        self.each_way(LINES_PROGRAM, str(N_LINES), expected=[of(0), of(1)])

    def test_lines_of_5_mb(self):
        # they come in pieces (docs/design/launcher.md)
        body = f"for i in range(3):\n    put(b'%d' % rank * {N_LONG} + b'\\n')\n"
        self.each_way(*script(body), expected=[(b"%d" % rank * N_LONG + b"\n") * 3 for rank in range(2)],
                      is_whole=False)

    def test_all_bytes(self):
        # a carriage return starts the line again, as a progress bar does: it has tests of its own
        self.each_way(*script("put((bytes(b for b in range(256) if b != 13) + b'\\n') * 40)\n"), expected=[ALL_BYTES] * 2)

    def test_latin_1(self):
        self.each_way(*script(f"put({LATIN_1[:len(LATIN_1) // 500]!r} * 500)\n"), expected=[LATIN_1] * 2)

    def test_a_last_line_without_its_end(self):
        for name, (words, prefix, has_files) in WAYS.items():
            with self.subTest(name):
                out, files = self.run_job(words, *script("put(b'whole\\n')\nput(b'part of %d' % rank)\n"))
                if has_files:
                    self.assertEqual(files, [b"whole\npart of 0", b"whole\npart of 1"])
                if prefix:
                    self.assertEqual(self.by_rank(out, prefix), {rank: [b"whole", b"part of %d" % rank] for rank in range(2)})
                elif prefix is not None:
                    self.assertEqual(sorted(out.replace(b"whole\n", b"")), sorted(b"part of 0part of 1"))


class Sinks(unittest.TestCase):
    def test_a_reader_that_closes_early(self):
        """As with `| head`: ranks that continue to write end by SIGPIPE or continue, and ddprun exits."""
        for words in ((), ("-t", "3"), (LABEL,), (LABEL, "--fold")):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                logs = ("--log-dir", folder) if "-t" in words else ()
                with Job("-n", "2", *logs, *words, LINES_PROGRAM, "20000") as job:
                    self.assertNotEqual(os.read(job.process.stdout.fileno(), 1), b"")
                    job.process.stdout.close()
                    job.process.stdout = None
                    code, _, err = job.end()
                    self.assertEqual(job.processes(), [])
                self.assertIn(code, (0, 1, 141), err)

    def test_a_report_of_a_rank_that_writes_no_text(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "report.json")
            body = "os.write(2, bytes(range(256)) + b'\\xff\\xfe\\n')\nos._exit(3)\n"
            with Job("-n", "2", "--report", path, *script(body)) as job:
                self.assertEqual(job.end()[0], 3)
            with open(path, encoding="utf-8") as f:
                report = json.load(f)
            self.assertEqual(report["exit_code"], 3)
            self.assertEqual(len(report["ranks"]), 2)

    def test_ddprun_keeps_writing_to_a_renamed_log_file(self):
        body = "put(b'before\\n')\nopen(os.environ['TEST_FIFO'], 'w').write('up\\n')\nos.read(0, 1)\nput(b'after\\n')\n"
        for words in ("-t", "-r"):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder, \
                    Job("-n", "1", words, "1", "--log-dir", folder, *script(body), stdin=subprocess.PIPE) as job:
                job.hear(1)
                path, = glob.glob(folder + "/*/attempt_0/0/stdout.log")
                os.rename(path, path + ".old")
                job.process.stdin.write(b"x")
                job.process.stdin.close()
                job.process.stdin = None
                self.assertEqual(job.end()[0], 0)
                with open(path + ".old", encoding="utf-8") as f:
                    self.assertEqual(f.read(), "before\nafter\n")

    def test_a_log_of_a_gigabyte_is_rotated(self):
        disk = os.statvfs(tempfile.gettempdir())
        if disk.f_bavail * disk.f_frsize < GIB:
            self.skipTest(f"less than 1 GiB is free below {tempfile.gettempdir()}")
        n_lines = GIB // 100
        most = 64 << 20
        for word in "-r", "-t":
            with self.subTest(word), tempfile.TemporaryDirectory() as folder, \
                    Job("-n", "1", word, "1", "--log-dir", folder, "--log-rotate", "64M,3", LINES_PROGRAM, str(n_lines), "1024",
                        stdout=subprocess.DEVNULL) as job:
                self.assertEqual(job.process.wait(5 * DEADLINE_S), 0)
                paths = [glob.glob(f"{folder}/*/attempt_0/0/stdout.log{end}") for end in (".3", ".2", ".1", "")]
                next_line = None
                for path, in paths:
                    self.assertLessEqual(os.path.getsize(path), most)
                    with open(path, "rb") as f:
                        for line in f:
                            number = int(line.split()[1])
                            self.assertIn(next_line, (None, number))
                            self.assertEqual(len(line), 100)
                            next_line = number + 1
                self.assertEqual(next_line, n_lines)


def has_tqdm():
    return os.path.exists(PROGRAMS_PYTHON) and subprocess.run([PROGRAMS_PYTHON, "-c", "import tqdm"], check=False,
                                                              capture_output=True).returncode == 0


@unittest.skipUnless(has_tqdm(), "no tqdm: scripts/install-deps --interop --programs")
class Tqdm(unittest.TestCase):
    PROGRAM = (PROGRAMS_PYTHON, "-c", "import tqdm\nfor _ in tqdm.tqdm(range(50), mininterval=0, desc='epoch'): pass\n")

    def test_on_a_pipe(self):
        for words in ((), ("-t", "3"), (LABEL,)):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                logs = ("--log-dir", folder) if words == ("-t", "3") else ()
                with Job("-n", "2", *logs, *words, *self.PROGRAM) as job:
                    code, _, err = job.end()
                self.assertEqual((code, len([line for line in err.split(b"\n") if b" 50/50 " in line])), (0, 2), err)

    def test_on_a_terminal_of_100_columns(self):
        ours, theirs = pty.openpty()
        env = {**os.environ, "TERM": "dumb"}
        subprocess.run(["stty", "cols", "100", "rows", "30"], stdin=theirs, check=True)
        with subprocess.Popen([DDPRUN, "-n", "2", *self.PROGRAM], env=env, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs) as job:
            os.close(theirs)
            text, end = b"", time.monotonic() + DEADLINE_S
            try:
                while select.select([ours], [], [], max(0, end - time.monotonic()))[0]:
                    text += os.read(ours, 65536)
            except OSError:
                pass  # all have closed it
            try:
                code = job.wait(DEADLINE_S)
            finally:
                job.kill()  # if it runs on
            self.assertEqual(code, 0)
        os.close(ours)
        text = re.sub(rb"\x1b\[[0-9;]*[A-Za-z]", b"", text)
        self.assertEqual(len([line for line in text.split(b"\n") if b" 50/50 " in line]), 2, text)
        self.assertLessEqual(max(len(frame.decode().partition("epoch:")[2]) for frame in re.split(rb"[\r\n]+", text)), 100)


main()
