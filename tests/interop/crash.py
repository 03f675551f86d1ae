"""Rank 1 raises an exception while the others wait until they are stopped. (In a collective they would
fail too, as soon as its sockets close, and which of them ends first is anybody's guess.)

usage: crash.py plain | recorded

plain      the exception goes to stderr, as Python prints it
recorded   main() wears torch's @record and stderr is closed: only the error file knows
"""
import os
import signal
import sys

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def load_batch(number):
    raise ValueError(f"batch {number} has 3 labels for 4 images")


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        load_batch(17)
    signal.pause()


if __name__ == "__main__":
    if sys.argv[1] == "recorded":
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        main = record(main)
    main()
