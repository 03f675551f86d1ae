"""A program for PyTorch Lightning that recovers in place. Rank 1 kills itself once, in step 8.

usage: ddprun -n N recovering_lightning.py MARK      MARK: a file that does not exist yet
"""
import os
import signal
import sys

import pytorch_lightning
import torch

from pytorch_lightning.plugins.environments import TorchElasticEnvironment
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

from ddp_torch import elastic

EPOCHS = 4


class Module(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, batch, _):
        if STATE.step == 7 and self.global_rank == 1 and not os.path.exists(sys.argv[1]):
            os.close(os.open(sys.argv[1], os.O_CREAT))
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = batch
        return (self.net(x) - y).square().mean()

    def configure_optimizers(self):
        return STATE.optimizer


class Batches:
    """What Lightning iterates over, once for each Trainer. Without a length, Lightning would take each batch a step early."""

    def __init__(self, state, loader):
        self.state, self.loader = state, loader

    def __iter__(self):
        return self.state.batches(self.loader)

    def __len__(self):
        return len(self.loader)


def train(state):
    while state.epoch < EPOCHS:
        state.sampler.set_epoch(state.epoch)
        trainer = pytorch_lightning.Trainer(
            accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), num_nodes=int(os.environ["GROUP_WORLD_SIZE"]), max_epochs=1,
            strategy=DDPStrategy(cluster_environment=TorchElasticEnvironment()), use_distributed_sampler=False,
            logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
        trainer.fit(state.model, Batches(state, DataLoader(DATASET, 4, sampler=state.sampler)))
        state.epoch += 1
    total = torch.cat([p.detach().flatten() for p in state.model.parameters()]).sum().reshape(1)
    totals = [torch.empty(1) for _ in range(trainer.world_size)]
    torch.distributed.all_gather(totals, total)
    are_same = all(torch.equal(one, total) for one in totals)
    line = f"rank {trainer.global_rank} of {trainer.world_size} pid {os.getpid()}: {state.step} steps, same {are_same}\n"
    os.write(1, line.encode())  # whole: print() may write its end separately


if __name__ == "__main__":
    torch.manual_seed(1)
    torch.set_num_threads(1)
    DATASET = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
    MODEL = Module()
    STATE = elastic.State(model=MODEL, optimizer=torch.optim.AdamW(MODEL.parameters(), 1e-3),
                          sampler=elastic.DistributedSampler(DATASET), epoch=0)
    elastic.run(train, STATE)
