"""The states of a rank's random number generators, and where its replacement finds them.

Each rank writes them into a file of the job's directory with each completed step: the file outlives the process, and ddprun removes
the directory. The last two steps are there, because a rank may die after a step that the survivors have not completed."""
import mmap
import os
import pickle
import random
import struct
import sys

import torch

SLOT_BYTES = 32768
HEAD = struct.Struct("=QQ")  # steps + 1 (0: being written), bytes


def get_states(earlier=None):
    """earlier   where only torch's are wanted: the others are taken from there"""
    states = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    if earlier is not None:
        return {**earlier, **states}
    states["python"] = random.getstate()
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    return states


def set_states(states):
    torch.set_rng_state(states["torch"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
    random.setstate(states["python"])
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


def are_same(one, other):
    """Two states of numpy. Most programs do not use its generator between two steps."""
    if one is other or one is None or other is None:
        return one is other
    return one[1].tobytes() == other[1].tobytes() and (one[0], *one[2:]) == (other[0], *other[2:])


class States:
    """The file of one rank. Where it cannot be made, a replacement begins with its own states."""

    def __init__(self, directory, local_rank):
        self._memory = None
        self._others = None, None, b""  # those of Python and numpy, and both as bytes
        if not directory:
            return
        try:
            fd = os.open(os.path.join(directory, f"{local_rank}.rng"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return
        try:
            os.ftruncate(fd, 2 * SLOT_BYTES)
            self._memory = mmap.mmap(fd, 2 * SLOT_BYTES)
        except OSError:
            pass
        finally:
            os.close(fd)

    def write(self, steps, states):
        if self._memory is None:
            return
        data = self._packed(states)
        if len(data) > SLOT_BYTES - HEAD.size:
            return
        at = steps % 2 * SLOT_BYTES
        HEAD.pack_into(self._memory, at, 0, 0)
        self._memory[at + HEAD.size:at + HEAD.size + len(data)] = data
        HEAD.pack_into(self._memory, at, steps + 1, len(data))

    def _packed(self, states):
        python, numpy = states["python"], states.get("numpy")
        if self._others[0] != python or not are_same(self._others[1], numpy):
            self._others = python, numpy, pickle.dumps((python, numpy))
        tensors = {k: v.numpy().tobytes() for k, v in states.items() if isinstance(v, torch.Tensor)}
        return pickle.dumps((tensors, self._others[2]))

    def read(self, steps):
        """Those after so many steps; None: they are not there."""
        if self._memory is None:
            return None
        at = steps % 2 * SLOT_BYTES
        number, size = HEAD.unpack_from(self._memory, at)
        if number != steps + 1 or size > SLOT_BYTES - HEAD.size:
            return None
        tensors, others = pickle.loads(self._memory[at + HEAD.size:at + HEAD.size + size])
        states = {k: torch.frombuffer(bytearray(v), dtype=torch.uint8) for k, v in tensors.items()}
        states["python"], numpy = pickle.loads(others)
        return states if numpy is None else {**states, "numpy": numpy}
