"""libddp by ctypes: where it is, its functions, and its failures as exceptions."""
import ctypes
import ctypes.util
import os

from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p

from torch.distributed import DistBackendError

SONAME = "libddp.so.0"

# enum ddp_dtype and enum ddp_op of <ddp/types.h>
FLOAT32, FLOAT64, INT32, INT64, FLOAT16, BFLOAT16, INT8, UINT8, UINT32, UINT64 = range(10)
SUM, AVG, MIN, MAX, PROD, BAND, BOR = range(7)


# enum ddp_status of <ddp/error.h>
OK, RETRY, ETIMEOUT = 0, 1, -5

TRAIN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)


class InitOpts(ctypes.Structure):
    """struct ddp_init_opts"""

    _fields_ = [("start_timeout_ms", c_uint64), ("timeout_ms", c_uint64), ("progress_thread", c_int)]


class Place(ctypes.Structure):
    """struct ddp_rank_info"""

    _fields_ = [
        ("name", c_char_p),
        ("rank", c_int),
        ("world_size", c_int),
        ("local_rank", c_int),
        ("local_world_size", c_int),
        ("node_rank", c_int),
        ("n_nodes", c_int),
        ("store_host", c_char_p),
        ("store_port", c_int),
    ]


class MemoryItem(ctypes.Structure):
    """struct ddp_memory_item"""

    _fields_ = [("data", c_void_p), ("bytes", c_size_t)]


class MemoryState(ctypes.Structure):
    """struct ddp_memory_state"""

    _fields_ = [
        ("step", c_int64),
        ("n_items", c_size_t),
        ("bytes", c_size_t),
        ("came_from", c_int),
        ("copied_to", c_int),
        ("item_bytes_max", c_size_t),
    ]


# What stands between the group and the request: (in, out or memory), how much, of what, ...
COLLECTIVES = {
    "all_reduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "reduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p],
    "reduce_scatter": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "reduce_scatter_v": [c_void_p, c_void_p, POINTER(c_size_t), c_int, c_int, c_void_p],
    "broadcast": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p],
    "all_gather": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "all_gather_v": [c_void_p, c_void_p, POINTER(c_size_t), c_int, c_void_p],
    "gather_v": [c_void_p, c_void_p, POINTER(c_size_t), c_int, c_int, c_void_p],
    "scatter_v": [c_void_p, c_void_p, POINTER(c_size_t), c_int, c_int, c_void_p],
    "all_to_all": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "all_to_all_v": [c_void_p, POINTER(c_size_t), c_void_p, POINTER(c_size_t), c_int, c_void_p],
    "barrier": [],
}
# Checkpoints in memory: the arguments after the group or the memory
MEMORY = {
    "open": [POINTER(c_void_p)],
    "found": [POINTER(MemoryState)],
    "item_bytes": [c_size_t, POINTER(c_size_t)],
    "read": [c_size_t, c_void_p, c_size_t],
    "alloc": [c_size_t, POINTER(c_void_p)],
    "save": [c_int64, POINTER(MemoryItem), c_size_t],
    "wait": [],
}
PLACE = "rank", "world_size", "local_rank", "local_world_size", "node_rank", "n_nodes"
MESSAGE = [c_void_p, c_size_t, c_int, c_int, c_int, c_void_p]


def candidates():
    """Paths and names to try, the first that loads is it."""
    chosen = os.environ.get("DDP_LIBRARY")
    if chosen:
        return [chosen]
    here = os.path.dirname(os.path.abspath(__file__))
    own = [os.path.join(here, SONAME), os.path.join(here, "lib", SONAME)]  # of a wheel
    return [path for path in own if os.path.exists(path)] + [SONAME, ctypes.util.find_library("ddp")]


def load():
    errors = []
    for path in filter(None, candidates()):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            errors.append(str(error))
    raise ImportError(
        f"ddp_torch needs libddp: {'; '.join(errors)} (install it, or set DDP_LIBRARY to the path of {SONAME})"
    )


def declare(function, arguments, result=c_int):
    function.argtypes = arguments
    function.restype = result
    return function


class Library:
    """The functions, by their names without `ddp_`; those of COLLECTIVES also with an `i` in front."""

    def __init__(self):
        dll = load()
        try:
            self.group_join = declare(
                dll.ddp_group_join, [POINTER(Place), POINTER(InitOpts), POINTER(c_void_p)]
            )
            self.set_timeout = declare(dll.ddp_set_timeout, [c_void_p, c_uint64])
        except AttributeError as error:
            raise ImportError(f"libddp is older than ddp_torch: {error}; install both from the same release") from None
        self.init = declare(dll.ddp_init, [POINTER(InitOpts), POINTER(c_void_p)])
        for name, arguments in COLLECTIVES.items():
            setattr(self, name, declare(getattr(dll, "ddp_" + name), [c_void_p, *arguments]))
            started = getattr(dll, "ddp_i" + name)
            setattr(self, "i" + name, declare(started, [c_void_p, *arguments, POINTER(c_void_p)]))
        self.isend = declare(dll.ddp_isend, [c_void_p, *MESSAGE, POINTER(c_void_p)])
        self.irecv = declare(dll.ddp_irecv, [c_void_p, *MESSAGE, POINTER(c_void_p)])
        self.monitored_barrier = declare(dll.ddp_monitored_barrier, [c_void_p, c_uint64])
        self.wait = declare(dll.ddp_wait, [c_void_p])
        self.test = declare(dll.ddp_test, [c_void_p, POINTER(c_int)])
        self.alloc = declare(dll.ddp_alloc, [c_void_p, c_size_t, POINTER(c_void_p)])
        self.free = declare(dll.ddp_free, [c_void_p, c_void_p], None)
        self.finalize = declare(dll.ddp_finalize, [c_void_p], None)
        self.run = declare(dll.ddp_run, [TRAIN, c_void_p])
        self.broadcast_bytes = declare(dll.ddp_broadcast_bytes, [c_void_p, c_void_p, c_size_t, c_int])
        self.step_done = declare(dll.ddp_step_done, [c_void_p])
        self.wait_retry = declare(dll.ddp_wait_retry, [c_void_p, c_uint64])
        self.end_wait_retry = declare(dll.ddp_end_wait_retry, [c_void_p])
        self.store_address = declare(dll.ddp_store_address, [c_void_p, c_char_p, c_size_t, POINTER(c_int)])
        for name, arguments in MEMORY.items():
            setattr(self, "memory_" + name, declare(getattr(dll, "ddp_memory_" + name), [c_void_p, *arguments]))
        self.memory_close = declare(dll.ddp_memory_close, [c_void_p], None)
        self.memory_free = declare(dll.ddp_memory_free, [c_void_p], None)
        for name in PLACE:
            setattr(self, name, declare(getattr(dll, "ddp_" + name), [c_void_p]))
        for name in "generation", "completed_steps":
            setattr(self, name, declare(getattr(dll, "ddp_" + name), [c_void_p], c_uint64))
        self.last_error = declare(dll.ddp_last_error, [], c_char_p)
        self.strerror = declare(dll.ddp_strerror, [c_int], c_char_p)

    def getenv(self, name):
        """As C has it: libddp sets variables that os.environ does not show."""
        value = declare(ctypes.CDLL(None).getenv, [c_char_p], c_char_p)(name.encode())
        return value.decode() if value is not None else None

    def error(self, what, status):
        """The exception for what a call of this thread has returned."""
        name, text = self.strerror(status).decode(), self.last_error().decode(errors="replace")
        return DistBackendError(f"ddp: {what}: {text} ({name})")


library = Library()
