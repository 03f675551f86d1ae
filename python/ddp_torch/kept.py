"""What elastic.State keeps of an object, so that it can go back to the last completed step, and how a rank that lacks the state
gets it.

An object's small part changes outside of optimizer.step(): it is copied at each commit, and sent to all ranks in each generation.
Its large part, parameters and optimizer state, changes only in optimizer.step(): it is never copied, and is sent when a rank
lacks it."""
import copy
import ctypes
import io

import torch
import torch.distributed as dist

from .library import library
from .samples import DistributedSampler

PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None)})


def copied(tree):
    """A copy that later changes of the original do not reach. Called in each step: the usual kinds come first."""
    kind = type(tree)
    if kind in PLAIN:
        return tree
    if kind is dict:
        return {k: v if type(v) in PLAIN else copied(v) for k, v in tree.items()}
    if kind is list or kind is tuple:
        return kind([v if type(v) in PLAIN else copied(v) for v in tree])
    if isinstance(tree, torch.Tensor):
        return tree.detach().clone()
    return copy.deepcopy(tree)


class Kept:
    """Anything with state_dict() and load_state_dict(): all of it is small."""

    has_large = False

    def __init__(self, thing):
        self.thing = thing

    def get(self):
        return copied(self.thing.state_dict())

    def set(self, small):
        self.thing.load_state_dict(copied(small))

    def begin(self):
        """A generation begins in which this rank was not at the first step of the process."""

    def settle(self):
        """Before the first get() of a generation, and before the first that train causes."""


class KeptModule(Kept):
    """The small part of a module are its buffers: a forward pass changes them."""

    has_large = True

    def __init__(self, module):
        super().__init__(module)
        self.settle()

    def settle(self):
        """To walk through the modules takes long: find the dictionaries that have their buffers once."""
        self._places = [part._buffers for part in self.thing.modules()]

    def _buffers(self):
        return [b for place in self._places if place for b in place.values() if b is not None]

    def get(self):
        return [b.detach().clone() for b in self._buffers()]

    def set(self, small):
        with torch.no_grad():
            for mine, theirs in zip(self._buffers(), small):
                mine.copy_(theirs)

    def begin(self):
        for parameter in self.thing.parameters():
            parameter.grad = None  # perhaps half of a sum, or a view into a bucket of a model that is gone

    def large(self):
        return self.thing.state_dict(keep_vars=False)

    def set_large(self, large):
        self.thing.load_state_dict(large)


class KeptOptimizer(Kept):
    """The small part of an optimizer are the settings of its groups: a scheduler changes the learning rate."""

    has_large = True

    def get(self):
        return [{k: v if type(v) in PLAIN else copied(v) for k, v in group.items() if k != "params"} for group in self.thing.param_groups]

    def set(self, small):
        for group, settings in zip(self.thing.param_groups, small):
            group.update(copied(settings))

    def begin(self):
        self.thing.zero_grad(set_to_none=True)

    def large(self):
        return self.thing.state_dict()

    def set_large(self, large):
        self.thing.load_state_dict(large)


class KeptScaler(Kept):
    """Of a GradScaler, without asking the GPU for the scale: that would wait for it in each step."""

    NAMES = "_scale", "_growth_tracker"

    def get(self):
        return [copied(getattr(self.thing, name)) for name in self.NAMES]

    def set(self, small):
        for name, value in zip(self.NAMES, small):
            mine = getattr(self.thing, name)
            if isinstance(mine, torch.Tensor) and value is not None:
                mine.copy_(value)
            elif value is not None:
                setattr(self.thing, name, value.to(self.thing._device))
        self.thing._per_optimizer_states.clear()  # of a step that did not end


class KeptSampler(Kept):
    def get(self):
        return self.thing._get()

    def set(self, small):
        self.thing._set(small)


def keep(name, thing):
    """-> the Kept of an object; None for a plain value.
    raises TypeError"""
    if isinstance(thing, torch.nn.Module):
        return KeptModule(thing)
    if isinstance(thing, torch.optim.Optimizer):
        check_whole(name, thing)
        return KeptOptimizer(thing)
    if isinstance(thing, DistributedSampler):
        return KeptSampler(thing)
    if type(thing) is torch.utils.data.DistributedSampler:
        return KeptSampler(DistributedSampler.adopt(thing))
    if hasattr(thing, "_per_optimizer_states") and hasattr(thing, "_growth_tracker"):
        return KeptScaler(thing)
    if hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict"):
        return Kept(thing)
    if isinstance(thing, torch.utils.data.Sampler):
        raise TypeError(f"elastic.State: {name}={type(thing).__name__} has no state_dict(): use elastic.DistributedSampler")
    return None


