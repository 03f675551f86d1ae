"""--hang-timeout: a rank that makes no progress is named, with what the others wait for, and ended; what follows is what
follows any failure. The ranks are tests/support/programs/hanger.c, and programs without libddp.

Covers: launcher/diagnosis, launcher/supervisor, launcher/node, launcher/reporting, ctl/job, segments
"""
import glob
import json
import os
import signal
import sys
import tempfile
import unittest

import prometheus
from ctl import await_running, ctl
from harness import RANK, Job, await_true, run
from http_client import get, port_of
from ras_server import RasServer

HANGER = os.environ["HANGER_PROGRAM"]
RECORDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib/recorder.py")
TIMEOUT_MS = 2000  # longer than a busy machine keeps a process from running
TIMEOUT = ("--hang-timeout", f"{TIMEOUT_MS}ms", "--shutdown-timeout", "60s")


def read(path):
    with open(path) as f:
        return f.read()


class FlightRecorder(unittest.TestCase):
    def test_all_dumps_are_collected_before_a_rank_is_ended(self):
        """The recorder is a test double, see there."""
        with tempfile.TemporaryDirectory() as folder:
            env = {"PYTHON_EXEC": sys.executable, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": folder + "/pipe_",
                   "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": folder + "/dump_"}
            code, _, err = run("-n", "2", *TIMEOUT, "--log-dir", folder + "/logs", RECORDER, env=env)
            self.assertEqual(code, 128 + signal.SIGABRT, err)
            self.assertRegex(err, r"(?ms)^ddprun: warning: the job hangs: .*^  dumps of 2 ranks; .*^ddprun: error: rank 0 failed")
            self.assertEqual(sorted(map(read, glob.glob(folder + "/logs/*/attempt_0/flight_recorder/rank_?"))),
                             ["what rank 0 has kept", "what rank 1 has kept"])


    def test_dumps_of_torchs_own_timeout_are_collected(self):
        """In its place the ranks write such a file, and end as it ends them."""
        with tempfile.TemporaryDirectory() as folder:
            script = 'echo "kept by $RANK" >$TORCH_FR_DUMP_TEMP_FILE$RANK; test $RANK = 0 || exec sleep 1000; ' \
                'kill -ABRT $$'
            env = {"TORCH_FR_DUMP_TEMP_FILE": folder + "/dump_"}
            code, _, err = run("-n", "2", "--log-dir", folder + "/logs", "sh", "-c", script, env=env)
            self.assertEqual(code, 128 + signal.SIGABRT, err)
            self.assertRegex(err, r"(?ms)^ddprun: error: rank 0 failed: .*^torch's flight recorder:\n  dumps of [12] ranks?; ")
            self.assertIn("kept by 0\n", map(read, glob.glob(folder + "/logs/*/attempt_0/flight_recorder/rank_?")))
            code, _, err = run("-n", "1", "sh", "-c", "exit 1", env=env)
            self.assertNotIn("flight recorder", err)  # an old file does not count


