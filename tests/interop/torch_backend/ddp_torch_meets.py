"""Groups of ddp_torch whose ranks this script starts, without a launcher: they rendezvous through any kind of store.

usage: ddp_torch_meets.py DIRECTORY
"""
import multiprocessing
import os
import sys

from datetime import timedelta

import torch
import torch.distributed as dist

import ddp_torch  # noqa: F401 (registers the back end)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../system/lib"))
from ports import free_port  # noqa: E402 (found by the path above)

RANKS = 4
PATIENCE = timedelta(seconds=100)


def use(rank, where, nodes):
    """Rendezvous, sum up, send around, and sum up once more in halves."""
    torch.set_num_threads(1)
    os.environ["DDP_NODE_RANK"] = str(nodes[rank])
    dist.init_process_group("ddp", init_method=where, rank=rank, world_size=RANKS, timeout=PATIENCE)
    for size in 10, 100000:
        tensor = torch.full((size,), float(rank))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((size,), 6.0)), tensor
    out = torch.empty(3000)
    work = dist.isend(torch.full((3000,), float(rank)), (rank + 1) % RANKS)
    dist.recv(out, (rank - 1) % RANKS)
    work.wait()
    assert torch.equal(out, torch.full((3000,), float((rank - 1) % RANKS)))
    members = [rank % 2, rank % 2 + 2]
    half = dist.new_group(members, use_local_synchronization=True)
    tensor = torch.full((5,), float(rank))
    dist.all_reduce(tensor, group=half)
    assert tensor.tolist() == [float(sum(members))] * 5
    dist.barrier()  # rank 0 has the store, through which others may still connect
    dist.destroy_process_group()


def start(where, nodes):
    context = multiprocessing.get_context("fork")  # torch is already imported
    children = [context.Process(target=use, args=(rank, where, nodes)) for rank in range(RANKS)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE.total_seconds())
    codes = [child.exitcode for child in children]
    for child in children:
        child.kill()
    if codes != [0] * RANKS:
        raise AssertionError(f"{where}, nodes {nodes}: the ranks ended with {codes}")
    print(f"{RANKS} ranks met by {where.split(':')[0]}, on {max(nodes) + 1} nodes", flush=True)


def main():
    folder = sys.argv[1]
    start(f"file://{folder}/store", [0, 0, 0, 0])
    start(f"tcp://127.0.0.1:{free_port()}", [0, 0, 0, 0])
    if torch.__version__.startswith("2.1."):
        return  # libddp does not speak with a store as old as that, by which nodes would find each other
    start(f"tcp://127.0.0.1:{free_port()}", [0, 0, 1, 1])
    start(f"tcp://127.0.0.1:{free_port()}", [0, 1, 0, 1])


if __name__ == "__main__":
    main()
