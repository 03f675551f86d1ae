"""What each step saves comes back as it was: the random number generators, also from the file of a process that died, and buffers. And a
step does not begin before the GPU has its gradients; a mock is the GPU.

usage: ddp_torch_saves.py DIRECTORY

Runs with the Python whose torch is tested. $SEED chooses the order of draws; it is printed.
"""
import os
import random
import sys
import types

from unittest import mock

import torch

from torch.distributed import DistBackendError

from ddp_torch import elastic, kept, randomness
from ddp_torch.randomness import Generators

N_DRAWS = 300
N_WORDS = 624  # of a Mersenne Twister: after so many draws it is at the same place


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def numpy_random():
    import numpy.random

    return numpy.random


def use_another_kind():
    numpy_random().set_bit_generator(numpy_random().PCG64(7))


def use_the_usual_kind():
    numpy_random().set_bit_generator(numpy_random().MT19937(7))


# gauss() and both randn() make two numbers at a time, and keep the second.
DRAWS = {
    "nothing": lambda: None, "torch": lambda: torch.rand(3), "torch's randn": lambda: torch.randn(1), "torch's seed": lambda: torch.manual_seed(1),
    "torch's words": lambda: torch.rand(N_WORDS), "random": random.random, "gauss": lambda: random.gauss(0, 1),
    "numpy": lambda: numpy_random().rand(), "randn": lambda: numpy_random().randn(), "seed": lambda: (random.seed(1), numpy_random().seed(1)),
    "all words": lambda: (random.getrandbits(32 * N_WORDS), numpy_random().bytes(4 * N_WORDS)),
    "another kind": use_another_kind, "usual kind": use_the_usual_kind,
}


def draw_all():
    """A number of each."""
    return torch.randn(1).item(), torch.rand(2).tolist(), random.random(), random.gauss(0, 1), float(numpy_random().rand()), float(numpy_random().randn())


def before_numpy_is_used(directory):
    saved = Generators(directory, 7).save(1)
    found = Generators(directory, 7).read(1)
    check(torch.equal(found.torch, saved.torch) and found.others[0] == saved.others[0], "the file has other states")
    check((found.others[1] is None) == ("numpy.random.mtrand" not in sys.modules), "the state of a module that is not imported")


def restored(directory):
    """By this process, and by another one, which has the file."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    print("SEED", seed, flush=True)
    order = random.Random(seed)
    mine = Generators(directory, 0)
    numpy_random()
    for step, names in enumerate(order.choices(sorted(DRAWS), k=2) for _ in range(N_DRAWS)):
        for name in names:
            DRAWS[name]()
        saved = mine.save(step)
        numbers = draw_all()
        mine.restore(saved)
        check(draw_all() == numbers, f"step {step}, after {names}: other numbers")
        other = Generators(directory, 0)
        other.restore(other.read(step))
        check(draw_all() == numbers, f"step {step}, after {names}: other numbers by the file")
        mine.restore(saved)


def read_only_if_changed(directory):
    use_the_usual_kind()
    mine = Generators(directory, 0)
    saved = [mine.save(step) for step in range(4)]
    check(all(one.others is saved[0].others for one in saved), "states that have not changed were read again")
    for step, name in enumerate(("random", "numpy", "all words"), 4):
        DRAWS[name]()
        saved.append(mine.save(step))
        check(saved[-1].others is not saved[-2].others, f"a change by '{name}' was not seen")
    torch.manual_seed(2)
    saved = [mine.save(step).torch for step in range(6, 10)]
    check(saved[1] is saved[2] is saved[3], "torch's state, which has not changed, was read again")
    for step, name in enumerate(("torch", "torch's words", "torch's seed", "torch's randn", "torch's randn"), 10):
        DRAWS[name]()
        saved.append(mine.save(step).torch)
        check(torch.equal(saved[-1], torch.get_rng_state()) and saved[-1] is not saved[-2], f"a change by '{name}' was not seen")


def last_two_steps_are_there(directory):
    mine = Generators(directory, 1)
    saved = [mine.save(step) for step in range(3)]
    check([mine.read(step) is not None for step in range(4)] == [False, True, True, False], "the wrong steps are there")
    torch.rand(1)
    random.random()
    mine.save_torch(3, saved[2].others)
    found = mine.read(3)
    check(torch.equal(found.torch, torch.get_rng_state()) and not torch.equal(found.torch, saved[2].torch), "torch's state is not the new one")
    check(found.others[0] == saved[2].others[0], "Python's state is not the earlier one")


def damaged_files(directory):
    """They have no states, and are used again."""
    for name in (field[0] for field in randomness.Head._fields_[1:]):
        mine = Generators(directory, 2)
        mine.save(1)
        setattr(mine._slots[1]._head, name, randomness.SLOT_BYTES)
        check(mine.read(1) is None, f"{name} is too large, and was believed")
        Generators(directory, 2).save(1)
        check(mine.read(1) is not None, f"{name}: the file was not used again")
    for directory in "", "/nonexistent":
        mine = Generators(directory, 2)
        mine.save(1)
        check(mine.read(1) is None, "states without a file")


def buffers():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model[0].register_buffer("none", None)
    mine = kept.keep("model", model)
    model[0].register_buffer("late", torch.ones(2))
    check(len(mine.get()) == 4, "a buffer that was registered late")
    model.append(torch.nn.BatchNorm1d(2))
    mine.settle()
    saved = mine.get()
    before = [b.clone() for b in model.buffers()]
    model(torch.randn(8, 2))
    check(not all(map(torch.equal, before, model.buffers())), "a forward pass changes buffers")
    mine.set(saved)
    check(all(map(torch.equal, before, model.buffers())), "other buffers")


def sharded_needs_dtensor():
    try:
        from torch.distributed.tensor import DTensor  # noqa: F401 (PyTorch 2.4 has none there)
    except ImportError:
        try:
            elastic.Sharded(None, 2)
        except NotImplementedError as error:
            check("DTensor: use a later version" in str(error), str(error))
            return
        raise AssertionError("it is not rejected") from None
    elastic.Sharded(None, 2)


def gradients_are_awaited():
    """A collective of a GPU returns before it is complete. If the generation ends meanwhile, the gradients may be anything."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    state = elastic.State(model=model, optimizer=optimizer)
    found = []  # the parameters when they were awaited
    ends = False  # the generation, while the rank waits
    state.__dict__["_is_over"] = lambda: ends and len(found) == 2
    stream = types.SimpleNamespace(synchronize=lambda: found.append(model.weight.detach().clone()))
    before = model.weight.detach().clone()
    with mock.patch("torch.cuda.is_initialized", lambda: True), mock.patch("torch.cuda.current_stream", lambda: stream):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        after = model.weight.detach().clone()
        check(state.step == 1 and len(found) == 1 and torch.equal(found[0], before) and not torch.equal(after, before), f"{state.step} {found} {after}")
        ends = True
        try:
            optimizer.step()
            check(False, "a step with gradients of a generation that has ended")
        except DistBackendError:
            pass
    check(state.step == 1 and len(found) == 2 and torch.equal(model.weight, after) and not state._is_torn, f"{state.step} {found} {model.weight}")
    optimizer.step()  # without a GPU
    check(state.step == 2 and len(found) == 2, f"{state.step} {found}")


if __name__ == "__main__":
    before_numpy_is_used(sys.argv[1])
    for case in restored, read_only_if_changed, last_two_steps_are_there, damaged_files:
        case(sys.argv[1])
    buffers()
    sharded_needs_dtensor()
    gradients_are_awaited()
    print(f"torch {torch.__version__}: all comes back")
