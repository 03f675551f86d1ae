"""Where the ranks' output goes: log files, prefixes, labels, terminals; whole lines at any speed.

Covers: launcher/stdio, launcher/job
"""
import fcntl
import glob
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from harness import DDPRUN, DEADLINE_S, RANK, Job, await_true, main, numbers_of, run

LINES = os.environ["LINES_PROGRAM"]  # tests/support/programs/lines.c
HOST = os.uname().nodename.split(".")[0]


def unread(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


def tree(folder):
    """Path below the job's directory -> content."""
    (job,) = os.listdir(folder)
    found = {}
    for path, _, names in os.walk(os.path.join(folder, job)):
        for name in names:
            with open(os.path.join(path, name), encoding="utf-8") as f:
                found[os.path.relpath(os.path.join(path, name), os.path.join(folder, job))] = f.read()
    return found


class LogFiles(unittest.TestCase):
    def setUp(self):
        self.holder = tempfile.TemporaryDirectory()
        self.dir = os.path.join(self.holder.name, "new", "logs")

    def tearDown(self):
        self.holder.cleanup()

    def test_tee_writes_to_both_outputs(self):
        code, out, err = run("-n", "2", "-t", "3", "--log-dir", self.dir, "--rdzv-id", "a/b", RANK, "say", "o",
                             "err", "e")
        self.assertEqual((code, sorted(out.splitlines())), (0, ["[default0]:o", "[default1]:o"]))
        self.assertEqual(sorted(err.splitlines()), ["[default0]:e", "[default1]:e"])
        self.assertTrue(os.listdir(self.dir)[0].startswith("a_b_"))
        self.assertEqual(tree(self.dir), {f"attempt_0/{r}/std{s}.log": s[0].replace("o", "o") + "\n"
                                          for r in (0, 1) for s in ("out", "err")})

    def test_redirects_by_rank(self):
        code, out, err = run("-n", "12", "-r", "11:1,3:3", "--log-dir", self.dir, RANK, "say", "o", "err", "e")
        self.assertEqual((code, out.count("o\n"), err.count("e\n")), (0, 10, 11))
        self.assertEqual(tree(self.dir), {"attempt_0/11/stdout.log": "o\n", "attempt_0/3/stdout.log": "o\n",
                                          "attempt_0/3/stderr.log": "e\n"})

    def test_log_files_are_rotated(self):
        script = 'i=0; while [ $i -lt 3000 ]; do echo "line $i"; i=$((i+1)); done'
        for words in (["-r", "3"], ["-t", "3"]):
            with tempfile.TemporaryDirectory() as dir:
                code, out, err = run("-n", "1", *words, "--log-dir", dir, "--log-rotate", "8K,2", "sh", "-c", script + "; exit 3")
                folder = glob.glob(dir + "/*/attempt_0/0")[0]
                texts = [open(os.path.join(folder, name)).read() for name in ("stdout.log.2", "stdout.log.1", "stdout.log")]
                self.assertEqual(sorted(os.listdir(folder)), ["stderr.log", "stdout.log", "stdout.log.1", "stdout.log.2"])
            self.assertEqual(code, 3)
            for text in texts:
                self.assertTrue(text.startswith("line ") and text.endswith("\n") and len(text) <= 8192)
            whole = "".join(f"line {i}\n" for i in range(3000))
            self.assertTrue(whole.endswith("".join(texts)))

    def test_the_report_knows_a_redirected_stderr(self):
        code, _, err = run("-n", "2", "-r", "2", "--log-dir", self.dir, RANK, "only", "1", "err", "why", "exit", "4",
                           "end", "wait")
        self.assertEqual(code, 4)
        self.assertIn("    | why\n", err)

    def test_error_files_have_absolute_paths_in_the_log_directory(self):
        text = '{"message": {"message": "E", "extraInfo": {"timestamp": "1"}}}'
        os.makedirs(self.dir)
        code, _, err = run("-n", "2", "--log-dir", "logs", RANK, "only", "1", "error", text, "exit", "4", "end",
                           "wait", cwd=os.path.dirname(self.dir))
        self.assertEqual(code, 4)
        self.assertIn("  error: E\n", err)
        self.assertEqual(tree(self.dir), {"attempt_0/1/error.json": text})
        _, out, _ = run("-n", "1", "--log-dir", "logs", "sh", "-c", "echo $TORCHELASTIC_ERROR_FILE",
                        cwd=os.path.dirname(self.dir))
        self.assertRegex(out, f"^{re.escape(os.path.realpath(self.dir))}/[^/]+/attempt_0/0/error.json\n$")

    def test_without_log_dir_ddprun_prints_the_new_directory(self):
        code, _, err = run("-n", "1", "-r", "1", RANK, "say", "o", env={"TMPDIR": self.holder.name})
        self.assertEqual(code, 0)
        (folder,) = os.listdir(self.holder.name)
        self.assertRegex(folder, "^torchelastic_......$")
        self.assertEqual(tree(os.path.join(self.holder.name, folder)), {"attempt_0/0/stdout.log": "o\n"})
        self.assertIn(os.path.join(self.holder.name, folder), err)

    def test_dev_null_as_log_dir_writes_no_files(self):
        code, out, _ = run("-n", "1", "-t", "3", "--log-dir", "/dev/null", RANK, "say", "o")
        self.assertEqual((code, out), (0, "o\n"))

    def test_an_impossible_log_dir_is_an_error(self):
        code, _, err = run("-n", "1", "--log-dir", "/proc/none", RANK)
        self.assertEqual(code, 70)
        self.assertIn("/proc/none", err)

    def test_ranks_filter_hides_but_logs(self):
        code, out, err = run("-n", "3", "-t", "2:3", "--local-ranks-filter", "1", "--log-dir", self.dir, RANK,
                             "say", "o", "err", "e")
        self.assertEqual((code, out, err), (0, "o\n", "e\n"))
        self.assertEqual(tree(self.dir), {"attempt_0/2/stdout.log": "o\n", "attempt_0/2/stderr.log": "e\n"})

    def test_filtered_lines(self):
        run("-n", "2", "-t", "3", "--duplicate-stdout-filters", "loss,,x,acc", "--duplicate-stderr-filters", "bad",
            "--log-dir", self.dir, RANK, "say", "loss,x 1", "say", "loss", "say", "default", "err", "bad", "err", "acc")
        files = tree(self.dir)
        self.assertEqual(sorted(files["attempt_0/filtered_stdout.log"].splitlines()),
                         ["[default0]:loss,x 1", "[default1]:loss,x 1"])
        self.assertEqual(sorted(files["attempt_0/filtered_stderr.log"].splitlines()), ["[default0]:bad", "[default1]:bad"])

    def test_files_of_filtered_lines_exist_even_without_a_line(self):
        run("-n", "2", "-r", "1", "--duplicate-stdout-filters", "loss", "--duplicate-stderr-filters", "bad", "--log-dir",
            self.dir, RANK, "say", "loss")
        files = tree(self.dir)
        self.assertEqual(files["attempt_0/filtered_stdout.log"], "")
        self.assertEqual(files["attempt_0/filtered_stderr.log"], "")

    def test_variables_stand_for_the_options(self):
        env = {"PET_LOG_DIR": self.dir, "PET_TEE": "1", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE":
               "${role_name}-${rank}-${local_rank}-${other}: "}
        _, out, _ = run("-n", "1", "--role", "r", RANK, "say", "o", env=env)
        self.assertEqual(out, "r-0-0-${other}: o\n")
        _, out, _ = run("-n", "1", "--log-line-prefix-template", "${hostname}/${rank} ", RANK, "say", "o", env=env)
        self.assertEqual(out, f"{os.uname().nodename}/0 o\n")


class Lines(unittest.TestCase):
    def test_labels(self):
        _, out, err = run("-n", "2", "--label={rank}{{{generation}}} ", RANK, "say", "o", "err", "e")
        self.assertEqual(sorted(out.splitlines()), ["0{0} o", "1{0} o"])
        self.assertEqual(sorted(err.splitlines()), ["0{0} e", "1{0} e"])

    def test_a_last_line_without_newline_stays_separate(self):
        _, out, _ = run("-n", "4", "--label={rank}:", "sh", "-c", "printf part")
        self.assertEqual(sorted(out.split("\n")), ["0:part", "1:part", "2:part", "3:part"])

    def test_a_line_waits_for_its_end(self):
        script = "if [ $RANK = 0 ]; then printf 'a'; read x; echo b; else echo other; fi"
        with Job("-n", "2", "--label={rank}:", "sh", "-c", script, stdin=subprocess.PIPE) as job:
            self.assertEqual(job.process.stdout.readline(), b"1:other\n")
            job.process.stdin.write(b"\n")
            job.process.stdin.close()
            self.assertEqual(job.process.stdout.readline(), b"0:ab\n")

    def test_long_lines_are_never_mixed(self):
        n = 300_000
        script = f"head -c {n} /dev/zero | tr '\\0' $RANK; echo"
        _, out, _ = run("-n", "4", "--label={rank}:", "sh", "-c", script)
        total = dict.fromkeys("0123", 0)
        for line in out.splitlines():
            rank, text = line.split(":")
            self.assertEqual(set(text) - {rank}, set())
            total[rank] += len(text)
        self.assertEqual(total, dict.fromkeys("0123", n))

    def test_every_line_of_a_flood_is_whole(self):
        n, ranks = 20_000, 8
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as f:
            command = [DDPRUN, "-n", str(ranks), "-t", "3", "--log-dir", folder, LINES, str(n)]
            self.assertEqual(subprocess.run(command, stdout=f, timeout=DEADLINE_S * 3, check=False).returncode, 0)
            f.seek(0)
            seen = [0] * ranks
            for line in f:
                rank, number, filler = re.fullmatch(rb"\[default(\d)\]:(\d) (\d+) (x+)\n", line).group(1, 3, 4)
                self.assertEqual(int(number), seen[int(rank)])
                self.assertEqual(len(number) + len(filler), 96)
                seen[int(rank)] += 1
            self.assertEqual(seen, [n] * ranks)
            for files in tree(folder).values():
                self.assertIn(files.count("\n"), (0, n))

    def test_a_flood_into_a_slow_sink_does_not_block_others(self):
        """Once rank 1 has written its line, only what lies in ddprun and in the sink's pipe comes before it."""
        script = ("if [ $RANK = 1 ]; then while read x; do echo mine; echo said >$TEST_FIFO; done; "
                  "else exec yes flood; fi")
        with Job("-n", "2", "--label={rank}:", "--stdin", "1", "sh", "-c", script, stdin=subprocess.PIPE) as job:
            fd = job.process.stdout.fileno()
            for _ in range(10):
                await_true(lambda: unread(fd) >= 32768)  # as good as full: lines don't fill its pages
                job.process.stdin.write(b"\n")
                job.process.stdin.flush()
                self.assertEqual(job.hear(1), ["said"])
                seen, text = 0, b""
                while b"1:mine\n" not in text:
                    chunk = os.read(fd, 4096)
                    text = text[-16:] + chunk
                    seen += len(chunk)
                self.assertLess(seen, 3 * 65536)
            job.signal(signal.SIGTERM)
            job.end()


class Terminal:
    """ddprun on a terminal of its own."""

    def __init__(self, *args, size=(24, 80), env=None, stdin=False):
        self.ours, theirs = pty.openpty()
        self.resize(*size)
        self.process = subprocess.Popen([DDPRUN, *args], stdin=theirs if stdin else subprocess.DEVNULL, stdout=theirs,
                                        stderr=theirs,
                                        env={**os.environ, "TERM": "dumb", **(env or {})})
        os.close(theirs)
        self.text = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)

    def resize(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, until=None):
        """All that comes, or until a text came."""
        end = time.monotonic() + DEADLINE_S
        while until is None or until not in self.text.decode():
            if not select.select([self.ours], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"waited in vain for {until!r}: {self.text!r}")
            try:
                self.text += os.read(self.ours, 65536)
            except OSError:
                break
        return self.text.decode().replace("\r\n", "\n")


