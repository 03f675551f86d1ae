#!/usr/bin/env python3
"""A worker that prints a few lines, records how it was started in $DUMP_DIR/GENERATION.RANK.json, and ends
as $DUMP_END specifies: "1:3" is status 3 on rank 1, "0:-9" a signal on rank 0, once all ranks have written; the
others then wait to be stopped.

DUMP_TAIL     the last text it prints, on both streams, with escapes as in Python: "no newline", "\\xff\\n"
DUMP_ERROR    the text of its error file
"""
import json
import os
import signal
import sys
import time

DEADLINE_S = 30
rank, generation = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]


def path_of(any_rank):
    return os.path.join(os.environ["DUMP_DIR"], f"{generation}.{any_rank}.json")


def wait_for_all():
    end = time.monotonic() + DEADLINE_S
    while not all(os.path.exists(path_of(other)) for other in range(int(os.environ["WORLD_SIZE"]))):
        if time.monotonic() > end:
            sys.exit("the other ranks did not come")
        time.sleep(0.002)


def speak():
    """Each line in one write: it stays whole even if other processes write to the same file."""
    tail = os.environ.get("DUMP_TAIL", "").encode().decode("unicode_escape").encode("latin-1")
    for fd, stream in (1, "out"), (2, "err"):
        for text in "hello", "loss 0.5, acc 0.9", "bye":
            os.write(fd, f"{stream} {rank}.{generation} {text}\n".encode())
        if tail:
            os.write(fd, f"{stream} {rank}.{generation} ".encode() + tail)


def write_down():
    with open(path_of(rank) + ".part", "x") as f:
        json.dump({"name": __name__, "argv": sys.argv, "python": sys.orig_argv[1:-len(sys.argv[1:]) or None],
                   "environment": dict(os.environ), "cwd": os.getcwd()}, f)
    os.rename(path_of(rank) + ".part", path_of(rank))


def end():
    who, _, how = os.environ.get("DUMP_END", "").partition(":")
    if who == rank:
        wait_for_all()
        if "DUMP_ERROR" in os.environ:
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
                f.write(os.environ["DUMP_ERROR"])
        if int(how) < 0:
            os.kill(os.getpid(), -int(how))
        sys.exit(int(how))
    if who:
        signal.pause()


speak()
write_down()
end()
