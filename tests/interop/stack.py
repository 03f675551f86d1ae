"""A gloo job whose rank 1 stops participating: the others wait for it in all_reduce. Each rank prints where it is when
it receives SIGUSR2."""
import faulthandler
import signal
import time

import torch
import torch.distributed as dist


def read_a_batch_from_a_dead_disk():
    time.sleep(3600)


def main():
    faulthandler.register(signal.SIGUSR2)
    dist.init_process_group("gloo")
    dist.barrier()
    print("met\n", end="", flush=True)  # one write: two lines stay two
    if dist.get_rank() == 1:
        read_a_batch_from_a_dead_disk()
    dist.all_reduce(torch.ones(1000))


if __name__ == "__main__":
    main()
