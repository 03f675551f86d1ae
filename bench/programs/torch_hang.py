"""Rank 1 hangs in step 5, as if a disk were dead, and the others wait for it in an all-reduce. It knows nothing of ddprun. For bench/gpu.

    ddprun -n 3 torch_hang.py nccl|gloo

Each rank prints CLOCK_MONOTONIC, in seconds, and where it is.
"""
import os
import sys
import time

HANGS_IN = 5


def say(what):
    os.write(1, f"at {time.monotonic():.3f}: {what}\n".encode())


say("started")
import torch  # noqa: E402 (it takes seconds)
import torch.distributed as dist  # noqa: E402


def read_a_batch_from_a_dead_disk():
    say("hangs")
    time.sleep(3600)


def main():
    say("imported torch")
    backend = sys.argv[1]
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    values = torch.ones(1 << 16, device=device)
    say("has its device")
    dist.init_process_group(backend)
    for step in range(100):
        if step == HANGS_IN and dist.get_rank() == 1:
            read_a_batch_from_a_dead_disk()
        dist.all_reduce(values)
        say(f"step {step}: {values[0].item():g}")


main()
