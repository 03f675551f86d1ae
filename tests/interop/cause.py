"""Rank 1 raises an exception while rank 0 waits for it in a collective and therefore also fails.

usage: cause.py raises | cleans_up

raises      ends at once
cleans_up   closes its connections first and takes a second to exit, like a logger that flushes
"""
import atexit
import sys
import time

import torch
import torch.distributed as dist


def main(way):
    dist.init_process_group("gloo")
    part = torch.ones(4)
    dist.all_reduce(part)
    try:
        if dist.get_rank() == 1:
            raise RuntimeError("the real cause")
        dist.all_reduce(part)
    finally:
        if dist.get_rank() == 1 and way == "cleans_up":
            atexit.register(time.sleep, 1)
            dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
