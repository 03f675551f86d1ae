#!/usr/bin/env python3
"""bench/gpu without a GPU: one line and status 69; a probe that fails otherwise: status 1; and its parts that are quick,
over the double.

    bench_gpu.py BENCH_GPU BUILD_ROOT

Covers: worker-runtime/nccl, bench
"""

import os
import subprocess
import sys
import tempfile


def run(*command, **env):
    with tempfile.TemporaryDirectory(prefix="nccl-bench-") as folder:
        report = os.path.join(folder, "report")
        done = subprocess.run(
            command,
            env=dict(os.environ, NCCL_DOUBLE_DIR=folder, NCCL_DOUBLE_REPORT=report, **env),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert not os.path.exists(report), open(report, encoding="utf-8").read()
    return done


gpu, build = sys.argv[1:]
with tempfile.TemporaryDirectory(prefix="nccl-bench-") as out:
    results = os.path.join(out, "results.md")
    done = run(gpu, "--build", build, "--out", results, NCCL_DOUBLE_DEVICES="no driver")
    assert done.returncode == 69, done
    assert done.stderr.count("\n") == 1 and "cannot load the CUDA driver (libcuda.so.1)" in done.stderr, done.stderr
    assert done.stdout == "" and not os.path.exists(results), done.stdout
    done = run(gpu, "--build", out, "--out", results)
    assert done.returncode == 69 and "the build has no back end for GPUs" in done.stderr, done
    steps = os.path.join(out, "bench", "gpu_steps")
    os.mkdir(os.path.dirname(steps))
    for status, want, what in (3, 1, "probe ended with status 3: no way"), (127, 69, "nothing was run: no way"):
        with open(steps, "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\necho no way >&2\nexit {status}\n")
        os.chmod(steps, 0o700)
        done = run(gpu, "--build", out, "--out", results)
        assert done.returncode == want and what in done.stderr and not os.path.exists(results), done
    done = run(gpu, "--build", build)
    assert done.returncode == 2 and "figures of a test double" in done.stderr, "a double's figures are nobody's results"

    def parts(*names, **env):
        options = [option for name in names for option in ("--part", name)]
        done = run(gpu, "--build", build, "--values", "20000", "--repeats", "2", "--out", results, *options, **env)
        with open(results, encoding="utf-8") as f:
            return done, f.read()

    done, said = parts("averages", "statistics", "speed")
    assert done.returncode == 0, done
    assert "**Nothing here is real**" in said and "45 cases" in said and "- float16, always_fp32\n" in said, said
    for row in "channels_last, float64", "pack and unpack, bfloat16, check finite", "syncbn backward":
        assert f"| {row} " in said, said
    for kernel, part, what in (
        ("ddp_unpack", "averages", "float32,predivided,finite: value 1 is "),
        ("ddp_pack", "averages", "float32,to_float16,finite: value 1 is "),
        ("ddp_say_moments", "statistics", "on the GPU, and"),
        ("ddp_backward", "statistics", "dx[0] is "),
    ):
        done, said = parts(part, NCCL_DOUBLE_IDLE_KERNEL=kernel)
        assert done.returncode == 1 and "**Failed**" in said and what in said, (kernel, done, said)

    samples = os.path.join(out, "samples")
    with open(samples, "wb") as f:
        f.write(bytes([0, 0, 8, 2, 0, 0, 0, 50, 0, 0, 0, 100]) + bytes(50 * 100))
    done = run(os.path.join(build, "bench", "gpu_steps"), "loader", samples, "8")
    assert done.returncode == 0 and done.stdout.split()[:2] == ["7", "5000"], done

    done = run(os.path.join(build, "bench", "gpu_steps"), "clip", "65536", "3")  # it also checks the results
    assert done.returncode == 0 and len([float(t) for t in done.stdout.split()]) == 2, done

    done = run(os.path.join(build, "bench", "gpu_steps"), "graph", "3")
    assert done.returncode == 0 and done.stdout.split()[:2] == ["64", str(16 << 20)], done
