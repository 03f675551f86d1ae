"""A TCPStore hosted by torch, and `ddpctl store` at it.

usage: ctl_store.py DDPCTL
"""
import datetime
import subprocess
import sys

import torch
import torch.distributed as dist

DDPCTL = sys.argv[1]


def check(store, port):
    def ctl(*words, code=0, tries=1, **kw):
        for _ in range(tries):
            # torch's store looks up the name of each client, for seconds where no name server answers
            done = subprocess.run([DDPCTL, "store", words[0], "-e", f"127.0.0.1:{port}", "-t", "50s", *words[1:]], timeout=60,
                                  capture_output=True, **kw)
            if b"waiting for the store to answer" not in done.stderr:
                break
        if done.returncode != code:
            sys.exit(f"FAILED: {words} ended with {done.returncode}, not {code}: {done.stderr.decode()}")
        return done.stdout

    def expect(what, got, wanted):
        if got != wanted:
            sys.exit(f"FAILED: {what} gave {got!r}, not {wanted!r}")
        print("ok:", what, flush=True)

    binary = bytes(range(256)) * 1000
    ctl("set", "k", "value")
    expect("set", store.get("k"), b"value")
    ctl("set", "binary", "-", input=binary)
    expect("set of any bytes", store.get("binary"), binary)
    store.set("theirs", "ours")
    expect("get", ctl("get", "theirs"), b"ours")
    expect("get of any bytes", ctl("get", "binary"), binary)
    expect("get of what is not there", ctl("get", "nothing", code=1), b"")
    expect("add", (ctl("add", "n", "5"), ctl("add", "n", "-7")), (b"5\n", b"-2\n"))
    expect("the counter", store.add("n", 0), -2)
    ctl("wait", "k", "n")
    ctl("wait", "-t", "5s", "nothing", code=1, tries=5)  # the time includes the connection to a busy store
    dist.PrefixStore("pre", store).set("fix", "1")
    ctl("set", "--raw", "init/", "0")
    expect("dump", ctl("dump", "--raw", "/p"), b"/pre/fix\t1\n")
    names = [line.split(b"\t")[0].decode() for line in ctl("dump").splitlines()]
    expect("names as torch has them", names, sorted(store.list_keys()))
    ctl("delete", "k")
    ctl("delete", "k", code=1)
    expect("delete by the beginning", ctl("delete", "--prefix", "pre/"), b"1\n")
    expect("what is left", sorted(store.list_keys()), ["binary", "n", "theirs"])
    ctl("set", "large", "-", input=bytes((8 << 20) + 1), code=69 if store.libuvBackend else 0)


def check_old(store, port):
    """The request does not harm a store of another dialect; ddpctl reports the dialect because the store hangs up."""
    for _ in range(3):
        done = subprocess.run([DDPCTL, "store", "get", "-e", f"127.0.0.1:{port}", "k"], timeout=60,
                              capture_output=True)
        if done.returncode != 69 or b"as stores of PyTorch before 2.2 do" not in done.stderr:
            sys.exit(f"FAILED: it ended with {done.returncode}: {done.stderr.decode()}")
    store.set("k", "value")
    if store.get("k") != b"value":
        sys.exit("FAILED: the store does not work any more")


print("torch", torch.__version__)
if not hasattr(dist.TCPStore, "multi_get"):  # new in 2.1
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    check_old(server, server.port)
    print("all right")
    sys.exit()
for use_libuv in True, False:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=use_libuv,
                           timeout=datetime.timedelta(seconds=30))
    print("libuv" if use_libuv else "legacy", flush=True)
    check(server, server.port)
    del server
print("all right")
