"""Compare ddp_syncbn with torch's batch normalization of all ranks' batches as one.

    python3 syncbn_vs_torch.py PATH_TO_SYNCBN_RANKS [SEED]

torch computes in float64, forward and backward by autograd, over the concatenated batch, also the running statistics.
Ranks have batches of different sizes, one of them empty. Prints the largest errors; exits with 1 if one is above 1e-12
(float64) or 1e-5 (float32), relative to the largest value, and with 77 (skipped) if torch is missing.
"""

import os
import random
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

STEPS = 3
EPS, MOMENTUM = 1e-5, 0.1
BOUNDS = {"float64": 1e-12, "float32": 1e-5}


def start(program, folder, dtype, rank, world_size):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world_size), DDP_JOB_ID=folder)
    return subprocess.Popen([program, f"{folder}/in", f"{folder}/out", dtype], env=env)


def write(path, tensors):
    with open(path, "wb") as out:
        for tensor in tensors:
            out.write(tensor.to(torch.float64).contiguous().numpy().tobytes())


def read(path, shapes):
    with open(path, "rb") as data:
        values = torch.frombuffer(bytearray(data.read()), dtype=torch.float64)
    return list(values.split([shape.numel() for shape in shapes])), shapes


def one_case(program, dtype, outers, channels, inner, seed):
    torch.manual_seed(seed)
    kind = getattr(torch, dtype)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64).to(kind).to(torch.float64)

    weight, bias, mean, var = draw(channels), draw(channels), draw(channels), draw(channels).abs() + 0.5
    layer = torch.nn.BatchNorm1d(channels, eps=EPS, momentum=MOMENTUM, dtype=torch.float64)
    with torch.no_grad():
        for to, source in ((layer.weight, weight), (layer.bias, bias), (layer.running_mean, mean), (layer.running_var, var)):
            to.copy_(source)
    xs = [[draw(n, channels, inner) * 3 + 5 for n in outers] for _ in range(STEPS)]
    dys = [[draw(n, channels, inner) for n in outers] for _ in range(STEPS)]
    xs = [[x.to(kind).to(torch.float64) for x in step] for step in xs]
    worst = {}
    with tempfile.TemporaryDirectory(prefix="ddprun-syncbn-") as folder:
        for rank, n in enumerate(outers):
            head = torch.tensor([channels, inner, n, EPS, MOMENTUM, STEPS], dtype=torch.float64)
            steps = [part for x, dy in zip(xs, dys) for part in (x[rank], dy[rank])]
            write(f"{folder}/in.{rank}", [head, weight, bias, mean, var] + steps)
        ranks = [start(program, folder, dtype, rank, len(outers)) for rank in range(len(outers))]
        if any([rank.wait(timeout=120) for rank in ranks]):
            sys.exit("a rank failed")
        outs = []
        for rank, n in enumerate(outers):
            big, small = torch.Size([n, channels, inner]), torch.Size([channels])
            values, shapes = read(f"{folder}/out.{rank}", [big, big, small, small, small, small] * STEPS)
            outs.append([value.reshape(shape) for value, shape in zip(values, shapes)])
    for step in range(STEPS):
        x = torch.cat(xs[step]).requires_grad_()
        layer.zero_grad()
        y = layer(x)
        y.backward(torch.cat(dys[step]))
        mine = [out[6 * step : 6 * step + 6] for out in outs]
        pairs = {
            "y": (torch.cat([m[0] for m in mine]), y.detach()),
            "dx": (torch.cat([m[1] for m in mine]), x.grad),
            "dweight": (sum(m[2] for m in mine), layer.weight.grad),  # each rank's own: they add up
            "dbias": (sum(m[3] for m in mine), layer.bias.grad),
        }
        for rank, m in enumerate(mine):
            pairs[f"running mean of {rank}"] = (m[4], layer.running_mean)
            pairs[f"running var of {rank}"] = (m[5], layer.running_var)
        for what, (ours, theirs) in pairs.items():
            error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
            what = what.split(" of ")[0]
            worst[what] = max(worst.get(what, 0.0), error)
    return worst


def main():
    program = os.path.abspath(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(2**31)
    print(f"torch {torch.__version__}, seed {seed}")
    rc = 0
    for dtype in BOUNDS:
        for outers, channels, inner in (((8,), 5, 9), ((4, 4), 3, 16), ((7, 0, 1, 12), 6, 4), ((3, 30), 64, 1)):
            worst = one_case(program, dtype, outers, channels, inner, seed)
            print(dtype, outers, " ".join(f"{what} {error:.1e}" for what, error in worst.items()))
            if max(worst.values()) > BOUNDS[dtype]:
                print(f"above {BOUNDS[dtype]}")
                rc = 1
    if rc == 0:
        print("all within the bounds")
    return rc


if __name__ == "__main__":
    sys.exit(main())
