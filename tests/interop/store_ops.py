#!/usr/bin/env python3
"""Test everything torch.distributed.TCPStore can do with a real torch client, on torch's own server or on ours.

usage: store_ops.py [PROGRAM...]      PROGRAM serves a store on a port of its choice, prints the port as the last word of a line, and
                                   ends with its stdin

Torch's server comes first, then each program's, after a line "=== torch" or "=== PROGRAM".

Prints a line for each answer. The answers have to be correct on both servers, or the exit status is 1; so the
output for the two is identical, which run.py checks. Each case has a server of its own. Where our server
differs from torch's on purpose, a comment in the case describes both; the line does not show the difference.

Works with torch 1.13 and later: operations that a version's client lacks are left out.
"""
import datetime
import os
import random
import subprocess
import sys
import threading

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # warnings cost 2.11 a stack trace each, with symbols

import torch
import torch.distributed as dist
import torch.distributed.elastic.utils.store as elastic_store

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])
DEADLINE_S = 60
PATIENCE = datetime.timedelta(milliseconds=300)  # for waits that have to time out
MIB = 1 << 20


# --- the servers ---


class TorchServers:
    """Torch's own, in a process that serves another store for each line it reads: a fork, since torch is imported already."""

    name = "torch"

    def __init__(self):
        (orders, self.orders), (self.ports, ports) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.orders)
            be_torchs_servers(orders, ports)
        os.close(orders)
        os.close(ports)

    def start(self):
        os.write(self.orders, b"\n")
        return int(os.read(self.ports, 16))

    def stop(self):
        os.close(self.orders)
        os.waitpid(self.pid, 0)


