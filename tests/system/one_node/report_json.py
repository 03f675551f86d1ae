"""--report FILE: the end of the job as JSON, whatever it was.

Covers: launcher/reporting, launcher/node
"""
import errno
import json
import os
import signal
import tempfile
import unittest

from harness import RANK, Job, main


class Report(unittest.TestCase):
    def run_job(self, *args, stop=None):
        with Job("--report", "report.json", "--rdzv-id", "job7", "-n", "2", *args, cwd=self.folder()) as job:
            if stop is not None:
                job.hear(2)
                job.signal(stop)
            _, _, self.err = job.end()
        with open(os.path.join(self.path, "report.json"), encoding="utf-8") as f:
            report = json.load(f)
        self.assertEqual(os.listdir(self.path), ["report.json"])
        self.assertEqual((report["version"], report["job"], report["program"]), (2, "job7", RANK))
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1])
        return report

    def folder(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = temporary.name
        return self.path

    def test_a_successful_job(self):
        report = self.run_job(RANK, "exit", "0")
        self.assertEqual((report["outcome"], report["exit_code"], report["restarts"]), ("ok", 0, 0))
        self.assertEqual(report["generations"], 1)
        self.assertIsNone(report["root_cause"])
        self.assertEqual([rank["exit_code"] for rank in report["ranks"]], [0, 0])
        self.assertEqual(self.err, b"")

    def test_a_failure_after_a_restart(self):
        report = self.run_job("--max-restarts", "1", RANK, "only", "1", "err", "bad \udcff \xe9", "error",
                              '{"message": "out of paper"}', "exit", "5", "end", "wait")
        self.assertEqual((report["outcome"], report["exit_code"], report["restarts"]), ("rank_failed", 5, 1))
        self.assertEqual(report["generations"], 2)
        root = report["root_cause"]
        self.assertEqual((root["rank"], root["exit_code"], root["signal"]), (1, 5, None))
        self.assertEqual(root["error"], "out of paper")
        self.assertTrue(root["stderr"].startswith("bad ?"))
        self.assertEqual(report["ranks"][0]["signal"], signal.SIGTERM)
        self.assertEqual(report["ranks"][0]["stopped_by"], signal.SIGTERM)
        self.assertIsNone(report["ranks"][1]["stopped_by"])

    def test_a_signal(self):
        report = self.run_job(RANK, "tell", "up", "wait", stop=signal.SIGTERM)
        self.assertEqual((report["outcome"], report["exit_code"], report["signal"]), ("signal", 143, 15))

    def test_a_signal_that_ddprun_forwarded(self):
        report = self.run_job(RANK, "tell", "up", "wait", stop=signal.SIGUSR1)
        self.assertEqual((report["outcome"], report["exit_code"], report["signal"]), ("rank_failed", 138, None))
        root = report["root_cause"]
        self.assertEqual((root["signal"], root["forwarded"]), (signal.SIGUSR1, True))
        self.assertRegex(self.err.decode(), r"^ddprun: error: rank [01] failed: killed by SIGUSR1 \(.*\), which ddprun forwarded, ")

    def test_a_signal_from_elsewhere_was_not_forwarded(self):
        root = self.run_job(RANK, "only", "1", "die", "10", "end", "wait")["root_cause"]
        self.assertEqual((root["signal"], root["forwarded"]), (signal.SIGUSR1, False))
        self.assertNotIn(b"forwarded", self.err)

    def test_a_job_that_times_out(self):
        report = self.run_job("--timeout", "50ms", RANK, "wait")
        self.assertEqual((report["outcome"], report["exit_code"]), ("timeout", 124))

    def test_a_program_that_cannot_be_executed(self):
        path = os.path.join(self.folder(), "report.json")
        with tempfile.TemporaryDirectory() as d:
            script = os.path.join(d, "script")
            with open(script, "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\r\n")
            os.chmod(script, 0o755)
            with Job("--report", path, "-n", "2", script) as job:
                code, _, err = job.end()
        with open(path, encoding="utf-8") as f:
            report = json.load(f)
        self.assertEqual((code, report["outcome"], report["exit_code"]), (127, "start_failed", 127))
        self.assertEqual(report["root_cause"]["errno"], errno.ENOENT)
        self.assertIn("its first line ends in CR LF", report["root_cause"]["error"])
        self.assertEqual(err.decode(), f"ddprun: error: {report['root_cause']['error']}\n")

    def test_a_file_that_cannot_be_written_is_a_warning(self):
        with Job("--report", "/nowhere/report.json", "-n", "1", RANK, "exit", "0") as job:
            code, _, err = job.end()
        self.assertEqual(code, 0)
        self.assertIn(b"ddprun: warning: cannot write /nowhere/report.json: No such file", err)


main()
