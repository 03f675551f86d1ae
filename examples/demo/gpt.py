"""Train a small GPT with PyTorch to continue text. It recovers in place: when ranks or nodes are lost or join, the others keep their
processes. This is the program of `run --torch`; it runs until it is stopped.

usage: ddprun -n N gpt.py [--batch B] DIRECTORY...      with ddp_torch on PYTHONPATH
"""
import argparse
import os
import pathlib

import torch
import torch.distributed as dist

from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from ddp_torch import elastic

CONTEXT, WIDTH, LAYERS, HEADS, VALUES = 64, 64, 2, 4, 256  # bytes


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.values, self.places = nn.Embedding(VALUES, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
                                    for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VALUES)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = self.values(x) + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = layer(x, mask, is_causal=True)
        return self.head(self.norm(x))


def read(directories):
    pages = sorted(page for one in directories for page in pathlib.Path(one).rglob("*.md"))
    text = b"".join(page.read_bytes() for page in pages)
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def part(text, batch, step, rank, world):
    """This rank's part of the batch of a step: the same samples if the step is repeated, also with other ranks."""
    drawn = torch.randint(len(text) - CONTEXT, (batch,), generator=torch.Generator().manual_seed(step))
    windows = torch.stack([text[at:at + CONTEXT + 1] for at in drawn[rank::world].tolist()])
    return windows[:, :-1], windows[:, 1:]


def write_line(text):
    os.write(1, f"{text}\n".encode())


class Trainer:
    def __init__(self, text, batch):
        self.text, self.batch = text, batch

    def train(self, state):
        """Called once in each generation."""
        rank, world = dist.get_rank(), dist.get_world_size()
        report = write_line if rank == 0 else lambda _: None
        report(f"{world} rank{'s'[:world > 1]}, float32, generation {state.generation}: continues after step {state.step}")
        model = DistributedDataParallel(state.model)
        last = None
        while True:
            x, y = part(self.text, self.batch, state.step, rank, world)
            loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
            state.optimizer.zero_grad()
            loss.backward()
            if last is not None:  # the gradients of all ranks have been averaged, so all have completed the step before
                report(f"step {state.step}: loss {last:.4f}, generation {state.generation}")
            state.optimizer.step()
            last = loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=24, help="of all ranks together")
    parser.add_argument("directories", nargs="+")
    args = parser.parse_args()
    pathlib.Path("/proc/self/comm").write_text("gpt.py", encoding="ascii")  # `run` finds ranks by it
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Gpt()
    state = elastic.State(model=model, optimizer=torch.optim.AdamW(model.parameters(), 1e-3))
    elastic.run(Trainer(read(args.directories), args.batch).train, state)


if __name__ == "__main__":
    main()
