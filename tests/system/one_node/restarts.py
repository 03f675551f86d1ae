"""All ranks start again after a failure, with nothing of the old generation left; --timeout.

Covers: launcher/supervisor, launcher/node, launcher/generation, launcher/stdio
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from harness import RANK, Job, await_true, main
from ports import free_port

# Reports what a restart changes; counts a key of the store up by one, over the protocol of torch 2.2 and later.
PROBE = """
import os, signal, socket, struct, sys
env = os.environ
key = b"left behind"
text = struct.pack("=Q", len(key)) + key
hello = bytes([0]) + struct.pack("=I", 0x3C85F7CE)
s = socket.create_connection((env["MASTER_ADDR"], int(env["MASTER_PORT"])))
s.sendall(hello + bytes([4]) + text + struct.pack("=q", 1))
count, = struct.unpack("=q", s.recv(8, socket.MSG_WAITALL))
found = os.path.exists(env["TORCHELASTIC_ERROR_FILE"])
with open(env["TORCHELASTIC_ERROR_FILE"], "w") as f:
    f.write('{"message": "of generation ' + env["DDP_GENERATION"] + '"}')
with open(env["TEST_FIFO"], "w") as f:
    f.write(" ".join([env["RANK"], str(os.getpid()), env["TORCHELASTIC_RESTART_COUNT"], env["DDP_GENERATION"],
                      env["TORCHELASTIC_MAX_RESTARTS"], env["MASTER_PORT"], str(count),
                      str(found)]) + "\\n")
