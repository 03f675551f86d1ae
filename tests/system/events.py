"""--events FILE: what happens, as lines of JSON."""
import json
import os
import unittest

from harness import RANK, Job, main


def read(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


class Events(unittest.TestCase):
    def test_a_job_with_a_restart(self):
        with Job("--events", "/dev/stdout", "--rdzv-id", "job7", "--max-restarts", "1", "-n", "2",
                 RANK, "only", "1", "die", "9", "end", "wait") as job:
            code, out, _ = job.end()
        events = [json.loads(line) for line in out.decode().splitlines()]
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
        self.assertEqual((events[-1]["code"], events[-1]["restarts"]), (137, 1))
        self.assertEqual([e["ms"] for e in events], sorted(e["ms"] for e in events))

    def test_jobs_append_to_one_file(self):
        with Job("-n", "1", "true") as first:
            first.end()
            path = os.path.join(first.dir, "events")
            for _ in range(2):
                with Job("--events", path, "-n", "2", "--no-python", "true") as job:
                    self.assertEqual(job.end()[0], 0)
            # a rank may end before the next one has started
            self.assertEqual(sorted(e["ev"] for e in read(path)),
                             sorted(2 * ["job_start", "job_end"] + 4 * ["rank_start", "rank_exit"]))

    def test_a_file_that_cannot_be_opened_is_an_error(self):
        with Job("--events", "/nowhere/events", "-n", "1", RANK, "exit", "0") as job:
            code, _, err = job.end()
        self.assertEqual(code, 70)
        self.assertIn(b"cannot open /nowhere/events for events: No such file", err)


main()
