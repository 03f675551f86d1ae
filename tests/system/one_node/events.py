"""--events FILE: what happens, as lines of JSON.

Covers: launcher/reporting, launcher/node
"""
import json
import os
import re
import signal
import sys
import tempfile
import unittest

from harness import RANK, Job, main
from json_schema import check_event


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


class Events(unittest.TestCase):
    def test_a_job_with_a_restart(self):
        with Job("--events", "/dev/stdout", "--rdzv-id", "job7", "--max-restarts", "1", "-n", "2",
                 RANK, "only", "1", "die", "9", "end", "wait") as job:
            code, out, _ = job.end()
        events = [json.loads(line) for line in out.decode().splitlines()]
        for event in events:
            check_event(event)
        self.assertEqual(code, 137)
        names = [(e["gen"], e["ev"]) for e in events]
        self.assertEqual(names[0], (0, "job_start"))
        for generation in 0, 1:
            self.assertEqual(names.count((generation, "rank_start")), 2)
            self.assertEqual(names.count((generation, "rank_exit")), 2)
            self.assertEqual(names.count((generation, "stop")), 1)
        self.assertEqual(names.count((0, "restart")), 1)
        self.assertEqual(names[-1], (1, "job_end"))
        self.assertEqual({(e["v"], e["job"], e["node"]) for e in events}, {(1, "job7", 0)})
        self.assertEqual(events[0]["argv"][0], RANK)
        died = next(e for e in events if e["ev"] == "rank_exit" and e["rank"] == 1)
        self.assertEqual((died["code"], died["signal"]), (None, "SIGKILL"))
        self.assertIn(died["pid"], [e["pid"] for e in events if e["ev"] == "rank_start"])
        restart = next(e for e in events if e["ev"] == "restart")
        self.assertEqual((restart["rank"], restart["wait_ms"]), (1, 0))
        self.assertEqual((events[-1]["code"], events[-1]["restarts"], events[-1]["generations"]), (137, 1, 2))
        for number in re.findall(r'"(?:wall_s|step_ms|share)":([0-9.]+)', out.decode()):
            self.assertRegex(number, r"^\d+\.\d{1,3}$")
        self.assertEqual([e["ms"] for e in events], sorted(e["ms"] for e in events))

    def test_a_pipe_that_is_not_read_stops_no_job_and_gets_later_events(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "fifo")
            os.mkfifo(path)
            reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            n = os.write(writer, b"\n" * (1 << 20))
            os.close(writer)
            with Job("--events", path, "--max-restarts", "1", "-n", "1", RANK, "tell", "up", "wait") as job:
                job.hear(1)
                job.read_until("ddprun: warning: ")
                os.set_blocking(reader, True)
                while n > 0:
                    n -= len(os.read(reader, n))
                job.signal(signal.SIGTERM)
                code, _, err = job.end()
            events = [json.loads(line) for line in os.read(reader, 65536).splitlines()]
            os.close(reader)
        self.assertEqual(code, -signal.SIGTERM)
        said = (job.said + err).decode()
        self.assertEqual(said.count(f"ddprun: warning: cannot write all events to {path}: it is full, and its reader does not read\n"), 1, said)
        self.assertEqual([e["ev"] for e in events if e["ev"] != "rank_start"], ["stop", "rank_exit", "goodput", "job_end"])

    def test_a_pipe_without_a_reader_stops_no_job(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "fifo")
            os.mkfifo(path)
            with Job("--events", path, "-n", "1", RANK, "tell", "up", "wait") as job:
                job.hear(1)
                with open(path, encoding="utf-8") as late:
                    self.assertEqual(json.loads(late.readline())["ev"], "job_start")
                job.signal(signal.SIGTERM)
                self.assertEqual(job.end()[0], -signal.SIGTERM)

    def test_jobs_append_to_one_file(self):
        with Job("-n", "1", "true") as first:
            first.end()
            path = os.path.join(first.dir, "events")
            for _ in range(2):
                with Job("--events", path, "-n", "2", "--no-python", "true") as job:
                    self.assertEqual(job.end()[0], 0)
            # a rank may end before the next one has started
            self.assertEqual(sorted(e["ev"] for e in read(path)),
                             sorted(2 * ["job_start", "goodput", "job_end"] + 4 * ["rank_start", "rank_exit"]))

    def test_a_file_that_cannot_be_opened_is_an_error(self):
        with Job("--events", "/nowhere/events", "-n", "1", RANK, "exit", "0") as job:
            code, _, err = job.end()
        self.assertEqual(code, 70)
        self.assertIn(b"cannot open events file /nowhere/events: No such file", err)


