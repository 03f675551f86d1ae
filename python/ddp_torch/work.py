"""What a call returns: something to wait for, with a future on request.

A call of libddp that was begun has to be waited for once, by any thread. The first of these does it: wait(),
is_completed(), or, if the program has requested a future, the group's Completer.
"""
import ctypes
import queue
import threading
import time

import torch

from datetime import timedelta
from torch._C._distributed_c10d import Work, _create_work_from_future
from torch.distributed import DistBackendError
from torch.futures import Future

from .elements import deal_out
from .library import library

NO_TIMEOUT = timedelta(0)  # torch's kNoTimeout
POLL_S = 0.0005
MANY = 256  # calls that were begun: the program may never wait for them

# Up to some 2.x, a Python object that a process group returned to C++ was dropped there, and what was left of it
# waited forever. Those get a work object of C++ around the future. Its wait() does not raise what the future has: so
# there the calling thread makes every call, and raises what went wrong.
KEEPS_PYTHON_WORK = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


class Done(Work):
    """Of a call that has returned when it was made: one object for all of them, which has no results to give."""

    def wait(self, timeout=NO_TIMEOUT):
        return True

    def is_completed(self):
        return True

    def is_success(self):
        return True

    def exception(self):
        return None

    def synchronize(self):
        pass

    def get_future(self):
        future = Future()
        future.set_result(None)
        return future


DONE = Done()


class Pending(Work):
    """A call that was begun.

    group     whose it is: it knows what is pending
    what      its name, for messages
    request   of libddp, ours to wait for
    results   tensors that it fills, which the future gives
    memory    what else it uses, kept until it is done
    finish    called once the call is done well, or None: it deals results out
    lock      held by the thread that is in libddp with it; for messages, which one thread at a time may handle, the group's"""

    def __init__(self, group, what, request, results, memory, finish, lock=None):
        super().__init__()
        self._group = group
        self._what = what
        self._request = request
        self._results = results
        self._memory = memory
        self._finish = finish
        self.is_message = lock is not None
        self._lock = lock or threading.Lock()
        self._error = None
        self._raw = self._future = None
        if len(group.pending) >= MANY:
            group.sweep()
        group.pending.add(self)

    def _end(self, status):
        try:
            if status != 0:
                self._error = library.error(self._what, status)
            elif self._finish is not None:
                deal_out(self._finish)
        except Exception as error:  # for the waiting thread, whichever it is
            self._error = error
        finally:  # libddp has let go of the request; others take the call for done from here on
            self._request = self._finish = self._memory = None
            self._group.pending.discard(self)

    def abandon(self):
        """Its group goes, and it will never be done. Not with others in libddp."""
        self._error = DistBackendError(f"ddp: {self._what}: the group was destroyed before the call completed")
        self._request = self._finish = self._memory = None

    def complete(self):
        """Wait; what went wrong is kept."""
        if self._request is None:
            return
        with self._lock:
            if self._request is not None:
                self._end(library.wait(self._request))

    def look(self):
        """Without waiting. Returns whether it is done."""
        if self._request is None:
            return True
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._request is not None:
                done = ctypes.c_int()
                library.test(self._request, ctypes.byref(done))
                if done.value:
                    self._end(library.wait(self._request))
            return self._request is None
        finally:
            self._lock.release()

    def wait(self, timeout=NO_TIMEOUT):
        if timeout > NO_TIMEOUT:
            end = time.monotonic() + timeout.total_seconds()
            while not self.look():
                if time.monotonic() > end:
                    raise DistBackendError(f"ddp: {self._what}: timed out after {timeout} waiting for its completion")
                time.sleep(POLL_S)
        self.complete()
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self.look()

    def is_success(self):
        return self.look() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        return self._results

    def source_rank(self):
        raise RuntimeError("ddp: the source rank is not available: recv() returns messages only from the src that was passed")

    def _value(self, _):
        if self._error is not None:
            raise self._error
        return self._results

    def get_future(self):
        if self.is_message:
            raise NotImplementedError(f"ddp: {self._what} has no future: call wait()")
        if self._future is None:
            self._raw = Future()
            # Unlike a future with an exception as its value, one that raises also fails in C++.
            self._future = self._raw.then(self._value)
            self._group.complete_later(self)
        return self._future

    def fulfil(self):
        """By the completer."""
        self.complete()
        self._raw.set_result(None)


class Several(Work):
    """Calls that are one for the program: done when all are."""

    def __init__(self, works, results):
        super().__init__()
        self._works = works
        self._results = results
        self._future = None

    def wait(self, timeout=NO_TIMEOUT):
        for work in self._works:
            work.wait(timeout)
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return all([work.is_completed() for work in self._works])

    def is_success(self):
        return all([work.is_success() for work in self._works])

    def exception(self):
        return next((work.exception() for work in self._works if work.exception() is not None), None)

    def result(self):
        return self._results

    def get_future(self):
        if self._future is None:
            futures = [work.get_future() for work in self._works]
            self._future = torch.futures.collect_all(futures).then(self._value)
        return self._future

    def _value(self, gathered):
        for future in gathered.value():
            future.value()  # of one that failed it raises
        return self._results


def done_with(results):
    """Of a call that has returned, for a torch that cannot hold our own: a future with the results, which DDP reads."""
    future = Future()
    future.set_result(results)
    return _create_work_from_future(future)


def handed_out(work):
    """A work object as this torch can hold it."""
    return work if KEEPS_PYTHON_WORK else _create_work_from_future(work.get_future())


class Completer:
    """A thread that waits for calls whose futures are wanted, in their order. Begins with the first of them."""

    def __init__(self, name):
        self._name = name
        self._queue = queue.SimpleQueue()
        self._thread = None

    def add(self, work):
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(work)

    def _run(self):
        for work in iter(self._queue.get, None):
            work.fulfil()
            del work  # its tensors are not ours while we wait for the next

    def stop(self):
        """Fulfils what was added, and ends."""
        if self._thread is not None:
            self._queue.put(None)
            if self._thread is not threading.current_thread():  # a group may go with the last of its futures
                self._thread.join()
            self._thread = None
