"""A rank of a job whose agents use ddp-rendezvous. It sums a value over all ranks twice; in the first attempt, the
last rank is killed between the two sums.

usage: join.py DIRECTORY
"""
import os
import signal
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for step in range(3):
    tensor = torch.full((1000,), float(rank + step))
    dist.all_reduce(tensor)
    assert tensor[999].item() == world * (world - 1) / 2 + world * step
    dist.barrier()
    if step == 0 and rank == world - 1:
        try:
            os.close(os.open(os.path.join(sys.argv[1], "killed"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass  # the second attempt goes through
        else:
            os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
os.write(1, f"rank {rank} of {world} ended well\n".encode())  # in one piece
