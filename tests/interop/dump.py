#!/usr/bin/env python3
"""A worker that writes down how it was started, into $DUMP_DIR/RANK.json, and ends as $DUMP_END says:
"1:3" is status 3 on rank 1, "0:-9" a signal on rank 0, once all ranks have written; the others then
wait to be stopped."""
import json
import os
import signal
import sys
import time

DEADLINE_S = 30


def path_of(rank):
    return os.path.join(os.environ["DUMP_DIR"], f"{rank}.json")


def wait_for_all():
    end = time.monotonic() + DEADLINE_S
    while not all(os.path.exists(path_of(rank)) for rank in range(int(os.environ["WORLD_SIZE"]))):
        if time.monotonic() > end:
            sys.exit("the other ranks did not come")
        time.sleep(0.002)


rank = os.environ["RANK"]
with open(path_of(rank) + ".part", "x") as f:
    json.dump({"name": __name__, "argv": sys.argv, "python": sys.orig_argv[1:-len(sys.argv[1:]) or None],
               "environment": dict(os.environ), "cwd": os.getcwd()}, f)
os.rename(path_of(rank) + ".part", path_of(rank))
who, _, how = os.environ.get("DUMP_END", "").partition(":")
if who == rank:
    wait_for_all()
    if int(how) < 0:
        os.kill(os.getpid(), -int(how))
    sys.exit(int(how))
if who:
    signal.pause()
