#!/usr/bin/env python3
"""examples/mnist on "GPUs" is the training on CPUs, in double precision to the last digits: over the double of NCCL and
CUDA, which runs the text of its kernels on the CPU and checks the order of all of them.

Covers: worker-runtime/nccl, examples
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

LIMIT_S = 200
SMALL = ["--draw", "80", "--batch", "6", "--steps", "9", "--epochs", "5"]
PARTS = ["--batch", "12", "--accumulate"]  # each rank has more images than parts
args = None
data = None  # drawn once


class Job:
    def __init__(self, options, n=1, faults="", launcher=(), program=None, **env):
        with tempfile.TemporaryDirectory(prefix="nccl-mnist-") as folder:
            report = os.path.join(folder, "report")
            losses, checkpoint = os.path.join(folder, "losses"), os.path.join(folder, "net")
            command = [args.ddprun, "-n", str(n), *launcher, program or args.mnist, "--data", data, *SMALL, *options]
            done = subprocess.run(
                command + ["--loss-file", losses, "--checkpoint", checkpoint],
                env=dict(os.environ, NCCL_DOUBLE_DIR=folder, NCCL_DOUBLE_REPORT=report, NCCL_DOUBLE_FAULTS=faults, **env),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            self.status, self.out, self.said = done.returncode, done.stdout, done.stderr
            self.losses = [float(line) for line in self.read(losses).split()]
            self.report = self.read(report)
            self.net = self.tensors(checkpoint)
        self.accuracies = re.findall(r"test accuracy ([0-9.]+) %", self.out)

    @staticmethod
    def read(path):
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as f:
            return f.read()

    @staticmethod
    def tensors(path):
        if not os.path.exists(path):
            return {}
        with open(path, "rb") as f:
            head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            body = f.read()
        found = {}
        for name, t in head.items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                kind = {"F64": "d", "I64": "q"}[t["dtype"]]
                found[name] = (t["shape"], struct.unpack(f"<{(end - begin) // 8}{kind}", body[begin:end]))
        return found


class Mnist(unittest.TestCase):
    def assert_near(self, got, want, what):
        self.assertEqual(len(got), len(want), what)
        for g, w in zip(got, want):
            self.assertAlmostEqual(g, w, delta=1e-9 * max(1, abs(w)), msg=what)

    def assert_same(self, gpu, cpu):
        self.assertEqual((gpu.status, cpu.status), (0, 0), gpu.said + cpu.said)
        self.assertEqual(gpu.report, "")
        self.assert_near(gpu.losses, cpu.losses, "losses")
        self.assertEqual(gpu.accuracies[-1], cpu.accuracies[-1])
        self.assertEqual(sorted(gpu.net), sorted(cpu.net))
        for name, (shape, values) in cpu.net.items():
            self.assertEqual(gpu.net[name][0], shape)
            self.assert_near(gpu.net[name][1], values, name)

    def compare(self, *options, n=1):
        gpu = Job(["--device", "cuda", *options], n=n)
        self.assertIn(" on GPUs, float64", gpu.out)
        self.assertEqual(len(gpu.losses), 9)
        self.assert_same(gpu, Job(options, n=n))

    def test_one_rank_trains_as_on_cpus(self):
        self.compare()

    def test_two_ranks_train_as_on_cpus(self):
        self.compare(n=2)

    def test_three_ranks_train_in_parts_without_normalization(self):
        self.compare("--norm", "none", *PARTS, "3", n=3)

    def test_one_two_and_three_ranks_normalize_over_the_ranks(self):
        for n in 1, 2, 3:
            self.compare("--sync-bn", n=n)

    def test_batches_in_parts_are_normalized(self):
        self.compare(*PARTS, "2", n=2)
        self.compare("--sync-bn", *PARTS, "2", n=2)

    def test_a_linear_classifier_trains_with_parts_larger_than_its_data(self):
        self.compare("--model", "linear", *PARTS, "7", n=2)

    def compare_graph(self, *options, n):
        gpu = Job(["--device", "cuda", "--graph", *options], n=n)
        self.assert_same(gpu, Job(options, n=n))

    def test_steps_of_a_graph_equal_plain_steps(self):
        for n in 1, 2, 3:
            with self.subTest(n=n):
                self.compare_graph(n=n)

    def test_a_graph_normalizes_over_the_ranks(self):
        self.compare_graph("--sync-bn", n=2)

    def test_a_batch_smaller_than_the_graphs_is_a_plain_step(self):
        self.compare_graph("--samples", "40", "--steps", "9", "--batch", "24", n=2)

    def test_a_rank_that_dies_in_a_replay_is_replaced_and_nothing_is_lost(self):
        options = ["--norm", "none"]
        gpu = Job(["--device", "cuda", "--graph", *options], n=2, faults="r1g0:kill@16", launcher=["--max-restarts", "1"])
        self.assertIn("SIGKILL", gpu.said)
        self.assert_same(gpu, Job(options, n=2))

    def test_a_rank_that_dies_is_replaced_and_nothing_is_lost(self):
        gpu = Job(["--device", "cuda", "--norm", "none"], n=2, faults="r1g0:kill@16", launcher=["--max-restarts", "1"])
        self.assertIn("SIGKILL", gpu.said)
        self.assert_same(gpu, Job(["--norm", "none"], n=2))

    def test_a_rank_that_dies_in_a_normalization_is_replaced(self):
        gpu = Job(["--device", "cuda", "--sync-bn"], n=2, faults="r1g0:kill@20", launcher=["--max-restarts", "1"])
        self.assertIn("SIGKILL", gpu.said)
        self.assertEqual((gpu.status, gpu.report), (0, ""), gpu.said)
        self.assert_near(gpu.losses, Job(["--sync-bn"], n=2).losses, "losses")

    def test_a_rank_whose_gpu_fails_is_replaced(self):
        gpu = Job(["--device", "cuda", "--norm", "none"], n=2, faults="r1g0:cuda@16", launcher=["--max-restarts", "1"])
        self.assertIn("exit status 75", gpu.said)
        self.assertEqual(gpu.status, 0, gpu.said)
        self.assert_near(gpu.losses, Job(["--norm", "none"], n=2).losses, "losses")

    def test_without_a_gpu_it_fails_with_the_reason(self):
        job = Job(["--device", "cuda"], n=2, NCCL_DOUBLE_DEVICES="no driver")
        self.assertEqual(job.status, 1)
        lines = [line for line in job.said.splitlines() if line.startswith("mnist: ")]
        self.assertEqual(len(lines), 1, job.said)
        self.assertIn("no GPU: cannot load the CUDA driver", lines[0])
        self.assertEqual(job.losses, [])

    def test_without_its_cuda_part_it_fails_with_the_reason(self):
        with tempfile.TemporaryDirectory(prefix="nccl-mnist-lonely-") as folder:
            program = shutil.copy(args.mnist, folder)
            job = Job(["--device", "cuda"], program=program, LD_LIBRARY_PATH=args.libddp_dir)
        self.assertEqual(job.status, 1)
        self.assertIn("mnist: no GPU: cannot load the CUDA part: libmnist", job.said)

    def test_auto_selects_cpus_if_one_rank_has_no_gpu(self):
        job = Job(["--device", "auto"], n=3, NCCL_DOUBLE_DEVICES="2")
        self.assertNotIn("on GPUs", job.out)
        self.assertIn("mnist: rank 2: no GPU: this process sees 2 GPUs", job.said)
        self.assert_same(job, Job([], n=3))
        self.assertIn("on GPUs", Job(["--device", "auto"], n=3).out)

    def test_options_for_cpus_only_are_refused(self):
        for options, why in (
            (["--pipeline"], "--device cannot be used with --pipeline"),
            (["--graph", "--zero1"], "cannot be used with --accumulate or --zero1"),
        ):
            job = Job(["--device", "cuda", *options])
            self.assertEqual(job.status, 2, job.said)
            self.assertIn(why, job.said)

    def test_16_bit_floats_are_rounded_as_on_cpus(self):
        for level, half, n in ("O1", "bfloat16", 2), ("O2", "float16", 2), ("O3", "float16", 1), ("O3", "bfloat16", 2):
            with self.subTest(level=level, half=half, n=n):
                self.compare("--amp", level, "--amp-type", half, n=n)

    def test_16_bit_floats_are_combined_with_other_options(self):
        for options in (["--sync-bn", *PARTS, "3"], ["--model", "linear"]):
            with self.subTest(options=options):
                self.compare("--amp", "O2", *options, n=2)

    def test_a_step_that_overflows_is_skipped_on_gpus_as_on_cpus(self):
        options = ["--amp", "O2", "--lr", "3e4", "--momentum", "0"]
        jobs = [Job([*device, *options], n=2) for device in (["--device", "cuda"], ["--device", "cuda", "--graph"], [])]
        skipped = [re.search(r"(\d+) steps skipped, loss scale (\S+)", job.out).groups() for job in jobs]
        self.assertNotEqual(skipped[0][0], "0")
        self.assertEqual(skipped, [skipped[0]] * 3)
        self.assertEqual([job.report for job in jobs], [""] * 3)

    def test_a_graph_has_16_bit_floats(self):
        self.compare_graph("--amp", "O2", n=2)

    def test_a_rank_that_dies_with_16_bit_floats_is_replaced_and_nothing_is_lost(self):
        options = ["--norm", "none", "--amp", "O2"]
        gpu = Job(["--device", "cuda", *options], n=2, faults="r1g0:kill@16", launcher=["--max-restarts", "1"])
        self.assertIn("SIGKILL", gpu.said)
        self.assert_same(gpu, Job(options, n=2))

    def test_a_divided_optimizer_makes_the_steps_of_a_whole_one(self):
        self.compare("--zero1", n=3)
        self.compare("--zero1", "--sync-bn", *PARTS, "2", n=2)

    def test_a_rank_that_dies_with_its_share_of_the_optimizer_is_replaced(self):
        options = ["--norm", "batch", "--sync-bn", "--zero1"]
        gpu = Job(["--device", "cuda", *options], n=2, faults="r1g0:kill@20", launcher=["--max-restarts", "1"])
        self.assertIn("SIGKILL", gpu.said)
        self.assertEqual((gpu.status, gpu.report), (0, ""), gpu.said)
        self.assert_near(gpu.losses, Job(options, n=2).losses, "losses")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ddprun", required=True)
    parser.add_argument("--mnist", required=True)
    parser.add_argument("--libddp-dir", required=True)
    args, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="nccl-mnist-data-") as data:
        unittest.main(argv=["mnist.py", *rest])
