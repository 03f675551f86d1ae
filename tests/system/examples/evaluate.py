"""Load a checkpoint of mnist into PyTorch and print its test accuracy, in hundredths of a percent.

    evaluate.py CHECKPOINT DATA_DIRECTORY
"""
import json
import struct
import sys

import torch
from torch import nn

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}


class ConvNet(nn.Module):
    """The network of the tutorials on distributed training."""

    def __init__(self, norm):
        super().__init__()

        def layer(c_in, c_out):
            modules = [nn.Conv2d(c_in, c_out, kernel_size=5, padding=2)]
            modules += [nn.BatchNorm2d(c_out)] if norm else []
            return nn.Sequential(*modules, nn.ReLU(), nn.MaxPool2d(2, 2))

        self.layer1 = layer(1, 16)
        self.layer2 = layer(16, 32)
        self.fc = nn.Linear(7 * 7 * 32, 10)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


def read_safetensors(path):
    with open(path, "rb") as f:
        content = f.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    state = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=DTYPES[entry["dtype"]])
        state[name] = flat.reshape(entry["shape"])
    return state


def read_idx(path):
    with open(path, "rb") as f:
        content = f.read()
    n_dims = content[3]
    dims = struct.unpack(f">{n_dims}I", content[4 : 4 + 4 * n_dims])
    return torch.frombuffer(bytearray(content[4 + 4 * n_dims :]), dtype=torch.uint8).reshape(dims)


def main():
    checkpoint, directory = sys.argv[1:]
    state = read_safetensors(checkpoint)
    net = ConvNet("layer1.1.weight" in state).to(state["fc.weight"].dtype)
    net.load_state_dict(state, strict=True)
    net.eval()
    images = read_idx(f"{directory}/t10k-images-idx3-ubyte").unsqueeze(1) / 255
    labels = read_idx(f"{directory}/t10k-labels-idx1-ubyte")
    with torch.no_grad():
        right = (net(images).argmax(1) == labels).sum().item()
    print(f"{100 * right / len(labels):.2f}".replace(".", "").lstrip("0"))


main()
