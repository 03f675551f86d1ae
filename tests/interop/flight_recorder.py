"""A gloo job of which rank 1 stops taking part, with torch's flight recorder in it: what it keeps is real. The pipe by
which it is asked for belongs to torch's process group for NCCL, which needs GPUs: in its place a thread does here
what that one does, by a test double."""
import os
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace


def watch(pipe, path):
    while not os.read(pipe, 128):
        time.sleep(0.05)
    with open(path, "wb") as dump:
        dump.write(_dump_fr_trace(True, False, False))


def open_pipe(rank):
    path = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + rank + ".pipe"
    os.mkfifo(path)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


def main():
    rank = os.environ["RANK"]
    dump = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + rank
    threading.Thread(target=watch, args=[open_pipe(rank), dump], daemon=True).start()
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1000))
    print("met\n", end="", flush=True)  # one write: two lines stay two
    if rank == "1":
        time.sleep(3600)
    dist.all_reduce(torch.ones(2000))


if __name__ == "__main__":
    main()
