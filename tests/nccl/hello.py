#!/usr/bin/env python3
"""examples/nccl_hello reports what it has, on 3 "GPUs" of the double, and what is missing without one.

    hello.py DDPRUN NCCL_HELLO

Covers: worker-runtime/nccl
"""

import os
import subprocess
import sys
import tempfile


def run(**env):
    with tempfile.TemporaryDirectory(prefix="nccl-hello-") as folder:
        job = subprocess.run(
            [sys.argv[1], "-n", "3", sys.argv[2]],
            env=dict(os.environ, NCCL_DOUBLE_DIR=folder, **env),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    return job.returncode, sorted(job.stdout.splitlines()), job.stderr


status, lines, said = run()
assert status == 0, said
assert lines == [f"rank {r} has GPU {r}, and a communicator of 3 ranks" for r in range(3)], lines

status, lines, said = run(NCCL_DOUBLE_DEVICES="no driver")
assert status == 1 and "cannot load the CUDA driver (libcuda.so.1)" in said, said
