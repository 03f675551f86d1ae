"""What tests/support/programs/elastic_rank.c does, with torch and gloo: steps of a script that knows nothing of restarts."""
import os
import sys
import time


def tell(what, *words):
    with open(os.environ["TEST_FIFO"], "wb", buffering=0) as fifo:
        fifo.write(" ".join(map(str, (what, NODE, os.getpid(), *words))).encode() + b"\n")


def is_told_to(what):
    return os.path.exists(os.path.join(os.environ["TEST_FOLDER"], what))


def make_daemon():
    if os.fork() != 0:
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    tell("daemon")
    while True:
        time.sleep(3600)


NODE = os.environ["TEST_NODE"]
tell("began", time.monotonic_ns(), os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["TORCHELASTIC_RESTART_COUNT"],
     os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"])
if "TEST_CHILD" in os.environ:
    make_daemon()

import torch  # noqa: E402 (it takes a second or more, and the time of the start is reported before)
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
is_first, is_last = True, False
while not is_last:
    x = torch.tensor([rank + 1, is_told_to("stop")], dtype=torch.int32)
    dist.all_reduce(x)
    if is_first:
        tell("summed", time.monotonic_ns(), x[0].item())
    assert x[0].item() == size * (size + 1) // 2
    is_first, is_last = False, x[1].item() > 0
    if is_told_to("fail-" + NODE):
        sys.exit(3)
    time.sleep(0.001)
dist.destroy_process_group()
