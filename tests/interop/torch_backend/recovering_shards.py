"""Ranks that train an HSDP model, recover in place with elastic.Sharded, and kill themselves where a plan has it. Each reports each step.

usage: ddprun -n N recovering_shards.py --steps S [--backend B] [--kill STEP:PLACE:RANK[,RANK]]... [--marks DIR]

N is a multiple of N_SHARDS. PLACE and the lines are those of recovering_rank.py; PARAMETERS is a digest of the rank's shard.
"""
import argparse
import hashlib
import os
import time

import torch
import torch.distributed as dist

from recovering_rank import BATCH, Numbers, Plan
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

from ddp_torch import elastic, kept

N_SHARDS = 2


class Trainer:
    def __init__(self, args):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.args, self.plan = args, Plan(args.kill, args.marks)
        self.dataset = Numbers()
        self.state = elastic.State(sharded=elastic.Sharded(self.make, N_SHARDS, "cpu"), epoch=0,
                                   sampler=elastic.DistributedSampler(self.dataset, seed=3))
        send = kept.send_tensor
        kept.send_tensor = lambda *a: (send(*a), self.reach("sharing"))

    def reach(self, place):
        self.plan.reach(place, self.state.step)

    def make(self, mesh):
        """The second layer has an odd number of rows: shards of different sizes."""
        model = torch.nn.Sequential(torch.nn.Linear(8, 33), torch.nn.Tanh(), torch.nn.BatchNorm1d(33), torch.nn.Dropout(0.1), torch.nn.Linear(33, 1))
        for layer in model[0], model[4]:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        model.register_forward_pre_hook(lambda *_: self.reach("forward"))
        model.register_full_backward_pre_hook(lambda *_: self.reach("backward"))
        optimizer.register_step_pre_hook(lambda *_: self.reach("reduced"))
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)

    def train(self, state):
        model, optimizer, (scheduler,) = state.sharded.model, state.sharded.optimizer, state.sharded.others
        while state.step < self.args.steps:
            state.sampler.set_epoch(state.epoch)
            for x, y, i in state.batches(DataLoader(self.dataset, BATCH, sampler=state.sampler)):
                (model(x).squeeze(1) - y).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                scheduler.step()
                self.report(state, model, optimizer, i.tolist())
                if state.step == self.args.steps:
                    return
            state.epoch += 1

    def report(self, state, model, optimizer, taken):
        digest = hashlib.sha256(b"".join(p.detach().to_local().numpy().tobytes() for p in model.parameters())).hexdigest()[:16]
        line = (f"step {state.step} {digest} generation {state.generation} pid {os.getpid()} rank {dist.get_rank()} world "
                f"{dist.get_world_size()} lr {optimizer.param_groups[0]['lr']!r} took {','.join(map(str, taken))} at {time.monotonic():.6f}\n")
        os.write(1, line.encode())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--kill", action="append", default=[])
    parser.add_argument("--marks", default=".")
    args = parser.parse_args()
    trainer = Trainer(args)
    elastic.run(trainer.train, trainer.state, backend=args.backend)


if __name__ == "__main__":
    main()
