"""DistributedDataParallel on gloo, and rank 1 kills itself after its first step of generation 0: not before its
launcher has forks of the next generation waiting."""
import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LIMIT_S = 60
generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
rank = dist.get_rank()


def count_waiting():
    """Seeds: children of the spawner, as this one, and leaders of no session yet, as ranks and the parent are."""
    n = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                parent, _, session = map(int, f.read().rpartition(")")[2].split()[1:4])
            n += parent == os.getppid() and session != int(pid)
        except OSError:
            pass  # it has ended
    return n


seeds = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
dist.all_gather(seeds, torch.tensor([torch.initial_seed() & 0xFFFFFFFF]))
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
same = torch.equal(seeds[0], seeds[1])
os.write(1, f"rank {rank}: first step of generation {generation}, seeds {'are the same' if same else 'differ'}\n".encode())
dist.barrier()
if generation == 0:
    end = time.monotonic() + LIMIT_S
    while count_waiting() < 2 and time.monotonic() < end:
        time.sleep(0.05)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(LIMIT_S)
dist.destroy_process_group()
