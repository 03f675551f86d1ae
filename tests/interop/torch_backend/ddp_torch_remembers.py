"""ddp_torch.save() and load(): what comes back, and a training that continues from it.

usage: ddp_torch_remembers.py kinds
       ddp_torch_remembers.py train BACKEND KILLS

kinds   one rank: all that a state may have, and what it may not; which memory the tensors of load() have
train   two ranks: DistributedDataParallel with momentum, batch normalization and dropout. A save after each step; after step 3 * (G + 1)
        of generation G < KILLS the last rank kills itself, and ranks with TEST_VICTIM in their environment kill their ddprun. Prints a
        digest of the final state of each rank, and what it found in memory at its start.

Runs with the Python whose torch is tested, under ddprun.
"""
import collections
import hashlib
import os
import random
import signal
import sys

import torch
import torch.distributed as dist

import ddp_torch

from torch.nn.parallel import DistributedDataParallel

N_STEPS = 9


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))
    if isinstance(a, dict):
        return type(a) is type(b) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def bits(tensor):
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def refuses(kind, call, text):
    try:
        call()
    except kind as error:
        check(text in str(error), f"{error} has no {text}")
    else:
        raise AssertionError(f"nothing was raised: {text}")


# --- kinds ------------------------------------------------------------------------------------------

def a_state():
    torch.manual_seed(5)
    return {
        "types": {str(t): torch.arange(7).to(t) for t in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
                                                          torch.int32, torch.int64, torch.bool, torch.complex64)},
        "shapes": [torch.tensor(3.5), torch.zeros(0, 4), torch.randn(2, 3, 4), torch.randn(4, 6).t(), torch.randn(10)[::3]],
        "views": (torch.randn(3, dtype=torch.complex64).conj(), torch.nn.Parameter(torch.randn(3))),
        "large": torch.randn(1 << 20),
        "plain": {"step": 7, "lr": 0.1, "name": "ä", "none": None, "flags": {True, False}, "bytes": b"\0x", 3: [1, (2.5, 1j)]},
        "ordered": collections.OrderedDict(a=1, b=torch.ones(2)),
        "torch": [torch.float16, torch.Size([2, 3]), torch.device("cpu"), torch.get_rng_state()],
        "random": random.getstate(),
    }


