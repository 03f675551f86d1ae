"""Hugging Face accelerate.

usage: accelerate launch --cpu --num_processes 2 accelerate_script.py
"""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(2)
data = torch.randn(128, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for _ in range(4):
    for inputs, wanted in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        accelerator.backward(loss)
        optimizer.step()
seen = accelerator.gather(torch.tensor([accelerator.process_index]))
assert seen.tolist() == list(range(accelerator.num_processes)), seen
total = accelerator.reduce(model.module.weight.detach().clone() if accelerator.num_processes > 1 else model.weight)
print(f"process {accelerator.process_index} of {accelerator.num_processes}: {total.sum().item():.5f}", flush=True)
accelerator.end_training()
