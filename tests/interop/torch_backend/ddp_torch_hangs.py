"""Rank 1 reads a batch forever, while the others wait for it in an all_reduce of ddp_torch.

usage: ddprun -n 3 --hang-timeout TIME ddp_torch_hangs.py
"""
import time

import torch
import torch.distributed as dist

import ddp_torch  # noqa: F401 (registers the back end)


def read_a_batch_from_a_dead_disk():
    time.sleep(3600)


dist.init_process_group("ddp")
for _ in range(5):
    dist.all_reduce(torch.ones(1000))
print("connected\n", end="", flush=True)  # one write: two lines stay two
if dist.get_rank() == 1:
    read_a_batch_from_a_dead_disk()
dist.all_reduce(torch.ones(2000))