def is_of_ddprun(tensor):
    """Whether the tensor's memory is ddprun's."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        for line in f:
            begin, _, end = line.split()[0].partition("-")
            if int(begin, 16) <= tensor.data_ptr() < int(end, 16):
                return "ddp-checkpoints" in line
    return False


def memories():
    """Tensors of load() are in memory of ddprun as long as one of them lives, and two states are never in the same memory."""
    state = {"a": torch.randn(1 << 19), "b": [torch.randn(1 << 19).to(torch.bfloat16), torch.zeros(0, 3)], "c": torch.tensor(1), "d": torch.zeros(5).bool()}
    check(ddp_torch.save(state), "it was not saved")
    first = ddp_torch.load()
    check(same(first, state), "another state came back")
    check(is_of_ddprun(first["a"]) and is_of_ddprun(first["b"][0]) and is_of_ddprun(first["c"]), "it is memory of the process")
    check(first["a"].untyped_storage().nbytes() == 4 << 19, "the storages are not apart")
    check(all(t.data_ptr() % 64 == 0 for t in (first["a"], first["b"][0], first["c"], first["d"])), "it is not aligned")
    second = ddp_torch.load()
    check(same(second, state) and not is_of_ddprun(second["a"]), "the same memory was given twice")
    for _ in range(4):
        first["a"].add_(1)
        check(ddp_torch.save(first), "it was not saved")
    state["a"].add_(1).add_(1).add_(1).add_(1)
    check(same(first, state), "a save has written to the tensors")
    part = first["c"]
    del first
    third = ddp_torch.load()
    check(same(third, state) and not is_of_ddprun(third["a"]), "memory was given that a tensor still has")
    del part
    fourth = ddp_torch.load(into={"b": [second["b"][0]]})
    check(same(fourth, state) and fourth["b"][0] is second["b"][0] and is_of_ddprun(fourth["a"]), "memory did not come back")
    state["a"].zero_()
    ddp_torch.save(state)
    del fourth
    check(same(ddp_torch.load(), state), "after all that")

    torch.manual_seed(1)
    with torch.device("meta"):
        model = torch.nn.Linear(1024, 512)
    state = {"weight": torch.randn(512, 1024), "bias": torch.randn(512)}
    ddp_torch.save(state)
    model.load_state_dict(ddp_torch.load(), assign=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model(torch.ones(1, 1024)).sum().backward()
    optimizer.step()
    check(is_of_ddprun(model.weight) and torch.equal(model.weight, state["weight"] - 1), "the model does not train in it")


def kinds():
    check(ddp_torch.load() is None, "something is there already")
    state = a_state()
    check(ddp_torch.save(state), "it was not saved")
    state["large"].zero_()  # the memory has its own
    found = ddp_torch.load()
    check(same(found, a_state()), "another state came back")
    check(found["large"].data_ptr() != state["large"].data_ptr(), "it is the same memory")

    target = torch.zeros(1 << 20)
    strided = torch.zeros(4, 6).t()
    other = torch.zeros(3, dtype=torch.float64)
    into = {"large": target, "shapes": {3: strided}, "ordered": {"b": other}, "more": torch.ones(1)}
    found = ddp_torch.load(into=into)
    check(found["large"] is target and found["shapes"][3] is strided, "it was not loaded in place")
    check(found["ordered"]["b"] is not other and torch.equal(other, torch.zeros(3, dtype=torch.float64)), "another type was written")
    check(same(found, a_state()), "another state came back in place")

    linear = torch.nn.Linear(3, 3)
    tied = torch.nn.Sequential(linear, linear)
    ddp_torch.save({"model": tied.state_dict(), "again": linear.weight})
    found = ddp_torch.load()
    check(found["model"]["0.weight"] is found["model"]["1.weight"] is found["again"], "tied tensors came back apart")

    ddp_torch.save([])
    check(ddp_torch.load() == [], "an empty state")
    ddp_torch.save(None)
    check(ddp_torch.load() is None, "no state")

    class Own:
        pass

    refuses(TypeError, lambda: ddp_torch.save({"x": Own()}), "Own")
    refuses(TypeError, lambda: ddp_torch.save({"x": lambda: 1}), "ddp_torch.save: ")
    refuses(TypeError, lambda: ddp_torch.save({"x": print}), "builtins.print")
    refuses(TypeError, lambda: ddp_torch.save({"x": torch.zeros(2).to_sparse()}), "only dense tensors")
    refuses(TypeError, lambda: ddp_torch.save({"x": torch.zeros(2, device="meta")}), "only dense tensors")
    refuses(dist.DistBackendError, lambda: ddp_torch.save(torch.zeros(100 << 20, dtype=torch.uint8)), "--memory-checkpoints allows")
    ddp_torch.save({"last": 1})
    check(ddp_torch.load() == {"last": 1}, "after failures")
    memories()
    print(f"torch {torch.__version__}: all comes back", flush=True)


# --- a training -------------------------------------------------------------------------------------

def digest(tree):
    total = hashlib.sha256()
    for path, tensor in ddp_torch.memory.walk(tree):
        total.update(repr(path).encode() + bits(tensor).numpy().tobytes())
    return total.hexdigest()


def ddprun():
    """The process that has started this rank's spawner."""
    with open(f"/proc/{os.getppid()}/stat", encoding="utf-8", errors="replace") as f:
        return int(f.read().rpartition(")")[2].split()[1])


def train(backend, kills):
    generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    dist.init_process_group(backend)
    rank = dist.get_rank()
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    ddp_torch.memory.LARGE = 1  # momentum is in memory of ddprun after a restart
    layers = torch.nn.Linear(16, 300), torch.nn.BatchNorm1d(300), torch.nn.Dropout(0.3), torch.nn.Linear(300, 4)
    model = torch.nn.Sequential(*layers)
    state = ddp_torch.load(into={"model": model.state_dict()})
    wrapped = DistributedDataParallel(model, broadcast_buffers=False)  # the buffers of ranks differ
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    if state is not None:
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        step = state["step"]
        check(is_of_ddprun(optimizer.state_dict()["state"][0]["momentum_buffer"]), "it is memory of the process")
    os.write(1, f"rank {rank} of generation {generation} begins with step {step}\n".encode())
    while step < N_STEPS:
        optimizer.zero_grad()
        wrapped(torch.randn(8, 16)).square().sum().backward()
        optimizer.step()
        step += 1
        saved = ddp_torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state(), "step": step})
        if not saved:
            os.write(1, b"no memory\n")
        if step == 3 * (generation + 1) and (generation < kills and rank == dist.get_world_size() - 1 or "TEST_VICTIM" in os.environ):
            os.kill(ddprun() if "TEST_VICTIM" in os.environ else os.getpid(), signal.SIGKILL)
    final = digest({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()})
    os.write(1, f"rank {rank} ends with {final}\n".encode())
    dist.barrier()
    dist.destroy_process_group()


if sys.argv[1] == "kinds":
    kinds()
else:
    train(sys.argv[2], int(sys.argv[3]))
