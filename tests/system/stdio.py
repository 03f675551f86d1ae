"""stdin, stdout, stderr, and the report."""
import json
import os
import subprocess
import tempfile
import threading
import unittest

from harness import RANK, Job, main, run


class Stdio(unittest.TestCase):
    def test_rank_0_has_stdin_and_the_others_nothing(self):
        with Job("-n", "3", RANK, "stdin", stdin=subprocess.PIPE) as job:
            job.process.stdin.write(b"x" * 100_000)
            job.process.stdin.close()
            self.assertEqual(job.hear(3), ["0 stdin 100000", "1 stdin 0", "2 stdin 0"])
            job.process.wait(30)

    def test_closed_standard_descriptors_are_no_trouble(self):
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
        line = "%(rank)s " + "z" * 60
        with Job("-n", "8", "sh", "-c", 'i=0; while [ $i -lt 2000 ]; do echo "$RANK $i" >&2; i=$((i+1)); done') as job:
            code, _, err = job.end()
        self.assertEqual(code, 0)
        seen = {}
        for text in err.decode().splitlines():
            rank, i = text.split()
            self.assertEqual(seen.get(rank, -1) + 1, int(i))
            seen[rank] = int(i)
        self.assertEqual(seen, {str(r): 1999 for r in range(8)})
        del line

    def test_stderr_to_a_file_is_appended_to(self):
        with tempfile.TemporaryFile() as f:
            f.write(b"before\n")
            f.flush()
            with Job("-n", "1", RANK, "err", "now", stderr=f) as job:
                self.assertEqual(job.process.wait(30), 0)
            f.seek(0)
            self.assertEqual(f.read(), b"before\nnow\n")

    def test_a_reader_that_stands_still_holds_ranks_but_not_ddprun(self):
        with Job("-n", "2", "sh", "-c", 'exec 4>"$TEST_FIFO"; echo "$RANK up" >&4; trap "echo $RANK got >&4" USR1; '
                 '[ $RANK = 0 ] && exec head -c 1000000 /dev/zero >&2; while :; do read x <&3; done') as job:
            job.hear(2)
            # rank 0's megabyte fills every pipe; nobody reads ours. ddprun still listens.
            job.signal(15)
            reader = threading.Thread(target=job.process.stderr.read)
            self.assertRaises(subprocess.TimeoutExpired, job.process.wait, 0.2)
            reader.start()
            self.assertEqual(job.process.wait(30), -15)
            reader.join()

    def test_without_a_reader_the_job_goes_on(self):
        read_end, write_end = os.pipe()
        with Job("-n", "2", RANK, "tell", "up", "err", "lost", "tell", "done", stderr=write_end) as job:
            os.close(write_end)
            os.close(read_end)
            self.assertEqual(job.hear(4), ["0 done", "0 up", "1 done", "1 up"])
            self.assertEqual(job.process.wait(30), 0)


class Report(unittest.TestCase):
    def test_names_the_root_cause_and_groups_the_others(self):
        code, out, err = run("-n", "8", RANK, "only", "1", "err", "the reason", "exit", "3", "end", "wait")
        lines = err.splitlines()
        self.assertEqual((code, out), (3, ""))
        self.assertEqual(lines[0], "the reason")
        self.assertRegex(lines[1], r"^ddprun: rank 1 failed: exit status 3, \d+\.\d\d s after its start$")
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
        self.assertRegex(err, r"  note: \S+/1\.json: no JSON: line 1")

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

    def test_says_nothing_when_all_went_well(self):
        self.assertEqual(run("-n", "2", RANK), (0, "", ""))


main()