def check_whole(name, optimizer):
    """raises NotImplementedError if a rank holds a part of the state that no other rank has."""
    if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
        raise NotImplementedError(f"elastic.State: {name} is a ZeroRedundancyOptimizer, whose state dies with its rank: "
                                  "use the optimizer itself, or --on-failure restart with checkpoints")
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if is_sharded(parameter):
                raise NotImplementedError(f"elastic.State: {name} has sharded parameters (FSDP, DTensor), which die with their rank: "
                                          "use elastic.Sharded with replicas, DistributedDataParallel, or --on-failure restart with checkpoints")


def is_sharded(parameter):
    return hasattr(parameter, "placements") or hasattr(parameter, "_is_flat_param") or type(parameter).__name__ == "FlatParameter"


# --- from one rank to all -------------------------------------------------------------------------


def check(what, status):
    if status != 0:
        raise library.error(what, status)


def send_bytes(world, data, source, is_source):
    """Data of the source, on all ranks."""
    size = (ctypes.c_uint64 * 1)(len(data) if is_source else 0)
    check("broadcast", library.broadcast_bytes(world, size, 8, source))
    buffer = ctypes.create_string_buffer(data, len(data)) if is_source else ctypes.create_string_buffer(size[0])
    check("broadcast", library.broadcast_bytes(world, buffer, size[0], source))
    return buffer.raw


def send_object(world, thing, source, is_source):
    packed = io.BytesIO()
    if is_source:
        torch.save(thing, packed)
    data = send_bytes(world, packed.getvalue(), source, is_source)
    return thing if is_source else torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)


class Hole:
    """The place of a tensor in a tree."""

    def __init__(self, tensor):
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device.type


def strip(tree, tensors):
    """The tree with holes; the tensors are appended."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree.detach())
        return Hole(tree)
    if isinstance(tree, dict):
        return {k: strip(v, tensors) for k, v in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(strip(v, tensors) for v in tree)
    return tree


def fill(tree, mine, tensors):
    """The tree with a tensor in each hole: where a rank has one that fits, it is received in its place."""
    if isinstance(tree, Hole):
        fits = isinstance(mine, torch.Tensor) and mine.shape == tree.shape and mine.dtype == tree.dtype \
            and mine.device.type == tree.device and mine.is_contiguous()
        tensors.append(mine.detach() if fits else torch.empty(tree.shape, dtype=tree.dtype, device=tree.device))
        return tensors[-1]
    if isinstance(tree, dict):
        of = mine if isinstance(mine, dict) else {}
        return {k: fill(v, of.get(k), tensors) for k, v in tree.items()}
    if type(tree) in (list, tuple):
        of = mine if isinstance(mine, (list, tuple)) and len(mine) == len(tree) else [None] * len(tree)
        return type(tree)(fill(v, m, tensors) for v, m in zip(tree, of))
    return tree


def send_tensor(world, tensor, source):
    """From the source to all, by libddp where it lies in the memory of the CPU."""
    if tensor.numel() == 0:
        return
    if tensor.device.type != "cpu":
        dist.broadcast(tensor, source)
    elif tensor.is_contiguous():
        check("broadcast", library.broadcast_bytes(world, tensor.data_ptr(), tensor.numel() * tensor.element_size(), source))
    else:
        whole = tensor.contiguous()
        send_tensor(world, whole, source)
        tensor.copy_(whole)


def send_large(world, kept, source, is_source, is_behind):
    """Parameters and optimizer states, one tensor after the other.

    kept        {name: Kept}
    is_behind   this rank lacks them; else the same arrives that it has"""
    mine = {name: k.large() for name, k in kept.items() if k.has_large}
    tensors = []
    tree = send_object(world, strip(mine, tensors) if is_source else None, source, is_source)
    theirs = mine if is_source else fill(tree, mine, tensors)
    with torch.no_grad():
        for tensor in tensors:
            send_tensor(world, tensor, source)
    if is_behind:
        for name, large in theirs.items():
            kept[name].set_large(large)
