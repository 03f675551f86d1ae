"""The time of a step with and without elastic.State, in turns, and of what State does in it: for bench/recovery_torch.py.

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


def save_us(state):
    """What State adds to a step, without the calls of its hooks: it saves its small part and the generators, and then torch's again."""
    times = []
    for _ in range(WARM_UP + STEPS):
        begun = time.perf_counter()
        state.commit()
        state._tear()
        times.append((time.perf_counter() - begun) * 1e6)
    state.__dict__["_is_torn"] = False
    return statistics.median(times[WARM_UP:])


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
        save = save_us(state)
        if dist.get_rank() == 0:
            print("plain {:.1f} elastic {:.1f} n {} save {:.1f}".format(*map(statistics.median, times), STEPS, save), flush=True)

    elastic.run(train, state)


if __name__ == "__main__":
    main()