class NcclRas(unittest.TestCase):
    """The server is a mock of NCCL, see there. The processes that it knows are children of the ranks."""

    def serve(self, folder, counts):
        def pids():
            found = []
            for rank in range(len(counts)):
                with open(f"{folder}/{rank}", encoding="ascii") as f:
                    found.append(int(f.read()))
            return found

        return RasServer(pids, counts)

    SCRIPT = 'sleep 1000 & echo $! >$FOLDER/$RANK.new; mv $FOLDER/$RANK.new $FOLDER/$RANK; echo up >$TEST_FIFO; wait'

    def test_a_hang_names_the_rank_that_lags(self):
        with tempfile.TemporaryDirectory() as folder, self.serve(folder, [41, 41, 40]) as server:
            code, _, err = run("-n", "3", *TIMEOUT, "sh", "-c", self.SCRIPT, env={"FOLDER": folder, "NCCL_RAS_ADDR": server.address})
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?m)^NCCL 2\.28\.9: 1 communicator\n  communicator 0x5bd5f7fa3dd5ad2e of 3 ranks:\n"
                              r"    rank 2 \(pid \d+\) lags: it has started 40 AllReduce, others 41$")

    def test_ddpctl_stack_asks_nccl(self):
        with tempfile.TemporaryDirectory() as folder, self.serve(folder, [41, 41]) as server, \
                Job("-n", "2", "sh", "-c", self.SCRIPT, env={"FOLDER": folder, "NCCL_RAS_ADDR": server.address}) as job:
            job.hear(2)
            await_running(job)
            self.assertIn("NCCL 2.28.9: 1 communicator; no rank lags: ", ctl(job, "stack", "-n", "all")[1])
            server.counts = [41, 42]
            self.assertRegex(ctl(job, "stack", "-n", "all")[1], r"rank 0 \(pid \d+\) lags: it has started 41 AllReduce, others 42\n")
            nccl = json.loads(ctl(job, "stack", "-j", "-n", "all")[1])["nccl"]
            (lagging,) = nccl["communicators"][0]["lagging"]
            self.assertEqual((lagging["job_rank"], lagging["op"], lagging["count"], lagging["most"]), (0, "AllReduce", 41, 42))

    def test_no_rank_lags_while_counts_change(self):
        with tempfile.TemporaryDirectory() as folder, self.serve(folder, [41, 40]) as server, \
                Job("-n", "2", "sh", "-c", self.SCRIPT, env={"FOLDER": folder, "NCCL_RAS_ADDR": server.address}) as job:
            server.step = 1
            job.hear(2)
            await_running(job)
            self.assertIn("NCCL 2.28.9: 1 communicator; no rank lags: they start collectives\n", ctl(job, "stack", "-n", "all")[1])

    def test_the_status_has_what_nccl_reported_last(self):
        with tempfile.TemporaryDirectory() as folder, self.serve(folder, [41, 40]) as server, \
                Job("--http", "0", "-n", "2", "sh", "-c", self.SCRIPT, env={"FOLDER": folder, "NCCL_RAS_ADDR": server.address}) as job:
            port = port_of(job)
            job.hear(2)
            await_true(lambda: json.loads(get(port, "/status")[2])["nccl"] is not None)
            nccl = json.loads(get(port, "/status")[2])["nccl"]
            self.assertEqual(([comm["lagging"][0]["job_rank"] for comm in nccl["communicators"]], nccl["nccl"]), ([1], "2.28.9"))
            self.assertEqual(prometheus.parse(get(port, "/metrics")[2])["ddprun_nccl_lagging_ranks"][2], {(): 1})
            self.assertIn("lags: it has started 40 AllReduce, others 41", get(port, "/")[2])
            self.assertIn("\n  NCCL communicator 0x5bd5f7fa3dd5ad2e of 2 ranks: rank 1 lags: it has started 40 AllReduce, others 41\n",
                          ctl(job, "status")[1])

    def test_the_answer_of_another_job_is_not_shown(self):
        with tempfile.TemporaryDirectory() as folder, RasServer(lambda: [os.getpid()], [1]) as server, \
                Job("-n", "1", "sh", "-c", self.SCRIPT, env={"FOLDER": folder, "NCCL_RAS_ADDR": server.address}) as job:
            job.hear(1)
            await_running(job)
            self.assertIn(f"NCCL's RAS: {server.address} belongs to another job", ctl(job, "stack", "-n", "all")[1])


