"""Lightning's Trainer.

usage: python lightning_trainer.py DIRECTORY (which starts the second process itself), or torchrun --nproc-per-node 2 ...
"""
import sys

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, _):
        data, wanted = batch
        loss = torch.nn.functional.mse_loss(self.layer(data), wanted)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(1, verbose=False)
data = torch.randn(256, 8)
loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=16)
trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=3, default_root_dir=sys.argv[1],
                            enable_progress_bar=False, enable_model_summary=False, logger=False)
module = Module()
trainer.fit(module, loader)
assert trainer.world_size == 2, trainer.world_size
print(f"rank {trainer.global_rank} of {trainer.world_size}: loss {trainer.callback_metrics['loss']:.6f}", flush=True)
