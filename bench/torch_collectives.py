"""Time gloo's all-reduce through PyTorch as sweep.c times the other libraries.

usage: ddprun -n 2 torch_collectives.py REPEATS MAX_BYTES | steady MS BYTES
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

SIZES = (4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
ROW_BYTES, ROW_CALLS = 1 << 10, 100  # a call takes a hundred times as long as the calls that sweep.c times
LARGE_BYTES = 16 << 20
CLOCK_CALLS = 16


def say(size, first, second):
    sys.stdout.write(f"{dist.get_rank()} {size} {first:.3f} {second:.3f}\n")  # in one write: other ranks write to the same pipe


def time_row(part):
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(ROW_CALLS):
        part.fill_(dist.get_rank() + 1)
        dist.all_reduce(part)
    return (time.perf_counter() - begun) / ROW_CALLS


def time_one(part):
    part.fill_(dist.get_rank() + 1)
    dist.barrier()
    begun = time.perf_counter()
    dist.all_reduce(part)
    return time.perf_counter() - begun


def time_size(data, size, repeats):
    part, n = data[: size // 4], dist.get_world_size()
    repeats = (repeats + 3) // 4 if size >= LARGE_BYTES else repeats
    times = []
    for _ in range(repeats + 1):  # the first is for warm-up
        times.append((time_row if size < ROW_BYTES else time_one)(part) * 1e6)
        if not torch.all(part == n * (n + 1) // 2):
            raise RuntimeError(f"{size} bytes were added up wrongly")
    times = times[1:]
    say(size, min(times), statistics.median(times))


def run_steadily(data, seconds):
    """Call all_reduce until rank 0's time is up, which rank 0 signals in the first element."""
    data.zero_()
    dist.all_reduce(data)
    dist.barrier()
    calls, begun = 0, time.perf_counter()
    now = begun
    while data[0] == 0:
        if calls % CLOCK_CALLS == 0:
            now = time.perf_counter()
        data[0] = dist.get_rank() == 0 and now - begun > seconds
        dist.all_reduce(data)
        calls += 1
    mean_us = (time.perf_counter() - begun) / calls * 1e6
    say(4 * data.numel(), calls, mean_us)


def main():
    steady = sys.argv[1] == "steady"
    most = int(sys.argv[-1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = torch.zeros(most // 4)
    if steady:
        run_steadily(data, int(sys.argv[2]) / 1e3)
    else:
        for size in SIZES:
            if size <= most:
                time_size(data, size, int(sys.argv[1]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
