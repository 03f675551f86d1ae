"""How a rank leaves a call of torch.distributed that waits for ranks which are gone.

gloo has no abort(): a rank that waits for a live one, which itself has left, waits until the timeout of the group. So another
thread shuts down the connections of gloo and of the store, and the call fails. Which ones those are is recorded as they are made: a
gloo group of N ranks opens N - 1.

gloo forgets a message that it cannot send, or has received in part, when the connection ends: the call that waits for it waits until
the timeout. So connections are shut down for receiving only, and stay open until all ranks have left the generation: what ranks that
live send to each other is sent. A message to the rank that died may still be lost; see Watch in elastic.py.

A group that is just being made cannot be interrupted: a thread makes it, which is abandoned. NCCL
is aborted. Back end ddp needs none of this: libddp's own calls end with the generation."""
import contextlib
import os
import queue
import socket
import threading

import torch
import torch.distributed as dist

from torch.distributed import distributed_c10d as c10d

HAS_GLOO = dist.is_gloo_available()
Gloo = c10d.ProcessGroupGloo if HAS_GLOO else object


@contextlib.contextmanager
def duplicate(fd):
    """A socket object for a descriptor that belongs to another object.
    raises OSError  it is not a socket, or closed"""
    copy = os.dup(fd)
    try:
        with socket.socket(fileno=copy) as s:
            copy = -1  # closed with it
            yield s
    finally:
        if copy >= 0:
            os.close(copy)


def open_sockets():
    """{descriptor: inode} of this process's connected TCP sockets."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with duplicate(int(name)) as s:
                if s.family in (socket.AF_INET, socket.AF_INET6) and s.type == socket.SOCK_STREAM and s.getpeername():
                    found[int(name)] = os.fstat(s.fileno()).st_ino
    return found


class Connections:
    """Those of the groups and the store of a generation."""

    def __init__(self):
        self._sockets = {}
        self._waiting = []  # queues of threads that wait for another one to make something
        self._groups = []
        self._held = []  # duplicates of what was cut
        self._is_cut = False
        self._lock = threading.Lock()

    def make(self, factory, n_expected):
        """-> what factory() returns, which opens so many connections. If another thread of the program opens some at the same time,
        it is not known whose they are, and none is recorded: then the ranks leave one after the other, as their neighbors do."""
        before = open_sockets()
        made = self._interruptible(factory)
        new = {fd: inode for fd, inode in open_sockets().items() if before.get(fd) != inode}
        if len(new) == n_expected:
            with self._lock:
                self._sockets.update(new)
            if self._is_cut:
                self.cut()
        return made

    def _interruptible(self, factory):
        results = queue.SimpleQueue()

        def work():
            try:
                results.put((factory(), None))
            except BaseException as error:
                results.put((None, error))

        with self._lock:
            self._waiting.append(results)
        if self._is_cut:
            results.put((None, None))
        threading.Thread(target=work, name="ddp elastic group", daemon=True).start()
        made, error = results.get()
        with self._lock:
            self._waiting.remove(results)
        if error is not None:
            raise error
        if made is None:
            raise dist.DistBackendError("elastic.run: the generation ended while its process group was made")
        return made

    def keep(self, group):
        """Until drop()."""
        self._groups.append(group)
        return group

    def close(self):
        """When no rank is in the generation any more."""
        while self._held:
            self._held.pop().close()

    def drop(self, waits):
        """Destroy the groups. gloo waits in that for turns of its loop, of 10 ms each: unless `waits`, a thread does it, which is
        returned."""
        if waits:
            self._groups.clear()
            return None
        thread = threading.Thread(target=self._groups.clear, name="ddp elastic end", daemon=True)
        thread.start()
        return thread

    def cut(self):
        """By any thread. A descriptor that was closed, and is another object's now, has another inode."""
        with self._lock:
            self._is_cut = True
            sockets, waiting = list(self._sockets.items()), list(self._waiting)
        for fd, inode in sockets:
            with contextlib.suppress(OSError), duplicate(fd) as s:
                if os.fstat(s.fileno()).st_ino == inode:
                    self._held.append(s.dup())
                    s.shutdown(socket.SHUT_RD)
        for results in waiting:
            results.put((None, None))


class Recorder(type):
    """Of a class that stands for torch's class of gloo groups while elastic.run() looks: what it makes are groups of torch's."""

    def __call__(cls, store, rank, size, *arguments, **more):
        found = cls.connections
        return found.keep(found.make(lambda: Gloo(store, rank, size, *arguments, **more), size - 1))

    def __instancecheck__(cls, group):
        return isinstance(group, Gloo)

    def __getattr__(cls, name):
        return getattr(Gloo, name)


class RecordedGloo(metaclass=Recorder):
    connections = None


@contextlib.contextmanager
def recorded():
    """Within, gloo groups record their connections in the object that this returns."""
    found = Connections()
    if HAS_GLOO:
        RecordedGloo.connections, c10d.ProcessGroupGloo = found, RecordedGloo
    try:
        yield found
    finally:
        if HAS_GLOO:
            c10d.ProcessGroupGloo, RecordedGloo.connections = Gloo, None


def abort_nccl():
    """By any thread. Only bench/gpu, section elastic, gets to its end: it needs a GPU."""
    nccl = getattr(dist, "ProcessGroupNCCL", None)
    if nccl is None or not torch.cuda.is_available():
        return
    for group in list(c10d._world.pg_map):
        with contextlib.suppress(RuntimeError):  # it has no back end for GPUs
            backend = group._get_backend(torch.device("cuda"))
            if isinstance(backend, nccl):
                backend.abort()