class OurServers:
    name = "ours"

    def __init__(self, program):
        self.program = program
        self.processes = []

    def start(self):
        process = subprocess.Popen([self.program], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        return int(process.stdout.readline().split()[-1])

    def stop(self):
        for process in self.processes:
            process.stdin.close()
            if process.wait(DEADLINE_S) != 0:
                fail(f"a server ended with {process.returncode}")


def be_torchs_servers(orders, ports):
    stores = []
    while os.read(orders, 1):
        stores.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
        os.write(ports, str(stores[-1].port).encode())
    os._exit(0)


# --- what is asked and expected ---


def fail(message):
    print("FAILED:", message, flush=True)
    os._exit(1)


class Place:
    """A server that was just started, and how to reach it."""

    def __init__(self, servers):
        self.server = servers.name
        self.port = servers.start()

    def connect(self, **options):
        options = {"is_master": False, "timeout": datetime.timedelta(seconds=DEADLINE_S),
                   "wait_for_workers": False, **options}
        return dist.TCPStore("127.0.0.1", self.port, **options)


def outcome(act):
    """The result of a call as text: a value, or the type of its exception and the kind of error it reports."""
    try:
        return repr(act())
    except Exception as error:
        text = str(error).lower()
        kinds = {
            "timeout": "time-out", "timed out": "time-out", "reset": "connection lost",
            "closed": "connection lost", "broken pipe": "connection lost", "queue is empty": "empty",
        }
        kind = next((kinds[word] for word in kinds if word in text), str(error))
        return f"{type(error).__name__} ({kind})"


def expect(what, act, wanted):
    """The call gives this value on either server."""
    got = outcome(act)
    if got != repr(wanted):
        fail(f"{what} gave {got[:200]}, not {repr(wanted)[:200]}")
    print(f"{what}: {got if len(got) < 80 else f'{len(got)} characters'}", flush=True)


def expect_raises(what, act, kind):
    """The call raises what this version has for such trouble, on either server."""
    types = {"time-out": "DistStoreError", "connection lost": "DistNetworkError", "empty": "QueueEmptyError"}
    wanted = f"{types[kind] if VERSION >= (2, 4) else 'RuntimeError'} ({kind})"
    got = outcome(act)
    if got != wanted:
        fail(f"{what} gave {got[:200]}, not {wanted}")
    print(f"{what}: {got}", flush=True)


def expect_differs(place, what, act, torch_gives, we_give):
    """The two servers answer this otherwise, and ours on purpose."""
    got = outcome(act)
    wanted = torch_gives if place.server == "torch" else we_give
    if got != wanted:
        fail(f"{what} gave {got[:200]} on {place.server}, not {wanted[:200]}")
    print(f"{what}: differs as it should", flush=True)


def say(what, holds):
    if not holds:
        fail(what)
    print("ok:", what, flush=True)


def together(n, act):
    """act(0) ... act(n - 1) in threads of their own; what they gave, in that order."""
    results = [None] * n

    def run(i):
        try:
            results[i] = act(i)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        if thread.is_alive():
            fail(f"a thread of {n} is still busy after {DEADLINE_S} s")
    for result in results:
        if isinstance(result, Exception):
            fail(f"a thread of {n}: {result!r}")
    return results


def has(store, operation):
    return hasattr(store, operation)


# --- the cases ---


def values(place):
    store, other = place.connect(), place.connect()
    every_byte = bytes(range(256))
    for what, value in (("text", b"v1"), ("nothing", b""), ("every byte", every_byte), ("a zero byte", b"\0"),
                        ("zero bytes at both ends", b"\0x\0"), ("a number", b"-17"), ("a MiB", every_byte * 4096)):
        store.set("k", value)
        expect(f"get of {what}", lambda: store.get("k"), value)
        expect(f"num_keys after {what}", store.num_keys, 1)
        expect(f"get of {what} by another", lambda: other.get("k"), value)
    expect("set has no value", lambda: store.set("k", "x"), None)


def keys(place):
    store = place.connect()
    named = {"empty": "", "a blank": " ", "lines": "a\nb", "a zero byte": "a\0b", "slashes": "//a//",
             "letters": "\u00fc\u4e2d", "bytes": b"\xff\xfe", "long": "k" * 8191, "like torch's own": "init/"}
    for what, key in named.items():
        store.set(key, what)
    expect("num_keys of odd keys", store.num_keys, len(named))
    for what, key in named.items():
        expect(f"get of a key: {what}", lambda: store.get(key), what.encode())
    for what, key in named.items():
        expect(f"delete_key: {what}", lambda: store.delete_key(key), True)
    expect("num_keys of none", store.num_keys, 0)


def counters(place):
    store, other = place.connect(), place.connect()
    expect("add to a new key", lambda: store.add("n", 5), 5)
    expect("add a negative", lambda: store.add("n", -7), -2)
    expect("get of a counter", lambda: store.get("n"), b"-2")
    expect("add 0 to a new key", lambda: store.add("zero", 0), 0)
    expect("it is there", lambda: store.get("zero"), b"0")
    for text, sum_of_1 in ((b"41", 42), (b"12abc", 13), (b" +7", 8), (b"-1", 0), (b"0x10", 1), (b"1 2", 2),
                           (b"9223372036854775807", -(1 << 63)), (b"\t\n-9", -8), (b"5\x006", 6)):
        store.set("text", text)
        expect(f"add 1 to {text!r}", lambda: store.add("text", 1), sum_of_1)
        expect(f"get of {text!r} and 1", lambda: store.get("text"), str(sum_of_1).encode())
    expect("add the smallest", lambda: store.add("small", -(1 << 63)), -(1 << 63))
    expect("wrap around", lambda: store.add("small", -1), (1 << 63) - 1)
    for i, text in enumerate((b"", b"abc", b"- 1", b"9223372036854775808", b"99999999999999999999999", b"\0")):
        victim = place.connect()
        other.set(f"bad{i}", text)
        other.num_keys()
        expect_raises(f"add to {text!r}", lambda: victim.add(f"bad{i}", 1), "connection lost")
        expect_raises(f"get after that of {text!r}", lambda: victim.get("n"), "connection lost")
        expect(f"{text!r} stays", lambda: other.get(f"bad{i}"), text)


def compare_set(place):
    store = place.connect()
    expect("missing, nothing expected", lambda: store.compare_set("c", "", "x"), b"x")
    expect("there, another expected", lambda: store.compare_set("c", "y", "z"), b"x")
    expect("there, nothing expected", lambda: store.compare_set("c", "", "z"), b"x")
    expect("there, as expected", lambda: store.compare_set("c", "x", "z"), b"z")
    expect("that was stored", lambda: store.get("c"), b"z")
    expect("missing, something expected", lambda: store.compare_set("c2", "q", "z"), b"q")
    expect("that was not stored", store.num_keys, 1)
    store.set("e", "")
    expect("empty, as expected", lambda: store.compare_set("e", "", "full"), b"full")
    expect("to nothing", lambda: store.compare_set("e", "full", ""), b"")
    expect("missing, to nothing", lambda: store.compare_set("e2", "", ""), b"")
    expect("those are keys", store.num_keys, 3)
    binary = bytes(range(256))
    expect("binary", lambda: store.compare_set("b", "", binary), binary)
    expect("binary again", lambda: store.compare_set("b", binary, b"\0"), b"\0")


def delete_and_check(place):
    store = place.connect()
    expect("delete_key of none", lambda: store.delete_key("k"), False)
    store.set("k", "v")
    expect("delete_key", lambda: store.delete_key("k"), True)
    expect("delete_key again", lambda: store.delete_key("k"), False)
    store.set("k", "w")
    store.set("l", "")
    expect("a key comes back", lambda: store.get("k"), b"w")
    if has(store, "check"):
        for asked in ([], ["k"], ["k", "l"], ["k", "k"], ["miss"], ["k", "miss"]):
            expect(f"check of {asked}", lambda: store.check(asked), "miss" not in asked)
        many = [f"m{i}" for i in range(1000)]
        expect("check of many", lambda: store.check(many), False)
    if has(store, "list_keys"):
        expect("list_keys", lambda: sorted(store.list_keys()), ["k", "l"])
        store.delete_key("k")
        store.delete_key("l")
        expect("list_keys of none", store.list_keys, [])


def large_values(place):
    store = place.connect()
    random.seed(5)
    piece = random.randbytes(MIB)
    for what, value in (("8 MiB", piece * 8), ("a byte less", piece * 7 + piece[1:])):
        store.set("large", value)
        say(f"{what} come back", store.get("large") == value)
    if has(store, "append"):
        for _ in range(3):
            store.append("appended", piece * 8)
        store.append("appended", b"end")
        say("24 MiB and an end come back", store.get("appended") == piece * 24 + b"end")
        store.multi_set(["x", "y"], [piece * 4, piece * 3])
        say("several large ones come back",
            store.multi_get(["y", "appended", "x"]) == [piece * 3, piece * 24 + b"end", piece * 4])
    expect("delete_key of a large one", lambda: store.delete_key("large"), True)


def waits(place):
    store, other = place.connect(), place.connect()
    store.set("a", "1")
    store.set("b", "2")
    expect("wait for nothing", lambda: store.wait([]), None)
    expect("wait for what is there", lambda: store.wait(["a", "b"]), None)
    expect("wait for one twice", lambda: store.wait(["a", "a"], PATIENCE), None)
    for i in range(20):  # sooner or later than the set: both have to work
        ways = {"set": lambda: other.set(f"late{i}", "v"), "add": lambda: other.add(f"late{i}", 1)}
        if has(store, "append"):
            ways["append"] = lambda: other.append(f"late{i}", "v")
            ways["multi_set"] = lambda: other.multi_set(["a", f"late{i}"], ["1", "v"])
        way = list(ways)[i % len(ways)]
        done = together(2, lambda who: ways[way]() if who == 0 else store.wait(["a", f"late{i}"]))
        say(f"wait {i}, ended by {way}", done[1] is None)
    for i in range(20):
        done = together(2, lambda who: other.set(f"got{i}", b"\0") if who == 0 else store.get(f"got{i}"))
        say(f"get {i} of a key that comes later", done[1] == b"\0")


def time_outs(place):
    """The connection works as before after a wait that timed out."""
    store, other = place.connect(), place.connect()
    store.set("k", "v")
    for i, patience in enumerate((PATIENCE, datetime.timedelta(milliseconds=1), PATIENCE)):
        expect_raises(f"wait {i} in vain", lambda: store.wait(["k", f"miss{i}"], patience), "time-out")
        expect(f"num_keys after wait {i}", store.num_keys, 1)
        expect(f"get after wait {i}", lambda: store.get("k"), b"v")
    hasty = place.connect(timeout=datetime.timedelta(seconds=1))
    expect_raises("get in vain", lambda: hasty.get("miss"), "time-out")
    expect("add after that", lambda: hasty.add("n", 1), 1)
    if VERSION >= (2, 1):  # 1.13 does not cancel its waits: see abandoned_waits
        other.set("miss0", "late")
        other.num_keys()  # a set has no reply: this reply shows that it was executed
        expect("num_keys after the key came", store.num_keys, 3)
        expect_raises("multi_get in vain", lambda: hasty.multi_get(["k", "miss1"]), "time-out")
        expect("multi_get after that", lambda: hasty.multi_get(["k", "n"]), [b"v", b"1"])
        hasty.set_timeout(datetime.timedelta(milliseconds=100))
        expect_raises("get in vain, after set_timeout", lambda: hasty.get("miss1"), "time-out")
        crossings(store, other)


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
        other.num_keys()
        if store.get(f"cross{i}") != str(i).encode():
            fail(f"out of step after wait {i}")
        store.delete_key(f"cross{i}")
    expect("num_keys after 200 waits that are almost late", store.num_keys, 3)


def abandoned_waits(place):
    """1.13 sends nothing when a wait times out, and takes a late answer for the beginning of the next reply."""
    if VERSION >= (2, 1):
        return
    store, other = place.connect(), place.connect()
    expect_raises("wait in vain", lambda: store.wait(["late"], PATIENCE), "time-out")
    expect("num_keys before the key comes", store.num_keys, 0)
    other.set("late", "x")
    other.num_keys()
    expect_differs(place, "num_keys when it has come", store.num_keys, repr(256), repr(1))
    unlucky = place.connect()
    expect_raises("another wait in vain", lambda: unlucky.wait(["later"], PATIENCE), "time-out")
    other.set("later", "x")
    other.num_keys()
    expect("num_keys by a client that nobody can help", unlucky.num_keys, 512)


def several_at_once(place):
    if not has(place.connect(), "append"):
        return
    store, other = place.connect(), place.connect()
    store.append("ap", "one")
    store.append("ap", b"\0")
    store.append("ap", "")
    store.num_keys()  # an append has no reply: only this shows that the server has it before the other's arrives
    other.append("ap", "two")
    other.num_keys()
    expect("append", lambda: store.get("ap"), b"one\0two")
    store.append("new", "")
    expect("append of nothing makes a key", lambda: store.get("new"), b"")
    store.multi_set(["m1", "m2", "m3"], ["v1", b"\0\xff", ""])
    expect("multi_get", lambda: store.multi_get(["m3", "m1", "m2"]), [b"", b"v1", b"\0\xff"])
    expect("multi_get of one twice", lambda: store.multi_get(["m1", "m1"]), [b"v1", b"v1"])
    expect("multi_get of nothing", lambda: store.multi_get([]), [])
    expect("multi_set of nothing", lambda: store.multi_set([], []), None)
    store.multi_set(["m1", "m1"], ["first", "second"])
    expect("multi_set of one twice", lambda: store.get("m1"), b"second")
    names = [f"many{i}" for i in range(5000)]
    store.multi_set(names, [str(i) for i in range(5000)])
    say("5000 keys come back", store.multi_get(names[::-1]) == [str(i).encode() for i in reversed(range(5000))])
    expect("num_keys of them all", store.num_keys, 5005)
    expect("has_extended_api", store.has_extended_api, True)


def queues(place):
    store, other = place.connect(), place.connect(timeout=datetime.timedelta(seconds=1))
    if not has(store, "queue_push"):
        return
    expect("queue_len of none", lambda: store.queue_len("q"), 0)
    expect_raises("queue_pop of none", lambda: store.queue_pop("q", block=False), "empty")
    items = [b"item", b"", bytes(range(256)), b"\0", b"x" * MIB]
    for item in items:
        store.queue_push("q", item)
    expect("queue_len", lambda: store.queue_len("q"), len(items))
    expect("queues are no keys", store.num_keys, 0)
    expect("queues are not listed", store.list_keys, [])
    expect("check of a queue", lambda: store.check(["q"]), True)
    expect("wait for a queue", lambda: store.wait(["q"]), None)
    expect("delete_key of a queue", lambda: store.delete_key("q"), False)
    store.set("q", "a key of the same name")
    for i, item in enumerate(items):
        expect(f"queue_pop {i}", lambda: (store, other)[i % 2].queue_pop("q", block=i % 3 == 0), item)
    expect("the key is still there", lambda: store.get("q"), b"a key of the same name")
    expect_raises("queue_pop when all are taken", lambda: other.queue_pop("q", block=False), "empty")
    expect_raises("queue_pop in vain", lambda: other.queue_pop("q2"), "time-out")
    expect("queue_len after that", lambda: other.queue_len("q2"), 0)
    expect("check of an empty queue", lambda: other.check(["q2"]), False)
    # each push wakes one of those who wait, and that one gets the item
    poppers = [place.connect() for _ in range(8)]
    pusher = place.connect()

    def pop_or_push(i):
        if i < 8:
            return [poppers[i].queue_pop("shared") for _ in range(1)]
        for n in range(8):
            pusher.queue_push("shared", str(n))
        return []

    popped = together(9, pop_or_push)
    say("8 poppers get an item each", sorted(sum(popped, [])) == [str(n).encode() for n in range(8)])
    expect("nothing is left", lambda: store.queue_len("shared"), 0)


def clones_and_prefixes(place):
    store = place.connect()
    dist.PrefixStore("pfx", store).set("k", "v")
    expect("PrefixStore", lambda: store.get("pfx/k"), b"v")
    nested = dist.PrefixStore("outer", dist.PrefixStore("inner", store))
    nested.set("k", "w")
    expect("nested PrefixStores", lambda: nested.get("k"), b"w")
    expect("one of their keys", lambda: store.get("inner/outer/k"), b"w")
    expect("add through them", lambda: nested.add("n", 3), 3)
    expect("num_keys through them", nested.num_keys, 3)
    expect("delete_key through them", lambda: nested.delete_key("k"), True)
    expect_raises("wait through them", lambda: nested.wait(["miss"], PATIENCE), "time-out")
    if has(store, "clone"):
        clone = store.clone()
        expect("clone", lambda: clone.get("pfx/k"), b"v")
        del clone
        expect("the original goes on", lambda: store.get("pfx/k"), b"v")
    counted = place.connect(world_size=2, wait_for_workers=True)
    expect("a store that counts workers", lambda: counted.add("init/", 0), 0)
    expect("its own count is a key", counted.num_keys, 4)


def many_adders(place):
    stores = [place.connect() for _ in range(8)]
    sums = together(8, lambda i: [stores[i].add("n", 1) for _ in range(500)])
    say("each sum of 8 x 500 adds is given once", sorted(sum(sums, [])) == list(range(1, 4001)))
    say("each client's sums grow", all(s == sorted(s) for s in sums))
    expect("the last sum", lambda: stores[0].get("n"), b"4000")


def many_clients(place):
    """200 of them at the same time, all waiting for one key."""
    n = 200
    stores = together(n, lambda i: place.connect())

    def act(i):
        if stores[i].add("here", 1) == n:
            stores[i].set("go", b"\0go")
        stores[i].set(f"of{i}", str(i))
        return stores[i].get("go"), stores[i].get(f"of{(i + 1) % n}")

    got = together(n, act)
    say("200 clients meet", got == [(b"\0go", str((i + 1) % n).encode()) for i in range(n)])
    expect("num_keys of 200 clients", stores[0].num_keys, n + 2)


def processes_at_a_barrier(place):
    """64 processes, three barriers of torch's elastic launcher; the shared values are read after each."""
    n = 64
    pids = []
    for rank in range(n):
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if pass_barriers(place, rank, n) else 1)
            except BaseException as error:
                print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
                os._exit(2)
        pids.append(pid)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    say("64 processes pass three barriers together", statuses == [0] * n)


