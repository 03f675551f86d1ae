"""A gloo job that reports its steps, and whose rank 1 hangs in step 37: it sleeps, as a rank might wait for a file system."""
import time

import torch
import torch.distributed as dist

from ddp_torch import step


def read_a_batch_from_a_dead_disk():
    time.sleep(3600)


def main():
    dist.init_process_group("gloo")
    for n in range(100):
        if n == 36 and dist.get_rank() == 1:
            read_a_batch_from_a_dead_disk()
        total = torch.ones(1000)
        dist.all_reduce(total)
        if n == 0:
            print("connected\n", end="", flush=True)  # one write: two lines stay two
        step(n + 1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
