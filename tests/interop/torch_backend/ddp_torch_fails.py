"""The errors of ddp_torch when something fails, one case for each process group.

usage: ddprun -n 3 ddp_torch_fails.py
"""
import os
import signal
import sys

from datetime import timedelta

import torch
import torch.distributed as dist

import ddp_torch  # noqa: F401 (registers the back end)


def expect(what, call, *words):
    try:
        call()
    except RuntimeError as error:  # DistBackendError and the error of a future are such errors
        if not all(word in str(error) for word in words):
            raise AssertionError(f"{what}: {error!r} has not {words}") from error
        print(f"{what}: {type(error).__name__}: {error}", flush=True)
        return
    raise AssertionError(f"{what}: no error")


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # ddprun's, when rank 2 dies
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    groups = [dist.new_group(backend="ddp", timeout=timedelta(seconds=120)) for _ in range(4)]
    soon = timedelta(seconds=4)  # longer than a busy machine keeps one of two ranks from a call that the other has begun
    late = dist.new_group(backend="ddp", timeout=soon)
    survivors = dist.new_group([0, 1])
    shortened = [dist.new_group(backend="ddp", timeout=timedelta(seconds=120)) for _ in range(3)]
    for group in shortened:
        group.set_timeout(soon)

    def mismatch():
        dist.all_reduce(torch.ones(3 if rank == 0 else 4), group=groups[0])

    def late_ones():
        """Ranks 0 and 1 begin each call together: one that waits for both others names both."""
        yield "no rank comes", lambda: dist.barrier(late), "ddp: barrier:", "rank 2"
        yield "a shorter timeout", lambda: dist.barrier(shortened[0]), "waiting for rank 2"
        yield "a shorter timeout, later", lambda: dist.all_reduce(torch.ones(1), group=shortened[1], async_op=True).wait(), "waiting for rank 2"
        yield "a shorter timeout, message", lambda: dist.irecv(torch.ones(1), 2, group=shortened[2]).wait(), "waiting for rank 2"

    expect("another count", mismatch, "ddp: all_reduce:", "DDP_EMISMATCH")
    if rank != 2:
        for what, call, *words in late_ones():
            dist.barrier(survivors)
            expect(what, call, *words, "DDP_ETIMEOUT")
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.ones(1000000)
    expect("a death", lambda: dist.all_reduce(tensor, group=groups[1]), "rank 2", "DDP_EPEER")
    expect("a death, later", lambda: dist.all_reduce(tensor, group=groups[2], async_op=True).wait(), "rank 2", "DDP_EPEER")
    expect("a death, in a future", lambda: dist.all_reduce(tensor, group=groups[3], async_op=True).get_future().wait(), "rank 2", "DDP_EPEER")
    print(f"rank {rank} has heard of all", flush=True)
    sys.stdout.flush()
    os._exit(0)  # gloo's own group is also broken


if __name__ == "__main__":
    main()
