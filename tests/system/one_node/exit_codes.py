"""ddprun's exit status says what happened to the job.

Covers: launcher/node, launcher/supervisor, launcher/reporting, launcher/spawner
"""
import json
import os
import signal
import stat
import tempfile
import unittest

from harness import RANK, Job, await_true, main, run


def ended(*args, **kw):
    return run(*args, **kw)[0]


class ExitCodes(unittest.TestCase):
    def test_zero_when_all_ranks_end_well(self):
        for n in (1, 2, 5, 33, 70):
            self.assertEqual(ended("-n", str(n), RANK), 0)

    def test_the_status_of_the_rank_that_failed(self):
        for code in (1, 2, 3, 9, 42, 64, 69, 70, 77, 100, 124, 125, 126, 127, 128, 129, 143, 200, 254, 255):
            self.assertEqual(ended("-n", "1", RANK, "exit", str(code)), code)

    def test_128_and_the_signal_that_killed_a_rank(self):
        for sig in ("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
                    "PIPE", "ALRM", "TERM", "XCPU", "SYS"):
            number = int(getattr(signal, "SIG" + sig))
            self.assertEqual(ended("-n", "2", RANK, "only", "1", "die", str(number), "end", "wait"), 128 + number)

    def test_the_first_failure_counts_and_stopped_ranks_do_not(self):
        code, _, err = run("-n", "3", RANK, "only", "2", "exit", "5", "end", "on", "15", "7", "wait")
        self.assertEqual(code, 5)
        self.assertIn("rank 2 failed: exit status 5", err)

    def test_a_rank_that_fails_after_another_ended_well(self):
        with Job("-n", "2", RANK, "only", "0", "exit", "0", "end", "tell", "up", "on", "10", "4", "tell", "ready",
                 "wait") as job:
            self.assertEqual(job.hear(2), ["1 ready", "1 up"])
            await_true(lambda: len(job.processes()) == 3)  # ddprun, the spawner, rank 1
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(1), ["1 got 10"])
            self.assertEqual(job.end()[0], 4)

    def test_a_rank_that_others_saw_die_first_is_the_root_cause(self):
        for sig in (signal.SIGKILL, signal.SIGTERM):
            code, _, err = run("-n", "3", os.environ["ADDER_PROGRAM"], "2", str(int(sig)))
            self.assertEqual(code, 128 + sig)
            self.assertIn(f"rank 2 failed: killed by {sig.name}", err)
            self.assertIn("rank 2 died", err)

    def test_the_report_tells_who_failed_since_a_peer_was_lost(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "report.json")
            code, _, err = run("-n", "3", "--report", path, os.environ["ADDER_PROGRAM"], "2", "9")
            with open(path, encoding="utf-8") as f:
                report = json.load(f)
        self.assertEqual((code, report["root_cause"]["rank"]), (137, 2))
        self.assertEqual([rank["lost_peer"] for rank in report["ranks"]], [True, True, False])
        self.assertIn("ranks 0-1: exit status 5, after a peer was lost", err)

    def test_126_for_what_cannot_be_executed(self):
        with tempfile.TemporaryDirectory() as d:
            broken = os.path.join(d, "broken")
            with open(broken, "wb") as f:
                f.write(b"\x7fELF and nothing more")
            os.chmod(broken, 0o755)
            # like a shell, execvp hands what the kernel does not know to /bin/sh: which refuses binaries
            self.assertIn(ended("--no-python", "-n", "2", broken), (126, 127, 2))
            self.assertEqual(ended("--no-python", "-n", "2", d), 126)
            plain = os.path.join(d, "plain")
            with open(plain, "wb") as f:
                f.write(b"\0binary")
            os.chmod(plain, 0o644)
            self.assertEqual(ended("--no-python", "-n", "2", plain), 126)

    def test_127_for_what_does_not_exist(self):
        self.assertEqual(ended("-n", "2", "/nowhere/prog"), 127)
        self.assertEqual(ended("-n", "2", "no-such-program-in-path"), 127)

    def test_127_when_the_interpreter_is_missing(self):
        with tempfile.TemporaryDirectory() as d:
            script = os.path.join(d, "script")
            with open(script, "w") as f:
                f.write("#!/nowhere/interpreter\n")
            os.chmod(script, os.stat(script).st_mode | stat.S_IXUSR)
            code, _, err = run("-n", "2", script)
            self.assertEqual(code, 127)
            self.assertEqual(err, f"ddprun: cannot execute '{script}': its first line names the interpreter "
                                  "'/nowhere/interpreter', which cannot be found\n")

    def test_a_script_without_an_interpreter_line_runs_in_the_shell(self):
        with tempfile.TemporaryDirectory() as d:
            script = os.path.join(d, "script")
            with open(script, "w") as f:
                f.write('echo "$0 $1 $RANK"\n')
            os.chmod(script, 0o755)
            code, out, _ = run("-n", "1", script, "word")
            self.assertEqual((code, out), (0, f"{script} word 0\n"))

    def test_arguments_that_are_too_long_are_said_to_be(self):
        code, _, err = run("-n", "1", RANK, env={"TOO_LONG": "x" * 100_000, **{f"V{i}": "y" * 100_000 for i in
                                                                              range(19)}})
        if code != 0:  # the limit depends on the stack's: both ends are fine, a hang is not
            self.assertEqual(code, 126)
            self.assertIn("too long", err)

    def test_2_for_wrong_usage(self):
        for args in (("-n", "0", RANK), ("-n", "two", RANK), ("--nproc-per-node", "-1", RANK), ("--no-such", RANK),
                     ("-n",), ()):
            self.assertEqual(ended(*args), 2, args)

    def test_0_for_help_and_version(self):
        self.assertEqual(ended("--help"), 0)
        self.assertEqual(ended("--version"), 0)


class UnderTheNameTorchrun(unittest.TestCase):
    def test_1_for_any_failure(self):
        def torchrun(*args):
            return ended("--no-python", "--nproc-per-node", "2", RANK, *args, name="torchrun")

        self.assertEqual(torchrun(), 0)
        self.assertEqual(torchrun("exit", "3"), 1)
        self.assertEqual(torchrun("die", "11"), 1)
        self.assertEqual(ended("--no-python", "/nowhere/prog", name="torchrun"), 1)

    def test_1_when_told_to_stop(self):
        with Job("--no-python", "--nproc-per-node", "2", RANK, "tell", "up", "wait", name="torchrun") as job:
            job.hear(2)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.end()[0], 1)

    def test_2_for_wrong_usage(self):
        self.assertEqual(ended("--no-such", name="torchrun"), 2)


main()
