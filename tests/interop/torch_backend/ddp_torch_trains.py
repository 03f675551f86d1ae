"""Train by DistributedDataParallel, FSDP, FSDP2 and DTensor over ddp_torch, over gloo, and in one process, and compare.

usage: ddprun -n 2|4 ddp_torch_trains.py WAY...

WAY   ddp, zero, fsdp, fsdp2, hsdp, checkpoint, checkpoint_of_shards, dtensor
"""
import contextlib
import hashlib
import io
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn

import ddp_torch  # noqa: F401 (registers the back end)

STEPS = 6


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 8))


def batch(rank, step):
    numbers = torch.Generator().manual_seed(1000 * step + rank)
    data = torch.randn(16, 40, generator=numbers)
    return data, data[:, :8].sin()


def whole_batch(step):
    data, wanted = zip(*[batch(rank, step) for rank in range(dist.get_world_size())])
    return torch.cat(data), torch.cat(wanted)


def train(model, parameters, optimizer=None, batch_of=lambda step: batch(dist.get_rank(), step)):
    """The losses of the steps."""
    optimizer = optimizer or torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    losses = []
    for step in range(STEPS):
        data, wanted = batch_of(step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trains_as_one_process(losses):
    """The mean of the ranks' losses is the loss of one process with all of the batches."""
    means = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(means, dist.ReduceOp.AVG)
    model = make_model()
    torch.testing.assert_close(means.float(), torch.tensor(train(model, model.parameters(), None, whole_batch)))


def digest(tensors):
    text = io.BytesIO()
    for tensor in tensors:
        text.write(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return hashlib.sha256(text.getvalue()).hexdigest()


def agree(what, value):
    """All ranks have the same."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    if len(set(values)) != 1:
        raise AssertionError(f"{what}: the ranks differ: {values}")


def ddp(group):
    model = make_model()
    # small buckets, so that there are several
    wrapped = nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.1)
    losses = train(wrapped, wrapped.parameters())
    agree("parameters", digest(model.parameters()))
    return losses


def ddp_with_hook(group):
    """fp16 compression by torch's own hook: futures with callbacks."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = make_model()
    wrapped = nn.parallel.DistributedDataParallel(model, process_group=group)
    wrapped.register_comm_hook(group, default_hooks.fp16_compress_hook)
    losses = train(wrapped, wrapped.parameters())
    agree("parameters", digest(model.parameters()))
    return losses


def zero(group):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = make_model()
    wrapped = nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, process_group=group, lr=0.1, momentum=0.9)
    losses = train(wrapped, None, optimizer)
    agree("parameters", digest(model.parameters()))
    return losses


def fsdp(group):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(make_model(), process_group=group, device_id=torch.device("cpu"))
    return train(model, model.parameters())


def mesh_of(group):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh.from_group(group, "cpu")


def sharded_model(mesh):
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def full_parameters(model):
    return [parameter.full_tensor() for parameter in model.parameters()]


def train_sharded(mesh):
    model = sharded_model(mesh)
    losses = train(model, model.parameters())
    agree("parameters", digest(full_parameters(model)))
    return losses


def fsdp2(group):
    return train_sharded(mesh_of(group))


def hsdp(group):
    """Two copies, each in shards. init_device_mesh() makes groups of the default back end."""
    from torch.distributed.device_mesh import init_device_mesh

    if group is not dist.group.WORLD:
        return fsdp2(group)
    return train_sharded(init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("copy", "shard")))


@contextlib.contextmanager
def shared_directory(group):
    """A directory that all ranks use, and that is removed afterward."""
    path = [tempfile.mkdtemp(prefix="ddp-torch-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(path, 0, group=group)
    yield path[0]
    dist.barrier(group)
    if dist.get_rank() == 0:
        shutil.rmtree(path[0])


def checkpoint_of_shards(group):
    """Saved by torch.distributed.checkpoint, then loaded into a model with other values."""
    import torch.distributed.checkpoint as dcp

    model = sharded_model(mesh_of(group))
    losses = train(model, model.parameters())
    saved = digest(full_parameters(model))
    with shared_directory(group) as path:
        dcp.save(model.state_dict(), checkpoint_id=path, process_group=group)
        loaded = sharded_model(mesh_of(group))
        assert digest(full_parameters(loaded)) != saved
        state = loaded.state_dict()
        dcp.load(state, checkpoint_id=path, process_group=group)
        loaded.load_state_dict(state)
    assert digest(full_parameters(loaded)) == saved
    return losses


def tensor_types():
    import torch.distributed.tensor as module

    if not hasattr(module, "distribute_tensor"):  # torch 2.4
        import torch.distributed._tensor as module
    return module


def checkpoint(group):
    """A model of plain tensors, and a sharded tensor that is loaded in other shards."""
    import torch.distributed.checkpoint as dcp

    types, mesh = tensor_types(), mesh_of(group)
    whole = torch.arange(64.0).view(8, 8)
    saved = {"model": make_model().state_dict(), "sharded": types.distribute_tensor(whole, mesh, [types.Shard(0)])}
    with torch.no_grad():
        empty = {"model": {name: torch.zeros_like(tensor) for name, tensor in saved["model"].items()},
                 "sharded": types.distribute_tensor(torch.zeros(8, 8), mesh, [types.Shard(1)])}
    with shared_directory(group) as path:
        dcp.save(saved, checkpoint_id=path, process_group=group)
        dcp.load(empty, checkpoint_id=path, process_group=group)
    assert torch.equal(empty["sharded"].full_tensor(), whole)
    assert digest(empty["model"].values()) == digest(saved["model"].values())
    return [whole.sum().item()]


def dtensor(group):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    types, mesh = tensor_types(), mesh_of(group)
    torch.manual_seed(5)
    whole = torch.arange(64.0).view(8, 8)
    sharded = types.distribute_tensor(whole, mesh, [types.Shard(0)])
    assert torch.equal(sharded.full_tensor(), whole)
    assert torch.equal(sharded.redistribute(mesh, [types.Shard(1)]).full_tensor(), whole)
    assert torch.equal((sharded @ sharded.redistribute(mesh, [types.Replicate()])).full_tensor(), whole @ whole)
    assert sharded.sum().full_tensor().item() == whole.sum().item()
    model = make_model()
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.manual_seed(0)
    data = torch.randn(4, 40)
    out = model(data)
    out.square().mean().backward()
    torch.testing.assert_close(out, make_model()(data))
    return [out.square().mean().item()]


WAYS = {"ddp": [ddp, ddp_with_hook], "zero": [zero], "fsdp": [fsdp], "fsdp2": [fsdp2], "hsdp": [hsdp], "checkpoint": [checkpoint],
        "checkpoint_of_shards": [checkpoint_of_shards], "dtensor": [dtensor]}
APPROXIMATE = [ddp_with_hook, checkpoint, dtensor]  # the first sums float16, the others do not train


def main():
    torch.set_num_threads(1)
    dist.init_process_group("cpu:ddp")
    gloo = dist.new_group(backend="gloo")
    for name in sys.argv[1:]:
        for way in WAYS[name]:
            ours, theirs = way(dist.group.WORLD), way(gloo)
            torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs))
            if way not in APPROXIMATE:
                trains_as_one_process(ours)
            if dist.get_rank() == 0:
                print(f"torch {torch.__version__}: {way.__name__}: losses {ours[0]:.5f} to {ours[-1]:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
