"""A model whose parameters are sharded over some ranks and replicated over others (HSDP, by FSDP2), for elastic.State.

fully_shard() binds parameters to a device mesh, and a mesh has process groups, which end with their generation. So each generation
creates mesh, model and optimizer again, and copies the shard that the process has. A rank that has none, or another one, receives it from
a replica. Which rank has which shard follows from what the ranks have: they keep theirs as far as possible."""
import contextlib

from typing import List, NamedTuple

import torch

from . import kept


class Found(NamedTuple):
    """What a rank has at the beginning of a generation."""

    done: int  # completed steps; -1: its state is torn
    has_commit: int  # its small state is that after them
    shard: int  # -1: none


class Places(NamedTuple):
    shards: List[int]  # of each rank
    sources: List[int]  # of each shard, a rank that has it
    lacking: List[bool]  # the rank does not have its shard


def place(found, n_shards):
    """Give each rank a shard.

    found     of each rank
    raises    ValueError: the ranks cannot have whole replicas; RuntimeError: no rank has one of the shards"""
    if len(found) % n_shards != 0:
        raise ValueError(f"elastic.Sharded: {len(found)} ranks cannot hold replicas of {n_shards} shards: their number must be a multiple of it")
    if all(one.shard < 0 for one in found):  # each makes its own
        return Places([rank % n_shards for rank in range(len(found))], list(range(n_shards)), [False] * len(found))
    most = max(one.done for one in found)
    shards = [-1] * len(found)
    left = [len(found) // n_shards] * n_shards
    for rank, one in enumerate(found):
        if one.done == most and one.shard >= 0 and left[one.shard] > 0:
            shards[rank] = one.shard
            left[one.shard] -= 1
    lost = [shard for shard in range(n_shards) if shard not in shards]
    if lost:
        raise RuntimeError(f"elastic.Sharded: no rank has shard {lost[0]} of {n_shards} after step {most}: those that had it died; "
                           "restart the job from a checkpoint")
    sources = [shards.index(shard) for shard in range(n_shards)]
    lacking = [shard < 0 for shard in shards]
    for rank in range(len(found)):
        if shards[rank] < 0:
            shards[rank] = next(shard for shard in range(n_shards) if left[shard] > 0)
            left[shards[rank]] -= 1
    return Places(shards, sources, lacking)


class Sharded:
    """For elastic.State: what make(mesh) returns in each generation, with the values of the steps before.

        def make(mesh):                                 # its dimensions: "replicate", "shard"
            model = Model()
            for layer in model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
            return model, optimizer, StepLR(optimizer, 10)      # and more with state_dict() and load_state_dict()

        state = elastic.State(sharded=elastic.Sharded(make, n_shards=4), ...)

    make        called by elastic.run(); all ranks make the same parameters
    n_shards    ranks that hold a replica together; the number of ranks is a multiple of it
    device_type of the mesh; None: cuda if it is available

    In train, state.sharded.model, .optimizer and .others are those of the generation; keep none of them."""

    def __init__(self, make, n_shards, device_type=None):
        try:
            from torch.distributed.tensor import DTensor  # noqa: F401 (needed later)
        except ImportError as error:
            raise NotImplementedError(f"elastic.Sharded: PyTorch {torch.__version__} has no torch.distributed.tensor.DTensor: use a later version") from error
        self._make, self._n_shards = make, n_shards
        self._device_type = device_type or ("cuda" if torch.cuda.is_available() else "cpu")
        self._shard = -1
        self.model = self.optimizer = None
        self.others = ()
        self._parameters = []  # DTensors: after a failure a model may have whole ones instead
        self._parts = []  # Kept

    def _build(self, places, rank):
        """By all ranks. If it fails, this rank still has what it had."""
        from torch.distributed.device_mesh import DeviceMesh

        of_shard = [[r for r, shard in enumerate(places.shards) if shard == s] for s in range(self._n_shards)]
        mesh = DeviceMesh(self._device_type, torch.tensor(of_shard).t().contiguous(), mesh_dim_names=("replicate", "shard"))
        with keep_generators(self._parameters):
            model, optimizer, *others = self._make(mesh)
        parameters = list(model.parameters())
        if self._parameters and not places.lacking[rank]:
            self._copy_to(parameters, optimizer)
        parts = [kept.KeptModule(model), kept.KeptOptimizer(optimizer), *map(kept.Kept, others)]
        for new, old in zip(parts, self._parts):
            new.set(old.get())
        self.model, self.optimizer, self.others, self._parameters, self._parts = model, optimizer, tuple(others), parameters, parts
        self._shard = -1 if places.lacking[rank] else places.shards[rank]

    def _copy_to(self, parameters, optimizer):
        states = self.optimizer.state
        with torch.no_grad():
            for new, old in zip(parameters, self._parameters):
                local(new).copy_(local(old))
                if old in states:
                    optimizer.state[new] = {k: as_shard(local(v), new) if is_shard(v) else v for k, v in states[old].items()}


@contextlib.contextmanager
def keep_generators(is_later):
    """In later generations, what make() draws for its first values is not drawn."""
    if not is_later:
        yield
        return
    has_cuda = torch.cuda.is_initialized()
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if has_cuda else []):
        yield


def is_shard(value):
    return hasattr(value, "placements")


def local(tensor):
    return tensor.detach().to_local() if is_shard(tensor) else tensor.detach()


def as_shard(tensor, parameter):
    """The part of a tensor that is sharded like the parameter."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(tensor, parameter.device_mesh, parameter.placements, run_check=False, shape=parameter.shape,
                              stride=parameter.stride())


class KeptSharded(kept.Kept):
    """Its small part: buffers, settings of the optimizer, and others."""

    def get(self):
        return [part.get() for part in self.thing._parts]

    def set(self, small):
        for part, one in zip(self.thing._parts, small):
            part.set(one)

    def settle(self):
        for part in self.thing._parts:
            part.settle()

    def large(self):
        states = self.thing.optimizer.state
        return [local(p) for p in self.thing._parameters], \
            [{k: (is_shard(v), local(v) if isinstance(v, torch.Tensor) else v) for k, v in states.get(p, {}).items()}
             for p in self.thing._parameters]

    def set_large(self, large):
        optimizer = self.thing.optimizer
        for parameter, value, state in zip(self.thing._parameters, *large):
            if value.data_ptr() != local(parameter).data_ptr():
                local(parameter).copy_(value)
            optimizer.state[parameter] = {k: as_shard(v, parameter) if is_part else v for k, (is_part, v) in state.items()}

    def send(self, world, places, rank):
        """Each shard that a rank lacks, to all ranks; those that lack it keep it."""
        wanted = {places.shards[r] for r in range(len(places.shards)) if places.lacking[r]}
        for shard in sorted(wanted):
            source = places.sources[shard]
            is_mine = places.shards[rank] == shard
            mine = self.large() if is_mine else None
            tensors = []
            tree = kept.send_object(world, kept.strip(mine, tensors) if rank == source else None, source, rank == source)
            theirs = mine if rank == source else kept.fill(tree, mine if places.lacking[rank] else None, tensors)
            with torch.no_grad():
                for tensor in tensors:
                    kept.send_tensor(world, tensor, source)
                if is_mine and places.lacking[rank]:
                    self.set_large(theirs)
                    self.thing._shard = shard
