"""A data-parallel training script that makes steps until it is ended. It knows nothing of restarts or of its launcher.
It reports its first step to the file that TEST_FIFO names: "RANK PID", in one write."""
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(8, (4096,)))
sampler = torch.utils.data.DistributedSampler(data)
told = False
while True:
    for inputs, labels in torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if not told:
            with open(os.environ["TEST_FIFO"], "wb", buffering=0) as fifo:
                fifo.write(f"{dist.get_rank()} {os.getpid()}\n".encode())
            told = True
        time.sleep(float(os.environ.get("TEST_STEP_S", "0.005")))  # a larger model
