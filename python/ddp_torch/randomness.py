"""The states of a rank's random number generators, and where its replacement finds them.

Each rank writes them into a file of the job's directory with each completed step: the file outlives the process, and ddprun removes
the directory. The last two steps are there, because a rank may die after a step that the survivors have not completed.

Each step saves them, so this has to be fast, and to touch little memory: between two steps, other data takes the processor's caches.
Torch, Python and numpy take 5, 10 and 60 us to return theirs, and longer when the caches are cold. Most programs do not change them in
each step: a few bytes of the generator's memory show whether they have."""
import ctypes
import importlib
import mmap
import os
import pickle
import random
import struct
import sys

from typing import NamedTuple, Optional

import torch

SLOT_BYTES, TORCH_AT, CUDA_AT, OTHERS_AT = 32768, 64, 8192, 8448
TWISTER = struct.Struct("=625I")  # a Mersenne Twister: 624 words, and the place in them
# The place, and the four words next to it. A draw changes the place, and as many draws as there are words change all words.
TOLD_BY = 20
# What torch.Generator.get_state() begins with: the seed, the words left, whether it is seeded, the place; then words of eight bytes.
TORCH_HEAD, TORCH_WORDS = struct.Struct("=QiiQ"), struct.Struct("=624Q")
TORCH_NORMAL = struct.Struct("=?11x?3x")  # its last bytes: whether it has a second normal number, as a double and as a float
TORCH_MEMORY = struct.Struct("=QiB3xI")  # before the words in memory: what TORCH_HEAD has
TORCH_SEEN = 512  # bytes of the C++ object in which the words begin, in all versions of torch: at 80 to 108


class States(NamedTuple):
    """Of all generators.

    torch    the same object as before if it has not changed
    others   of Python and numpy: the same object as before if neither has changed"""

    torch: torch.Tensor
    cuda: Optional[torch.Tensor]
    others: tuple


class Generator:
    """One whose state is only read if its memory has changed."""

    def __init__(self):
        self._memory = self._state = None

    def get(self):
        """-> the state: the same object if it has not changed"""
        memory = self._look()
        if memory is None or memory != self._memory:
            self._memory, self._state = memory, self._read()
        return self._state

    def forget(self):
        """The state was set."""
        self._memory = None

    def _look(self):
        """Something that differs if the state does; None: read the state."""
        raise NotImplementedError

    def _read(self):
        raise NotImplementedError


def holds(address, words):
    return ctypes.string_at(address, TWISTER.size) == TWISTER.pack(*words)


def view_of(address, n_bytes=TOLD_BY):
    return memoryview((ctypes.c_char * n_bytes).from_address(address))


