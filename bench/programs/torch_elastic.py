"""A training with ddp_torch.elastic, for bench/gpu: DistributedDataParallel on a GPU that all ranks share, or on CPUs. Rank 1 of the first
generation kills itself in the backward pass of a step, while the others wait in the all-reduces of their gradients.

    ddprun -n 3 --max-restarts 3 torch_elastic.py --backend nccl|cpu:gloo,cuda:nccl|gloo --log FILE [--kill] [--await N] [--scaler] [--save FILE]

FILE gets a line for each event: CLOCK_MONOTONIC in ns, process, rank, what, and a number. The events are ready (before elastic.run()), kill,
step (with the number of completed steps), and done:DIGEST (of all parameters, with the number of ranks). --await: rank 1 does not die before so many
processes are ready. --save: rank 0 writes the parameters there, as float32 values.
"""
import argparse
import hashlib
import os
import signal
import time

import torch
import torch.distributed as dist

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ddp_torch import elastic

STEPS, KILL_AT = 30, 12
N_SAMPLES, BATCH, WIDTH = 480, 8, 512
PAUSE_S, DEATH_S, AWAIT_S = 0.01, 0.05, 60


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--save")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--await", type=int, default=0, dest="n_awaited")
    parser.add_argument("--scaler", action="store_true")
    return parser.parse_args()


class Training:
    def __init__(self, args):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.args = args
        self.device = torch.device("cuda:0" if "nccl" in args.backend else "cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        x = torch.randn(N_SAMPLES, 16)
        self.dataset = TensorDataset(x, x.square().sum(1, keepdim=True))
        self.model = torch.nn.Sequential(torch.nn.Linear(16, WIDTH), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(WIDTH, WIDTH),
                                         torch.nn.BatchNorm1d(WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)).to(self.device)
        optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)
        more = {"scaler": torch.amp.GradScaler(self.device.type, init_scale=128.0, growth_interval=10)} if args.scaler else {}
        self.state = elastic.State(model=self.model, optimizer=optimizer, epoch=0, sampler=elastic.DistributedSampler(self.dataset, seed=3),
                                   **more)
        self.model[0].weight.register_hook(lambda _: self.die_here())

    def note(self, what, number, rank=None):
        line = f"{time.monotonic_ns()} {os.getpid()} {dist.get_rank() if rank is None else rank} {what} {number}\n"
        fd = os.open(self.args.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode())
        os.close(fd)

    def die_here(self):
        state = self.state
        if not self.args.kill or state.generation > 0 or state.step != KILL_AT or dist.get_rank() != 1:
            return
        end = time.monotonic() + AWAIT_S
        while self.n_ready() < self.args.n_awaited and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(DEATH_S)
        self.note("kill", state.step)
        os.kill(os.getpid(), signal.SIGKILL)

    def n_ready(self):
        with open(self.args.log, encoding="utf-8") as f:
            return sum(" ready " in line for line in f)

    def train(self, state):
        model = DistributedDataParallel(state.model, bucket_cap_mb=0.5)
        while state.step < STEPS:
            state.sampler.set_epoch(state.epoch)
            for x, y in state.batches(DataLoader(self.dataset, BATCH, sampler=state.sampler, drop_last=True)):
                self.step(state, model, x.to(self.device), y.to(self.device))
                self.note("step", state.step)
                time.sleep(PAUSE_S)
                if state.step == STEPS:
                    break
            state.epoch += 1

    def step(self, state, model, x, y):
        state.optimizer.zero_grad()
        if not self.args.scaler:
            (model(x) - y).square().mean().backward()
            state.optimizer.step()
            return
        with torch.autocast(self.device.type, dtype=torch.float16 if self.device.type == "cuda" else torch.bfloat16):
            loss = (model(x) - y).square().mean()
        state.scaler.scale(loss).backward()
        state.scaler.step(state.optimizer)
        state.scaler.update()

    def end(self, rank, size):
        values = b"".join(p.detach().float().cpu().numpy().tobytes() for p in self.model.parameters())
        self.note("done:" + hashlib.sha256(values).hexdigest()[:16], size, rank)
        if self.args.save and rank == 0:
            with open(self.args.save, "wb") as f:
                f.write(values)


def main():
    training = Training(parse())
    training.note("ready", 0, int(os.environ.get("RANK", -1)))

    def train(state):
        training.train(state)
        return dist.get_rank(), dist.get_world_size()

    training.end(*elastic.run(train, training.state, backend=training.args.backend))


if __name__ == "__main__":
    main()
