"""A training step by step with torch.distributed, for bench/gpu: all-reduces whose results are known. With --kill, rank 1 of
the first start kills itself in the middle. Rank 0 prints a line at the end.

    ddprun -n 2 torch_nccl.py --backend nccl|gloo [--kill]
"""
import argparse
import datetime
import json
import os
import signal
import sys

import torch
import torch.distributed as dist

STEPS = 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=["nccl", "gloo"], required=True)
    parser.add_argument("--kill", action="store_true")
    args = parser.parse_args()
    on_gpu = args.backend == "nccl"
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=60))
    rank, n = dist.get_rank(), dist.get_world_size()
    for step in range(STEPS):
        if args.kill and restarts == 0 and rank == 1 and step == STEPS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        values = torch.full((1 << 16,), float(rank + 1 + step), device="cuda" if on_gpu else "cpu")
        dist.all_reduce(values)
        want = sum(r + 1 + step for r in range(n))
        if not bool((values == want).all()):
            sys.exit(f"step {step}: {values[0].item()} is not {want}")
    if rank == 0:
        print("torch_nccl", json.dumps({"ranks": n, "steps": STEPS, "restarts": restarts}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
