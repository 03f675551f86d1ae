"""A gloo job whose rank 1 hangs after a few steps: it sleeps, as a rank might wait for a file system. The rank prints where
it was when it is ended, since faulthandler handles SIGABRT."""
import faulthandler
import time

import torch
import torch.distributed as dist


def read_a_batch_from_a_dead_disk():
    time.sleep(3600)


def main():
    faulthandler.enable()
    dist.init_process_group("gloo")
    for step in range(100):
        if step == 3 and dist.get_rank() == 1:
            read_a_batch_from_a_dead_disk()
        total = torch.ones(1000)
        dist.all_reduce(total)
        if step == 0:
            print("connected\n", end="", flush=True)  # one write: two lines stay two
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
