"""In the form of the fault tolerance tutorial: snapshots, from which a restarted job continues. Rank 1 dies once.

usage: torchrun --nproc-per-node 2 --max-restarts 3 snapshot.py EPOCHS SNAPSHOT
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, path):
        self.rank, self.path, self.epoch = int(os.environ["RANK"]), path, 0
        self.model = torch.nn.Linear(20, 1)
        if os.path.exists(path):
            snapshot = torch.load(path)
            self.model.load_state_dict(snapshot["MODEL_STATE"])
            self.epoch = snapshot["EPOCHS_RUN"]
            print(f"rank {self.rank} resumes from snapshot at epoch {self.epoch}", flush=True)
        self.model = DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def save(self, epoch):
        state = {"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch}
        torch.save(state, self.path + ".new")
        os.replace(self.path + ".new", self.path)

    def train(self, epochs):
        for epoch in range(self.epoch, epochs):
            for _ in range(4):
                self.optimizer.zero_grad()
                self.model(torch.randn(32, 20)).square().mean().backward()
                self.optimizer.step()
            if self.rank == 0:
                self.save(epoch + 1)
            dist.barrier()
            if self.rank == 1 and epoch == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)


dist.init_process_group("gloo")
trainer = Trainer(sys.argv[2])
trainer.train(int(sys.argv[1]))
print(f"rank {trainer.rank} finished epoch {sys.argv[1]}", flush=True)
del trainer
dist.destroy_process_group()
