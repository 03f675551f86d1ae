"""Rank 1 is killed with SIGKILL after its first step of each generation but the last.

usage: restart.py GENERATIONS
"""
import os
import signal
import sys

import torch
import torch.distributed as dist

generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
for step in range(3):
    tensor = torch.full((1000,), float(dist.get_rank() + step))
    dist.all_reduce(tensor)
    assert tensor[999].item() == 1 + 2 * step
    if step == 0:
        os.write(1, f"rank {dist.get_rank()}: first step of generation {generation}\n".encode())  # in one piece
        dist.barrier()
        if generation + 1 < int(sys.argv[1]) and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