class TorchGenerator(Generator):
    """torch's default generator, of the CPU."""

    def __init__(self):
        super().__init__()
        self._view = self._find()

    def _find(self):
        """Its head and the first words, in the C++ object. None: not in this torch."""
        state = self._read().numpy().tobytes()
        address = getattr(torch.default_generator, "_cdata", None)
        if not address or len(state) != TORCH_HEAD.size + TORCH_WORDS.size + 24 + TORCH_NORMAL.size:
            return None
        head, words = TORCH_HEAD.unpack_from(state), struct.pack("=624I", *TORCH_WORDS.unpack_from(state, TORCH_HEAD.size))
        at = ctypes.string_at(address, TORCH_SEEN).find(words[:TORCH_SEEN // 4])
        begin = address + at - TORCH_MEMORY.size
        if at < TORCH_MEMORY.size or ctypes.string_at(address + at, len(words)) != words \
                or TORCH_MEMORY.unpack(ctypes.string_at(begin, TORCH_MEMORY.size)) != head:
            return None
        return view_of(begin, TORCH_MEMORY.size + TOLD_BY)

    def _look(self):
        return None if self._view is None or self._has_normal else self._view.tobytes()

    def _read(self):
        state = torch.default_generator.get_state()
        self._has_normal = any(TORCH_NORMAL.unpack(bytes(state[-TORCH_NORMAL.size:].tolist())))  # which is elsewhere in the object
        return state

    def set(self, state):
        torch.default_generator.set_state(state)
        self.forget()


class PythonGenerator(Generator):
    """That of the functions of `random`."""

    def __init__(self):
        super().__init__()
        self._view = self._find()

    def _find(self):
        """The place, then the words, after the head of CPython's object. None: not in this Python."""
        if sys.implementation.name != "cpython" or random.Random.__base__.__basicsize__ < object.__basicsize__ + TWISTER.size:
            return None
        address = id(random._inst) + object.__basicsize__
        *words, place = random.getstate()[1]
        return view_of(address) if holds(address, (place, *words)) else None

    def _look(self):
        return None if self._view is None else (self._view.tobytes(), random._inst.gauss_next)

    def _read(self):
        return random.getstate()

    def set(self, state):
        random.setstate(state)
        self.forget()


class NumpyGenerator(Generator):
    """That of the functions of numpy.random, which the program may replace by another kind. Its state is None until it is imported."""

    def __init__(self):
        super().__init__()
        self._bits = self._view = None

    def _find(self, bits):
        """numpy documents where a bit generator has its state; that of its default kind are the words, then the place."""
        state = bits.state
        if state["bit_generator"] != "MT19937":
            return None
        address = bits.ctypes.state_address
        fits = holds(address, (*map(int, state["state"]["key"]), state["state"]["pos"]))
        return view_of(address + TWISTER.size - TOLD_BY) if fits else None

    def _look(self):
        mtrand = sys.modules.get("numpy.random.mtrand")
        if mtrand is None:
            return b""
        if self._state is not None and self._state["has_gauss"]:  # a second normal number that was drawn with the first: it is elsewhere
            return None
        bits = mtrand._rand._bit_generator
        if bits is not self._bits:
            self._bits, self._view = bits, self._find(bits)
        return None if self._view is None else self._view.tobytes()

    def _read(self):
        mtrand = sys.modules.get("numpy.random.mtrand")
        return None if mtrand is None else mtrand.get_state(legacy=False)

    def set(self, state):
        if state is not None:
            importlib.import_module("numpy.random").set_state(state)
        self.forget()


class Head(ctypes.Structure):
    """Of a slot, and the bytes of what it has at TORCH_AT, CUDA_AT and OTHERS_AT."""

    _fields_ = [("number", ctypes.c_uint64),  # steps + 1; 0: being written
                ("n_torch", ctypes.c_uint32), ("n_cuda", ctypes.c_uint32), ("n_others", ctypes.c_uint32)]

    def fits(self):
        return self.n_torch <= CUDA_AT - TORCH_AT and self.n_cuda <= OTHERS_AT - CUDA_AT and self.n_others <= SLOT_BYTES - OTHERS_AT


class Slot:
    """A place in the file for the states after a step."""

    def __init__(self, memory, at):
        self._head = Head.from_buffer(memory, at)
        self._number = memoryview(memory)[at:at + 8].cast("Q")
        self._at = ctypes.addressof(self._head)
        self._torch = self._others = self._sizes = None  # those that this object has written

    def write(self, steps, states):
        if states.torch is not self._torch or states.others is not self._others or states.cuda is not None:
            self._number[0] = 0
            if not self._put(states):
                return
        self._number[0] = steps + 1

    def _put(self, states):
        """-> whether they fit"""
        sizes = states.torch.numel(), 0 if states.cuda is None else states.cuda.numel()
        if (states.others is not self._others or sizes != self._sizes) and not self._describe(states.others, sizes):
            return False
        ctypes.memmove(self._at + TORCH_AT, states.torch.data_ptr(), sizes[0])
        self._torch = states.torch
        if sizes[1] > 0:
            ctypes.memmove(self._at + CUDA_AT, states.cuda.data_ptr(), sizes[1])
        return True

    def _describe(self, others, sizes):
        """What most steps do not change. -> whether it fits"""
        head, data = self._head, pickle.dumps(others)
        self._others = None
        head.n_torch, head.n_cuda, head.n_others = *sizes, len(data)
        if not head.fits():
            return False
        ctypes.memmove(self._at + OTHERS_AT, data, len(data))
        self._others, self._sizes = others, sizes
        return True

    def read(self, steps):
        """None: it has not those after so many steps."""
        head = self._head
        if head.number != steps + 1 or not head.fits():
            return None
        tensors = [torch.frombuffer(bytearray(ctypes.string_at(self._at + at, n)), dtype=torch.uint8) if n > 0 else None
                   for at, n in ((TORCH_AT, head.n_torch), (CUDA_AT, head.n_cuda))]
        return States(*tensors, pickle.loads(ctypes.string_at(self._at + OTHERS_AT, head.n_others)))


def open_slots(directory, local_rank):
    """None where the file cannot be made: a replacement then begins with its own states."""
    if not directory:
        return None
    try:
        fd = os.open(os.path.join(directory, f"{local_rank}.rng"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        os.ftruncate(fd, 2 * SLOT_BYTES)
        memory = mmap.mmap(fd, 2 * SLOT_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)
    return Slot(memory, 0), Slot(memory, SLOT_BYTES)


class Generators:
    """Those of this rank, and its file."""

    def __init__(self, directory, local_rank):
        self._torch, self._python, self._numpy = TorchGenerator(), PythonGenerator(), NumpyGenerator()
        self._others = None, None
        self._slots = open_slots(directory, local_rank)

    def save(self, steps):
        """-> the states, which are those after so many steps"""
        python, numpy = self._python.get(), self._numpy.get()
        if self._others[0] is not python or self._others[1] is not numpy:
            self._others = python, numpy
        return self.save_torch(steps, self._others)

    def save_torch(self, steps, others):
        """Those of Python and numpy are given."""
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
        states = States(self._torch.get(), cuda, others)
        if self._slots is not None:
            self._slots[steps % 2].write(steps, states)
        return states

    def read(self, steps):
        """What this rank's predecessor, or itself, had after so many steps; None: it is not there."""
        return self._slots[steps % 2].read(steps) if self._slots is not None else None

    def restore(self, states):
        self._torch.set(states.torch)
        if states.cuda is not None:
            torch.cuda.set_rng_state(states.cuda)
        python, numpy = states.others
        self._python.set(python)
        self._numpy.set(numpy)
