"""stdin, stdout, stderr, and the report.

Covers: launcher/stdio, launcher/reporting, launcher/node, launcher/remote
"""
import fcntl
import json
import os
import signal
import struct
import subprocess
import tempfile
import termios
import unittest

from harness import DEADLINE_S, RANK, Job, await_true, main, name_of, run


def unread(pipe):
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]


class Stdio(unittest.TestCase):
    def test_only_rank_0_has_stdin(self):
        with Job("-n", "3", RANK, "stdin", stdin=subprocess.PIPE) as job:
            job.process.stdin.write(b"x" * 100_000)
            job.process.stdin.close()
            self.assertEqual(job.hear(3), ["0 stdin 100000", "1 stdin 0", "2 stdin 0"])
            job.process.wait(30)

    def test_closed_standard_descriptors_do_no_harm(self):
        for closed in ((0,), (0, 1), (0, 1, 2), (1,), (2,)):
            def close_them(numbers=closed):
                for n in numbers:
                    os.close(n)

            with Job("-n", "2", RANK, "say", "x", "err", "y", preexec_fn=close_them) as job:
                self.assertEqual(job.end()[0], 0)

    def test_stderr_is_passed_on_unchanged(self):
        data = bytes(range(256)) * 4096
        with tempfile.NamedTemporaryFile() as f:
            f.write(data)
            f.flush()
            with Job("-n", "1", "sh", "-c", f"cat {f.name} >&2") as job:
                code, _, err = job.end()
        self.assertEqual(code, 0)
        self.assertEqual(err, data)

    def test_stderr_of_many_ranks_is_whole(self):
        with Job("-n", "8", "sh", "-c", 'i=0; while [ $i -lt 2000 ]; do echo "$RANK $i" >&2; i=$((i+1)); done') as job:
            code, _, err = job.end()
        self.assertEqual(code, 0)
        seen = {}
        for text in err.decode().splitlines():
            rank, i = text.split()
            self.assertEqual(seen.get(rank, -1) + 1, int(i))
            seen[rank] = int(i)
        self.assertEqual(seen, {str(r): 1999 for r in range(8)})

    def test_stderr_to_a_file_is_appended_to(self):
        with tempfile.TemporaryFile() as f:
            f.write(b"before\n")
            f.flush()
            with Job("-n", "1", RANK, "err", "now", stderr=f) as job:
                self.assertEqual(job.process.wait(30), 0)
            f.seek(0)
            self.assertEqual(f.read(), b"before\nnow\n")

    def test_a_stalled_reader_blocks_ranks_but_not_ddprun(self):
        with Job("-n", "2", "sh", "-c", "[ $RANK = 0 ] && exec head -c 1000000 /dev/zero >&2; exec sleep 1000") as job:
            await_true(lambda: unread(job.process.stderr) == 65536)  # rank 0 has filled what holds anything
            job.signal(15)  # ddprun still handles the signal, and the ranks end
            await_true(lambda: job.processes() == [job.process.pid])
            self.assertIsNone(job.process.poll())  # what it was given it keeps for the reader
            code, _, err = job.end()
            self.assertEqual(code, -15)
            self.assertGreater(err.count(b"\0"), 65536)

    def test_without_a_reader_the_job_continues(self):
        read_end, write_end = os.pipe()
        with Job("-n", "2", RANK, "tell", "up", "err", "lost", "tell", "done", stderr=write_end) as job:
            os.close(write_end)
            os.close(read_end)
            self.assertEqual(job.hear(4), ["0 done", "0 up", "1 done", "1 up"])
            self.assertEqual(job.process.wait(30), 0)


