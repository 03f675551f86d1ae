"""A PyTorch DDP training script in the shape of the step-by-step tutorials. It knows no launcher: all
it needs comes from the environment.

usage: ddp_tutorial.py [--epochs N] [--batch-size N] [--checkpoint FILE]
"""
import argparse
import gc
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

N_CLASSES = 4


class Blobs(Dataset):
    """Points around one center per class: learned in a few epochs, the same on every rank."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        centres = 2 * torch.eye(N_CLASSES, 8)
        self.labels = torch.randint(0, N_CLASSES, (size,), generator=generator)
        self.points = centres[self.labels] + 0.5 * torch.randn(size, 8, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.out = nn.Linear(32, N_CLASSES)

    def forward(self, x):
        return self.out(self.hidden(x))


def reduce_mean(value, world_size):
    """The mean over the ranks; only rank 0 gets it."""
    value = value.detach().clone()
    dist.reduce(value, dst=0, op=dist.ReduceOp.SUM)
    return value.item() / world_size


def train(args):
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    torch.manual_seed(rank)  # DDP makes the ranks start equal, so they need not

    dataset = Blobs(1003, seed=1)  # not divisible by 2: the sampler pads
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = DDP(Net())
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    start = time.time()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        running_loss = torch.zeros(1)
        for points, labels in loader:
            loss = criterion(model(points), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running_loss += loss.detach() / len(loader)
        mean_loss = reduce_mean(running_loss, world_size)
        if rank == 0:
            print(f"Epoch [{epoch + 1}/{args.epochs}], Loss: {mean_loss:.4f}", flush=True)
    if rank == 0:
        print(f"Training complete in: {time.time() - start:.1f} s", flush=True)
    return model


def save_and_load(model, path):
    """Rank 0 writes a checkpoint, the others wait for it, and all continue from what they read."""
    rank = dist.get_rank()
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.load_state_dict(torch.load(path, map_location={"cuda:0": f"cuda:{rank}"}))
    dist.barrier()


def evaluate(model):
    model.eval()
    test_set = Blobs(400, seed=2)
    sampler = DistributedSampler(test_set, shuffle=False)
    counts = torch.zeros(2)
    with torch.no_grad():
        for points, labels in DataLoader(test_set, batch_size=100, sampler=sampler):
            counts[0] += (model.module(points).argmax(dim=1) == labels).sum()
            counts[1] += len(labels)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def check_agreement(model):
    """All ranks hold the same parameters, to the bit."""
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    for rank, theirs in enumerate(everyone):
        if not torch.equal(mine, theirs):
            raise RuntimeError(f"rank {rank} ended with other parameters than rank {dist.get_rank()}")


def run(args):
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    print(f"rank {rank} of {world_size}, local rank {os.environ['LOCAL_RANK']}", flush=True)

    model = train(args)
    save_and_load(model, args.checkpoint)
    accuracy = evaluate(model)
    check_agreement(model)
    if rank == 0:
        print(f"torch {torch.__version__}: {world_size} ranks agree, accuracy {accuracy:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--checkpoint", default="checkpoint.pt")
    args = parser.parse_args()

    dist.init_process_group(backend="gloo", init_method="env://")
    run(args)
    gc.collect()  # a model that outlives its group keeps gloo's threads, which can hang or abort the exit
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
