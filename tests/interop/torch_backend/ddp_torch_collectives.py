"""Compare every collective of ddp_torch with gloo's or, if gloo lacks it, with the correct result.

usage: ddprun -n N ddp_torch_collectives.py

Values are small whole numbers, so that sums are exact in every type and order.
"""
import itertools
import os
import warnings

from datetime import timedelta

import torch
import torch.distributed as dist

import ddp_torch  # noqa: F401 (registers the back end)

from ddp_torch.work import KEEPS_PYTHON_WORK

NUMBERS = [torch.float32, torch.float64, torch.float16, torch.int8, torch.uint8, torch.int32, torch.int64]
if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4):
    NUMBERS.append(torch.bfloat16)  # before, gloo has none
OTHERS = [torch.bool, torch.int16, torch.complex64]
SIZES = [0, 1, 5, 1000, 70001]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]
BITS = [dist.ReduceOp.BAND, dist.ReduceOp.BOR]

count = 0


def values(dtype, n, rank, salt=0):
    """The same on every rank for a rank: 1, 2 or 3, in no simple order."""
    numbers = (torch.arange(n) * 7919 + (rank + 1) * 104729 + salt * 31) % 97 % 3 + 1
    return numbers > 1 if dtype == torch.bool else numbers.to(dtype)


def same(what, ours, theirs):
    global count
    if ours.dtype != theirs.dtype or not torch.equal(ours, theirs):
        raise AssertionError(f"rank {dist.get_rank()}: {what}: {ours.flatten()[:8]} is not {theirs.flatten()[:8]}")
    count += 1


def both(what, call, gloo, *tensors):
    """The same call on both groups, with copies of the tensors; all of these must be equal then."""
    ours, theirs = [t.clone() for t in tensors], [t.clone() for t in tensors]
    call(*ours, None)
    call(*theirs, gloo)
    for a, b in zip(ours, theirs):
        same(what, a, b)


def reductions(rank, n, gloo):
    for dtype, size, op in itertools.product(NUMBERS, SIZES, OPS):
        what = f"{op} of {size} {dtype}"
        mine = values(dtype, size, rank)
        both("all_reduce " + what, lambda t, g: dist.all_reduce(t, op, g), gloo, mine)
        if size < 2000:
            expected = mine.clone()
            dist.all_reduce(expected, op, gloo)
            result = mine.clone()
            dist.reduce(result, n - 1, op)
            same("reduce " + what, result, expected if rank == n - 1 else mine)
            whole = torch.cat([values(dtype, size, rank, r) for r in range(n)])
            share, sums = torch.empty(size, dtype=dtype), whole.clone()
            dist.all_reduce(sums, op, gloo)
            dist.reduce_scatter_tensor(share, whole, op)
            same("reduce_scatter_tensor " + what, share, sums[rank * size:(rank + 1) * size])
            dist.reduce_scatter(share.zero_(), list(whole.clone().chunk(n)) if size else [whole] * n, op)
            same("reduce_scatter " + what, share, sums[rank * size:(rank + 1) * size])
    for dtype, op in itertools.product([torch.int32, torch.uint8], BITS):
        both(f"all_reduce {op} of {dtype}", lambda t, g: dist.all_reduce(t, op, g), gloo, values(dtype, 100, rank))


