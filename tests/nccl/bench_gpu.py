#!/usr/bin/env python3
"""bench/gpu without a GPU: one line and status 69; a probe that fails otherwise: status 1; its list of parts, its kit, a
program that hangs; and sections that are quick, over the double, on which all ranks share one GPU.

    bench_gpu.py BENCH_GPU BUILD_ROOT

Covers: worker-runtime/nccl, bench
"""

import os
import re
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
            timeout=200,
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
    assert done.returncode == 2 and "figures of a mock" in done.stderr, "figures of a mock are not results"

    done = run(gpu, "--dry-run", "--build", os.path.join(out, "none"))
    assert done.returncode == 0 and re.findall(r"^[a-z-]+: .*; at most 570 s", done.stdout, re.MULTILINE), done
    assert "newer: NCCL 2.30" in done.stdout and "not there, or without the part for GPUs" in done.stdout, done.stdout

    kit = os.path.join(out, "kit")
    done = run(gpu, "--build", build, "--kit", kit)
    assert done.returncode == 0 and re.search(r"kit: [0-9.]+ MiB\.", done.stdout), done
    done = run(os.path.join(kit, "bench", "gpu"), "--dry-run")
    assert done.returncode == 0 and done.stdout.endswith(f"build: {os.path.realpath(kit)}\n"), done
    done = run(gpu, "--build", os.path.join(out, "none"), "--kit", os.path.join(out, "other"))
    assert done.returncode == 1 and "launcher/ddprun is missing" in done.stderr, done

    def parts(*names, part="one-rank", build=build, options=(), **env):
        options = [*options, "--part", part, *[option for name in names for option in ("--section", name)]]
        options += ["--values", "20000", "--repeats", "2", "--steps", "3", "--draw", "80", "--jobs", "1"]
        done = run(gpu, "--build", build, "--out", results, *options, **env, NCCL_DOUBLE_DEVICES="1", DDP_SEGMENT_BYTES="64M")
        with open(results, encoding="utf-8") as f:
            return done, f.read()

    done, said = parts("averages", "statistics", "speed")
    assert done.returncode == 0, done
    assert "**Nothing here is real**" in said and "45 cases" in said and "- float16, always_fp32\n" in said, said
    for row in "channels_last, float64", "pack and unpack, bfloat16, check finite", "syncbn backward":
        assert f"| {row} " in said, said
    for kernel, part, what in (
        ("ddp_unpack", "averages", "float32,predivided,finite: value 1 is "),
        ("ddp_pack", "averages", "float32,weighted,finite: value 1 is "),
        ("ddp_say_moments", "statistics", "on the GPU, and"),
        ("ddp_backward", "statistics", "dx[0] is "),
    ):
        done, said = parts(part, NCCL_DOUBLE_IDLE_KERNEL=kernel)
        assert done.returncode == 1 and "**Failed**" in said and what in said, (kernel, done, said)

    # what compute-sanitizer reports decides, not that it ran
    tools = os.path.join(out, "tools")
    os.makedirs(tools)
    for summary, status, want in (
        ("ERROR SUMMARY: 0 errors", 0, "| memcheck  | averages |   0 errors |"),
        ("RACECHECK SUMMARY: 2 hazards displayed", 0, "memcheck, averages: status 0"),
        ("", 0, "memcheck, averages: status 0"),
        ("ERROR SUMMARY: 0 errors", 9, "memcheck, averages: status 9"),
    ):
        with open(os.path.join(tools, "compute-sanitizer"), "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\necho '========= {summary}'\nexit {status}\n")
        os.chmod(os.path.join(tools, "compute-sanitizer"), 0o700)
        done, said = parts("sanitizer", PATH=tools + ":" + os.environ["PATH"])
        assert want in said and (done.returncode == 0) == want.startswith("|"), (want, done, said)

    samples = os.path.join(out, "samples")
    with open(samples, "wb") as f:
        f.write(bytes([0, 0, 8, 2, 0, 0, 0, 50, 0, 0, 0, 100]) + bytes(50 * 100))
    done = run(os.path.join(build, "bench", "gpu_steps"), "loader", samples, "8")
    assert done.returncode == 0 and done.stdout.split()[:2] == ["7", "5000"], done

    done = run(os.path.join(build, "bench", "gpu_steps"), "clip", "65536", "3")  # it also checks the results
    assert done.returncode == 0 and len([float(t) for t in done.stdout.split()]) == 2, done

    done = run(os.path.join(build, "bench", "gpu_steps"), "graph", "3")
    assert done.returncode == 0 and done.stdout.split()[:2] == ["64", str(16 << 20)], done

    done, said = parts("hello", "overhead", "growth", part="ranks", build=kit)
    assert done.returncode == 0, done
    assert re.search(r"^\| 4 +\|", said, re.MULTILINE) and "NCCL alone, on a blocking communicator " in said, said
    assert said.count("No GPU has run this yet.") == 4, "the other part's results stay"

    # a rank that dies: the job continues, by a shrink or by a new communicator, in graphs too; and one that hangs
    done, said = parts("recoveries", "other_deaths", part="failures")
    assert done.returncode == 0, done
    for row, kills, way in (
        ("shrink", 1, "shrink 1"),
        ("abort, then a new communicator", 1, "new 1"),
        ("replaced", 1, "new"),
        ("two at once", 2, "new"),
        ("in the first init", 1, "new"),
        ("in a later init", 2, "new"),
    ):
        assert re.search(rf"^\| {row} +\| +\d \| +1 \| +{kills} \| +{kills} \|.* {way}", said, re.MULTILINE), (row, said)
    done, said = parts("replays", "hang", part="graphs")
    assert done.returncode == 0, done
    assert re.search(r"^\| shrink .* shrink 1 \|$", said, re.MULTILINE) and "  rank 1: " in said, said

    # what a rank does wrong is not a result: a network that is not cut, and a wrong average
    done, said = parts("lost_network", part="failures")
    assert done.returncode == 1 and "**Failed**" in said and "connections that were cut: [0]" in said, said

    # a section that hangs ends with its part's time, and what is left is not run
    slow = os.path.join(out, "slow")
    os.makedirs(os.path.join(slow, "bench"))
    os.symlink(os.path.join(build, "bench", "gpu_steps"), os.path.join(slow, "bench", "gpu_steps"))
    with open(os.path.join(slow, "bench", "gpu_kernels"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\ntrap '' TERM\nsleep 1000 & sleep 1000\n")
    os.chmod(os.path.join(slow, "bench", "gpu_kernels"), 0o700)
    done, said = parts("averages", "statistics", build=slow, options=["--limit", "4"])
    assert done.returncode == 1 and "gpu_kernels did not end in" in said and "**Not run**" in said, said
    done = run(gpu, "--take", results, "--out", os.path.join(out, "all.md"))
    with open(os.path.join(out, "all.md"), encoding="utf-8") as f:
        assert done.returncode == 0 and "did not end in" in f.read()
