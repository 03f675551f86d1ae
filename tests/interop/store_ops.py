#!/usr/bin/env python3
"""Every operation of torch.distributed.TCPStore, by a real torch client, on a store that is running.

usage: store_ops.py HOST PORT

The store must be empty. Works with torch 1.13 and later; what a version lacks is left out. Prints a
line for each operation, and exits with 0 if all answers were right.
"""
import datetime
import os
import sys
import threading

import torch
import torch.distributed as dist

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])
HOST, PORT = sys.argv[1], int(sys.argv[2])


def seconds(n):
    return datetime.timedelta(seconds=n)


def connect(**options):
    options = {"is_master": False, "timeout": seconds(30), "wait_for_workers": False, **options}
    return dist.TCPStore(HOST, PORT, **options)


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"FAILED: {what} gave {got!r}, not {wanted!r}")
    print("ok:", what, flush=True)


def expect_timeout(what, act):
    try:
        act()
    except RuntimeError as error:  # DistStoreError is one, too
        if "timeout" in str(error).lower() or "timed out" in str(error).lower():
            print("ok:", what, flush=True)
            return
        sys.exit(f"FAILED: {what} raised {error!r}, not a time-out")
    sys.exit(f"FAILED: {what} did not time out")


def basic(store, has_check):
    store.set("k", b"v1")
    expect("get", store.get("k"), b"v1")
    store.set("e", "")
    expect("get of an empty value", store.get("e"), b"")
    expect("add to a new key", store.add("n", 5), 5)
    expect("add a negative", store.add("n", -7), -2)
    expect("get of a counter", store.get("n"), b"-2")
    expect("compare_set of a missing key", store.compare_set("c", "", "x"), b"x")
    expect("compare_set, wrong", store.compare_set("c", "y", "z"), b"x")
    expect("compare_set, right", store.compare_set("c", "x", "z"), b"z")
    expect("compare_set of a missing key, wrong", store.compare_set("c2", "q", "z"), b"q")
    if has_check:
        expect("check", (store.check(["k", "c2"]), store.check(["k"]), store.check([])),
               (False, True, True))
    expect("num_keys", store.num_keys(), 4)
    expect("delete_key", (store.delete_key("k"), store.delete_key("k")), (True, False))
    store.wait(["e", "c"])
    expect("wait for several", store.num_keys(), 3)
    key = "\u00fc\n key"
    store.set(key, bytes(range(256)).decode("latin-1"))
    expect("a key of any text", store.delete_key(key), True)
    large = "x" * (8 << 20)
    store.set("large", large)
    expect("a value of 8 MiB", store.get("large") == large.encode(), True)
    store.delete_key("large")


def waiting(store, other):
    expect_timeout("wait for a missing key",
                   lambda: store.wait(["miss"], datetime.timedelta(milliseconds=300)))
    expect("get after the time-out", store.get("e"), b"")
    other.set("miss", "late")  # a store that answers a cancelled wait now breaks the next reply
    other.num_keys()  # a set has no reply: this one's says that it was executed
    expect("num_keys after the key came", store.num_keys(), 4)
    store.delete_key("miss")

    setter = threading.Thread(target=lambda: other.set("late", "now"))
    setter.start()
    expect("get of a key that comes later", store.get("late"), b"now")
    setter.join()
    store.delete_key("late")


def extended(store):
    store.append("ap", "one")
    store.append("ap", "two")
    expect("append", store.get("ap"), b"onetwo")
    store.multi_set(["m1", "m2"], ["v1", "v22"])
    expect("multi_get", store.multi_get(["m1", "m2"]), [b"v1", b"v22"])
    expect("multi_get of nothing", store.multi_get([]), [])
    for key in "ap", "m1", "m2":
        store.delete_key(key)


def queues(store, other):
    store.queue_push("q", "item")
    expect("queue_len", store.queue_len("q"), 1)
    expect("queues are no keys", store.num_keys(), 3)
    expect("queue_pop", store.queue_pop("q"), b"item")
    try:
        store.queue_pop("q", block=False)
    except Exception as error:
        expect("queue_pop of an empty queue", type(error).__name__, "QueueEmptyError")
    popped = []
    popper = threading.Thread(target=lambda: popped.append(other.queue_pop("q")))
    popper.start()
    store.queue_push("q", "second")
    popper.join()
    expect("queue_pop that blocks", popped, [b"second"])


def crossings(store, other):
    """Waits that end at about the moment their key comes: cancellation and answer cross on the wire."""
    for i in range(200):
        setter = threading.Thread(target=lambda: other.set(f"cross{i}", str(i)))
        setter.start()
        try:
            store.wait([f"cross{i}"], datetime.timedelta(milliseconds=1))
        except RuntimeError:
            pass
        setter.join()
        other.num_keys()  # as above
        if store.get(f"cross{i}") != str(i).encode():
            sys.exit(f"FAILED: out of step after wait {i}")
        store.delete_key(f"cross{i}")
    expect("200 waits that are almost late", store.num_keys(), 3)


def main():
    print("torch", torch.__version__)
    store, other = connect(), connect()
    basic(store, has_check=hasattr(store, "check"))
    waiting(store, other)
    if VERSION >= (2, 1):
        extended(store)
        crossings(store, other)
    if hasattr(store, "queue_push"):
        queues(store, other)
    if hasattr(store, "list_keys"):
        expect("list_keys", sorted(store.list_keys()), ["c", "e", "n"])
    if hasattr(store, "clone"):
        expect("clone", store.clone().get("c"), b"z")
    dist.PrefixStore("pfx", store).set("k", "v")
    expect("PrefixStore", store.get("pfx/k"), b"v")
    counted = connect(world_size=2, wait_for_workers=True)
    expect("a store that counts workers", counted.add("n", 0), -2)
    try:
        store.add("e", 1)
    except RuntimeError:
        print("ok: add to a text ends the connection")
    else:
        sys.exit("FAILED: add to a text gave a number")
    expect("the others go on", other.get("c"), b"z")
    print("all right")
    sys.stdout.flush()
    os._exit(0)  # torch 1.13's watch thread may outlive its broken connection


if __name__ == "__main__":
    main()
