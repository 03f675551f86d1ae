"""Compare ddp_sampler with torch.utils.data.DistributedSampler, index by index.

    python3 sampler_vs_torch.py PATH_TO_SAMPLER_PRINT [CASES [SEED]]

Draws CASES (300) random samplers, prints the SEED they were drawn with, and ends with 0 if all are equal,
with 1 and the first difference if not, with 77 (skipped) where torch is missing.
"""

import random
import subprocess
import sys

try:
    from torch.utils.data.distributed import DistributedSampler
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


class DataSet:
    """All that a sampler wants to know: a length."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def draw_case(rng):
    n = rng.choice([0, 1, 2, rng.randrange(20), rng.randrange(2000), rng.randrange(100000)])
    world_size = rng.choice([1, 2, 3, 4, 7, 8, 16, rng.randrange(1, 300)])
    rank = rng.choice([0, world_size - 1, rng.randrange(world_size)])
    seed = rng.choice([0, 1, 42, rng.randrange(-(2**31), 2**31), rng.randrange(-(2**62), 2**62)])
    epoch = rng.choice([0, 1, rng.randrange(1000), -rng.randrange(1000), 2**32 - 1])
    return n, world_size, rank, epoch, seed, rng.random() < 0.8, rng.random() < 0.4


def indices_of_torch(n, world_size, rank, epoch, seed, shuffle, drop_last):
    sampler = DistributedSampler(
        DataSet(n), num_replicas=world_size, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
    )
    sampler.set_epoch(epoch)
    return list(sampler)


def main():
    program = sys.argv[1]
    n_cases = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    drawn_with = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(2**32)
    print(f"{n_cases} samplers, drawn with seed {drawn_with}")
    rng = random.Random(drawn_with)
    cases = [draw_case(rng) for _ in range(n_cases)]
    asked = "".join(" ".join(str(int(field)) for field in case) + "\n" for case in cases)
    answer = subprocess.run([program], input=asked, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    lines = answer.stdout.splitlines()
    if len(lines) != n_cases:
        print(f"{program} answered {len(lines)} lines instead of {n_cases}")
        return 1
    for case, line in zip(cases, lines):
        ours = [int(index) for index in line.split()]
        theirs = indices_of_torch(*case)
        if ours != theirs:
            print("differs: n, world size, rank, epoch, seed, shuffle, drop_last =", *case)
            print("ours ", len(ours), ours[:16])
            print("torch", len(theirs), theirs[:16])
            return 1
    print("all the same")
    return 0


if __name__ == "__main__":
    sys.exit(main())
