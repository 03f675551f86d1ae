"""In the form of the ImageNet example: a node gets its number and the address as options and starts its own processes.

usage: python imagenet_spawn.py --dist-url tcp://127.0.0.1:PORT --world-size 1 --rank 0 --multiprocessing-distributed
"""
import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.parallel

parser = argparse.ArgumentParser()
parser.add_argument("--dist-url", default="tcp://127.0.0.1:23456")
parser.add_argument("--dist-backend", default="gloo")
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--multiprocessing-distributed", action="store_true")
PROCESSES = 2


def worker(local, args):
    args.rank = args.rank * PROCESSES + local
    dist.init_process_group(backend=args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Conv2d(3, 4, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(3):
        loss = model(torch.randn(8, 3, 16, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if args.rank == 0:
        print(f"{dist.get_world_size()} processes trained", flush=True)
    del model
    dist.destroy_process_group()


def main():
    args = parser.parse_args()
    args.world_size *= PROCESSES
    mp.spawn(worker, nprocs=PROCESSES, args=(args,))


if __name__ == "__main__":
    main()