class Timers(unittest.TestCase):
    """The lines are those of torch's FileTimerClient."""

    SET = r"""
    set_timer() { # PID SCOPE SECONDS SIGNAL
        echo "{\"version\": 1, \"pid\": $1, \"scope_id\": \"$2\", \"expiration_time\": $3, \"signal\": $4}" >$TORCHELASTIC_TIMER_FILE
    }
    now() { date +%s; }
    """
    ON = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}

    def test_a_rank_whose_timer_expires_is_reported_and_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            path, report = os.path.join(folder, "events"), os.path.join(folder, "report")
            script = self.SET + 'set_timer $$ "step 0" $(($(now) + 3600)) 9; set_timer $$ "step 0" -1 0; ' \
                                'test $RANK = 0 || set_timer $$ "step 1" $(now) 9; exec sleep 1000'
            code, _, err = run("-n", "2", "--events", path, "--report", report, "sh", "-c", script, env=self.ON)
            hangs = [event for event in map(json.loads, read(path).splitlines()) if event["ev"] == "hang"]
            cause = json.loads(read(report))["root_cause"]
        self.assertEqual(code, 128 + signal.SIGKILL, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 1 hangs: a timer of rank 1 \('step 1'\) expired \d+(\.\d)? s ago; it was set ")
        self.assertRegex(err, r"(?m)^  rank 1: pid \d+, (sleeps|runs)\b")  # "runs": on its way to sleep
        self.assertRegex(err, r"(?m)^ddprun: error: rank 1 failed: killed by SIGKILL")
        self.assertEqual([(hang["rank"], hang["kind"], hang["timer"]) for hang in hangs], [(1, "timer", "step 1")])
        self.assertEqual((cause["rank"], cause["hang"]["kind"]), (1, "timer"))

    def test_each_generation_has_the_pipe(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = os.path.join(folder, "timers")
            os.mkfifo(pipe)  # that of an earlier job
            script = self.SET + f'test $TORCHELASTIC_TIMER_FILE = {pipe} || exit 3; test $TORCHELASTIC_RESTART_COUNT = 2 && exit 0; ' \
                                'set_timer $$ a $(now) 15; exec sleep 1000'
            code, _, err = run("-n", "1", "--max-restarts", "2", "sh", "-c", script, env={**self.ON, "TORCHELASTIC_TIMER_FILE": pipe})
            self.assertEqual((code, os.path.exists(pipe)), (0, False), err)
        self.assertEqual(err.count("hangs: a timer of rank 0 ('a') expired"), 2, err)

    def test_another_process_of_a_rank_is_ended_alone(self):
        script = self.SET + 'sleep 1000 & set_timer $! b $(now) 15; wait $!; test $? = 143 && exit 7'
        code, _, err = run("-n", "1", "sh", "-c", script, env=self.ON)
        self.assertEqual(code, 7, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: a timer of process \d+ of rank 0 \('b'\) expired: ddprun ends the process$")

    def test_other_processes_and_other_lines_are_ignored(self):
        script = self.SET + f'set_timer {os.getpid()} c $(now) 9; echo "{{}}" >$TORCHELASTIC_TIMER_FILE; echo x >$TORCHELASTIC_TIMER_FILE; ' \
                            'set_timer $$ d $(now) 0; set_timer $$ e $(now) 9; exec sleep 1000'
        code, _, err = run("-n", "1", "sh", "-c", script, env=self.ON)
        self.assertEqual(code, 128 + signal.SIGKILL, err)
        self.assertEqual(err.count("a line in the pipe of TORCHELASTIC_TIMER_FILE is ignored: expected one of torch's FileTimerClient"), 1, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: a timer of process \d+ of rank 0 \('d'\) expired$")

    def test_a_file_is_not_replaced(self):
        with tempfile.NamedTemporaryFile() as file:
            code, _, err = run("-n", "1", "true", env={**self.ON, "TORCHELASTIC_TIMER_FILE": file.name})
            self.assertTrue(os.path.exists(file.name))
        self.assertNotEqual(code, 0)
        self.assertIn(f"cannot make the pipe '{file.name}' of TORCHELASTIC_TIMER_FILE: File exists", err)

    def test_the_pipe_is_made_on_request_only(self):
        code, out, _ = run("-n", "1", "sh", "-c", "echo ${TORCHELASTIC_TIMER_FILE-none}")
        self.assertEqual((code, out), (0, "none\n"))


class Libddp(unittest.TestCase):
    def hang(self, way, *words, n=3):
        with tempfile.TemporaryDirectory() as folder:
            path, report = os.path.join(folder, "events"), os.path.join(folder, "report")
            code, out, err = run("-n", str(n), *TIMEOUT, "--events", path, "--report", report, *words, HANGER, way)
            with open(path) as f:
                events = [json.loads(line) for line in f]
            with open(report) as f:
                return code, out, err, [e for e in events if e["ev"] == "hang"], json.load(f)

    def test_a_rank_outside_of_calls_is_named_with_its_missing_call(self):
        code, _, err, hangs, report = self.hang("sleep")
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 1 hangs: rank 1 is missing in all_reduce #\d+ \(\d[^)]*, float32\); "
                              r"ranks 0 and 2 have waited in it for \d\.\d s; its own last call was ")
        self.assertRegex(err, r"(?m)^  rank 1: pid \d+, sleeps.*; 2 steps completed$")
        self.assertRegex(err, r"(?m)^  rank 0: pid \d+, .*, waits in all_reduce #\d+ .*; 2 steps completed$")
        self.assertRegex(err, r"(?m)^ddprun: error: rank 1 failed: killed by SIGABRT")
        self.assertRegex(err, r"(?m)^  terminated by ddprun because it hung: rank 1 is missing in all_reduce")
        self.assertEqual(len(hangs), 1)
        hang = hangs[0]
        self.assertEqual((hang["rank"], hang["kind"], hang["waiting"], hang["stopped"]), (1, "missing", [0, 2], False))
        self.assertEqual(hang["call"]["op"], "all_reduce")
        self.assertGreaterEqual(hang["waiting_ms"], TIMEOUT_MS)
        self.assertEqual(report["root_cause"]["rank"], 1)
        self.assertEqual(report["root_cause"]["hang"]["call"], hang["call"])

    def test_a_rank_that_stalls_inside_a_call_is_blamed(self):
        code, _, err, hangs, _ = self.hang("inside")
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertEqual((hangs[0]["rank"], hangs[0]["kind"]), (1, "missing"))
        self.assertRegex(err, r"(?m)^  rank 1: .*, has begun all_reduce #\d+ \(3.906 KiB, float32\)")

    def test_a_stopped_rank_is_named_as_stopped_and_killed(self):
        code, _, err, hangs, _ = self.hang("stop")
        self.assertEqual(code, 128 + signal.SIGKILL, err)
        self.assertEqual((hangs[0]["rank"], hangs[0]["stopped"], hangs[0]["state"]), (1, True, "T"))
        self.assertIn("it is stopped by a signal", err)
        self.assertRegex(err, r"(?m)^  rank 1: pid \d+, is stopped")

    def test_a_rank_that_waits_forever_is_named(self):
        code, _, err, hangs, _ = self.hang("deadlock")
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertEqual((hangs[0]["rank"], hangs[0]["kind"]), (1, "all_wait"))
        self.assertIn("rank 1 is waiting in another call; all other ranks have waited in all_reduce", err)

    def test_a_rank_that_never_joins_is_named(self):
        code, _, err, hangs, _ = self.hang("join")
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertEqual((hangs[0]["rank"], hangs[0]["kind"]), (1, "not_joined"))
        self.assertIn("rank 1 has not joined its peers; ranks 0 and 2 have waited for it for", err)

    def test_the_stack_is_printed_before_the_rank_ends(self):
        """The debugger is a mock of gdb that prints one frame."""
        with tempfile.TemporaryDirectory() as tools:
            path = os.path.join(tools, "gdb")
            with open(path, "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\necho '#0  sleep_for_good () at hanger.c:28'\n")
            os.chmod(path, 0o755)
            code, _, err = run("-n", "3", *TIMEOUT, HANGER, "sleep", env={"PATH": tools + ":" + os.environ["PATH"]})
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?s)rank 1 hangs: .*\n  where rank 1 is:\n    \| #0  sleep_for_good \(\) at "
                              r"hanger\.c:28\n.*rank 1 failed: killed by SIGABRT")

    def test_a_debugger_that_is_killed_does_not_leave_the_rank_stopped(self):
        """The debugger is a mock of gdb that stops the rank, as attaching does, and never exits. Without the symbols of
        libraries it prints one frame."""
        for quick, found in ("exec sleep 1000", r" \(gdb timed out after 5 s\):\n"), (
                "echo '#0  sleep_for_good ()'; exit", r" \(without symbols of shared libraries, .*\):\n"
                r"    \| #0  sleep_for_good \(\)\n"):
            with self.subTest(quick), tempfile.TemporaryDirectory() as tools:
                path = os.path.join(tools, "gdb")
                with open(path, "w", encoding="utf-8") as f:
                    f.write("#!/bin/sh\ncase $* in *'auto-solib-add off'*) " + quick + ";; esac\n"
                            "while [ \"$1\" != -p ]; do shift; done\nkill -STOP $2\nexec sleep 1000\n")
                os.chmod(path, 0o755)
                code, _, err = run("-n", "3", *TIMEOUT, HANGER, "sleep", env={"PATH": tools + ":" + os.environ["PATH"]})
                self.assertEqual(code, 128 + signal.SIGABRT, err)
                self.assertRegex(err, r"\n  where rank 1 is(?: in the kernel)?" + found)

    def test_a_rank_that_survives_sigabrt_is_killed_with_a_warning(self):
        code, _, err = run("-n", "1", *TIMEOUT[:2], "--shutdown-timeout", "100ms", "sh", "-c",
                           "trap '' ABRT; while :; do sleep 1000; done")
        self.assertEqual(code, 128 + signal.SIGKILL, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 0 did not end within 0\.1 s of SIGABRT, it sleeps.*: "
                              r"ddprun kills it$")

    def test_a_hung_rank_is_replaced_like_a_failed_one(self):
        for way in "sleep", "stop":
            with self.subTest(way):
                code, out, err, hangs, _ = self.hang(way, "--max-restarts", "1")
                self.assertEqual(code, 0, err)
                self.assertEqual(out.count("end\n"), 3)
                self.assertEqual([e["rank"] for e in hangs], [1])
                self.assertIn("replacing it, restart 1 of 1", err)

    def test_a_hung_rank_restarts_all_ranks(self):
        code, out, err, hangs, _ = self.hang("sleep", "--max-restarts", "1", "--on-failure", "restart")
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("end\n"), 3)
        self.assertEqual(len(hangs), 1)

    def test_without_the_option_no_rank_is_ended(self):
        with Job("-n", "2", HANGER, "sleep") as job:
            lines = [job.process.stdout.readline() for _ in range(4)]
            self.assertEqual(sorted(lines), [b"step 0\n", b"step 0\n", b"step 1\n", b"step 1\n"])
            job.signal(signal.SIGTERM)
            code, _, err = job.end()
            self.assertEqual(code, -signal.SIGTERM)
            self.assertNotIn(b"hangs", err)


