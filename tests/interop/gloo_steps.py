"""What a data-parallel script does with its process group, step after step, until it is ended. It knows nothing of
restarts. It reports its first step to the file that TEST_FIFO names: "RANK PID", in one write."""
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
step = 0
while True:
    gradient = torch.full((1000,), float(rank + step))
    dist.all_reduce(gradient)
    assert gradient[999].item() == size * step + size * (size - 1) / 2
    if step == 0:
        with open(os.environ["TEST_FIFO"], "wb", buffering=0) as fifo:
            fifo.write(f"{rank} {os.getpid()}\n".encode())
    step += 1
    time.sleep(0.001)  # the work between two sums
