"""elastic.State: what a rank has to have to continue with a step, and the steps that it has completed."""
import contextlib

import torch

from torch.distributed import DistBackendError

from . import kept, shards
from .library import library

RESERVED = ("step", "generation")


class State:
    """The training state, as attributes: objects with state_dict() and load_state_dict(), and plain values.

        state = elastic.State(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, epoch=0)

    A step is complete when optimizer.step() returns; with several optimizers, that of the last one that was given. `step` counts
    them, from the given number (0). What a loop does between optimizer.step() and its next step belongs to the step: a scheduler,
    `state.epoch += 1`. The next step begins when batches() gives a batch; in loops without it, with the first forward pass of a
    given module. If that step does not complete, values, schedulers, buffers, and random number generators are set back to what
    they were at its beginning."""

    def __init__(self, step=0, **things):
        objects, values = {}, {}
        for name, thing in things.items():
            if name.startswith("_") or hasattr(type(self), name) or name in RESERVED:
                raise TypeError(f"elastic.State: invalid name '{name}': State uses it itself")
            found = shards.KeptSharded(thing) if isinstance(thing, shards.Sharded) else kept.keep(name, thing)
            if found is None:
                values[name] = thing
            else:
                objects[name] = found
        self.__dict__.update(_objects=objects, _values=values, _first_step=step, _done=0, _is_torn=False, _commit=None, _is_fresh=True,
                             _is_new=True, _places=None, _barrier=None, _on_step=None, _is_over=None, _random=None, _generation=0, _resumed=None,
                             _samplers=[k.thing for k in objects.values() if isinstance(k, kept.KeptSampler)])
        sharded = [k for k in objects.values() if isinstance(k, shards.KeptSharded)]
        if len(sharded) > 1:
            raise TypeError("elastic.State: more than one elastic.Sharded: let its function return all models as one module")
        self.__dict__["_sharded"] = sharded[0] if sharded else None
        optimizers = [k.thing for k in objects.values() if isinstance(k, kept.KeptOptimizer)]
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._before_step)
        if optimizers and not sharded:
            optimizers[-1].register_step_post_hook(self._after_step)
        for k in objects.values():
            if isinstance(k, kept.KeptModule) and not isinstance(k.thing, torch.jit.ScriptModule):
                k.thing.register_forward_pre_hook(self._before_forward)

    # --- attributes -------------------------------------------------------------------------------

    @property
    def step(self):
        """The number of completed steps, those before this job included."""
        return self._first_step + self._done

    @property
    def generation(self):
        """How often the membership of the job has changed."""
        return self._generation

    def __getattr__(self, name):
        objects, values = self.__dict__.get("_objects", {}), self.__dict__.get("_values", {})
        if name in objects:
            return objects[name].thing
        if name in values:
            return values[name]
        raise AttributeError(f"elastic.State has no attribute '{name}': it has {', '.join([*objects, *values, *RESERVED])}")

    def __setattr__(self, name, value):
        if name in self._values:
            self._values[name] = value
        elif name in self._objects:
            raise AttributeError(f"elastic.State: '{name}' cannot be replaced: recovery continues with the object that State() was given")
        elif name == "step":
            self._set_step(value)
        elif name in self.__dict__:
            self.__dict__[name] = value
        else:
            raise AttributeError(f"elastic.State has no attribute '{name}': give it to State(), with its first value")

    def _set_step(self, value):
        if self._on_step is None:  # before run(): of a checkpoint
            self.__dict__["_first_step"] = value - self._done
        elif value != self.step:
            raise AttributeError("elastic.State: optimizer.step() counts 'step': do not change it; use another name for another counter")

    # --- a step -----------------------------------------------------------------------------------

    def _before_step(self, _, arguments, named):
        """With a closure, parameters change after its first call."""
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
        if closure is None:
            self._tear()
            return None

        def first():
            result = closure()
            if not self._is_torn:
                self._tear()
            return result

        return arguments[:1], {**named, "closure": first}

    def _tear(self):
        self._await_gpu()
        self.__dict__["_is_torn"] = True
        if self._random is not None:  # if this rank dies from here on, others may complete the step
            self._random.save_torch(self._done + 1, self._commit[2].others)

    def _after_step(self, *_):
        mine = self.__dict__
        mine["_done"] += 1
        mine["_is_torn"] = False
        mine["_is_fresh"] = True
        for sampler in self._samplers:
            sampler._complete()
        if self._on_step is not None:
            self._on_step()

    def _before_forward(self, module, _):
        if torch.compiler.is_compiling():
            return
        if self._is_fresh and module.training and torch.is_grad_enabled():
            self.commit()

    def commit(self):
        """The next step begins here: to be called by loops that are unlike others, see above."""
        self._check_generation()  # a rank that is alone makes no call that fails then
        mine = self.__dict__
        mine["_is_fresh"] = False
        if self._random is None:  # no generation can follow
            return
        if self._is_new:
            self._settle()
        mine["_commit"] = (self._done, self._get_small(), self._random.save(self._done))

    def _check_generation(self):
        if self._is_over is not None and self._is_over():
            raise DistBackendError("elastic.run: the generation has ended")

    def _await_gpu(self):
        """Until what the collectives of a GPU have left is there. If the generation has ended, they were perhaps aborted, and have left
        anything: a call of torch that starts a collective returns before it is complete, and does not fail if it is aborted."""
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
            self._check_generation()

    def _settle(self):
        for k in self._objects.values():
            k.settle()
        self.__dict__["_is_new"] = False

    def batches(self, loader):
        """The batches of a DataLoader, from the first that no completed step has used. The loader has the sampler that State()
        was given; otherwise it begins with its first batch. Its workers end when the loop ends."""
        sampler = self._sampler_of(loader)
        if sampler is not None:
            sampler._begin_loop()
            self.__dict__["_is_fresh"] = True
        size = batch_size_of(loader) if sampler is not None else 0
        if self._is_fresh:
            self.commit()
        iterator = iter(loader)  # draws a seed for its workers
        if sampler is not None and sampler.done > 0:
            self._resume()
        try:
            while True:
                if self._is_fresh:
                    self.commit()
                try:
                    batch = next(iterator)
                except StopIteration:
                    break
                if sampler is not None:
                    sampler._take(size)
                yield batch
            if sampler is not None:
                sampler._end_loop()
        finally:
            end_workers(iterator)

    def _resume(self):
        """In the middle of an epoch that an earlier generation has begun: what train has drawn until here was drawn before."""
        if self._resumed is not None:
            self._random.restore(self._resumed)
        self.__dict__["_resumed"] = None

    def _sampler_of(self, loader):
        for owner in (loader, getattr(loader, "batch_sampler", None)):
            sampler = getattr(owner, "sampler", None)
            if any(sampler is one for one in self._samplers):
                return sampler
        return None

    # --- for run() --------------------------------------------------------------------------------

    def _get_small(self):
        return {name: k.get() for name, k in self._objects.items()}, kept.copied(self._values)

    def _set_small(self, small):
        objects, values = small
        for name, theirs in objects.items():
            self._objects[name].set(theirs)
        self._values.clear()
        self._values.update(kept.copied(values))

    def _found(self):
        """What this rank has."""
        has_commit = self._commit is not None and self._commit[0] == self._done
        return shards.Found(-1 if self._is_torn else self._done, int(has_commit), self._sharded.thing._shard if self._sharded else -1)

    def _make_sharded(self, found, rank):
        """found   of each rank
        returns   whether a rank lacks its shard"""
        if self._sharded is None:
            return False
        thing = self._sharded.thing
        places = shards.place(found, thing._n_shards)
        thing._build(places, rank)
        thing.optimizer.register_step_pre_hook(self._meet)
        thing.optimizer.register_step_pre_hook(self._before_step)
        thing.optimizer.register_step_post_hook(self._after_step)
        thing.model.register_forward_pre_hook(self._before_forward)
        self.__dict__["_places"] = places
        return any(places.lacking)

    def _meet(self, *_):
        """Gradients of one shard may be complete when a rank dies that others need for those of another: then no rank makes the step."""
        if self._barrier is not None:
            self._barrier()

    def _begin(self, generation, rank, size):
        for sampler in self._samplers:
            sampler._place(rank, size)
        for name, k in self._objects.items():
            if isinstance(k, kept.KeptOptimizer):
                kept.check_whole(name, k.thing)
            if generation > 0:
                k.begin()
        self.__dict__.update(_generation=generation, _is_fresh=True, _is_new=True)

    def _go_back(self):
        """To the last completed step; if what belongs to it was not over, as far as it had come."""
        if self._commit is not None and self._commit[0] == self._done and not self._is_torn:
            _, small, states = self._commit
            self._set_small(small)
            self._random.restore(states)

    def _share(self, world, source, is_source, with_large):
        """From one rank to all. A rank that has received a part of it has no state until it has all."""
        mine = (self._done, self._first_step, self._get_small()) if is_source else None
        done, first, small = kept.send_object(world, mine, source, is_source)
        is_behind = self._done != done or self._is_torn  # else what arrives is what this rank has
        is_new = is_behind and self._done == 0
        if with_large:
            if is_behind:
                self.__dict__["_is_torn"] = True
            kept.send_large(world, self._objects, source, is_source, is_behind)
            if self._sharded is not None:
                self._sharded.send(world, self._places, library.rank(world))
            self._await_gpu()
        if not is_source:
            self._set_small(small)
            self.__dict__.update(_done=done, _first_step=first, _is_torn=False)
            states = self._random.read(done) if is_new and self._random is not None else None
            if states is not None:
                self._random.restore(states)

    def _start(self):
        """train is about to be called."""
        self.commit()
        self.__dict__["_is_new"] = True  # train may change modules before its first step
        if self._generation > 0:
            self.__dict__["_resumed"] = self._commit[2]


def batch_size_of(loader):
    size = loader.batch_size or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    if not size:
        raise ValueError("elastic.State.batches: the loader has no batch_size: use DataLoader(batch_size=...), or a batch sampler with a batch_size")
    return size


def end_workers(iterator):
    """Of a DataLoader: they are not needed any more, whatever they have read ahead. Without this they end when Python drops the
    iterator."""
    end = getattr(iterator, "_shutdown_workers", None)
    if end is not None and not getattr(iterator, "_persistent_workers", False):
        with contextlib.suppress(Exception):
            end()
