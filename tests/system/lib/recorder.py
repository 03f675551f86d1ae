"""A rank that hangs and has a flight recorder: a mock of torch's process group for NCCL, which needs GPUs. It has the same pipe,
named by the same variable, polls it, and writes a file of the same name. The content of the file is not torch's."""
import os
import threading
import time

RANK = os.environ["RANK"]
PIPE = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + RANK + ".pipe"
DUMP = os.environ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] + RANK


def watch(pipe):
    while not os.read(pipe, 128):
        time.sleep(0.05)
    with open(DUMP, "w", encoding="utf-8") as dump:
        dump.write("what rank " + RANK + " has kept")


os.mkfifo(PIPE)
threading.Thread(target=watch, args=[os.open(PIPE, os.O_RDONLY | os.O_NONBLOCK)], daemon=True).start()
with open(os.environ["TEST_FIFO"], "w", encoding="utf-8") as fifo:
    fifo.write(RANK + " hangs\n")
time.sleep(3600)