def special_reductions(rank, n):
    truth = [values(torch.bool, 300, r) for r in range(n)]
    for op, fold in (dist.ReduceOp.SUM, torch.any), (dist.ReduceOp.MAX, torch.any), (dist.ReduceOp.MIN, torch.all):
        result = truth[rank].clone()
        dist.all_reduce(result, op)
        same(f"{op} of truth values", result, fold(torch.stack(truth), 0))
    for dtype in torch.float32, torch.float64:
        result = values(dtype, 300, rank) * n
        dist.all_reduce(result, dist.ReduceOp.AVG)
        expected = sum(values(dtype, 300, r) * n * (1 / n) for r in range(n))
        torch.testing.assert_close(result, expected)
    number = torch.full((50,), complex(rank, 1), dtype=torch.complex64)
    dist.all_reduce(number)
    same("sum of complex numbers", number, torch.full((50,), complex(n * (n - 1) // 2, n), dtype=torch.complex64))
    for op, dtype in (dist.ReduceOp.BXOR, torch.int32), (dist.ReduceOp.BAND, torch.float32), (dist.ReduceOp.SUM, torch.int16):
        try:
            dist.all_reduce(torch.ones(3, dtype=dtype), op)
            raise AssertionError(f"{op} of {dtype} is not refused")
        except ValueError as error:
            assert f"ddp: {op.name} does not support {dtype}: " in str(error), error


def copies(rank, n, gloo):
    for dtype, size in itertools.product(NUMBERS + OTHERS, SIZES):
        what = f"of {size} {dtype}"
        mine = values(dtype, size, rank)
        everyone = [values(dtype, size, r) for r in range(n)]
        result = mine.clone()
        dist.broadcast(result, n - 1)
        same("broadcast " + what, result, everyone[n - 1])
        apart = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(apart, mine)
        whole = torch.empty(n * size, dtype=dtype)
        dist.all_gather_into_tensor(whole, mine)
        same("all_gather_into_tensor " + what, whole, torch.cat(everyone))
        same("all_gather " + what, torch.cat(apart), whole)
        dist.all_gather(list(whole.zero_().chunk(n)) if size else apart, mine)  # one after the other
        same("all_gather into chunks " + what, whole, torch.cat(everyone))
        dist.gather(mine, apart if rank == 0 else None, 0)
        same("gather " + what, torch.cat(apart), whole)
        result = torch.empty_like(mine)
        dist.scatter(result, everyone if rank == 1 else None, 1)
        same("scatter " + what, result, mine)
        dealt = torch.cat([values(dtype, size, rank, to) for to in range(n)])
        expected = torch.cat([values(dtype, size, source, rank) for source in range(n)])
        whole = torch.empty_like(dealt)
        dist.all_to_all_single(whole, dealt)
        same("all_to_all_single " + what, whole, expected)
        pieces = [torch.empty_like(mine) for _ in range(n)]
        dist.all_to_all(pieces, [values(dtype, size, rank, to) for to in range(n)])
        same("all_to_all " + what, torch.cat(pieces), expected)


def uneven(rank, n):
    """Rank r gives rank d (r + d) % 3 rows of 4."""
    sizes = [[(r + d) % 3 for d in range(n)] for r in range(n)]
    rows = {(r, d): values(torch.float32, 4 * sizes[r][d], r, d).view(-1, 4) for r in range(n) for d in range(n)}
    sent, received = sizes[rank], [sizes[r][rank] for r in range(n)]
    out = torch.empty(sum(received), 4)
    dist.all_to_all_single(out, torch.cat([rows[rank, d] for d in range(n)]), received, sent)
    same("uneven all_to_all_single", out, torch.cat([rows[r, rank] for r in range(n)]))
    pieces = [torch.empty(rows[r, rank].shape) for r in range(n)]
    dist.all_to_all(pieces, [rows[rank, d] for d in range(n)])
    same("uneven all_to_all", torch.cat(pieces), out)
    gathered = [torch.empty(r + 1, 2, dtype=torch.int64) for r in range(n)]
    dist.all_gather(gathered, torch.full((rank + 1, 2), rank))
    same("uneven all_gather", torch.cat(gathered), torch.cat([torch.full((r + 1, 2), r) for r in range(n)]))
    share = torch.empty(rank + 1)
    dist.reduce_scatter(share, [torch.full((r + 1,), float(rank)) for r in range(n)])
    same("uneven reduce_scatter", share, torch.full((rank + 1,), float(n * (n - 1) // 2)))


def strides(rank, n):
    """Tensors that do not lie in one piece, in and out."""
    def strided(number):
        return torch.full((6, 10), float(number)).t()[::2]

    every = torch.ones(5, 6)
    total = n * (n - 1) // 2
    result = strided(rank)
    dist.all_reduce(result)
    same("strided all_reduce", result, every * total)
    result = strided(rank)
    work = dist.all_reduce(result, async_op=True)
    work.wait()
    same("strided asynchronous all_reduce", result, every * total)
    result = strided(rank)
    dist.reduce(result, 0)
    same("strided reduce", result, every * (total if rank == 0 else rank))
    result = strided(rank)
    dist.broadcast(result, 1)
    same("strided broadcast", result, every)
    parameter = torch.nn.Parameter(torch.full((6, 10), float(rank)).t())
    dist.broadcast(parameter, 1)
    dist.all_reduce(parameter, async_op=True).wait()
    same("strided parameter", parameter.detach(), torch.full((10, 6), float(n)))
    pieces = [strided(-1) for _ in range(n)]
    dist.all_gather(pieces, strided(rank))
    same("strided all_gather", torch.stack(pieces), torch.stack([every * r for r in range(n)]))
    whole = torch.empty(6, 5 * n).t()
    dist.all_gather_into_tensor(whole, strided(rank))
    same("strided all_gather_into_tensor", whole, torch.cat([every * r for r in range(n)]))
    result = strided(-1)
    dist.scatter(result, [strided(r) for r in range(n)] if rank == 0 else None, 0)
    same("strided scatter", result, every * rank)
    result = strided(-1)
    if rank == 0:
        dist.send(strided(7), 1)
    elif rank == 1:
        dist.recv(result, 0)
        same("strided message", result, every * 7)


def unwritable(rank):
    """A failure to distribute the result is reported by each wait() and by a future; by an old torch, by the call."""
    with torch.inference_mode():
        result = torch.full((6, 10), float(rank)).t()
    if KEEPS_PYTHON_WORK:
        waited, asked = [dist.broadcast(result, 1, async_op=True) for _ in range(2)]
        waits = [asked.get_future().wait, waited.wait, waited.wait]
    else:
        waits = [lambda: dist.broadcast(result, 1, async_op=True)]
    for wait in waits:
        try:
            wait()
            failed = False
        except RuntimeError as error:
            failed = "nference" in str(error)
        assert failed == (rank != 1), rank


def asynchronous(rank, n):
    tensors = [values(torch.float32, 3000, rank, i) for i in range(40)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    blocked = torch.tensor([rank])
    dist.all_reduce(blocked)  # after them
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    for i, tensor in enumerate(tensors):
        same("asynchronous all_reduce", tensor, sum(values(torch.float32, 3000, r, i) for r in range(n)))
    tensor = values(torch.float32, 3000, rank)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda f: torch.flatten(torch.stack(list(f.value()))) * 2)
    same("future", doubled.wait(), 2 * sum(values(torch.float32, 3000, r) for r in range(n)))
    for _ in range(600):  # nothing waits for them
        dist.all_reduce(torch.ones(1), async_op=True)
    dist.barrier()
    work = dist.barrier(async_op=True)
    while not work.is_completed():
        pass
    work.wait()


def coalesced(rank, n):
    tensors = [torch.full((k + 1,), float(rank)) for k in range(5)]
    if hasattr(dist, "_coalescing_manager"):
        with dist._coalescing_manager():
            for tensor in tensors:
                dist.all_reduce(tensor)
        for tensor in tensors:
            same("coalesced all_reduce", tensor, torch.full_like(tensor, n * (n - 1) // 2))


def single_tensors(rank, n):
    """The names that torch 2.15 has, and 2.11 has not."""
    if not hasattr(dist, "gather_single"):
        return
    for dtype, size in itertools.product([torch.float32, torch.int16], [0, 5, 70001]):
        mine, whole = values(dtype, size, rank), torch.cat([values(dtype, size, r) for r in range(n)])
        for gather in dist.gather_single, dist.gather_into_tensor:
            for is_async in False, True:
                out = torch.zeros_like(whole) if rank == n - 1 else None
                work = gather(mine, out, dst=n - 1, async_op=is_async)
                if is_async:
                    work.wait()
                if rank == n - 1:
                    same(f"{gather.__name__} of {size} {dtype}", out, whole)
        out = torch.zeros_like(whole)
        dist.all_gather_single(out, mine)
        same(f"all_gather_single of {size} {dtype}", out, whole)
    out = torch.zeros(2, n).t() if rank == 0 else None
    dist.gather_single(torch.full((2,), float(rank)), out, dst=0)
    if rank == 0:
        same("strided gather_single", out, torch.arange(float(n))[:, None].expand(n, 2))
    share = torch.zeros(4)
    dist.reduce_scatter_single(share, torch.arange(4.0 * n))
    same("reduce_scatter_single", share, n * torch.arange(4.0 * rank, 4.0 * rank + 4))
    try:
        dist.gather_single(torch.ones(3), torch.ones(3 * n + 1) if rank == 0 else None, dst=0)
        assert rank != 0, "gather_single accepts an output of another size"
    except ValueError as error:
        assert "gather_single: invalid number of elements" in str(error), error
    if rank == 0:  # the others have made the call
        dist.gather_single(torch.ones(3), torch.ones(3 * n), dst=0)


def functional(rank, n):
    """The calls of DTensor and of compiled programs, which come by C++; several tensors in one."""
    import torch.distributed._functional_collectives as functional

    world, ranks = dist.group.WORLD, float(sum(range(n)))
    parts = [torch.full((2 * n,), float(rank)), torch.full((n, 3), float(rank))]
    for part, result in zip(parts, functional.all_reduce_coalesced(parts, "sum", world)):
        same("functional all_reduce_coalesced", result + 0, torch.full_like(part, ranks))
    for part, result in zip(parts, functional.all_gather_into_tensor_coalesced(parts, world)):
        same("functional all_gather_into_tensor_coalesced", result + 0, torch.cat([torch.full_like(part, r) for r in range(n)]))
    for part, result in zip(parts, functional.reduce_scatter_tensor_coalesced(parts, "sum", [0, 0], world)):
        same("functional reduce_scatter_tensor_coalesced", result + 0, torch.full_like(part.chunk(n)[0], ranks))
    same("functional all_reduce", functional.all_reduce(parts[0], "max", world) + 0, torch.full((2 * n,), n - 1.0))
    if hasattr(functional, "all_to_all_single"):
        swapped = functional.all_to_all_single(torch.full((n,), float(rank)), None, None, world)
        same("functional all_to_all_single", swapped + 0, torch.arange(float(n)))
    if hasattr(dist, "_coalescing_manager"):
        with dist._coalescing_manager(async_ops=True) as manager:
            for part in parts:
                dist.all_reduce(part)
        manager.wait()
        for part in parts:
            same("asynchronous coalesced all_reduce", part, torch.full_like(part, ranks))


def shared_memory(rank, n):
    """Tensors that the others reach: they come and go, and outlive their group."""
    for size in (3, 5), ([70001],):
        tensor = ddp_torch.empty(*size).fill_(rank)
        dist.all_reduce(tensor)
        same("all_reduce of shared memory", tensor, torch.full(tensor.shape, float(n * (n - 1) // 2)))
    for i in range(50):
        large = ddp_torch.empty(1 << 20, dtype=torch.int64)
        assert large[-1] == 0, "memory that was freed is zeroed"
        part, large = large[7:], None  # a view keeps all of it
        part.fill_(i)
        dist.broadcast(part, i % n)
    group = dist.new_group(list(range(n)))
    kept = ddp_torch.empty(1000, group=group).fill_(3)
    dist.destroy_process_group(group)
    del group
    assert kept.sum() == 3000 and ddp_torch.empty(0, 4).shape == (0, 4)


def messages(rank, n):
    right, left = (rank + 1) % n, (rank - 1) % n
    for size in 1, 100, 5000, 300000:
        for dtype in torch.float32, torch.int64, torch.bool, torch.int16:
            out = torch.empty(size, dtype=dtype)
            works = [dist.isend(values(dtype, size, rank), right), dist.irecv(out, left)]
            for work in works:
                work.wait()
            same(f"message of {size} {dtype}", out, values(dtype, size, left))
    first, second = torch.empty(1), torch.empty(1)
    works = [dist.isend(torch.tensor([float(tag)]), right, tag=tag) for tag in (1, 2)]
    dist.recv(second, left, tag=2)
    dist.recv(first, left, tag=1)
    for work in works:
        work.wait()
    same("tags", torch.cat([first, second]), torch.tensor([1.0, 2.0]))
    out = torch.empty(9)
    swap = [dist.P2POp(dist.isend, torch.full((9,), float(rank)), right), dist.P2POp(dist.irecv, out, left)]
    for work in dist.batch_isend_irecv(swap):
        work.wait()
    same("batch", out, torch.full((9,), float(left)))
    late = torch.empty(4)
    work = dist.irecv(late, left)
    dist.all_reduce(torch.ones(1))  # collectives continue meanwhile
    dist.send(torch.full((4,), float(rank)), right)
    work.wait()
    same("a message around a collective", late, torch.full((4,), float(left)))


def lists_of_tensors(rank, n):
    """What torch will remove."""
    tensors = [torch.full((k + 1,), float(rank)) for k in range(3)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        same("all_reduce_coalesced", tensor, torch.full_like(tensor, n * (n - 1) // 2))
    mine = [torch.full((2,), float(rank)), torch.full((3,), -float(rank))]
    lists = [[torch.empty(2), torch.empty(3)] for _ in range(n)]
    dist.all_gather_coalesced(lists, mine)
    for r, gathered in enumerate(lists):
        same("all_gather_coalesced", torch.cat(gathered), torch.tensor([r] * 2 + [-r] * 3, dtype=torch.float32))


def objects(rank, n):
    gathered = [None] * n
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * (rank * 1000)})
    assert [o["rank"] for o in gathered] == list(range(n)), gathered
    told = [rank, "from"] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, 1)
    assert told == [1, "from"], told
    out = [None]
    dist.scatter_object_list(out, list(range(n)) if rank == 0 else None, 0)
    assert out == [rank], out
    gathered = [None] * n if rank == 0 else None
    dist.gather_object({"rank": rank}, gathered, 0)
    assert rank != 0 or [o["rank"] for o in gathered] == list(range(n)), gathered
    if hasattr(dist, "send_object_list"):
        letter = ["from 0", {"to": 1}] if rank == 0 else [None, None]
        if rank == 0:
            dist.send_object_list(letter, 1)
        elif rank == 1:
            dist.recv_object_list(letter, 0)
            assert letter == ["from 0", {"to": 1}], letter


def groups(rank, n):
    # without duplicates, which torch 2.15 rejects
    for members in [0, n - 1], sorted({n - 1, 1}, reverse=True), list(range(n)), [1]:
        group = dist.new_group(members, backend="ddp")
        if rank in members:
            tensor = torch.tensor([float(rank)])
            dist.all_reduce(tensor, group=group)
            same("a group's sum", tensor, torch.tensor([float(sum(members))]))
            assert dist.get_world_size(group) == len(members)
    half = dist.new_group([0, 1])
    if rank < 2:
        mine = torch.tensor([rank])
        dist.broadcast(mine, 1, group=half)
        same("broadcast in a group", mine, torch.tensor([1]))
        dist.destroy_process_group(half)
    for group in dist.new_subgroups(1)[0], dist.new_subgroups_by_enumeration([[r] for r in range(n)])[0]:
        assert dist.get_process_group_ranks(group) == [rank]
        dist.barrier(group)
    dist.barrier()


def identity(rank, n):
    """What torch asks of a group and of its back end."""
    world, cpu = dist.group.WORLD, torch.device("cpu")
    world.monitored_barrier(timedelta(seconds=60))
    assert world._get_backend(cpu) is world
    for name in "coalescing", "splitting", "reconfigure", "window":
        assert getattr(world, "supports_" + name) is False, name
    if hasattr(dist, "get_backend_impl"):
        assert dist.get_backend_impl() is world and dist.get_backend_impl(world, cpu) is world
        assert not dist.distributed_c10d._supports_reconfigure() and not dist.distributed_c10d._supports_window()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (dist.set_timeout if hasattr(dist, "set_timeout") else world.set_timeout)(timedelta(minutes=29))
    try:
        world.set_timeout(timedelta(0))
        raise AssertionError("set_timeout accepts 0")
    except dist.DistBackendError as error:
        assert "invalid value 0 for timeout_ms" in str(error), error


def forked():
    """A child is not a rank, gets an error that states it, and ends without waiting for the parent's threads. (gloo would hang or
    crash in a child at the end of the interpreter.)"""
    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()  # both threads are there
    child = os.fork()
    if child == 0:
        try:
            dist.barrier()
        except dist.DistBackendError as error:
            ddp_torch.process_group.leave_all()  # as at exit
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 7, status
    dist.barrier()


def main():
    dist.init_process_group("ddp")
    rank, n = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    assert dist.get_backend() == "ddp", dist.get_backend()
    reductions(rank, n, gloo)
    special_reductions(rank, n)
    copies(rank, n, gloo)
    uneven(rank, n)
    strides(rank, n)
    unwritable(rank)
    asynchronous(rank, n)
    coalesced(rank, n)
    single_tensors(rank, n)
    lists_of_tensors(rank, n)
    functional(rank, n)
    shared_memory(rank, n)
    messages(rank, n)
    objects(rank, n)
    groups(rank, n)
    identity(rank, n)
    forked()
    dist.destroy_process_group()
    dist.init_process_group("ddp")  # and once more, by the same store
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    same("after another beginning", tensor, torch.full((1,), float(n)))
    dist.destroy_process_group()
    print(f"torch {torch.__version__}: rank {rank}: {count} results are the same", flush=True)


if __name__ == "__main__":
    main()
