"""The ranks of a group find out where each of them is, by the store that torch hands in, and join.

Each rank stores a word that identifies its machine. Rank 0 makes a table of the words, with a random name for the
group, and stores that for all. So each rank sends three requests to the store, and rank 0 one more for each rank.

The first group of all the ranks that a ddprun has started is the job itself: then ddprun sees in which call each rank
is, names the one that hangs, and learns which ranks have lost a peer. It admits a process once: all other groups are
outside the job.
"""
import ctypes
import json
import os
import socket

from datetime import timedelta
from torch.distributed import PrefixStore, TCPStore

from .library import InitOpts, Place, library


def read(path):
    try:
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""


def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def node_word():
    """The same for processes that can share memory, and find each other by process number and abstract socket."""
    return " ".join(
        [
            socket.gethostname(),
            read("/proc/sys/kernel/random/boot_id"),
            link("/proc/self/ns/net"),
            link("/proc/self/ns/pid"),
            str(os.geteuid()),
            os.environ.get("DDP_NODE_RANK", ""),  # several "nodes" that are one machine
        ]
    )


class Job:
    """This process's place in ddprun's environment, and whether it has joined the job already."""

    was_joined = False
    world, world_is_taken = None, False  # of ddp_run(): the first group of a generation of elastic.run() is that

    @classmethod
    def can_be(cls, rank, size):
        numbers = {"RANK": rank, "WORLD_SIZE": size}
        is_ours = all(os.environ.get(name) == str(number) for name, number in numbers.items())
        return is_ours and not cls.was_joined and bool(os.environ.get("DDP_NODE_FD"))

    @classmethod
    def lend(cls, world):
        """To the next group, which has the same ranks. None: the generation is over."""
        cls.was_joined = True
        cls.world, cls.world_is_taken = world, world is None


def make_table(words):
    """From what the ranks can, and their words: whether all can, a name, and the number of each rank's node, in the order of their
    first ranks."""
    numbers = {}
    nodes = [numbers.setdefault(word, len(numbers)) for _, word in words]
    return json.dumps({"all_can": all(can for can, _ in words), "name": os.urandom(16).hex(), "nodes": nodes})


def exchange(store, rank, size, can, word):
    """The table, from all ranks to all. A store may serve the same group again: each rendezvous has a number."""
    number = store.add(f"ddp/{rank}/rendezvous", 1)
    store.set(f"ddp/{number}/node/{rank}", json.dumps([can, word]))
    if rank == 0:
        words = [json.loads(store.get(f"ddp/{number}/node/{other}")) for other in range(size)]
        store.set(f"ddp/{number}/table", make_table(words))
    return json.loads(store.get(f"ddp/{number}/table"))


def address_of(store):
    """Where the store itself is, without its prefixes."""
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if not isinstance(store, TCPStore):
        raise ValueError(
            f"ddp: a group on several nodes needs a TCPStore, not a {type(store).__name__}: "
            "use env:// or tcp://"
        )
    return store.host, store.port


def place_in(table, rank, store):
    """This rank's struct ddp_rank_info. `store` is asked only where there are several nodes."""
    nodes = table["nodes"]
    n_nodes = max(nodes) + 1
    host, port = address_of(store) if n_nodes > 1 else (None, 0)
    return Place(
        name=table["name"].encode(),
        rank=rank,
        world_size=len(nodes),
        local_rank=nodes[:rank].count(nodes[rank]),
        local_world_size=nodes.count(nodes[rank]),
        node_rank=nodes[rank],
        n_nodes=n_nodes,
        store_host=host.encode() if host else None,
        store_port=port,
    )


def join(store, rank, size, timeout):
    """A handle of libddp for the group of `size` ranks that rendezvous through `store`. All of them call this."""
    if Job.world is not None and not Job.world_is_taken:
        Job.world_is_taken = True
        return Job.world
    table = exchange(store, rank, size, Job.can_be(rank, size), node_word()) if size > 1 else json.loads(make_table([(False, "")]))
    timeout_ms = max(1, timeout // timedelta(milliseconds=1))
    handle = ctypes.c_void_p()
    options = InitOpts(start_timeout_ms=timeout_ms, timeout_ms=timeout_ms, progress_thread=1)
    if table["all_can"]:
        Job.was_joined = True
        status = library.init(ctypes.byref(options), ctypes.byref(handle))
    else:
        place = place_in(table, rank, store)
        status = library.group_join(ctypes.byref(place), ctypes.byref(options), ctypes.byref(handle))
    if status != 0:
        raise library.error("init_process_group", status)
    return handle.value


def leave(handle):
    """A world that was lent belongs to elastic.run()."""
    if handle != Job.world:
        library.finalize(handle)