class OnATerminal(unittest.TestCase):
    def test_each_rank_has_a_terminal(self):
        with Terminal("-n", "2", "sh", "-c", "test -t 1 && test -t 2 && stty size <&1 && echo e >&2", size=(33, 99)) as t:
            self.assertEqual(sorted(t.read().splitlines()), sorted(f"{HOST}:{r}: {x}" for r in (0, 1) for x in ("33 99", "e")))

    def test_each_rank_has_a_color(self):
        for words, env, colored in (([], {}, True), (["--color", "never"], {}, False), ([], {"NO_COLOR": "1"}, False),
                                    ([], {"TERM": "dumb"}, False), (["--color", "always"], {"NO_COLOR": "1"}, True)):
            with self.subTest((words, env)), Terminal("-n", "2", *words, "echo", "x", env={"TERM": "xterm", **env}) as t:
                expected = [f"\x1b[{c}m{HOST}:{r}: \x1b[0mx" if colored else f"{HOST}:{r}: x" for r, c in ((0, 36), (1, 32))]
                self.assertEqual(sorted(t.read().splitlines()), sorted(expected))

    def test_a_progress_bar_of_rank_0_is_drawn_while_it_moves(self):
        script = ("import os\nrank = os.environ['RANK']\ngo = os.open(os.environ['BAR_FIFO'] + rank, os.O_RDONLY)\n"
                  "for step in range(2):\n    os.write(2, f'\\r{rank} at {step}'.encode())\n    os.read(go, 1)\n"
                  "os.write(2, b'\\rdone\\n')\n")
        with tempfile.TemporaryDirectory() as dir:
            fifo = os.path.join(dir, "go")
            go = []
            for rank in "01":
                os.mkfifo(fifo + rank)
                go.append(os.open(fifo + rank, os.O_RDWR))
            with Terminal("-n", "2", "--color", "never", "python3", "-c", script, env={"BAR_FIFO": fifo}) as t:
                t.read(f"\r{HOST}:0: 0 at 0\x1b[0m\x1b[K")
                os.write(go[1], b"xx")
                t.read(f"{HOST}:1: done\r\n")
                os.write(go[0], b"x")
                t.read(f"\r{HOST}:0: 0 at 1\x1b[0m\x1b[K")
                os.write(go[0], b"x")
                text = t.read()
            for fd in go:
                os.close(fd)
        lines = [line.split("\r")[-1].replace("\x1b[K", "") for line in text.split("\n")[:-1]]
        self.assertEqual(lines, [f"{HOST}:1: done", f"{HOST}:0: done"])
        self.assertNotIn("1 at", text)  # of the others only the end

    def test_a_single_rank_is_unchanged(self):
        with Terminal("-n", "1", "sh", "-c", "test -t 2 && printf 'a\\r50%%\\r\\033[1mb'") as t:
            self.assertEqual(t.read(), "a\r50%\r\x1b[1mb")

    def test_progress_is_distinguished_from_error_output(self):
        """With --restart-after-progress each stream has a terminal of its own."""
        for stream, expected in ((1, "; restart 1 (after progress)\n"), (2, "rank 0 failed: killed by SIGKILL")):
            script = f"test -t 1 && test -t 2 && sleep 0.01 && echo g$DDP_GENERATION $$. >&{stream}; exec sleep 1000"
            with self.subTest(stream), Terminal("-n", "1", "--restart-after-progress=1ms", "sh", "-c", script) as t:
                text = t.read(".")
                os.kill(int(re.search(r"g0 (\d+)", text).group(1)), signal.SIGKILL)
                self.assertIn(expected, t.read(expected.strip()))
                if stream == 1:
                    t.read("g1 ")
                    t.process.send_signal(signal.SIGTERM)
                    t.process.wait(DEADLINE_S)
                else:
                    self.assertNotIn("; restart", t.read())

    def test_labels_can_be_turned_off(self):
        with Terminal("-n", "2", "--label=", "sh", "-c", "test -t 1 && echo x") as t:
            self.assertEqual(t.read(), "x\nx\n")

    def test_a_new_terminal_size_is_passed_on(self):
        script = "trap 'stty size <&1; exit 0' WINCH; echo ready; while :; do sleep 0.01; done"
        with Terminal("-n", "1", "sh", "-c", script) as t:
            t.read("ready")
            t.resize(11, 22)
            t.process.send_signal(signal.SIGWINCH)  # its terminal is not its controlling one here
            self.assertIn("11 22", t.read())


