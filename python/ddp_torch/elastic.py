"""In-place recovery of PyTorch programs: when a rank dies, the others keep their processes, models and optimizers, and continue.

    from ddp_torch import elastic

    def train(state):                           # called once in each generation
        model = DDP(state.model)                # made again each time
        for state.epoch in range(state.epoch, EPOCHS):
            state.sampler.set_epoch(state.epoch)
            for x, y in state.batches(DataLoader(dataset, 32, sampler=state.sampler)):
                state.optimizer.zero_grad()
                loss(model(x), y).backward()
                state.optimizer.step()          # completes a step

    state = elastic.State(model=model, optimizer=optimizer, sampler=elastic.DistributedSampler(dataset), epoch=0)
    elastic.run(train, state, backend="gloo")

Under ddprun, the ranks of a generation compare how many steps each has completed; the lowest rank with most of them gives its state to
those that have completed fewer. Under torchrun, or without a launcher, run() initializes torch.distributed and calls train once.
docs/how-to/recover-pytorch.md describes the use, docs/explanation/pytorch-recovery.md what is guaranteed.
"""
import contextlib
import ctypes
import functools
import os
import sys
import threading
import traceback
import weakref

from datetime import timedelta

import torch.distributed as dist

from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

from . import connections, kept, meeting, process_group, stuck
from .library import ETIMEOUT, INT64, OK, RETRY, TRAIN, library
from .origin import may_be_of_communication
from .randomness import Generators
from .samples import DistributedSampler
from .shards import Found, Sharded
from .state import State

__all__ = ["DistributedSampler", "Sharded", "State", "run"]

STUCK_S, STUCK_LOOKS = 5, 5
VERDICT_MS = 10000  # from a failed call until it is known that the generation is over
NEVER_MS = 2**63
DROP_S = 5
PLACE = "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"


def run(train, state, backend="gloo", timeout=None):
    """Initialize torch.distributed, call train(state), and destroy the process group; again in each generation.

    backend   as for init_process_group(): "gloo", "ddp", "nccl", "cpu:gloo,cuda:nccl"
    timeout   of the group, a timedelta; None: torch's
    returns   what train returns
    raises    what train raises, if no rank was lost; DistBackendError if ranks were lost and no generation follows"""
    if os.environ.get("DDP_NODE_FD"):
        return Job(train, state, backend, timeout).run()
    return run_once(train, state, backend, timeout)


def more(timeout):
    return {} if timeout is None else {"timeout": timeout}


def run_once(train, state, backend, timeout):
    alone = {} if "RANK" in os.environ else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group(backend, **alone, **more(timeout))
    try:
        state._make_sharded([Found(0, 0, -1)] * dist.get_world_size(), dist.get_rank())
        state._begin(0, dist.get_rank(), dist.get_world_size())
        return train(state)
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def tracked_wrappers(found):
    """Within, weak references to each DistributedDataParallel that is made are appended to a list."""
    init = DistributedDataParallel.__init__

    def tracked(self, *arguments, **more_arguments):
        init(self, *arguments, **more_arguments)
        found.append(weakref.ref(self))

    DistributedDataParallel.__init__ = functools.update_wrapper(tracked, init)
    try:
        yield
    finally:
        DistributedDataParallel.__init__ = init


def disable(wrapper):
    """A DistributedDataParallel of an older generation would take part in the next backward pass, and divide by the old number of
    ranks. Without its reducer it has no hooks, and a forward pass fails."""
    for name in "reducer", "logger":
        getattr(wrapper, "__dict__", {}).pop(name, None)


