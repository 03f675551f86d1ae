"""Checkpoints in memory: save() and load() of a state that outlives the rank, and with several nodes a copy of it on another node.

libddp keeps the bytes (include/ddp/memory.h). The first item of a rank's state is a pickle of everything but the tensors; the tensors
follow, one item each, and are copied once: no other copy of them is made. The ranks need no group of libddp for their training: save()
and load() make one of their own, through the store of init_process_group()."""
import collections
import ctypes
import io
import math
import os
import pickle
import warnings
import weakref

import torch
import torch.distributed as dist

from torch.distributed import PrefixStore

from . import meeting
from .library import InitOpts, MemoryItem, MemoryState, library

PICKLE_PROTOCOL = 4
_BUILTINS = {"bytearray", "complex", "frozenset", "range", "set", "slice"}
ALIGNMENT = 64  # of a tensor's memory, as torch has it
LARGE = 1 << 20  # bytes; less than that is not worth a slot of the memory
_NUMPY = {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"}

# Of a tensor: where in the state it is (None: inside of an object, and not in a dictionary, list or tuple), ...
Listed = collections.namedtuple("Listed", "path dtype shape device")


# --- a state as items -------------------------------------------------------------------------------

def walk(tree, path=()):
    """(path, tensor) of each tensor in dictionaries, lists and tuples."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from walk(value, (*path, key))
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from walk(value, (*path, index))


class Pickler(pickle.Pickler):
    """Tensors are listed instead. Two that are the same memory are listed once."""

    def __init__(self, file, paths):
        super().__init__(file, PICKLE_PROTOCOL)
        self.paths = paths
        self.numbers, self.listed, self.tensors = {}, [], []

    def persistent_id(self, thing):
        if not isinstance(thing, torch.Tensor):
            return None
        if thing.layout is not torch.strided or thing.is_quantized or thing.device.type == "meta" or hasattr(thing, "to_local"):
            raise TypeError(f"ddp_torch.save: a {type(thing).__name__} of layout {thing.layout} on {thing.device}: only dense tensors with "
                            "memory can be saved; of a DTensor save to_local()")
        tensor = thing.detach()
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device) if tensor.numel() > 0 else id(thing)
        if key not in self.numbers:
            self.numbers[key] = len(self.listed)
            self.listed.append(Listed(self.paths.get(id(thing)), tensor.dtype, tuple(tensor.shape), tensor.device.type))
            self.tensors.append(tensor.resolve_conj().resolve_neg().cpu().contiguous())
        return self.numbers[key]


class Unpickler(pickle.Unpickler):
    """What a state dictionary consists of, and nothing else: a copy comes from another node."""

    def __init__(self, bytes_, tensors):
        super().__init__(io.BytesIO(bytes_))
        self.tensors = tensors

    def persistent_load(self, number):
        return self.tensors[number] if self.tensors is not None else None

    def find_class(self, module, name):
        allowed = (
            (module == "collections" and name in ("OrderedDict", "defaultdict", "deque", "Counter"))
            or (module == "builtins" and name in _BUILTINS)
            or (module == "torch" and (name in ("Size", "device") or isinstance(getattr(torch, name, None), torch.dtype)))
            or (module == __name__ and name == "Listed")
            or (module.split(".")[0] == "numpy" and name in _NUMPY)
            or (module == "_codecs" and name == "encode")
        )
        if not allowed:
            raise TypeError(f"ddp_torch.save: the state has an object of {module}.{name}: dictionaries, lists, tuples, sets, numbers, texts, "
                            "bytes, tensors, and arrays of numpy can be saved")
        return super().find_class(module, name)


def pack(state):
    """The items: bytes, and CPU tensors."""
    paths = {}
    for path, tensor in walk(state):
        if all(type(key) in (str, int) for key in path):
            paths.setdefault(id(tensor), path)
    file = io.BytesIO()
    pickler = Pickler(file, paths)
    try:
        pickler.dump(state)
    except (pickle.PicklingError, AttributeError) as error:
        raise TypeError(f"ddp_torch.save: {error}") from None
    body = file.getvalue()
    Unpickler(body, None).load()  # what could not be loaded is not saved
    return pickle.dumps((pickler.listed, body), PICKLE_PROTOCOL), pickler.tensors


def as_items(head, tensors):
    """struct ddp_memory_item of each. They point into what they were made of."""
    items = (MemoryItem * (1 + len(tensors)))()
    items[0].data, items[0].bytes = ctypes.cast(ctypes.c_char_p(head), ctypes.c_void_p).value, len(head)
    for number, tensor in enumerate(tensors, 1):
        items[number].data, items[number].bytes = tensor.data_ptr() or None, tensor.numel() * tensor.element_size()
    return items


def fits(target, one):
    """Whether `target` is a tensor of the same kind."""
    return target is not None and target.dtype == one.dtype and tuple(target.shape) == one.shape and target.layout is torch.strided


def is_plain(target):
    """Whether its memory can be written as it is."""
    return target.device.type == "cpu" and target.is_contiguous() and not target.is_conj() and not target.is_neg()


def bytes_of(one):
    return math.prod(one.shape) * torch.empty(0, dtype=one.dtype).element_size()


# --- the memory -------------------------------------------------------------------------------------

def check(what, status):
    if status != 0:
        raise library.error(what, status)


class Memory:
    """One ddp_memory, over a group of its own."""

    def __init__(self, key, place):
        self.key, self.was_saved = key, False
        self.group, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        options = InitOpts(start_timeout_ms=0, timeout_ms=0, progress_thread=-1)
        check("memory", library.group_join(ctypes.byref(place), ctypes.byref(options), ctypes.byref(self.group)))
        status = library.memory_open(self.group, ctypes.byref(self.handle))
        if status != 0:
            error = library.error("memory", status)
            self.close()
            raise error

    def close(self):
        library.memory_close(self.handle)
        library.finalize(self.group)
        self.group = self.handle = None

    def found(self):
        state = MemoryState()
        check("load", library.memory_found(self.handle, ctypes.byref(state)))
        return state

    def save(self, state):
        head, tensors = pack(state)
        items = as_items(head, tensors)
        self.was_saved = True
        check("save", library.memory_save(self.handle, 0, items, len(items)))

    def read(self, number, address, n_bytes):
        check("load", library.memory_read(self.handle, number, address, n_bytes))

    def read_head(self):
        n_bytes = ctypes.c_size_t()
        check("load", library.memory_item_bytes(self.handle, 0, ctypes.byref(n_bytes)))
        buffer = bytearray(n_bytes.value)
        self.read(0, (ctypes.c_char * max(1, n_bytes.value)).from_buffer(buffer) if buffer else None, n_bytes.value)
        return Unpickler(bytes(buffer), None).load()

    def load(self, into):
        listed, body = self.read_head()
        targets = dict(walk(into))
        targets = [targets.get(one.path) if fits(targets.get(one.path), one) else None for one in listed]
        new = iter(self.new_tensors([one for one, target in zip(listed, targets) if target is None and one.device == "cpu"]))
        tensors = []
        for number, (one, target) in enumerate(zip(listed, targets), 1):
            if target is None and one.device == "cpu":
                tensors.append(self.read_tensor(number, next(new)))
            else:
                tensors.append(self.load_tensor(number, one, target))
        return Unpickler(body, tensors).load()

    def load_tensor(self, number, one, target):
        """Into `target` if there is one: at once, if that is memory that can be written as it is."""
        if target is not None and is_plain(target):
            self.read_tensor(number, target.detach())
            return target
        tensor = self.read_tensor(number, torch.empty(one.shape, dtype=one.dtype))
        if target is None:
            return tensor.to(one.device)
        with torch.no_grad():
            target.copy_(tensor)
        return target

    def read_tensor(self, number, tensor):
        self.read(number, tensor.data_ptr() or None, tensor.numel() * tensor.element_size())
        return tensor

    def new_tensors(self, kinds):
        """Memory for tensors, each on its own: in ddprun's memory if they are large. Its pages are there already, and stay until the last
        of the tensors is gone."""
        places, end = [], 0
        for one in kinds:
            places.append(end)
            end += -(-bytes_of(one) // ALIGNMENT) * ALIGNMENT
        memory = self.alloc(end) if end >= LARGE else None
        return [tensor_at(memory, place, one) if memory is not None and bytes_of(one) > 0 else torch.empty(one.shape, dtype=one.dtype)
                for place, one in zip(places, kinds)]

    def alloc(self, n_bytes):
        """ddp_memory_alloc(). None: it is in use already, or the tensors do not fit."""
        address = ctypes.c_void_p()
        if library.memory_alloc(self.handle, n_bytes, ctypes.byref(address)) != 0:
            return None
        memory = (ctypes.c_char * n_bytes).from_address(address.value)
        weakref.finalize(memory, library.memory_free, address.value).atexit = False  # tensors may still be in use then
        return memory


def tensor_at(memory, place, one):
    """A tensor with a storage of its own, which keeps the memory."""
    storage = torch.frombuffer(memory, dtype=torch.uint8, count=bytes_of(one), offset=place).untyped_storage()
    return torch.empty(0, dtype=one.dtype).set_(storage, 0, one.shape)


# --- of this process --------------------------------------------------------------------------------

_memory = None
_has_warned = False


def place_of_ranks():
    """The default group, and its struct ddp_rank_info; None in place of that if a rank was started without. Collective."""
    can = bool(os.environ.get("DDP_MEMORY_FD"))
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            raise RuntimeError("ddp_torch.save and ddp_torch.load: call torch.distributed.init_process_group() first")
        key, rank, size, store = None, 0, 1, None
    else:
        key, rank, size = dist.group.WORLD, dist.get_rank(), dist.get_world_size()
        store = PrefixStore("ddp_torch/memory", dist.distributed_c10d._get_default_store())
    # two ddprun on one machine are two nodes: each has memory of its own
    word = meeting.node_word() + " " + os.environ.get("GROUP_RANK", "")
    table = meeting.exchange(store, rank, size, can, word) if size > 1 else {"all_can": can, "name": os.urandom(16).hex(), "nodes": [0]}
    return key, rank, meeting.place_in(table, rank, store) if table["all_can"] else None


def current(reopen):
    """The process's memory; None if the ranks have none."""
    global _memory, _has_warned
    key = dist.group.WORLD if dist.is_initialized() else None
    if _memory is not None and (_memory.key is not key or reopen and _memory.was_saved):
        _memory.close()
        _memory = None
    if _memory is None:
        key, rank, place = place_of_ranks()
        if place is not None:
            _memory = Memory(key, place)
        elif rank == 0 and not _has_warned:
            _has_warned = True
            warnings.warn("ddp_torch.save and ddp_torch.load cannot keep checkpoints in memory: start the job with ddprun --memory-checkpoints SIZE", stacklevel=3)
    return _memory


def save(state):
    """Keep a state in memory that outlives this process: ddprun --memory-checkpoints holds it. All ranks call it together, each with a
    state of its own: dictionaries, lists and tuples of tensors, numbers and texts, such as state_dict() gives. Once it returns, a
    restart of all ranks loads this state; the previous one stays until then. With several nodes a thread then sends a copy to another
    node, and the next save() waits for that.

    returns   True; False without ddprun's memory: nothing is saved"""
    memory = current(reopen=False)
    if memory is None:
        return False
    memory.save(state)
    return True


def load(into=None):
    """The state of this rank that all ranks have saved last: from this node's memory, or from its copy. All ranks call it together.

    into      a state whose tensors are written in place where it has one of the same kind in the same place: no second copy is needed
    returns   the state, with the tensors of `into` where they were written; None if all ranks cannot load the same one, or it was saved
              by another number of ranks: load a checkpoint from the disk"""
    memory = current(reopen=True)
    if memory is None or memory.found().step < 0:
        return None
    return memory.load(into)
