"""A rank of bench/hang_report.py: rank 1 hangs in step 37 for good, as if a disk were dead, and the others wait for it.

steps: without torch; steps are reported by ddp_torch.step(). gloo-steps: an all_reduce per step with gloo, and reported steps. gloo: the
same without a call to ddprun. Rank 1 prints when it hangs, by CLOCK_MONOTONIC."""
import os
import sys
import time

HANGS_IN = 37


def read_a_batch_from_a_dead_disk():
    os.write(1, f"hangs at {time.monotonic():.6f}\n".encode())
    time.sleep(3600)


def wait_for_rank_1():
    """In another place of the kernel than rank 1: so the others differ from it."""
    os.read(os.pipe()[0], 1)


def make_exchange(way):
    """-> what a step does with the other ranks"""
    if way == "steps":
        return lambda n: wait_for_rank_1() if n == HANGS_IN - 1 else time.sleep(0.01)
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    return lambda n: dist.all_reduce(torch.ones(1000))


def main():
    way = sys.argv[1]
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python/ddp_torch"))
    exchange = make_exchange(way)
    step = __import__("progress").step if way != "gloo" else lambda n: None
    for n in range(HANGS_IN):
        if n == HANGS_IN - 1 and os.environ["RANK"] == "1":
            read_a_batch_from_a_dead_disk()
        exchange(n)
        step(n + 1)


main()
