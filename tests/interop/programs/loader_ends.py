"""A training script whose DataLoader has two workers that persist across epochs, and which ends in the middle of an epoch: "rank",
"worker": that process of rank 1 kills itself; "exception": rank 1 raises one; "wait": all continue until a signal arrives.

usage: torchrun --nproc-per-node 2 loader_ends.py HOW
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, get_worker_info

HOW, RANK = sys.argv[1], int(os.environ["RANK"])


class Endless(Dataset):
    def __len__(self):
        return 1 << 40

    def __getitem__(self, index):
        if HOW == "worker" and RANK == 1 and index >= 64 and get_worker_info().id == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(4) * index


dist.init_process_group("gloo")
for step, batch in enumerate(DataLoader(Endless(), batch_size=4, num_workers=2, persistent_workers=True)):
    mean = batch.mean()
    dist.all_reduce(mean)
    if step == 32:
        os.write(1, f"rank {RANK} trains\n".encode())  # in one piece
        if RANK == 1 and HOW == "rank":
            os.kill(os.getpid(), signal.SIGKILL)
        if RANK == 1 and HOW == "exception":
            raise ValueError("batch 32 is bad")