class Fold(unittest.TestCase):
    def test_the_same_line_of_many_ranks_is_one(self):
        script = 'echo hello; [ $RANK != 3 ] || echo "only 3"; printf end; echo trouble >&2; exit 0'
        code, out, err = run("-n", "8", "--fold=20s", "sh", "-c", script)
        self.assertEqual(code, 0)
        self.assertEqual(err, f"{HOST}:0-7: trouble\n")
        lines = out.splitlines()
        self.assertEqual(lines[0], f"{HOST}:0-7: hello")
        self.assertIn(f"{HOST}:3: only 3", lines)
        told = "".join(line.split(":")[1] + "," for line in lines if line.endswith(": end"))
        self.assertEqual(sorted(numbers_of(told.rstrip(","))), list(range(8)))

    def test_a_held_line_is_shown_after_its_time(self):
        with Terminal("-n", "2", "--fold=50ms", "--color", "always", "sh", "-c", '[ $RANK = 0 ] || { echo here; exec sleep 60; }; exec sleep 60') as t:
            t.read(f"\x1b[32m{HOST}:1: \x1b[0mhere")
            t.process.send_signal(signal.SIGTERM)
            t.read()

    def test_the_report_follows_the_held_lines(self):
        code, out, err = run("-n", "2", "--fold=60s", "sh", "-c", "echo why >&2; exit 5")
        self.assertEqual(code, 5)
        self.assertLess(err.index(": why\n"), err.index("ddprun: "))


