"""A rank that hangs and has a flight recorder: in the place of torch's process group for NCCL, which needs GPUs, and by a test
double. It has the same pipe, named by the same variable, looks at it again and again, and writes a file of the same name;
what is in the file is not torch's."""
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