class Watch:
    """A thread that waits for the end of the generation, and then takes the others out of calls that do not end by themselves."""

    def __init__(self, world, wires):
        self._world, self._wires = world, wires
        self.is_over = threading.Event()
        self.has_left = threading.Event()  # the main thread, the call that it was in
        self.status, self.text = OK, ""
        self._main = stuck.Thread()
        self._thread = threading.Thread(target=self._wait, name="ddp elastic", daemon=True)
        self._thread.start()

    def _wait(self):
        status = library.wait_retry(self._world, NEVER_MS)
        if status == OK:
            return
        self.status, self.text = status, library.last_error().decode(errors="replace")
        self.is_over.set()
        self._wires.cut()
        connections.abort_nccl()
        n_idle = 0
        while n_idle < STUCK_LOOKS and not self.has_left.wait(STUCK_S / STUCK_LOOKS):
            n_idle = n_idle + 1 if self._main.is_idle_in_torch() else 0
        if n_idle == STUCK_LOOKS:
            self._end_process()

    def _end_process(self):
        """The other ranks wait for this one. If it ends, they continue; otherwise all are started again after
        --recovery-timeout."""
        sys.stderr.write(f"ddp_torch: error: rank {library.rank(self._world)} ended itself: torch.distributed did not return from a call "
                         f"{STUCK_S} s after the end of the generation\n")
        sys.stderr.flush()
        os._exit(1)

    def stop(self):
        self.has_left.set()
        library.end_wait_retry(self._world)
        self._thread.join()


