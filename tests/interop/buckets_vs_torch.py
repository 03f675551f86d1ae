"""Compare our bucket plans with those that torch's DistributedDataParallel makes after its first step.

    python3 buckets_vs_torch.py PATH_TO_BUCKET_PRINT

Trains five networks for some steps, each with torch's own bucket sizes and with smaller ones, and asks torch
for the buckets that it has rebuilt; the order in which gradients became ready is seen by hooks, as torch's
reducer sees it. Ends with 0 if all plans are equal, 1 and the first difference if not, 77 without torch.
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system/lib"))
from ports import free_port  # noqa: E402 (found by the path above)

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

MIB = 1 << 20
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 4, torch.bfloat16: 5}


class Residual(nn.Module):
    """A block whose shortcut is registered last and used in the middle."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.shortcut = nn.Conv2d(n_in, n_out, 1, bias=False)

    def forward(self, x):
        y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


class Backwards(nn.Module):
    """Layers that are used in another order than they are registered in."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(700, 700) for _ in range(14))

    def forward(self, x):
        for i in 3, 0, 7, 13, 1, 12, 5, 2, 11, 4, 10, 6, 9, 8:
            x = torch.tanh(self.layers[i](x))
        return x


class Language(nn.Module):
    """Embeddings that are larger than a bucket, and attention."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(10000, 384)
        self.places = nn.Parameter(torch.zeros(16, 384))
        layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(384, 10000)

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x) + self.places))


def networks():
    """Name, module, input."""
    torch.manual_seed(1)
    yield "twelve linear layers", nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12))), torch.ones(2, 1024)
    blocks = [Residual(3, 64), Residual(64, 128), Residual(128, 256), Residual(256, 512), Residual(512, 512)]
    residual = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    yield "residual network", residual, torch.ones(2, 3, 8, 8)
    yield "layers in another order", Backwards(), torch.ones(2, 700)
    yield "language model", Language(), torch.zeros(2, 16, dtype=torch.long)
    wide = nn.Sequential(nn.Linear(16, 3), nn.Linear(3, 1000000), nn.Linear(1000000, 2), nn.Linear(2, 5))
    yield "tensors larger than a bucket", wide, torch.ones(1, 16)


def train(module, x, cap_mb):
    """Some steps. The order of the first backward pass, and the buckets that torch has after it."""
    parameters = list(module.parameters())
    order = []
    handles = [
        p.register_post_accumulate_grad_hook(lambda _, i=i: order.append(i)) for i, p in enumerate(parameters)
    ]
    options = {} if cap_mb is None else {"bucket_cap_mb": cap_mb}
    model = DistributedDataParallel(module, **options)
    for step in range(3):
        model(x).sum().backward()
        for handle in handles if step == 0 else []:
            handle.remove()
    log = model._get_ddp_logging_data()
    if log["has_rebuilt_buckets"] != 1:
        raise SystemExit(f"torch has not rebuilt its buckets: {log}")
    text = log["rebuilt_per_bucket_param_indices"]
    return parameters, order, [sorted(int(i) for i in bucket.split()) for bucket in text.split(", ")]


def our_plan(program, parameters, order, cap_mb):
    first, limit = (MIB, 25 * MIB) if cap_mb is None else (int(cap_mb * MIB), int(cap_mb * MIB))
    lines = [f"{len(parameters)} {first} {limit}"]
    lines += [f"{p.numel() * p.element_size()} {DTYPES[p.dtype]}" for p in parameters]
    asked = "\n".join(lines + [str(i) for i in order])
    answer = subprocess.run([program], input=asked, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    return [[int(i) for i in line.split()] for line in answer.stdout.splitlines()]


def main():
    program = sys.argv[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    n_equal = 0
    for cap_mb in None, 1:
        for name, module, x in networks():
            parameters, order, theirs = train(module, x, cap_mb)
            ours = our_plan(program, parameters, order, cap_mb)
            if ours != theirs:
                print(f"differs: {name}, {len(parameters)} tensors, cap {cap_mb} MiB, ready in the order {order}")
                print("ours ", ours)
                print("torch", theirs)
                return 1
            n_equal += 1
            how = "another order than registered" if order != sorted(order, reverse=True) else "last to first"
            print(f"{name}, cap {cap_mb}: {len(theirs)} buckets, {how}")
    dist.destroy_process_group()
    print(f"torch {torch.__version__}: all {n_equal} plans are the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