class Stdin(unittest.TestCase):
    def test_the_rank_of_stdin_has_the_terminal(self):
        script = '[ $RANK = 1 ] && printf "name? " && read name && echo "hello $name"; [ $RANK = 1 ] || cat'
        with Terminal("-n", "3", "--stdin", "1", "sh", "-c", script, stdin=True) as t:
            self.assertEqual(t.read("name? "), "name? ")  # no label, and it does not wait for a newline
            os.write(t.ours, b"you\n")
            self.assertEqual(t.read(), "name? you\nhello you\n")

    @unittest.skipUnless(shutil.which("gdb"), "no gdb")
    def test_a_debugger_can_be_talked_to(self):
        with Terminal("-n", "2", "--wrap", "1:gdb -q -nx --args", "--stdin", "1", "sh", "-c", "echo from $RANK", stdin=True) as t:
            t.read("(gdb) ")
            t.read(f"{HOST}:0: from 0")
            os.write(t.ours, b"print 40 + 2\n")
            t.read("$1 = 42")
            os.write(t.ours, b"quit\n")
            t.read()
            self.assertEqual(t.process.wait(DEADLINE_S), 0)

    def test_stdin_goes_to_the_named_rank(self):
        for who, expected in (("1", ["0 stdin 0", "1 stdin 5"]), ("none", ["0 stdin 0", "1 stdin 0"])):
            with Job("-n", "2", "--stdin", who, RANK, "stdin", stdin=subprocess.PIPE) as job:
                job.process.stdin.write(b"12345")
                job.process.stdin.close()
                self.assertEqual(job.hear(2), expected)
                job.process.wait(DEADLINE_S)


main()