def pass_barriers(place, rank, n):
    store = place.connect()
    for i in range(3):
        store.set(f"of{i}/{rank}", str(rank))
        if VERSION >= (2, 4):
            elastic_store.barrier(store, n, f"barrier{i}", barrier_timeout=DEADLINE_S)
        else:
            elastic_store.barrier(store, rank, n, f"barrier{i}", barrier_timeout=DEADLINE_S)
        if [store.get(f"of{i}/{r}") for r in range(n)] != [str(r).encode() for r in range(n)]:
            return False
        if store.num_keys() < n * (i + 1):
            return False
    return True


def waiting_process_is_killed(place):
    """Nothing of a client that goes away is left, but what it stored."""
    store = place.connect()
    pid = os.fork()
    if pid == 0:
        mine = place.connect()
        mine.set("mine", "kept")
        mine.wait(["never"])
        os._exit(1)
    expect("what it stored", lambda: store.get("mine"), b"kept")
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    store.set("never", "came")
    expect("what it waited for", lambda: store.get("never"), b"came")


def on_purpose(place):
    """Where ours differs: what torch's servers do is either a bound of theirs or a defect."""
    is_libuv = VERSION >= (2, 4)
    gives_up = outcome(lambda: place.connect().wait(["never"], PATIENCE))
    lost = "DistNetworkError (connection lost)"

    def wait_while(keys, act):
        """wait() of one client, during which another acts, and again in case it had not begun."""
        waiter, actor = place.connect(), place.connect()
        actor.set("began", "0")
        actor.num_keys()

        def run(i):
            if i == 0:
                return outcome(lambda: waiter.wait(keys, datetime.timedelta(seconds=2)))
            for _ in range(5):
                outcome(lambda: actor.wait(["never"], PATIENCE))
                act(actor)
            return None

        return together(2, run)[0]

    expect_differs(place, "compare_set that makes the key wakes",
                   lambda: wait_while(["made"], lambda s: s.compare_set("made", "", "x")),
                   repr("None") if is_libuv else repr(gives_up), repr("None"))
    expect_differs(place, "compare_set that leaves it missing does not",
                   lambda: wait_while(["unmade"], lambda s: s.compare_set("unmade", "x", "y")),
                   repr("None") if is_libuv else repr(gives_up), repr(gives_up))
    if has(place.connect(), "queue_push"):
        place.connect().queue_push("full", "x")
        expect_differs(place, "wait for a key and a full queue",
                       lambda: wait_while(["came", "full"], lambda s: s.set("came", "")),
                       repr(gives_up), repr("None"))

    def set_and_get(key, value):
        store = place.connect()
        try:
            store.set(key, value)
        except RuntimeError:
            pass  # closed while it was still sending
        return len(store.get(key))

    for what, key, length in (("a key longer than 8 KiB", "k" * 8192, 1), ("a value of 9 MiB", "v", 9 * MIB)):
        expect_differs(place, what, lambda: set_and_get(key, b"x" * length),
                       lost if is_libuv else repr(length), repr(length))
    expect_differs(place, "a value longer than 64 MiB", lambda: set_and_get("w", b"x" * (64 * MIB + 1)),
                   lost if is_libuv else repr(64 * MIB + 1), lost if is_libuv else
                   "RuntimeError (connection lost)")


CASES = (values, keys, counters, compare_set, delete_and_check, large_values, waits, time_outs, abandoned_waits,
         several_at_once, queues, clones_and_prefixes, many_adders, many_clients, processes_at_a_barrier,
         waiting_process_is_killed, on_purpose)


def try_all(program):
    """Each case on a server of its own: the program's, or torch's without one."""
    servers = OurServers(program) if program else TorchServers()
    print("torch", torch.__version__)
    for case in CASES:
        print(f"--- {case.__name__}", flush=True)
        case(Place(servers))
    servers.stop()
    print("all right", flush=True)
    os._exit(0)  # torch 1.13's watch thread may outlive its broken connection


def main():
    for program in [None, *sys.argv[1:]]:
        print("===", program or "torch", flush=True)
        pid = os.fork()  # each begins as if torch had just been imported
        if pid == 0:
            try_all(program)
        if os.waitpid(pid, 0)[1] != 0:
            sys.exit(1)


if __name__ == "__main__":
    main()
