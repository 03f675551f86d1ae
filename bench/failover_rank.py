"""A PyTorch script for bench/failover.py: a rank that reports its first step with the others, and makes steps until it is to end."""
import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
ends, is_first = False, True
while not ends:
    x = torch.tensor([os.path.exists(os.environ["TEST_END"])], dtype=torch.int32)
    dist.all_reduce(x)
    if is_first:
        with open(os.environ["TEST_FIFO"], "wb", buffering=0) as fifo:
            fifo.write(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {rank}/{world} {os.getpid()}\n".encode())
    ends, is_first = x.item() > 0, False
    time.sleep(0.001)
dist.destroy_process_group()
sys.exit(0)
