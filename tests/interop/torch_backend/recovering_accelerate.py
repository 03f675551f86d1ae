"""A program for Hugging Face accelerate that recovers in place. Rank 1 kills itself once, in step 8.

usage: ddprun -n N recovering_accelerate.py MARK      MARK: a file that does not exist yet
"""
import os
import signal
import sys

import torch

from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader, TensorDataset

from ddp_torch import elastic

EPOCHS = 4


def die_once(accelerator, state):
    if state.step == 7 and accelerator.process_index == 1 and not os.path.exists(sys.argv[1]):
        os.close(os.open(sys.argv[1], os.O_CREAT))
        os.kill(os.getpid(), signal.SIGKILL)


def train(state):
    AcceleratorState._reset_state(reset_partial_state=True)  # it keeps rank and number of ranks
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(state.model, state.optimizer)
    loader = DataLoader(DATASET, 4, sampler=state.sampler)
    while state.epoch < EPOCHS:
        state.sampler.set_epoch(state.epoch)
        for x, y in state.batches(loader):
            optimizer.zero_grad()
            accelerator.backward((model(x) - y).square().mean())
            optimizer.step()
            die_once(accelerator, state)
        state.epoch += 1
    parameters = torch.cat([p.detach().flatten() for p in state.model.parameters()])
    are_same = torch.equal(accelerator.gather(parameters.sum().reshape(1)).unique(), parameters.sum().reshape(1))
    line = f"rank {accelerator.process_index} of {accelerator.num_processes} pid {os.getpid()}: {state.step} steps, same {are_same}\n"
    os.write(1, line.encode())  # whole: print() may write its end separately


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    DATASET = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
    MODEL = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    elastic.run(train, elastic.State(model=MODEL, optimizer=torch.optim.AdamW(MODEL.parameters(), 1e-3),
                                     sampler=elastic.DistributedSampler(DATASET), epoch=0))
