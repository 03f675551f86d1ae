"""Ranks with a large state that is kept in memory, or on a disk: for bench/nodes/memory_checkpoints.py.

usage: memory_steps.py MB WAY DIRECTORY    WAY: memory, into (tensors of the program), disk

A state has MB megabytes of parameters of a rank, in tensors of 16 MiB. A step averages 4 MiB of gradients by gloo, and writes all
parameters, as an optimizer does. In generation 0 the ranks save four times, one right after the other; in later ones they load the state. Each
generation reports, makes a step, and waits until one of the ranks is killed. Later generations save twice after that step.

Reports to the FIFO that TEST_FIFO names, a JSON object for each line: what, rank, pid, and times in seconds."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

import ddp_torch

MB, way, folder = float(sys.argv[1]), sys.argv[2], sys.argv[3]
ELEMENTS, GRADIENTS = 4 << 20, 1 << 20
generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
begun = time.monotonic()
fifo = open(os.environ["TEST_FIFO"], "w")
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
path = f"{folder}/state-{rank}.pt"


def tell(what, **more):
    fifo.write(json.dumps({"what": what, "rank": rank, "pid": os.getpid(), **more}) + "\n")
    fifo.flush()


def pages_of_memory():
    """Megabytes of the node's memory that are used."""
    fd = os.environ.get("DDP_MEMORY_FD")
    return os.fstat(int(fd)).st_blocks / 2048 if fd else 0


def save(state):
    if way == "disk":
        torch.save(state, path + ".new")
        with open(path + ".new", "rb") as f:
            os.fsync(f.fileno())
        os.rename(path + ".new", path)
        dist.barrier()
    elif not ddp_torch.save(state):
        raise SystemExit("no memory for checkpoints")


def load():
    if way == "disk":
        return torch.load(path)
    return ddp_torch.load(into={"tensors": new_tensors()} if way == "into" else None)


def new_tensors():
    return [torch.empty(ELEMENTS) for _ in range(max(1, round(MB * 1e6 / ELEMENTS / 4)))]


step = 0
if generation == 0:
    tensors = new_tensors()
    for number, tensor in enumerate(tensors):
        tensor.fill_(number)
else:
    at, cpu = time.monotonic(), time.process_time()
    state = load()
    if state is None:
        raise SystemExit("no state was found")
    tensors, step = state["tensors"], state["step"]
    del state
    for number, tensor in enumerate(tensors):
        if tensor[0] != number + step or tensor[-1] != number + step:
            raise SystemExit(f"tensor {number} has {tensor[0]} and {tensor[-1]} after step {step}")
    tell("loaded", begun=begun, took=time.monotonic() - at, cpu=time.process_time() - cpu)

gradients = torch.ones(GRADIENTS)


def make_step():
    global step
    gradients.fill_(1)
    dist.all_reduce(gradients)
    gradient = float(gradients[-1]) / dist.get_world_size()
    for tensor in tensors:
        tensor += gradient
    step += 1


def save_often(n):
    saves = []
    for _ in range(n):
        make_step()
        at = time.monotonic()
        save({"tensors": tensors, "step": step})
        saves.append(time.monotonic() - at)
    tell("saved", saves=saves, bytes=sum(t.numel() * 4 for t in tensors), memory_mb=pages_of_memory())


if generation == 0:
    save_often(4)
make_step()
tell("step", generation=generation, at=time.monotonic())
if generation > 0:
    save_often(2)
if os.environ.get("BENCH_SAVES_ON"):
    save({"tensors": tensors, "step": step})
while True:
    time.sleep(0.1)
