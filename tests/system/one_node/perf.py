"""ddp-perf under ddprun, Open MPI's mpirun, hydra, and alone.

Covers: perf
"""
import json
import os
import re
import shutil
import subprocess
import unittest

DDPRUN = os.environ["DDPRUN"]
PERF = os.environ["DDP_PERF"]
DEADLINE_S = 120 * float(os.environ.get("TEST_PATIENCE", "1"))

# what the test runner has for itself must not look like a launcher
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "DDP_TUNING"):
    os.environ.pop(name, None)

COLLECTIVES = ["all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter",
               "all_to_all", "send_recv", "barrier"]


def run(*command, deadline_s=DEADLINE_S, **env):
    return subprocess.run(command, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=deadline_s, check=False)


class Perf(unittest.TestCase):
    def measured(self, *command, **env):
        done = run(*command, "--json", "-n", "3", "-w", "1", **env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_every_collective_is_correct_in_both_kinds_of_memory(self):
        for collective in COLLECTIVES:
            for buffer in ("segment", "plain"):
                rows = self.measured(PERF, collective, "--ranks", "3", "-b", "4", "-e", "1M", "-f", "64", "--buffer",
                                     buffer, "-r", "1")
                self.assertEqual({row["buffer"] for row in rows}, {buffer})
                wrong = {row["wrong"] for row in rows}
                self.assertEqual(wrong, {None} if collective == "barrier" else {0}, collective)

    def test_every_type_and_operation_is_correct(self):
        """Each type is summed up, and some have all operations: worker-runtime/arithmetic/reduce has all of all."""
        for dtype in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint32", "int64",
                      "uint64"):
            for op in ("sum", "avg", "min", "max", "prod", "band", "bor"):
                if "float" in dtype and op in ("band", "bor") or op != "sum" and dtype not in ("float32", "bfloat16", "int32", "uint8"):
                    continue
                rows = self.measured(PERF, "all_reduce", "--ranks", "2", "-b", "1000", "-e", "1000", "-d", dtype, "-o",
                                     op)
                self.assertEqual([row["wrong"] for row in rows], [0, 0], (dtype, op))

    def test_a_line_describes_the_measurement(self):
        out, in_place = self.measured(PERF, "all_reduce", "--ranks", "2", "-b", "4K", "-e", "4K", "--rewrite")
        self.assertEqual((out["in_place"], in_place["in_place"]), (False, True))
        for row in (out, in_place):
            self.assertEqual((row["op"], row["bytes"], row["dtype"], row["redop"], row["ranks"], row["rewritten"]),
                             ("all_reduce", 4096, "float32", "sum", 2, True))
            self.assertGreater(row["time_us"], 0)
            self.assertLessEqual(row["min_us"], row["time_us"])
            self.assertAlmostEqual(row["algbw_gbps"], 4.096 / row["time_us"], delta=0.001 + 0.01 * row["algbw_gbps"])
            self.assertAlmostEqual(row["busbw_gbps"], row["algbw_gbps"], delta=0.002)

    def test_it_runs_under_ddprun(self):
        rows = self.measured(DDPRUN, "-n", "2", PERF, "all_reduce", "-e", "64")
        self.assertEqual({row["ranks"] for row in rows}, {2})
        self.assertEqual([row["bytes"] for row in rows], [4, 4, 16, 16, 64, 64])

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "Open MPI is not installed")
    def test_it_runs_under_open_mpi(self):
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        rows = self.measured("mpirun.openmpi", *as_root, "--oversubscribe", "-n", "3", PERF, "all_gather", "-b", "12",
                             "-e", "12")
        self.assertEqual({row["ranks"] for row in rows}, {3})

    @unittest.skipUnless(shutil.which("mpiexec.hydra"), "MPICH is not installed")
    def test_it_runs_under_hydra(self):
        rows = self.measured("mpiexec.hydra", "-n", "2", PERF, "broadcast", "-b", "8", "-e", "8")
        self.assertEqual({row["ranks"] for row in rows}, {2})

    def test_the_table_ends_with_a_verdict(self):
        done = run(PERF, "reduce", "--ranks", "2", "-b", "4", "-e", "16", "-n", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^# reduce of 2 ranks on 1 node, segment memory")
        self.assertRegex(done.stdout, r"(?m)^ +16 +4 +float32 +sum +0 ")
        self.assertRegex(done.stdout, r"(?m)^# Out of bounds values : 0 OK$")

    def test_wrong_usage_is_reported_once(self):
        done = run(PERF, "all_reduce", "-b", "0")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, r"^ddp-perf: error: invalid value '0' for -b: expected a size from")
        done = run(DDPRUN, "-n", "2", PERF, "reduce", "-r", "2", "-e", "4")
        self.assertNotEqual(done.returncode, 0)
        told = re.findall(r"(?m)^ddp-perf: error: rank \d: invalid value '2' for --root: expected one of 2 ranks$", done.stderr)
        self.assertEqual(len(told), 1, done.stderr)  # ddprun's report may repeat it, after a margin

    def test_help_and_version_go_to_stdout(self):
        self.assertIn("all_to_all", run(PERF, "--help").stdout)
        self.assertIn("--warmup-iters", run(PERF, "--help").stdout)
        short = run(PERF, "-h").stdout
        self.assertIn("all_to_all", short)
        self.assertNotIn("--warmup-iters", short)
        self.assertRegex(run(PERF, "-V").stdout, r"^ddp-perf \d+\.\d+\.\d+\n$")

    def test_ranks_with_another_table_do_not_start(self):
        script = 'DDP_TUNING="ranks 2: one_shot=$RANK"K; export DDP_TUNING; exec "$0" all_reduce -e 4'
        done = run(DDPRUN, "-n", "2", "sh", "-c", script, PERF)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("rank 1 and rank 0 have different values of DDP_TUNING: set the same on all ranks", done.stderr)

    def test_a_bad_table_is_reported_with_its_line(self):
        done = run(PERF, "all_reduce", "--ranks", "2", "-e", "4", DDP_TUNING="ranks 2: one_shot=1K; ranks 2:")
        self.assertEqual(done.returncode, 1)
        self.assertIn("DDP_TUNING: line 1: invalid value '2' for ranks: expected a number from 3 to 1024", done.stderr)

    def test_libddp_reads_the_table_that_tuning_prints(self):
        done = run(PERF, "--tune", "--ranks", "2", "-n", "1", deadline_s=2 * DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^ranks 2: one_shot=\w+ piece=\w+ cma=\w+ cma_sum=\w+\n# load average")
        rows = self.measured(PERF, "all_reduce", "--ranks", "2", "-b", "1M", "-e", "1M", "--buffer", "plain",
                             DDP_TUNING=done.stdout)
        self.assertEqual({row["wrong"] for row in rows}, {0})


if __name__ == "__main__":
    unittest.main()