class Job:
    """This process as a rank of a job of ddprun."""

    def __init__(self, train, state, backend, timeout):
        self.train, self.state, self.backend, self.timeout = train, state, backend, timeout
        self.result = self.failure = None
        self.excepthook = sys.excepthook
        self.environment = {}
        self.dropping = None  # the thread that destroys the groups of the last generation
        self.last_wires = None  # that generation's
        self.wrappers = []  # weak references to the DistributedDataParallel of this generation
        self.uses_ddp = backend in ("ddp", "cpu:ddp") or "cpu:ddp" in backend

    def run(self):
        if self.uses_ddp:
            os.environ.setdefault("DDP_PROGRESS_THREAD", "1")
            if self.timeout is not None:
                os.environ["DDP_TIMEOUT"] = f"{max(1, self.timeout // timedelta(milliseconds=1))}ms"
        callback = TRAIN(self.run_generation)
        with tracked_wrappers(self.wrappers):
            status = library.run(callback, None)
        if self.dropping is not None:
            self.dropping.join(DROP_S)
        self.state.__dict__.update(_on_step=None, _is_over=None, _barrier=None)
        if self.failure is not None:
            raise self.failure
        if status != OK:
            raise library.error("elastic.run", status)
        return self.result

    # --- a generation -----------------------------------------------------------------------------

    def run_generation(self, world, _):
        """For ddp_run(). -> a status of libddp"""
        self.failure = None
        try:
            with connections.recorded() as wires:
                watch = Watch(world, wires)
                try:
                    self.take_place(world)
                    return self.work(world, watch, wires)
                finally:
                    self.leave(world, watch, wires)
        except BaseException as error:  # nothing may be raised into C
            self.failure = error
            return -1

    def work(self, world, watch, wires):
        try:
            if self.last_wires is not None:
                self.last_wires.close()
            self.last_wires = wires
            self.state.__dict__["_is_over"] = watch.is_over.is_set
            self.join(world, wires)
            self.recover(world)
            self.state._start()
            result = self.train(self.state)
            kept.check("the end of the training function", library.monitored_barrier(world, NEVER_MS))
        except BaseException as error:
            if not self.is_retry(error, world, watch):
                raise
            self.forget(error)
            return RETRY
        self.result = result
        return OK

    def take_place(self, world):
        """Describe the generation in the environment. libddp expects there what ddprun wrote, so leave() puts that back.

        What ddprun wrote is what C sees: a standby has no place yet when Python reads its environment."""
        for name in "LOCAL_RANK", "TORCHELASTIC_ERROR_FILE":
            value = library.getenv(name)
            if value:
                os.environ[name] = value
        self.environment = {name: library.getenv(name) for name in PLACE}
        numbers = {"RANK": library.rank, "WORLD_SIZE": library.world_size, "LOCAL_WORLD_SIZE": library.local_world_size,
                   "GROUP_RANK": library.node_rank, "GROUP_WORLD_SIZE": library.n_nodes}
        os.environ.update({name: str(number(world)) for name, number in numbers.items()})
        host, port = ctypes.create_string_buffer(256), ctypes.c_int()
        if library.world_size(world) > 1:
            kept.check("store", library.store_address(world, host, 256, ctypes.byref(port)))
            os.environ.update(MASTER_ADDR=host.value.decode(), MASTER_PORT=str(port.value))

    def join(self, world, wires):
        rank, size = library.rank(world), library.world_size(world)
        if size > 1:
            host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            store = wires.make(lambda: dist.TCPStore(host, port, is_master=False, **more(self.timeout)), 1)
            store = dist.PrefixStore(f"elastic/{library.generation(world)}", store)
        else:
            store = dist.HashStore()
        meeting.Job.lend(world)
        sys.excepthook = self.excepthook  # torch puts its own before it, each time
        dist.init_process_group(self.backend, store=store, rank=rank, world_size=size, **more(self.timeout))

    def recover(self, world):
        """Give all ranks the state after the last completed step."""
        state, generation, rank, size = self.state, library.generation(world), library.rank(world), library.world_size(world)
        found = self.compare(world) if generation > 0 else [Found(0, 0, -1)] * size
        has_lack = state._make_sharded(found, rank)
        state._go_back()
        state._begin(generation, rank, size)
        if state._random is None:
            state.__dict__["_random"] = Generators(os.environ.get("DDP_NODE_DIR"), os.environ.get("LOCAL_RANK"))
        state.__dict__["_on_step"] = functools.partial(library.step_done, world)
        state.__dict__["_barrier"] = lambda: kept.check("the step of a sharded model", library.barrier(world))
        most, least = max(one.done for one in found), min(one.done for one in found)
        if most > 0 or least < 0 or has_lack:
            source = max(range(size), key=lambda r: (found[r].done, found[r].has_commit, -r))
            state._share(world, source, source == rank, with_large=least < most or has_lack)

    def compare(self, world):
        """-> what each rank has"""
        size, width = library.world_size(world), len(Found._fields)
        mine, theirs = (ctypes.c_int64 * width)(*self.state._found()), (ctypes.c_int64 * (width * size))()
        kept.check("recovery", library.all_gather(world, mine, theirs, width, INT64, None))
        found = [Found(*theirs[width * r:width * (r + 1)]) for r in range(size)]
        if max(one.done for one in found) < library.completed_steps(world):
            raise RuntimeError(f"elastic.run: no rank has the whole state after step {self.state._first_step + library.completed_steps(world)}: "
                               "those that had it died; restart the job from a checkpoint")
        return found

    # --- its end ----------------------------------------------------------------------------------

    def is_retry(self, error, world, watch):
        """Whether train left because the generation is over, and not by a failure of its own. The communication library may
        notice a death before ddprun does."""
        watch.has_left.set()
        if not may_be_of_communication(error):
            return False
        if not watch.is_over.is_set() and library.wait_retry(world, VERDICT_MS) == ETIMEOUT:
            return False
        watch.is_over.wait(VERDICT_MS / 1000)
        if watch.status == RETRY:
            return True
        raise dist.DistBackendError(f"elastic.run: {watch.text}") from error

    def forget(self, error):
        """What train has left in its variables."""
        for wrapper in self.wrappers:
            disable(wrapper())
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error.__traceback__, error = None, error.__context__

    def leave(self, world, watch, wires):
        self.wrappers.clear()
        for group in list(process_group._alive):
            group.shutdown()
        meeting.Job.lend(None)
        if dist.is_initialized():
            try:
                dist.destroy_process_group()
            except RuntimeError as error:  # of a group that broke while it was made
                self.failure = self.failure or error
        c10d._world.group_count = 0  # torch does that only for a group that was made whole; names are to be equal on all ranks
        watch.stop()
        self.dropping = wires.drop(waits=not watch.is_over.is_set())
        for name, value in self.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
