#!/usr/bin/env python3
"""PyTorch reads a checkpoint of chargpt and predicts the held-out text as well as chargpt reports for itself.

usage: chargpt_torch.py CHECKPOINT.safetensors TEXT HEADS

Prints the mean of -log(probability) over the held-out characters. The model is GPT-2, written with torch's functions.
"""
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

BLOCK, PERIOD = 1024, 10


def forward(state, tokens, heads):
    n, t = tokens.shape
    x = state["wte.weight"][tokens] + state["wpe.weight"][:t]
    width = x.shape[-1]
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("h."))
    for layer in range(layers):
        def w(name):
            return state[f"h.{layer}.{name}"]

        y = F.layer_norm(x, (width,), w("ln_1.weight"), w("ln_1.bias"))
        qkv = y @ w("attn.c_attn.weight") + w("attn.c_attn.bias")
        q, k, v = (part.view(n, t, heads, width // heads).transpose(1, 2) for part in qkv.split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
        x = x + y @ w("attn.c_proj.weight") + w("attn.c_proj.bias")
        y = F.layer_norm(x, (width,), w("ln_2.weight"), w("ln_2.bias"))
        y = F.gelu(y @ w("mlp.c_fc.weight") + w("mlp.c_fc.bias"), approximate="tanh")
        x = x + y @ w("mlp.c_proj.weight") + w("mlp.c_proj.bias")
    return F.layer_norm(x, (width,), state["ln_f.weight"], state["ln_f.bias"]) @ state["wte.weight"].T


def main():
    state, heads = load_file(sys.argv[1]), int(sys.argv[3])
    context = state["wpe.weight"].shape[0]
    with open(sys.argv[2], "rb") as f:
        text = f.read()
    total, count = 0.0, 0
    for first in range(BLOCK * (PERIOD - 1), len(text) - BLOCK + 1, BLOCK * PERIOD):
        block = torch.tensor(list(text[first:first + BLOCK]))
        for at in range(0, BLOCK - 1, context):
            piece = block[at:at + context + 1]
            logits = forward(state, piece[None, :-1], heads)[0]
            total += F.cross_entropy(logits.double(), piece[1:], reduction="sum").item()
            count += len(piece) - 1
    print(f"{total / count:.4f}")


main()
