"""A script of the torch.distributed.launch days: the local rank is an argument.

usage: python -m torch.distributed.launch --nproc_per_node=2 launch_argument.py
"""
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", "--local-rank", type=int)
args = parser.parse_args()

dist.init_process_group(backend="gloo", init_method="env://")
torch.manual_seed(args.local_rank)
model = DistributedDataParallel(torch.nn.Linear(10, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(20, 10)).square().mean().backward()
    optimizer.step()
print(f"local rank {args.local_rank} of {dist.get_world_size()} trained: {model.module.weight.sum().item():.6f}")
del model
dist.destroy_process_group()
