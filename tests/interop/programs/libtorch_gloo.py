"""Train what tests/interop/programs/libtorch_rank.cpp trains, by Python's DistributedDataParallel over gloo.

usage: ddprun -n N libtorch_gloo.py DIRECTORY CASE...
       ddprun -n N libtorch_gloo.py --bench mlp|conv STEPS

CASE    NAME=VALUE,..., the arguments of libtorch_rank train; its files are DIRECTORY/CASE/losses.R and state.R
"""
import os
import struct
import sys
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.bn = nn.BatchNorm2d(16)
        self.fc1, self.fc2, self.aux = nn.Linear(2304, 32), nn.Linear(32, 10), nn.Linear(32, 10)

    def forward(self, x, with_aux):
        x = F.relu(self.conv1(x))
        x = F.relu(self.bn(self.conv2(x)))
        x = F.max_pool2d(x, 2).flatten(1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x) + self.aux(x) if with_aux else self.fc2(x), 1)


def train(directory, arguments):
    rank = dist.get_rank()
    n, n_passes, aux = (int(arguments.get(name, otherwise)) for name, otherwise in (("n", 256), ("accumulate", 1), ("aux", 2)))
    torch.manual_seed(1)
    images, labels = torch.randn(n, 1, 28, 28), torch.randint(10, (n,))
    torch.manual_seed(2)
    net = Net()
    model = nn.parallel.DistributedDataParallel(net, find_unused_parameters="unused" in arguments, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, foreach=False)
    sampler = torch.utils.data.DistributedSampler(range(n), seed=3)
    with open(os.path.join(directory, f"losses.{rank}"), "w") as file:
        for epoch in range(int(arguments.get("epochs", 1))):
            sampler.set_epoch(epoch)
            passes = torch.tensor(list(sampler)).split(int(arguments.get("batch", 16)))
            for step in range(len(passes) // n_passes):
                total = torch.zeros(())
                optimizer.zero_grad()
                for i in range(n_passes):
                    index = passes[step * n_passes + i]
                    with model.no_sync() if i + 1 < n_passes else nullcontext():
                        loss = F.nll_loss(model(images[index], aux == 2 or (aux == 1 and rank % 2 == 1)), labels[index]) / n_passes
                        total += loss.detach()
                        loss.backward()
                optimizer.step()
                file.write(struct.pack(">f", total.item()).hex() + "\n")
    for buffer in net.buffers():  # as the next forward pass would
        dist.broadcast(buffer, 0)
    with open(os.path.join(directory, f"state.{rank}"), "wb") as file:
        tensors = [*net.parameters(), *net.buffers()]
        tensors += [optimizer.state[p]["momentum_buffer"] for p in net.parameters() if p in optimizer.state]
        for tensor in tensors:
            file.write(tensor.detach().contiguous().numpy().tobytes())


def bench(name, n_steps):
    """As libtorch_rank bench does."""
    torch.manual_seed(1)
    if name == "conv":
        net, x = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
                               nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(64, 1, 28, 28)
    else:
        net, x = nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 2048)), torch.randn(16, 2048)
    model = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, foreach=False)
    times = []
    for _ in range(n_steps + 5):
        began = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        times.append(1000 * (time.perf_counter() - began))
    if dist.get_rank() == 0:
        print(f"median {sorted(times[5:])[n_steps // 2]:.3f} ms")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if sys.argv[1] == "--bench":
        bench(sys.argv[2], int(sys.argv[3]))
        dist.destroy_process_group()
        return
    for case in sys.argv[2:]:
        directory = os.path.join(sys.argv[1], case)
        os.makedirs(directory, exist_ok=True)
        train(directory, dict(word.split("=") for word in case.split(",")))
    dist.destroy_process_group()
    os._exit(0)  # without the end of the interpreter, in which torch 2.15 aborted once: a thread was not joined


if __name__ == "__main__":
    main()