signal.pause()
"""


def pids(lines):
    return {int(line.split()[0]): int(line.split()[1]) for line in lines}


class Restarts(unittest.TestCase):
    def test_both_ranks_restart_with_an_empty_store(self):
        with Job("--max-restarts", "2", "-n", "2", sys.executable, "-c", PROBE) as job:
            ports = set()
            old = {}
            for generation in range(3):
                lines = [line.split() for line in job.hear(2)]
                self.assertEqual([line[0] for line in lines], ["0", "1"])
                for line in lines:
                    self.assertEqual(line[2:5], [str(generation), str(generation), "2"])
                    self.assertEqual(line[7], "False")
                # each rank counts the key up once: an old value would show
                self.assertEqual(sorted(line[6] for line in lines), ["1", "2"])
                self.assertEqual(len({line[5] for line in lines}), 1)
                ports.add(lines[0][5])
                new = {line[0]: int(line[1]) for line in lines}
                for pid in old.values():
                    self.assertFalse(os.path.exists(f"/proc/{pid}"), "a rank of the old generation is there")
                old = new
                os.kill(new["1"], signal.SIGKILL)
            code, _, err = job.end()
            self.assertEqual(code, 137)
            self.assertEqual(len(ports), 3)
            lines = err.decode().splitlines()
            self.assertRegex(lines[0], r"^ddprun: note: rank 1 failed: killed by SIGKILL .* \(of generation 0\); restart 1 of 2$")
            self.assertRegex(lines[1], r"^ddprun: note: rank 1 failed: .* \(of generation 1\); restart 2 of 2 in 0.10 s$")
            self.assertRegex(lines[2], r"^ddprun: error: rank 1 failed: killed by SIGKILL")
            self.assertIn("error: of generation 2", err.decode())
            self.assertIn("after 2 restarts", err.decode())
            self.assertEqual(job.processes(), [])
            self.assertEqual(os.listdir(job.runtime), [])

    def test_after_the_budget_ddprun_returns_the_root_causes_status(self):
        with Job("--max-restarts", "1", "-n", "3", RANK, "only", "2", "exit", "5", "end", "wait") as job:
            code, _, err = job.end()
            self.assertEqual(code, 5)
            self.assertEqual(err.count(b"rank 2 failed: exit status 5"), 2)
            self.assertEqual(job.processes(), [])

    def test_a_window_counts_only_what_is_in_it(self):
        with Job("--max-restarts", "1/1h", "-n", "1", RANK, "exit", "5") as job:
            code, _, err = job.end()
            self.assertEqual(code, 5)
            self.assertEqual(err.count(b"; restart"), 1)
        script = f"echo $$ >$TEST_FIFO; exec {RANK} wait"
        with Job("--max-restarts", "1/1ms", "-n", "1", "sh", "-c", script) as job:
            for _ in range(3):
                pid = int(job.hear(1)[0])
                up_s = time.monotonic()
                await_true(lambda: time.monotonic() > up_s + 0.002)  # out of the window
                os.kill(pid, signal.SIGKILL)
            job.hear(1)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.end()[0], -signal.SIGTERM)

    def test_some_exit_statuses_are_final(self):
        with Job("--max-restarts", "3", "--no-restart-on", "5,137", "-n", "2", RANK, "only", "1", "exit", "5", "end",
                 "wait") as job:
            code, _, err = job.end()
            self.assertEqual(code, 5)
            self.assertNotIn(b"; restart", err)

    def test_a_program_that_cannot_be_executed_is_not_restarted(self):
        with Job("--max-restarts", "3", "-n", "2", "--no-python", "/dev/null") as job:
            code, _, err = job.end()
            self.assertEqual(code, 126)
            self.assertNotIn(b"; restart", err)

    def test_leftovers_of_old_ranks_are_removed_first(self):
        with Job("--max-restarts", "1", "-n", "1", "--shutdown-timeout", "20ms", RANK, "ignore", "15", "daemon",
                 "pid", "wait") as job:
            heard = job.hear(2)
            daemon, rank = (int(next(line for line in heard if what in line).split()[2]) for what in ("daemon", "pid"))
            os.kill(rank, signal.SIGKILL)
            job.hear(2)
            self.assertFalse(os.path.exists(f"/proc/{daemon}"))
            # the sweep of the old generation must not continue in the new one; the daemon's parent may still be ending
            await_true(lambda: len(job.processes()) == 4)
            job.signal(signal.SIGINT)
            job.signal(signal.SIGINT)
            self.assertEqual(job.end()[0], -signal.SIGINT)
            self.assertEqual(job.processes(), [])

    def test_a_signal_while_it_waits_ends_the_job(self):
        with Job("--max-restarts", "100", "-n", "2", "--no-python", RANK, "only", "0", "tell", "up", "exit", "3",
                 "end", "wait") as job:
            for _ in range(3):
                job.hear(1)
            job.signal(signal.SIGTERM)
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGTERM)
            self.assertIn(b"stopped by SIGTERM", err)
            self.assertEqual(job.processes(), [])

    def test_a_signal_while_ranks_of_the_old_generation_end(self):
        with Job("--max-restarts", "3", "-n", "2", RANK, "only", "1", "on", "10", "3", "tell", "up", "wait", "end",
                 "ignore", "10", "note", "15", "tell", "up", "wait") as job:
            job.hear(2)
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(2), ["0 got 15", "1 got 10"])  # rank 0 got the signal to stop and does not
            job.signal(signal.SIGINT)
            job.signal(signal.SIGINT)
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGINT)
            self.assertNotIn(b"; restart", err)

    def test_a_fixed_port_stays_the_same(self):
        port = str(free_port())
        with Job("--max-restarts", "1", "--master-port", port, "-n", "2", sys.executable, "-c", PROBE) as job:
            for _ in range(2):
                lines = [line.split() for line in job.hear(2)]
                self.assertEqual({line[5] for line in lines}, {port})
                self.assertEqual(sorted(line[6] for line in lines), ["1", "2"])
                os.kill(int(lines[0][1]), signal.SIGKILL)
            self.assertEqual(job.end()[0], 137)

    def test_the_spawner_may_die_in_a_later_generation(self):
        with Job("--max-restarts", "1000", "-n", "2", RANK, "tell", "up", "only", "1", "exit", "3", "end", "wait") as job:
            job.hear(4)
            os.kill(job.spawner(), signal.SIGKILL)
            self.assertIn(job.end()[0], (70, 3))  # 3 if rank 1 had just failed
            await_true(lambda: job.processes() == [])


class AfterProgress(unittest.TestCase):
    STEPPER = os.environ["STEPPER_PROGRAM"]  # tests/support/programs/stepper.c

    def end(self, *words):
        """-> exit status, what followed each "; restart" """
        with Job(*words) as job:
            code, _, err = job.end()
            self.assertEqual(job.processes(), [])
            return code, re.findall("; restart (.*)", err.decode())

    def test_failures_after_a_step_are_not_counted(self):
        for n in "1", "2":
            self.assertEqual(self.end("-n", n, "--restart-after-progress", self.STEPPER, "1", "3"),
                             (0, ["1 (after progress)", "2 (after progress) in 0.10 s", "3 (after progress) in 0.20 s"]))

    def test_an_incomplete_step_does_not_count(self):
        for n in "1", "2":
            self.assertEqual(self.end("-n", n, "--restart-after-progress", "--max-restarts", "2", self.STEPPER, "0", "9"),
                             (137, ["1 (1 of 2 without progress)", "2 (2 of 2 without progress) in 0.10 s"]))

    def test_without_the_option_such_failures_count(self):
        self.assertEqual(self.end("-n", "2", "--max-restarts", "2", self.STEPPER, "5", "9"), (137, ["1 of 2", "2 of 2 in 0.10 s"]))

    def test_a_crash_loop_ends(self):
        """A program that greets, and then fails with a traceback, each time."""
        for words in ([], ["--label={rank}:"], ["-r", "3"], ["-t", "3"]):
            with self.subTest(words), tempfile.TemporaryDirectory() as folder:
                said = self.end("-n", "2", "--restart-after-progress", "--max-restarts", "1", "--log-dir", folder, *words,
                                RANK, "say", "hello", "err", "Traceback (most recent call last):", "exit", "3")
                self.assertEqual(said, (3, ["1 (1 of 1 without progress)"]))

    def check_output(self, after, stream, expected, *words):
        """Rank 0 writes more than a pipe holds: when it has done so, ddprun has seen some of it."""
        script = (f"echo up >$TEST_FIFO; if read x; then head -c 100000 /dev/zero | tr '\\0' x >&{stream}; "
                  "echo $$ >$TEST_FIFO; fi; exec sleep 1000")
        with self.subTest((after, stream, words)), Job(f"--restart-after-progress={after}", "--max-restarts", "1", "-n",
                                                       "2", *words, "sh", "-c", script, stdin=subprocess.PIPE) as job:
            job.hear(2)
            up_s = time.monotonic()
            await_true(lambda: time.monotonic() > up_s + 0.002)
            job.process.stdin.write(b"\n")
            job.process.stdin.flush()
            os.kill(int(job.hear(1)[0]), signal.SIGKILL)
            job.hear(2)
            job.signal(signal.SIGTERM)
            _, _, err = job.end()
            self.assertEqual(re.findall(r"; restart 1 \((.*)\)", err.decode()), [expected])

    def test_late_output_counts_at_any_destination(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in ([], ["--label={rank}:"], ["-r", "1"], ["-t", "1"], ["--local-ranks-filter", "1"]):
                self.check_output("1ms", 1, "after progress", "--log-dir", folder, *words)

    def test_early_output_and_stderr_do_not_count(self):
        self.check_output("1h", 1, "1 of 1 without progress")
        self.check_output("1ms", 2, "1 of 1 without progress")


class Output(unittest.TestCase):
    LINES = 400  # of about 100 bytes; two ranks' fill the sink's pipe and more

    def test_no_output_is_lost_while_it_is_not_read(self):
        """The sink takes nothing from the start of generation 0 until all ranks of generation 1 are up."""
        script = (f"[ $RANK = 1 ] && s=2 || s=1; echo up >$TEST_FIFO; i=0; while [ $i -lt {self.LINES} ]; do "
                  "echo $DDP_GENERATION $i $(printf '%090d' $i) >&$s; i=$((i + 1)); done; "
                  "[ $DDP_GENERATION = 1 ] && exit 0; echo $$ $RANK >$TEST_FIFO; sleep 1000")
        for sink in ("two pipes", "one pipe"):
            with self.subTest(sink), Job("--max-restarts", "1", "-n", "3", "--label={rank}:", "sh", "-c",
                                         script,
                                         **({"stderr": subprocess.STDOUT} if sink == "one pipe" else {})) as job:
                heard = job.hear(6)
                self.assertEqual(heard[3:], ["up"] * 3)
                pids = {rank: int(pid) for pid, rank in map(str.split, heard[:3])}
                os.kill(pids["2"], signal.SIGKILL)
                self.assertEqual(job.hear(3), ["up"] * 3)  # though no process has read a byte
                code, out, err = job.end()
                self.assertEqual(code, 0)
                lines = out.decode().splitlines() + (err or b"").decode().splitlines()
                for rank in range(3):
                    mine = [line[2:] for line in lines if line.startswith(f"{rank}:")]
                    self.assertEqual(mine, [f"{generation} {i} {i:090}" for generation in range(2)
                                            for i in range(self.LINES)])
                self.assertEqual(len(lines), 6 * self.LINES + 1)
                self.assertRegex("\n".join(line for line in lines if line[1] != ":"),
                                 "^ddprun: note: rank 2 failed: killed by SIGKILL .*; restart 1 of 1$")


class Timeout(unittest.TestCase):
    def test_the_job_is_stopped_with_a_message(self):
        with Job("--timeout", "50ms", "-n", "2", RANK, "wait") as job:
            code, _, err = job.end()
            self.assertEqual(code, 124)
            self.assertRegex(err, rb"^ddprun: error: the job timed out after [\d.]+ s \(--timeout\)\n")
            self.assertEqual(job.processes(), [])

    def test_no_restart_follows(self):
        with Job("--timeout", "300ms", "--max-restarts", "1000000", "-n", "1", RANK, "exit", "3") as job:
            self.assertEqual(job.end()[0], 124)

    def test_it_kills_ranks_that_do_not_stop(self):
        with Job("--timeout", "50ms", "--shutdown-timeout", "20ms", "-n", "1", RANK, "ignore", "15", "wait") as job:
            self.assertEqual(job.end()[0], 124)
            self.assertEqual(job.processes(), [])

    def test_a_job_that_ends_in_time_is_not_stopped(self):
        with Job("--timeout", "1h", "-n", "2", RANK, "exit", "0") as job:
            self.assertEqual(job.end()[0], 0)


main()