class Slow(unittest.TestCase):
    def test_the_slowest_rank_is_named_in_the_events(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events")
            code, _, err = run("-n", "3", "--events", path, HANGER, "slow")
            self.assertEqual(code, 0, err)
            last = [e for e in map(json.loads, read(path).splitlines()) if e["ev"] == "pace"][-1]
        self.assertEqual((last["slowest"], last["steps"], len(last["ranks"])), (1, 40, 3))
        self.assertGreaterEqual(last["step_ms"], 5)
        self.assertTrue(0 < last["share"] <= 1, last)
        self.assertGreaterEqual(last["ranks"][1]["own_ms"], 5)


class Others(unittest.TestCase):
    """For programs without a rank status, ddprun uses the time of their last output."""

    def test_silent_ranks_are_ended_and_the_report_marks_the_guess(self):
        code, _, err = run("-n", "2", *TIMEOUT, RANK, "say", "hello", "wait")
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: the job hangs: no rank made progress for \d.*; "
                              r"the hung rank cannot be identified: ddprun terminates rank 0$")

    def test_the_only_rank_that_runs_is_named(self):
        script = "[ $RANK != 1 ] || while :; do :; done; exec sleep 1000"
        code, _, err = run("-n", "3", *TIMEOUT, "sh", "-c", script, env={"PATH": "/bin:/usr/bin"})
        self.assertEqual(code, 128 + signal.SIGABRT, err)
        self.assertRegex(err, r"(?m)^ddprun: warning: rank 1 hangs: no rank made progress for \d.*; "
                              r"rank 1 is the only one running$")
        self.assertRegex(err, r"(?m)^  rank 1: pid \d+, .*, uses \d+% of a CPU$")
        self.assertRegex(err, r"(?m)^ddprun: error: rank 1 failed: killed by SIGABRT")

    def test_a_stopped_rank_is_named(self):
        with Job("-n", "3", *TIMEOUT, RANK, "pid", "wait") as job:
            pids = dict(line.split(" pid ") for line in job.hear(3))
            os.kill(int(pids["1"]), signal.SIGSTOP)
            code, _, err = job.end()
        self.assertEqual(code, 128 + signal.SIGKILL, err)
        self.assertIn(b"rank 1 is stopped by a signal", err)

    def test_a_rank_that_writes_keeps_the_job_alive(self):
        script = "i=0; while [ $RANK = 0 ] && [ $i -lt 30 ]; do echo $i; sleep 0.1; i=$((i + 1)); done"
        code, out, err = run("-n", "2", *TIMEOUT, "sh", "-c", script)
        self.assertEqual((code, out.count("\n")), (0, 30), err)

    def test_output_to_log_files_also_counts(self):
        with tempfile.TemporaryDirectory() as logs:
            with Job("-n", "2", "--hang-timeout", "60s", "-r", "3", "--log-dir", logs, RANK, "say", "hello", "tell", "said", "wait") as job:
                job.hear(2)
                found = lambda: [os.path.join(path, f) for path, _, files in os.walk(logs) for f in files if f == "stdout.log"]
                await_true(lambda: len(found()) == 2 and all(read(f) == "hello\n" for f in found()), found)
                job.signal(signal.SIGTERM)
                job.end()


class BadInput(unittest.TestCase):
    def test_a_zero_or_invalid_time_is_refused(self):
        for word in "0", "soon", "-1", "":
            with self.subTest(word):
                code, _, err = run("--hang-timeout", word, RANK)
                self.assertEqual(code, 2, err)
                self.assertIn("--hang-timeout", err)


if __name__ == "__main__":
    unittest.main()