class PausedReader:
    """Standard output is a pipe that is not read. FORM: where the ranks run."""

    def start(self, script, *more):
        return Job(*self.FORM, *more, "sh", "-c", script)

    @staticmethod
    def await_drain(job):
        """Until the ranks and their node are gone, and ddprun has output that it cannot write."""
        await_true(lambda: unread(job.process.stdout) == 65536
                   and sorted(map(name_of, set(job.processes()) - set(job.named("ddp-spawner")))) == ["ddprun"])

    def test_a_stop_signal_ends_the_wait_for_the_reader(self):
        with self.start("head -c 100000 /dev/zero") as job:
            self.await_drain(job)
            self.assertIsNone(job.process.poll())  # a job that has ended by itself waits
            job.signal(signal.SIGTERM)
            self.assertEqual(job.process.wait(DEADLINE_S), -signal.SIGTERM)

    def test_after_a_stop_signal_the_wait_for_the_reader_has_a_deadline(self):
        with self.start("head -c 1000000 /dev/zero; exec sleep 1000") as job:
            await_true(lambda: unread(job.process.stdout) == 65536)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.process.wait(DEADLINE_S), -signal.SIGTERM)

    def test_the_report_is_written_without_the_reader(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "report.json")
            with self.start("head -c 1000000 /dev/zero; exec sleep 1000", "--report", path) as job:
                await_true(lambda: unread(job.process.stdout) == 65536)
                job.signal(signal.SIGTERM)
                self.assertEqual(job.process.wait(DEADLINE_S), -signal.SIGTERM)
            with open(path, encoding="utf-8") as f:
                self.assertEqual(json.load(f)["outcome"], "signal")

    def test_further_stop_signals_end_the_wait_for_the_reader(self):
        with self.start("head -c 1000000 /dev/zero; exec sleep 1000") as job:
            await_true(lambda: unread(job.process.stdout) == 65536)
            job.signal(signal.SIGTERM)
            self.await_drain(job)
            job.signal(signal.SIGINT)
            self.assertEqual(job.process.wait(DEADLINE_S), -signal.SIGTERM)

    def test_a_reader_that_reads_again_gets_all_output(self):
        with self.start("head -c 300000 /dev/zero") as job:
            await_true(lambda: unread(job.process.stdout) == 65536)
            code, out, _ = job.end()
        self.assertEqual((code, out.count(b"\0")), (0, 300000))


class PausedReaderOfOneNode(PausedReader, unittest.TestCase):
    FORM = ("--label", "-n", "1")


class PausedReaderOfTheLaunchingHost(PausedReader, unittest.TestCase):
    FORM = ("-H", "localhost")


class Report(unittest.TestCase):
    def test_names_the_root_cause_and_groups_the_others(self):
        code, out, err = run("-n", "8", RANK, "only", "1", "err", "the reason", "exit", "3", "end", "wait")
        lines = err.splitlines()
        self.assertEqual((code, out), (3, ""))
        self.assertEqual(lines[0], "the reason")
        self.assertRegex(lines[1], r"^ddprun: error: rank 1 failed: exit status 3, \d+\.\d\d s after its start$")
        self.assertRegex(lines[2], r"^  host \S+, local rank 1, pid \d+, \S+$")
        self.assertEqual(lines[3:], ["  last lines of its stderr:", "    | the reason",
                                     "  ranks 0, 2-7: stopped by ddprun (SIGTERM)"])

    def test_has_the_message_of_the_error_file(self):
        text = json.dumps({"message": {"message": "ValueError: seven", "extraInfo": {"timestamp": "1"}}})
        _, _, err = run("-n", "2", RANK, "only", "1", "error", text, "exit", "1", "end", "wait")
        self.assertIn("  error: ValueError: seven\n", err)

    def test_notes_a_malformed_error_file(self):
        code, _, err = run("-n", "2", RANK, "only", "1", "error", "{no json", "exit", "9", "end", "wait")
        self.assertEqual(code, 9)
        self.assertRegex(err, r"  note: \S+/1\.json: not valid JSON: line 1")

    def test_the_root_cause_is_passed_on_to_our_own_error_file(self):
        text = json.dumps({"message": {"message": "E", "extraInfo": {"timestamp": "1"}}})
        with tempfile.TemporaryDirectory() as d:
            own = os.path.join(d, "error.json")
            for commands, expected in ((("error", text, "exit", "3"), {"message": "E", "extraInfo": {"timestamp": "1"},
                                                                      "errorCode": 3}),
                                       (("die", "9"), {"message": "rank 0 failed: killed by SIGKILL (Killed)",
                                                       "errorCode": -9})):
                run("-n", "1", RANK, *commands, env={"TORCHELASTIC_ERROR_FILE": own})
                with open(own) as f:
                    message = json.load(f)["message"]
                if "extraInfo" not in expected:
                    self.assertTrue(message.pop("extraInfo")["timestamp"].isdigit())
                self.assertEqual(message, expected)

    def test_prints_nothing_after_success(self):
        self.assertEqual(run("-n", "2", RANK), (0, "", ""))


main()
