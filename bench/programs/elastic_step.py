"""The time of a step with and without elastic.State, in turns: for bench/recovery_torch.py.

usage: ddprun -n N elastic_step.py WIDTH
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

from torch.nn.parallel import DistributedDataParallel

from ddp_torch import elastic

WARM_UP, STEPS, BATCH = 20, 300, 64


def make(width):
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
                                torch.nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 10)


def main():
    torch.set_num_threads(1)
    width = int(sys.argv[1])
    plain, (model, optimizer, scheduler) = make(width), make(width)
    state = elastic.State(model=model, optimizer=optimizer, scheduler=scheduler, epoch=0)

    def train(state):
        kinds = [(DistributedDataParallel(plain[0]), *plain[1:]), (DistributedDataParallel(model), optimizer, scheduler)]
        times = [], []
        x = torch.randn(BATCH, width)
        for i in range(WARM_UP + STEPS):
            for (ddp, adamw, steps), found in zip(kinds, times):
                begun = time.perf_counter()
                adamw.zero_grad()
                ddp(x).square().mean().backward()
                adamw.step()
                steps.step()
                if i >= WARM_UP:
                    found.append((time.perf_counter() - begun) * 1e6)
        if dist.get_rank() == 0:
            print("plain {:.1f} elastic {:.1f} n {}".format(*map(statistics.median, times), STEPS), flush=True)

    elastic.run(train, state)


if __name__ == "__main__":
    main()
