"""What elastic.State adds to a step: for bench/recovery_torch.py --cost.

usage: ddprun -n N elastic_step.py WIDTH PAIRS [BACKEND]

The same model and optimizer make two steps after each other, one with State's hooks and one without, in random order; each pair gives
a difference, of the elapsed time and of the CPU time of the process, which other load of the machine does not change much. Rank 0
prints the median step without the hooks, and of the differences the median and the ends of its confidence interval.
"""
import collections
import math
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist

from torch.nn.parallel import DistributedDataParallel

from ddp_torch import elastic

WARM_UP, BATCH = 20, 64
CLOCKS = time.perf_counter, time.process_time
Z = 2.576  # of the normal distribution, for 99 %


class Hooks:
    """Those of State, which can be taken away and put back."""

    def __init__(self, model, optimizer):
        self.places = [(model, "_forward_pre_hooks"), (optimizer, "_optimizer_step_pre_hooks"), (optimizer, "_optimizer_step_post_hooks")]
        self.hooks = [getattr(*place) for place in self.places]
        if not all(self.hooks):
            sys.exit("elastic_step.py: torch keeps hooks elsewhere: there is nothing to compare")

    def set(self, are_on):
        for (owner, name), hooks in zip(self.places, self.hooks):
            setattr(owner, name, hooks if are_on else collections.OrderedDict())


def interval(values):
    """-> the ends of a 99 % confidence interval of the median: those values whose ranks a binomial distribution gives"""
    n, ordered = len(values), sorted(values)
    low = max(0, math.floor(n / 2 - Z * math.sqrt(n) / 2))
    return ordered[low], ordered[n - 1 - low]


def report(clock, plain, having):
    more = [b - a for a, b in zip(plain, having)]
    low, high = interval(more)
    return f"{clock} plain {statistics.median(plain):.1f} more {statistics.median(more):.1f} from {low:.1f} to {high:.1f}"


def save_us(state, n):
    """Of what State does in a step, without the calls of its hooks: it saves its small part and the generators, and then torch's again."""
    times = []
    for _ in range(n):
        begun = time.perf_counter()
        state.commit()
        state._tear()
        times.append((time.perf_counter() - begun) * 1e6)
    state.__dict__["_is_torn"] = False
    return statistics.median(times)


def main():
    width, n_pairs = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, width), torch.nn.ReLU(),
                                torch.nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    state = elastic.State(model=model, optimizer=optimizer, scheduler=scheduler, epoch=0)

    def train(state):
        ddp, hooks = DistributedDataParallel(model), Hooks(model, optimizer)
        x = torch.randn(BATCH, width)
        draw = random.Random(1)  # the same order on all ranks

        def step(has_hooks):
            hooks.set(has_hooks)
            begun = [clock() for clock in CLOCKS]
            optimizer.zero_grad()
            ddp(x).square().mean().backward()
            optimizer.step()
            scheduler.step()
            return [(clock() - before) * 1e6 for clock, before in zip(CLOCKS, begun)]

        pairs = []
        for _ in range(WARM_UP + n_pairs):
            order = draw.choice([(False, True), (True, False)])
            found = {has_hooks: step(has_hooks) for has_hooks in order}
            pairs.append((found[False], found[True]))
        hooks.set(True)
        lines = [report(clock.__name__, *zip(*[(without[i], having[i]) for without, having in pairs[WARM_UP:]]))
                 for i, clock in enumerate(CLOCKS)]
        save = save_us(state, n_pairs)
        if dist.get_rank() == 0:
            print(*lines, f"save {save:.1f}", sep="\n", flush=True)

    elastic.run(train, state, backend=sys.argv[3] if len(sys.argv) > 3 else "gloo")


if __name__ == "__main__":
    main()
