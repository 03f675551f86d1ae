"""FSDP2 and tensor parallelism on a DeviceMesh with gloo, and torch.distributed.checkpoint of the result.

usage: torchrun --nproc-per-node 4 fsdp2_mesh.py DIRECTORY
"""
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def build(mesh):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(model, optimizer, rank, steps):
    for step in range(steps):
        numbers = torch.Generator().manual_seed(100 * step + rank)
        data = torch.randn(8, 16, generator=numbers)
        loss = nn.functional.mse_loss(model(data), data[:, :4])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor().detach() for p in model.parameters()]


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("data", "tensor"))
rank = mesh["data"].get_local_rank()
model, optimizer = build(mesh)
train(model, optimizer, rank, 3)
model_state, optimizer_state = get_state_dict(model, optimizer)
dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=sys.argv[1])
expected = train(model, optimizer, rank, 2)

model, optimizer = build(mesh)
model_state, optimizer_state = get_state_dict(model, optimizer)
state = {"model": model_state, "optimizer": optimizer_state}
dcp.load(state, checkpoint_id=sys.argv[1])
set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
for ours, wanted in zip(train(model, optimizer, rank, 2), expected):
    torch.testing.assert_close(ours, wanted)
print(f"rank {dist.get_rank()} went on from the checkpoint as without it", flush=True)
dist.barrier()
dist.destroy_process_group()
