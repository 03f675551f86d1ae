"""gloo's all-reduce over sizes through PyTorch, as sweep.c measures the others.

usage: ddprun -n 2 torch_collectives.py REPEATS
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

MAX_BYTES = 64 << 20
MAX_CALLS = 1000
CALL_BYTES = 4 << 20


def time_size(data, size, repeats):
    part = data[: size // 4]
    calls = min(max(CALL_BYTES // size, 1), MAX_CALLS)
    part.fill_(dist.get_rank() + 1)
    dist.all_reduce(part)
    n = dist.get_world_size()
    if not torch.all(part == n * (n + 1) // 2):
        raise RuntimeError(f"{size} bytes were added up wrongly")
    part.zero_()
    times = []
    for _ in range(repeats):
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(part)
        times.append((time.perf_counter() - begun) / calls * 1e6)
    if dist.get_rank() == 0:
        print(size, f"{min(times):.3f}", f"{statistics.median(times):.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = torch.zeros(MAX_BYTES // 4)
    size = 4
    while size <= MAX_BYTES:
        time_size(data, size, int(sys.argv[1]))
        size *= 8
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
