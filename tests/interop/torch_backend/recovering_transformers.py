"""A program for the Trainer of Hugging Face transformers that recovers in place. Rank 1 kills itself once, in step 8.

usage: ddprun -n N recovering_transformers.py MARK      MARK: a file that does not exist yet
"""
import os
import signal
import sys

import torch
import torch.distributed as dist

from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from ddp_torch import elastic

EPOCHS = 4


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))

    def forward(self, x, labels):
        if STATE.step == 7 and dist.get_rank() == 1 and not os.path.exists(sys.argv[1]):
            os.close(os.open(sys.argv[1], os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)
        return {"loss": (self.net(x) - labels).square().mean()}


class Numbers(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        x = torch.randn(8, generator=torch.Generator().manual_seed(i))
        return {"x": x, "labels": x.sum().reshape(1)}


class Batches:
    """What a Trainer iterates over, for one epoch."""

    def __init__(self, state, loader):
        self.state, self.loader = state, loader

    def __iter__(self):
        return self.state.batches(self.loader)

    def __len__(self):
        return len(self.loader)


def train(state):
    while state.epoch < EPOCHS:
        state.sampler.set_epoch(state.epoch)
        arguments = TrainingArguments(sys.argv[1] + ".out", use_cpu=True, num_train_epochs=1, per_device_train_batch_size=4, seed=state.epoch,
                                      save_strategy="no", logging_strategy="no", report_to="none", disable_tqdm=True)
        loader = DataLoader(DATASET, 4, sampler=state.sampler)
        trainer = Trainer(state.model, arguments, optimizers=(state.optimizer, state.scheduler))
        trainer.get_train_dataloader = lambda: Batches(state, loader)
        if len(loader) > 0:  # else a rank was lost after the last step of the epoch
            trainer.train()
        state.epoch += 1
    total = torch.cat([p.detach().flatten() for p in state.model.parameters()]).sum().reshape(1)
    totals = [torch.empty(1) for _ in range(dist.get_world_size())]
    dist.all_gather(totals, total)
    are_same = all(torch.equal(one, total) for one in totals)
    line = f"rank {dist.get_rank()} of {dist.get_world_size()} pid {os.getpid()}: {state.step} steps, same {are_same}\n"
    os.write(1, line.encode())  # whole: print() may write its end separately


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    DATASET = Numbers()
    MODEL = Model()
    OPTIMIZER = torch.optim.AdamW(MODEL.parameters(), 1e-3)
    STATE = elastic.State(model=MODEL, optimizer=OPTIMIZER, scheduler=torch.optim.lr_scheduler.StepLR(OPTIMIZER, 8, 0.5),
                          sampler=elastic.DistributedSampler(DATASET), epoch=0)
    elastic.run(train, STATE)