class EventLog(unittest.TestCase):
    """--event-log-handler console: torchrun's records; tests/interop compares them with real ones."""

    def run_job(self, *words, act=lambda job: None):
        """-> exit status, records"""
        with Job("--rdzv-id", "job7", "--event-log-handler", "console", *words) as job:
            act(job)
            code, _, err = job.end()
            return code, [json.loads(line) for line in err.decode().splitlines() if line.startswith('{"name": ')]

    @staticmethod
    def told(records):
        return [(r["source"], r["metadata"]["state"], r["metadata"]["agent_restarts"], r["metadata"]["global_rank"])
                for r in records]

    def test_a_job_with_a_restart(self):
        code, records = self.run_job("--max-restarts", "1", "--role", "r", "-n", "2", RANK, "only", "1", "die", "9", "end",
                                     "wait")
        starts = [(g, who) for g in (0, 1) for who in (("AGENT", "RENDEZVOUS", g, None),
                                                       ("AGENT", "ASSIGN_WORKER_RANKS", g, None),
                                                       ("WORKER", "START", g, 0), ("WORKER", "START", g, 1))]
        self.assertEqual(self.told(records), [who for _, who in starts] +
                         [("WORKER", "FAILED", 1, 0), ("WORKER", "FAILED", 1, 1), ("AGENT", "SUCCEEDED", 1, None)])
        self.assertEqual(code, 137)
        self.assertEqual({(r["timestamp"], r["metadata"]["run_id"], r["metadata"]["role"]) for r in records},
                         {(0, "job7", "r")})
        died = json.loads(records[-2]["metadata"]["metadata"])
        self.assertEqual(died["exit_code"], [-9])
        self.assertEqual(str(died["worker_pid"][0]), records[7]["metadata"]["worker_id"])

    def test_a_very_long_error_file_is_reduced_to_its_message(self):
        script = ("import json, os; json.dump({'message': 'm', 'extra': 'x' * 100000},"
                  "open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')); os._exit(3)")
        _, records = self.run_job("-n", "1", sys.executable, "-c", script)
        self.assertEqual(json.loads(records[-2]["metadata"]["raw_error"]), {"message": "m"})

    def test_a_malformed_error_file_does_not_break_the_event_log(self):
        _, records = self.run_job("-n", "1", RANK, "error", "{", "exit", "3")
        self.assertEqual(json.loads(records[-2]["metadata"]["raw_error"])["message"], "<NONE>")

    def test_a_signal_is_a_failure_of_the_agent(self):
        def stop(job):
            job.hear(1)
            job.signal(signal.SIGTERM)
        _, records = self.run_job("-n", "1", RANK, "tell", "up", "wait", act=stop)
        self.assertEqual(self.told(records)[3:], [("AGENT", "FAILED", 0, None)])
        self.assertEqual(records[-1]["metadata"]["raw_error"], "stopped by signal 15: Terminated")

    def test_a_program_that_cannot_be_executed_is_a_failure_of_the_agent(self):
        with tempfile.NamedTemporaryFile("w") as script:
            script.write("#!/nowhere\n")
            script.flush()
            os.chmod(script.name, 0o755)
            _, records = self.run_job("-n", "2", "--no-python", script.name)
        self.assertEqual(self.told(records)[2:], [("AGENT", "FAILED", 0, None)])

    def test_without_the_option_no_events_are_printed(self):
        for words in [], ["--event-log-handler", "null"]:
            with Job(*words, "-n", "1", RANK, "exit", "0") as job:
                self.assertEqual(job.end(), (0, b"", b""))


main()
