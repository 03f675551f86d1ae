#!/usr/bin/env python3
"""What happens to communicators when ranks on "GPUs" die and the job continues, over the double of NCCL.

Covers: worker-runtime/nccl, worker-runtime/group
"""

import argparse
import os
import subprocess
import tempfile
import unittest

STEPS = 8
LIMIT_S = 240
args = None


class Job:
    """A training that has ended, and the calls of NCCL that its ranks made: (rank, call)."""

    def __init__(self, faults, *options, n=3, way=(), abort_timeout="30"):
        with tempfile.TemporaryDirectory(prefix="nccl-recovery-") as folder:
            log, report = os.path.join(folder, "log"), os.path.join(folder, "report")
            env = dict(
                os.environ,
                NCCL_DOUBLE_DIR=folder,
                NCCL_DOUBLE_LOG=log,
                NCCL_DOUBLE_REPORT=report,
                NCCL_DOUBLE_FAULTS=faults,
                DDP_NCCL_ABORT_TIMEOUT=abort_timeout,
                DDP_SEGMENT_BYTES="64M",
            )
            command = [args.ddprun, "-n", str(n), "--max-restarts", "2", *options, args.trainer, str(STEPS), *way]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.status, self.out, self.said = done.returncode, done.stdout, done.stderr
            with open(log, encoding="utf-8") as f:
                self.calls = [tuple(line.split()) for line in f]
            self.report = ""
            if os.path.exists(report):
                with open(report, encoding="utf-8") as f:
                    self.report = f.read()

    def who_called(self, call):
        """The ranks, as they were numbered at their start, once for each call."""
        return sorted(rank for rank, name in self.calls if name == call)


class Recovery(unittest.TestCase):
    def run_job(self, faults, *options, **how):
        job = Job(faults, *options, **how)
        self.assertEqual(job.status, 0, job.said)
        self.assertIn(f"done: {STEPS} steps", job.out)
        self.assertEqual(job.report, "")
        return job

    def test_without_a_failure_one_communicator_is_made_and_destroyed(self):
        job = self.run_job("")
        self.assertEqual(job.who_called("ncclGetUniqueId"), ["0"])
        self.assertEqual(job.who_called("ncclCommDestroy"), ["0", "1", "2"])
        self.assertEqual(job.who_called("ncclCommAbort"), [])

    def test_a_world_that_lost_a_rank_shrinks_its_communicator(self):
        job = self.run_job("r1g0:kill@3", "--on-failure", "shrink")
        self.assertEqual(job.who_called("ncclCommRevoke"), ["0", "2"])
        self.assertEqual(job.who_called("ncclCommShrink"), ["0", "2"])
        self.assertEqual(job.who_called("ncclGetUniqueId"), ["0"], "nobody made another id")
        self.assertEqual(job.who_called("ncclCommAbort"), ["0", "2"], "the old one is aborted, not destroyed")

    def test_two_losses_shrink_twice(self):
        job = self.run_job("r2g0:kill@3;r0g0:kill@5", "--on-failure", "shrink")
        self.assertEqual(job.who_called("ncclCommShrink"), ["0", "1", "1"])
        self.assertEqual(job.who_called("ncclGetUniqueId"), ["0"])

    def test_a_replaced_rank_costs_a_new_communicator(self):
        job = self.run_job("r1g0:kill@3")
        self.assertEqual(job.who_called("ncclCommShrink"), [])
        self.assertEqual(job.who_called("ncclGetUniqueId"), ["0", "0"])
        self.assertEqual(job.who_called("ncclCommAbort"), ["0", "2"])

    def test_a_communicator_that_cannot_be_revoked_is_aborted_and_made_again(self):
        job = self.run_job("r1g0:kill@3;revoke_error", "--on-failure", "shrink")
        self.assertEqual(job.who_called("ncclCommShrink"), [])
        self.assertEqual(job.who_called("ncclGetUniqueId"), ["0", "0"])

    def test_a_rank_that_cannot_abort_is_replaced_and_the_job_continues(self):
        job = self.run_job("r1g0:kill@3;r0g0:revoke_error@1;r0g0:abort_error@1")
        self.assertIn("exit status 75", job.said)

    def test_after_a_death_in_a_replay_graphs_are_captured_again(self):
        job = self.run_job("r1g0:kill@8", way=["graph"])
        self.assertIn("SIGKILL", job.said)
        self.assertIn("generation 1", job.out)
        self.assertEqual(job.who_called("ncclGetUniqueId"), ["0", "0"])
        self.assertEqual(job.who_called("ncclCommAbort"), ["0", "2"])
        job = self.run_job("r1g0:kill@8", "--on-failure", "shrink", way=["graph"])
        self.assertEqual(job.who_called("ncclCommShrink"), ["0", "2"])

    def test_a_revoked_communicator_is_aborted_when_no_graph_holds_it_any_more(self):
        job = self.run_job("r1g0:kill@8;r1g1:kill@8", "--max-restarts", "3", way=["late-graph"])
        of_rank_0 = [call for rank, call in job.calls if rank == "0"]
        self.assertEqual(of_rank_0.count("ncclCommRevoke"), 2)
        self.assertEqual(of_rank_0.count("ncclCommAbort"), 1, "that of generation 0, in generation 2")

    def test_without_revoke_a_death_costs_all_ranks_that_have_graphs(self):
        faults = "r1g0:kill@8;r0g0:revoke_error;r2g0:revoke_error"
        job = self.run_job(faults, "--max-restarts", "3", way=["graph"], abort_timeout="0.5")
        self.assertEqual(job.said.count("exit status 75"), 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddprun", required=True)
    parser.add_argument("--trainer", required=True)
    args, rest = parser.parse_known_args()
    unittest.main(argv=["recovery.py", *rest])
