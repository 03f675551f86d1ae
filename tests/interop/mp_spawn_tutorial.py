"""A PyTorch DDP training script that starts its own ranks with mp.spawn, as the classic tutorials
do: it gets the number of nodes as an option and chooses MASTER_ADDR and MASTER_PORT itself.

usage: mp_spawn_tutorial.py [-n NODES] [-g PROCESSES-PER-NODE] [-nr NODE-RANK] [--epochs N]
"""
import argparse
import gc
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn


def train(rank, args):
    torch.manual_seed(0)

    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.MSELoss()
    truth = torch.tensor([[1.0], [-2.0], [3.0], [0.5]])

    data = torch.randn(512, 4)
    sampler = torch.utils.data.distributed.DistributedSampler(
        data, num_replicas=args.world_size, rank=rank)
    loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x in loader:
            loss = criterion(model(x), x @ truth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"Epoch [{epoch + 1}/{args.epochs}], Loss: {loss.item():.6f}", flush=True)

    error = (model.module.weight.detach().T - truth).abs().max()
    dist.all_reduce(error, op=dist.ReduceOp.MAX)
    if error > 0.05:
        raise RuntimeError(f"rank {rank} did not learn the line: off by {error.item():.3f}")
    if rank == 0:
        print(f"torch {torch.__version__}: {args.world_size} spawned ranks learned it", flush=True)


def work(local_rank, args):
    rank = args.nr * args.gpus + local_rank
    dist.init_process_group(backend="gloo", init_method="env://", world_size=args.world_size, rank=rank)
    train(rank, args)
    gc.collect()  # a model that outlives its group keeps gloo's threads, which can hang or abort the exit
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--nodes", default=1, type=int)
    parser.add_argument("-g", "--gpus", default=1, type=int, help="processes on each node")
    parser.add_argument("-nr", "--nr", default=0, type=int, help="rank of this node")
    parser.add_argument("--port", default="8888", help="MASTER_PORT")
    parser.add_argument("--epochs", default=4, type=int)
    args = parser.parse_args()
    args.world_size = args.gpus * args.nodes

    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = args.port
    mp.spawn(work, nprocs=args.gpus, args=(args,))


if __name__ == "__main__":
    main()
