"""torch.distributed.rpc: a parameter server and its trainer.

usage: torchrun --nproc-per-node 2 rpc.py
"""
import os

import torch
import torch.distributed.rpc as rpc


class Server:
    def __init__(self):
        self.weights = torch.zeros(8)

    def add(self, gradient):
        self.weights -= 0.1 * gradient
        return self.weights


rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
if rank == size - 1:
    server = rpc.remote("worker0", Server)
    for _ in range(10):
        weights = server.rpc_sync().add(torch.ones(8))
    assert torch.allclose(weights, torch.full((8,), -1.0)), weights
    total = rpc.rpc_async("worker0", torch.add, args=(torch.ones(2), 3)).wait()
    assert total.tolist() == [4, 4]
    print(f"rank {rank} trained on worker0", flush=True)
rpc.shutdown()
