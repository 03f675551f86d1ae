"""--health-check and --health-builtin with one node: ranks start only after a check that succeeds, and the reasons are reported.

Covers: launcher/health, launcher/node, launcher/supervisor, launcher/reporting, launcher/options, ctl/job
"""
import json
import os
import tempfile
import unittest

from ctl import await_socket, ctl, status
from harness import RANK, Job, await_true, main, run
from json_schema import check_event, check_report

MOCK_NVML = os.environ["MOCK_NVML_LIBRARY"]


class Health(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.flag, self.log, self.report, self.events = (os.path.join(self.folder, n) for n in ("flag", "log", "report", "events"))
        self.files = "--report", self.report, "--events", self.events
        # unhealthy while the file is there, which contains why
        self.check = f"echo checked >> {self.log}; test ! -e {self.flag} || {{ cat {self.flag}; exit 3; }}"

    def set_flag(self, text):
        with open(self.flag + ".new", "w") as f:
            f.write(text)
        os.rename(self.flag + ".new", self.flag)

    def n_checks(self):
        try:
            with open(self.log) as f:
                return len(f.readlines())
        except FileNotFoundError:
            return 0

    def read_events(self, name="health"):
        with open(self.events) as f:
            events = [json.loads(line) for line in f]
        for event in events:
            check_event(event)
        return [e for e in events if e["ev"] == name]

    def read_report(self):
        with open(self.report) as f:
            report = json.load(f)
        check_report(report)
        return report

    def test_ranks_start_after_a_check_that_succeeds(self):
        code, _, err = run("-n", "2", *self.files, "--health-check", self.check, "sh", "-c", f"test -e {self.log}")
        self.assertEqual((code, err, self.n_checks()), (0, "", 1))
        self.assertEqual((self.read_events(), self.read_report()["unhealthy"]), ([], []))

    def test_without_the_option_nothing_is_checked(self):
        with Job("-n", "1", RANK, "tell", "up", "wait") as job:
            job.hear(1)
            self.assertEqual(job.named("ddp-health"), [])

    def test_an_unhealthy_node_waits_until_it_is_healthy(self):
        self.set_flag("some output\nthe disk is on fire\n\n")
        with Job("-n", "1", *self.files, "--health-check", self.check, RANK, "tell", "up", "wait") as job:
            job.read_until("is unhealthy: the disk is on fire; checking it again in 2 s\n")
            await_socket(job)
            job_status = status(job)[0]
            self.assertEqual([n["reason"] for n in job_status["unhealthy"]], ["the disk is on fire"])
            self.assertIn("is unhealthy: the disk is on fire\n", ctl(job, "status")[1])
            self.assertEqual(job_status["ranks"][0]["state"], "not started")
            os.unlink(self.flag)
            self.assertEqual(job.hear(1), ["0 up"])
            job.read_until("is healthy again\n")
            await_true(lambda: status(job)[0]["unhealthy"] == [])
            job.signal(15)
            self.assertEqual(job.end()[0], -15)
        events = self.read_events()
        self.assertEqual([(e["state"], e["reason"]) for e in events], [("unhealthy", "the disk is on fire"), ("healthy", None)])
        self.assertEqual([(n["reason"], n["times"], n["unhealthy"]) for n in self.read_report()["unhealthy"]],
                         [("the disk is on fire", 1, False)])

    def test_a_node_that_stays_unhealthy_ends_the_job_with_the_reason(self):
        self.set_flag("no")
        code, _, err = run("-n", "1", *self.files, "--start-timeout", "1s", "--health-check", self.check, "touch", self.log + "2")
        self.assertEqual(code, 69, err)
        self.assertRegex(err, r"ddprun: error: timed out after 1 s \(--start-timeout\) waiting for healthy nodes: 0 of at least 1; \S+ is unhealthy: no\n")
        self.assertFalse(os.path.exists(self.log + "2"))
        report = self.read_report()
        self.assertEqual((report["outcome"], report["exit_code"], [n["unhealthy"] for n in report["unhealthy"]]), ("missing", 69, [True]))

    def test_each_restart_is_checked_and_a_failed_one_waits(self):
        script = f"test $TORCHELASTIC_RESTART_COUNT = 0 && {{ echo broken > {self.flag}; exit 1; }}; echo up > $TEST_FIFO; exec sleep 1000"
        with Job("-n", "1", "--max-restarts", "1", "--health-check", self.check, "sh", "-c", script) as job:
            job.read_until("is unhealthy: broken;")
            self.assertEqual(self.n_checks(), 2)
            os.unlink(self.flag)
            self.assertEqual(job.hear(1), ["up"])
            self.assertGreaterEqual(self.n_checks(), 3)
            job.signal(15)
            job.end()

    def test_a_command_that_hangs_is_killed(self):
        pids = os.path.join(self.folder, "pids")
        code, _, err = run("-n", "1", "--start-timeout", "1s", "--health-timeout", "200ms", "--health-builtin", "none",
                           "--health-check", f"echo $$ >> {pids}; exec sleep 1000", "true")
        self.assertEqual(code, 69, err)
        self.assertIn("is unhealthy: the health command did not end within 0.2 s (--health-timeout)", err)
        with open(pids) as f:
            await_true(lambda: not any(os.path.exists(f"/proc/{pid.strip()}") for pid in f))

    def test_a_command_without_output_has_its_status_as_the_reason(self):
        for command, why in (("exit 7", "exit status 7"), ("kill -9 $$", "killed by SIGKILL (Killed)")):
            with self.subTest(command):
                code, _, err = run("-n", "1", "--start-timeout", "300ms", "--health-check", command, "true")
                self.assertEqual(code, 69, err)
                self.assertIn(f"is unhealthy: the health command ended without output: {why};", err)

    def test_much_output_and_control_characters_do_no_harm(self):
        command = "yes | head -c 1000000; printf 'a\\033[31mb\\n'; exit 1"
        code, _, err = run("-n", "1", "--start-timeout", "300ms", "--health-check", command, "true")
        self.assertEqual(code, 69, err)
        self.assertIn("is unhealthy: a?[31mb;", err)

    def test_a_disk_without_space_is_a_reason(self):
        code, _, err = run("-n", "1", "--start-timeout", "300ms", "--health-builtin", f"disk={self.folder}:1000T", "true")
        self.assertEqual(code, 69, err)
        self.assertRegex(err, rf"is unhealthy: disk: {self.folder} has \d+ MiB free, expected 1048576000 MiB;")

    def test_all_checks_pass_on_this_machine(self):
        code, _, err = run("-n", "1", "--health-builtin", "all,memory=1M", "--log-dir", self.folder, "true")
        self.assertEqual((code, err), (0, ""))

    def test_values_that_make_no_sense_are_refused(self):
        for words in (("--health-check", ""), ("--health-timeout", "0"), ("--health-builtin", "gpus")):
            with self.subTest(words):
                code, _, err = run(*words, "true")
                self.assertEqual(code, 2)
                self.assertIn(words[0], err)

    def test_gpus_by_a_mock_of_nvml(self):
        os.symlink(MOCK_NVML, os.path.join(self.folder, "libnvidia-ml.so.1"))
        env = {"LD_LIBRARY_PATH": self.folder, "MOCK_NVML": self.flag}
        self.set_flag("action 0 1\n")
        with Job("-n", "1", "--health-builtin", "gpu", RANK, "tell", "up", "wait", env=env) as job:
            job.read_until("is unhealthy: gpu: GPU 0 needs a reset (recovery action 1);")
            self.set_flag("")
            self.assertEqual(job.hear(1), ["0 up"])
            job.signal(15)
            job.end()
        self.set_flag("hang 1\n")
        code, _, err = run("-n", "1", "--start-timeout", "1s", "--health-timeout", "200ms", "--health-builtin", "gpu", "true", env=env)
        self.assertEqual(code, 69, err)
        self.assertIn("is unhealthy: the built-in checks did not end within 0.2 s (--health-timeout)", err)

    def test_nothing_is_left_of_a_job_that_checks(self):
        with Job("-n", "1", "--health-builtin", "gpu,memory=1M", "--health-check", "true", RANK, "tell", "up", "wait") as job:
            job.hear(1)
            self.assertEqual(len(job.named("ddp-health")), 1)
            job.signal(15)
            job.end()
            job.await_gone()


if __name__ == "__main__":
    main()
