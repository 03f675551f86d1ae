"""PyTorch's features for distributed training, each in a job of two or more ranks. Prints a line "rank R: FEATURE" when a feature has
worked.

usage: torchrun --nproc-per-node 2 torch_features.py DIRECTORY FEATURE...
"""
import os
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


class Branches(nn.Module):
    """Of which a step uses one."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x, left):
        return self.left(x) if left else self.right(x)


def same_on_all(model):
    for p in model.parameters():
        mean = p.detach().clone()
        dist.all_reduce(mean)
        torch.testing.assert_close(mean / dist.get_world_size(), p.detach())


def train(model, steps, *args):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.randn(8, 4), *args).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def find_unused_parameters(_):
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    for step in range(6):
        train(model, 1, step % 2 == 0)
    same_on_all(model)


def join(_):
    """Ranks have inputs of different length."""
    model = DistributedDataParallel(nn.Linear(4, 1))
    with Join([model]):
        train(model, 3 + 2 * dist.get_rank())
    same_on_all(model)


def async_save(folder):
    torch.manual_seed(3)
    model = nn.Linear(64, 64)
    path = os.path.join(folder, "async")
    future = dcp.async_save({"model": model.state_dict()}, checkpoint_id=path, process_group=dist.new_group(backend="gloo"))
    future.result()
    dist.barrier()
    state = {"model": nn.Linear(64, 64).state_dict()}
    dcp.load(state, checkpoint_id=path)
    torch.testing.assert_close(state["model"]["weight"], model.state_dict()["weight"])


def compiled(_):
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    train(torch.compile(model, backend="aot_eager"), 3)
    same_on_all(model)


def child(_):
    """A process that a rank starts sees the rank's environment, and its group is not disturbed."""
    out = subprocess.run([sys.executable, "-c", "import os; print(os.environ['RANK'])"], stdout=subprocess.PIPE, check=True, text=True)
    assert int(out.stdout) == dist.get_rank(), out
    dist.barrier()


def groups(_):
    rank, world = dist.get_rank(), dist.get_world_size()
    pair = dist.new_group([0, 1])
    mine, _ = dist.new_subgroups(1)
    if rank < 2:
        x = torch.ones(1)
        dist.all_reduce(x, group=pair)
        assert x.item() == 2
    x = torch.ones(1)
    dist.all_reduce(x, group=mine)
    assert x.item() == 1
    found = [None] * world
    dist.all_gather_object(found, {"rank": rank})
    assert [f["rank"] for f in found] == list(range(world))
    box = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(box)
    assert box == [{"from": 0}]
    dist.monitored_barrier()
    mesh = init_device_mesh("cpu", (world,))
    assert mesh.get_rank() == rank


def store(_):
    s = dist.distributed_c10d._get_default_store()
    big = bytes(range(256)) * 4096
    if dist.get_rank() == 0:
        s.set("large", big)
    assert s.get("large") == big
    s.add("count", 1)
    s.wait(["count"])
    dist.barrier()
    assert s.add("count", 0) == dist.get_world_size()


def workers(_):
    """Two of the loader, which live through the epochs."""
    data = TensorDataset(torch.arange(64.0).reshape(-1, 4))
    loader = DataLoader(data, batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(3):
        total = sum(batch.sum() for batch, in loader)
        assert total == 64 * 63 / 2, total


FEATURES = {f.__name__: f for f in (find_unused_parameters, join, async_save, compiled, child, groups, store, workers)}

if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    for name in sys.argv[2:] or FEATURES:
        FEATURES[name](sys.argv[1])
        os.write(1, f"rank {dist.get_rank()}: {name}\n".encode())  # in one piece
    dist.barrier()
    dist.destroy_process_group()
