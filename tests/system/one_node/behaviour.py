"""ddprun does what it should when a job goes wrong: the rows of behaviour_rows.py, with what is wanted in each. What
names hosts or MPI is asked of it in hosts.py and mpi.py.

Covers: launcher/node, launcher/supervisor, launcher/spawner, launcher/stdio
"""
import os
import unittest

import behaviour_rows as rows
from harness import DDPRUN, RANK, main

# a sanitizer would make an abort of the SIGSEGV that a rank is sent
OURS = rows.Launcher("ddprun", DDPRUN, [], "-n", ["--label"], RANK,
                     env={"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"})


class Behaviour(unittest.TestCase):
    def check(self, row, status, died=False, notes=()):
        seen = row(OURS)
        self.assertEqual((seen.status, seen.died, seen.notes), (status, died, list(notes)), seen.output)
        return seen.output

    def test_a_ranks_status_is_the_jobs(self):
        self.check(rows.rank_exits_3, 3)

    def test_a_crash_is_128_and_the_signal(self):
        self.assertIn("rank 1 failed: killed by SIGSEGV", self.check(rows.rank_crashes, 139))

    def test_kill_9_of_a_rank_is_137(self):
        self.assertIn("rank 1 failed: killed by SIGKILL", self.check(rows.rank_is_killed, 137))

    def test_the_first_failure_counts_and_both_are_told(self):
        output = self.check(rows.both_fail, 3)
        self.assertIn("rank 0 failed: exit status 3", output)
        self.assertRegex(output, "rank 1: .*exit status 5")

    def test_sigterm_reaches_the_ranks_and_ends_the_job(self):
        self.check(rows.launcher_gets_sigterm, 143, died=True, notes=["ranks got SIGTERM"])

    def test_sigint_reaches_the_ranks_and_ends_the_job(self):
        self.check(rows.launcher_gets_sigint, 130, died=True, notes=["ranks got SIGINT"])

    def test_no_rank_survives_its_launcher(self):
        self.assertEqual(rows.launcher_is_killed(OURS).headline, "ranks are gone")

    def test_no_daemon_survives_the_job(self):
        self.check(rows.daemon_of_a_rank, 137, notes=["daemons are gone"])

    def test_a_rank_that_does_not_stop_is_killed(self):
        self.check(rows.rank_ignores_sigterm, 137, notes=["it is killed"])

    def test_a_missing_program_is_127_and_one_line(self):
        self.check(rows.program_is_missing, 127, notes=["1 line"])

    def test_rank_0_reads_the_input(self):
        self.check(rows.input_of_three_ranks, 0, notes=["0: all, 1: nothing, 2: nothing"])

    def test_labelled_lines_are_whole(self):
        self.check(rows.half_a_line, 0, notes=["lines are whole"])


main()
