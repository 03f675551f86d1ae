"""The process group: torch's calls, each as one or some of libddp's.

The calling thread makes a call without async_op, which is over when the method returns. libddp's thread of
asynchronous calls makes all other calls, in the same order. The path of the first kind is kept short: 4 KiB take libddp two
microseconds.
"""
import atexit
import ctypes
import os
import threading
import weakref

from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    PrefixStore,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from . import meeting
from .elements import check_dense, check_same_type, copied, deal_out, packed, reduction, room_for
from .library import library
from .work import DONE, KEEPS_PYTHON_WORK, Completer, Pending, Several, done_with, handed_out

_alive = weakref.WeakSet()
_orphans = []  # (the thread that joined, the handle) of groups that another thread let go


def counts_of(tensors, size):
    """An array of size_t: the elements of each, `size` for each of the tensor's."""
    return (ctypes.c_size_t * len(tensors))(*[tensor.numel() * size for tensor in tensors])


def only(tensors, what):
    if len(tensors) != 1:
        raise ValueError(f"ddp: {what} takes one tensor for each process, not {len(tensors)}")
    return tensors[0]


def is_async(opts):
    return KEEPS_PYTHON_WORK and getattr(opts, "asyncOp", True)


class ProcessGroupDdp(dist.ProcessGroup):
    """Collectives and messages among ranks that libddp has brought together. Tensors of other devices go to the back
    end that init_process_group() was given for them."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.handle = None
        self.pending = set()
        self._rank, self._size = rank, size
        self._store, self._timeout = store, timeout
        self._messages = threading.RLock()
        self._completer = Completer("ddp futures")
        self._others = {}
        self._coalesced = None
        self._group_name = ""
        self._pid, self._thread = os.getpid(), threading.get_ident()
        leave_orphans()
        self.handle = meeting.join(store, rank, size, timeout)
        _alive.add(self)

    # --- identity ---------------------------------------------------------------------------------

    def getBackendName(self):
        return "ddp"

    def name(self):
        return "ddp"

    # torch 2.15 calls some methods by the second of two names, and takes the attributes of the back end of a device
    # from get_backend(). A group that is a ProcessGroup itself is its own back end.

    supports_coalescing = False
    supports_reconfigure = False
    supports_shrinking = False
    supports_splitting = False
    supports_window = False

    def supports_tensor_alloc(self, device):
        return False

    def get_backend(self, device):
        device = torch.device(device)
        if device.type == "cpu":
            return self
        if self._wanted(device.type) is None:
            return super()._get_backend(device)  # which raises torch's error
        return self._other(device.type)

    _get_backend = get_backend

    def _set_group_name(self, name):
        self._group_name = name  # older torches keep it in the back ends of C++, which do not exist here
        super()._set_group_name(name)

    @property
    def group_name(self):
        return self._group_name

    def set_timeout(self, timeout):
        """For calls that begin from now on. torch.distributed.set_timeout() of torch 2.15 calls this."""
        status = library.set_timeout(self.handle, max(0, timeout // timedelta(milliseconds=1)))
        if status != 0:
            raise library.error("set_timeout", status)
        self._timeout = timeout
        for other in self._others.values():
            change = other.set_timeout if hasattr(other, "set_timeout") else other._set_default_timeout
            change(timeout)

    # --- how calls are made -----------------------------------------------------------------------

    def complete_later(self, work):
        self._completer.add(work)

    def sweep(self):
        """Release the calls that are done and that the program has not waited for."""
        for work in list(self.pending):
            work.look()

    def _call(self, name, opts, arguments, results, memory, finish=None):
        """Make a collective of libddp.

        arguments   between the group and the request
        results     the tensors that it fills
        memory      what else it uses, kept until it is done
        finish      called then, or None"""
        if not is_async(opts):
            status = getattr(library, name)(self.handle, *arguments)
            if status != 0:
                raise library.error(name, status)
            if finish is not None:
                deal_out(finish)
            return DONE if KEEPS_PYTHON_WORK else done_with(results)
        request = ctypes.c_void_p()
        status = getattr(library, "i" + name)(self.handle, *arguments, ctypes.byref(request))
        if status != 0:
            raise library.error(name, status)
        work = Pending(self, name, request.value, results, memory, finish)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return handed_out(work)

    def _each(self, method, opts, calls, results):
        """Several calls as one. `calls`: the arguments of each."""
        works = [method(*arguments, opts) for arguments in calls]
        if all(work is DONE for work in works):
            return DONE
        return handed_out(Several(works, results))

    def _elsewhere(self, tensor):
        return self._other(tensor.device.type)

    def _other(self, device):
        """The back end for a device that is not the CPU, made at its first use."""
        if device not in self._others:
            self._others[device] = self._make_other(device)
        return self._others[device]

    def _config(self):
        return str(dist.distributed_c10d._world.pg_backend_config.get(self, ""))  # "": torch has not registered the group yet

    def _wanted(self, device):
        return dict(part.split(":") for part in self._config().split(",") if ":" in part).get(device)

    def _make_other(self, device):
        wanted = self._wanted(device)
        store = PrefixStore(f"{device}/", self._store)
        if wanted == "nccl":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = self._timeout
            return dist.ProcessGroupNCCL(store, self._rank, self._size, options)
        if wanted == "gloo":
            return dist.ProcessGroupGloo(store, self._rank, self._size, self._timeout)
        raise ValueError(
            f"ddp: no back end for tensors on {device}: use init_process_group('cpu:ddp,{device}:nccl'); "
            f"this group has '{self._config()}'"
        )

    # --- reductions -------------------------------------------------------------------------------

    def allreduce(self, tensors, opts=AllreduceOptions()):
        tensor = only(tensors, "all_reduce")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).allreduce(tensors, opts)
        dtype, op = reduction(tensor, opts.reduceOp)
        if tensor.is_contiguous():
            data, finish = tensor, None
        else:
            check_dense(tensors)
            data = tensor.contiguous()
            finish = partial(tensor.copy_, data)
        place = data.data_ptr()
        return self._call("all_reduce", opts, (place, place, data.numel(), dtype, op, None), tensors, data, finish)

    def allreduce_coalesced(self, tensors, opts=AllreduceCoalescedOptions()):
        return self._each(self.allreduce, opts, [([tensor],) for tensor in tensors], tensors)

    def reduce(self, tensors, opts=ReduceOptions()):
        tensor = only(tensors, "reduce")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).reduce(tensors, opts)
        check_dense(tensors)
        dtype, op = reduction(tensor, opts.reduceOp)
        data = tensor.contiguous()
        finish = partial(tensor.copy_, data) if data is not tensor and opts.rootRank == self._rank else None
        place = data.data_ptr()
        arguments = (place, place, data.numel(), dtype, op, opts.rootRank, None)
        return self._call("reduce", opts, arguments, tensors, data, finish)

    def reduce_scatter(self, output_tensors, input_tensors, opts=ReduceScatterOptions()):
        output, inputs = only(output_tensors, "reduce_scatter"), only(input_tensors, "reduce_scatter")
        if not output.is_cpu:
            return self._elsewhere(output).reduce_scatter(output_tensors, input_tensors, opts)
        self._check_blocks(inputs, "reduce_scatter")
        check_dense([output, *inputs])
        check_same_type([output, *inputs])
        dtype, op = reduction(output, opts.reduceOp)
        data = packed(inputs)
        room, finish = room_for([output])
        counts = counts_of(inputs, 1)
        if counts[self._rank] != output.numel():
            raise ValueError(f"ddp: reduce_scatter: the output has {output.numel()} elements: expected {counts[self._rank]}")
        arguments = (data.data_ptr(), room.data_ptr(), counts, dtype, op, None)
        return self._call("reduce_scatter_v", opts, arguments, [output], (data, room, inputs), finish)

    def _reduce_scatter_base(self, output, input, opts=ReduceScatterOptions()):
        if not output.is_cpu:
            return self._elsewhere(output)._reduce_scatter_base(output, input, opts)
        check_dense([output, input])
        check_same_type([output, input])
        self._check_share(output, input, "reduce_scatter_tensor")
        dtype, op = reduction(output, opts.reduceOp)
        data = input.contiguous()
        room, finish = room_for([output])
        arguments = (data.data_ptr(), room.data_ptr(), output.numel(), dtype, op, None)
        return self._call("reduce_scatter", opts, arguments, [output], (data, room), finish)

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, output_tensors, input_tensors, opts=ReduceScatterOptions()):
        return self._each(self._reduce_scatter_base, opts, zip(output_tensors, input_tensors), output_tensors)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    # --- copies -----------------------------------------------------------------------------------

    def broadcast(self, tensors, opts=BroadcastOptions()):
        tensor = only(tensors, "broadcast")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).broadcast(tensors, opts)
        check_dense(tensors)
        dtype, size = copied(tensor)
        data = tensor.contiguous()
        finish = partial(tensor.copy_, data) if data is not tensor and opts.rootRank != self._rank else None
        place = data.data_ptr()
        arguments = (place, place, data.numel() * size, dtype, opts.rootRank, None)
        return self._call("broadcast", opts, arguments, tensors, data, finish)

    def allgather(self, output_tensors, input_tensors, opts=AllgatherOptions()):
        outputs, input = only(output_tensors, "all_gather"), only(input_tensors, "all_gather")
        if not input.is_cpu:
            return self._elsewhere(input).allgather(output_tensors, input_tensors, opts)
        self._check_blocks(outputs, "all_gather")
        check_dense([input, *outputs])
        check_same_type([input, *outputs])
        dtype, size = copied(input)
        counts = counts_of(outputs, size)
        if counts[self._rank] != input.numel() * size:
            raise ValueError(f"ddp: all_gather: the input has {input.numel()} elements: expected {outputs[self._rank].numel()}")
        data = input.contiguous()
        room, finish = room_for(outputs)
        arguments = (data.data_ptr(), room.data_ptr(), counts, dtype, None)
        return self._call("all_gather_v", opts, arguments, [outputs], (data, room), finish)

    def allgather_coalesced(self, output_lists, input_list, opts=AllgatherOptions()):
        # output_lists[r] holds what rank r has given, one tensor for each of input_list
        calls = [([list(outputs)], [input]) for outputs, input in zip(zip(*output_lists), input_list)]
        return self._each(self.allgather, opts, calls, output_lists)

    def _allgather_base(self, output, input, opts=AllgatherOptions()):
        if not input.is_cpu:
            return self._elsewhere(input)._allgather_base(output, input, opts)
        check_dense([output, input])
        check_same_type([output, input])
        self._check_share(input, output, "all_gather_into_tensor")
        dtype, size = copied(input)
        data = input.contiguous()
        room, finish = room_for([output])
        arguments = (data.data_ptr(), room.data_ptr(), input.numel() * size, dtype, None)
        return self._call("all_gather", opts, arguments, [output], (data, room), finish)

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, output_tensors, input_tensors, opts=AllgatherOptions()):
        return self._each(self._allgather_base, opts, zip(output_tensors, input_tensors), output_tensors)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self, output_tensors, input_tensors, opts=GatherOptions()):
        input = only(input_tensors, "gather")
        if not input.is_cpu:
            return self._elsewhere(input).gather(output_tensors, input_tensors, opts)
        outputs = only(output_tensors, "gather") if opts.rootRank == self._rank else None
        check_dense([input, *(outputs or [])])
        if outputs is not None:
            self._check_blocks(outputs, "gather")
            check_same_type([input, *outputs])
            self._check_equal(outputs, input, "gather")
        return self._gather(input, outputs, [outputs or []], opts)

    def gather_single(self, output, input, opts=GatherOptions()):
        if not input.is_cpu:
            return self._elsewhere(input).gather_single(output, input, opts)
        is_root = opts.rootRank == self._rank
        check_dense([input, output] if is_root else [input])
        if is_root:
            check_same_type([input, output])
            self._check_share(input, output, "gather_single")
        return self._gather(input, [output] if is_root else None, [output], opts)

    gather_into_tensor = gather_single

    def _gather(self, input, outputs, results, opts):
        """outputs: of the root, what the parts of all ranks fill one after the other; None on other ranks"""
        dtype, size = copied(input)
        data = input.contiguous()
        room, finish = (None, None) if outputs is None else room_for(outputs)
        counts = (ctypes.c_size_t * self._size)(*[input.numel() * size] * self._size)
        arguments = (data.data_ptr(), None if room is None else room.data_ptr(), counts, dtype, opts.rootRank, None)
        return self._call("gather_v", opts, arguments, results, (data, room), finish)

    def scatter(self, output_tensors, input_tensors, opts=ScatterOptions()):
        output = only(output_tensors, "scatter")
        if not output.is_cpu:
            return self._elsewhere(output).scatter(output_tensors, input_tensors, opts)
        dtype, size = copied(output)
        is_root = opts.rootRank == self._rank
        inputs = only(input_tensors, "scatter") if is_root else []
        check_dense([output, *inputs])
        data = None
        if is_root:
            self._check_blocks(inputs, "scatter")
            check_same_type([output, *inputs])
            self._check_equal(inputs, output, "scatter")
            data = packed(inputs)
        room, finish = room_for([output])
        counts = (ctypes.c_size_t * self._size)(*[output.numel() * size] * self._size)
        arguments = (data.data_ptr() if is_root else None, room.data_ptr(), counts, dtype, opts.rootRank, None)
        return self._call("scatter_v", opts, arguments, [output], (data, room, inputs), finish)

    def alltoall(self, output_tensors, input_tensors, opts=AllToAllOptions()):
        if not input_tensors[0].is_cpu:
            return self._elsewhere(input_tensors[0]).alltoall(output_tensors, input_tensors, opts)
        self._check_blocks(input_tensors, "all_to_all")
        self._check_blocks(output_tensors, "all_to_all")
        check_dense([*input_tensors, *output_tensors])
        check_same_type([*input_tensors, *output_tensors])
        dtype, size = copied(input_tensors[0])
        data = packed(input_tensors)
        room, finish = room_for(output_tensors)
        arguments = (
            data.data_ptr(),
            counts_of(input_tensors, size),
            room.data_ptr(),
            counts_of(output_tensors, size),
            dtype,
            None,
        )
        return self._call("all_to_all_v", opts, arguments, output_tensors, (data, room, input_tensors), finish)

    def alltoall_base(self, output, input, output_split_sizes, input_split_sizes, opts=AllToAllOptions()):
        if not input.is_cpu:
            return self._elsewhere(input).alltoall_base(output, input, output_split_sizes, input_split_sizes, opts)
        check_dense([output, input])
        check_same_type([output, input])
        dtype, size = copied(input)
        data = input.contiguous()
        room, finish = room_for([output])
        sent = self._split(input, input_split_sizes, size, "input")
        received = self._split(output, output_split_sizes, size, "output")
        arguments = (data.data_ptr(), sent, room.data_ptr(), received, dtype, None)
        return self._call("all_to_all_v", opts, arguments, [output], (data, room), finish)

    all_to_all_single = alltoall_base

    # --- barriers ---------------------------------------------------------------------------------

    def barrier(self, opts=BarrierOptions()):
        return self._call("barrier", opts, (), [], None)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """As torch.distributed.monitored_barrier(), which is for gloo only: names the ranks that do not come."""
        timeout_ms = int((timeout or self._timeout).total_seconds() * 1000)
        status = library.monitored_barrier(self.handle, timeout_ms)
        if status != 0:
            raise library.error("monitored_barrier", status)

    # --- messages ---------------------------------------------------------------------------------

    def _message(self, name, tensor, peer, tag, data, finish):
        dtype, size = copied(tensor)
        request = ctypes.c_void_p()
        with self._messages:
            status = getattr(library, name)(
                self.handle, data.data_ptr(), data.numel() * size, dtype, peer, tag, None, ctypes.byref(request)
            )
        if status != 0:
            raise library.error(name[1:], status)
        return Pending(self, name[1:], request.value, [tensor], data, finish, self._messages)

    def send(self, tensors, dst, tag=0):
        tensor = only(tensors, "send")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).send(tensors, dst, tag)
        check_dense(tensors)
        data = tensor.contiguous()
        return self._message("isend", tensor, dst, tag, data, None)

    def recv(self, tensors, src, tag=0):
        tensor = only(tensors, "recv")
        if not tensor.is_cpu:
            return self._elsewhere(tensor).recv(tensors, src, tag)
        check_dense(tensors)
        data, finish = room_for(tensors)
        return self._message("irecv", tensor, src, tag, data, finish)

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("ddp: recv() from any rank is not supported: pass src")

    # --- several as one ---------------------------------------------------------------------------

    def _start_coalescing(self, device=None):
        self._coalesced = []

    def _end_coalescing(self, device=None):
        works, self._coalesced = self._coalesced or [], None
        return handed_out(Several(works, [])) if works else DONE

    # --- the end ----------------------------------------------------------------------------------

    def shutdown(self):
        """Leave the group. Collectives that were begun are waited for; messages are not. libddp is left by the thread
        that joined: where another drops the last reference, that is made up for later."""
        handle, self.handle = self.handle, None
        if handle is None or os.getpid() != self._pid:  # a forked child is not a rank
            return
        for work in list(self.pending):
            if work.is_message:
                work.abandon()
            else:
                work.complete()
        self.pending.clear()
        self._completer.stop()
        if threading.get_ident() == self._thread:
            meeting.leave(handle)
        elif handle != meeting.Job.world:
            _orphans.append((self._thread, handle))

    abort = shutdown

    def leave_at_exit(self):
        """At the end of the process. With calls pending the kernel closes the connections, which notifies the peers."""
        if not self.pending:
            self.shutdown()

    def __del__(self):  # with nothing pending: that would keep it
        if getattr(self, "handle", None) is not None:
            self.shutdown()

    # --- arguments --------------------------------------------------------------------------------

    def _check_blocks(self, tensors, what):
        if len(tensors) != self._size:
            raise ValueError(f"ddp: {what} needs a tensor for each of {self._size} ranks, not {len(tensors)}")

    def _check_equal(self, tensors, one, what):
        if any(tensor.numel() != one.numel() for tensor in tensors):
            raise ValueError(f"ddp: {what}: the tensors of all ranks must have {one.numel()} elements each")

    def _check_share(self, share, whole, what):
        if whole.numel() != share.numel() * self._size:
            raise ValueError(
                f"ddp: {what}: invalid number of elements {whole.numel()}: expected {self._size} times {share.numel()}, one part for each rank"
            )

    def _split(self, tensor, sizes, size, which):
        """The counts of a tensor that is split along its first dimension; without sizes, into equal parts."""
        rows = tensor.size(0) if tensor.dim() > 0 else 0
        if not sizes:
            if rows % self._size != 0:
                raise ValueError(f"ddp: all_to_all_single: {rows} rows of the {which} are not divisible by {self._size} ranks: pass {which}_split_sizes")
            sizes = [rows // self._size] * self._size
        if len(sizes) != self._size or sum(sizes) != rows:
            raise ValueError(f"ddp: all_to_all_single: invalid {which}_split_sizes {list(sizes)}: expected {self._size} numbers that add up to {rows} rows")
        row = tensor.numel() // rows * size if rows > 0 else 0
        return (ctypes.c_size_t * self._size)(*[n * row for n in sizes])



def create(store, rank, size, timeout):
    """For Backend.register_backend()."""
    return ProcessGroupDdp(store, rank, size, timeout)


def leave_orphans():
    mine = [orphan for orphan in _orphans if orphan[0] == threading.get_ident()]
    for orphan in mine:
        _orphans.remove(orphan)
        library.finalize(orphan[1])


def empty(*size, dtype=torch.float32, group=None):
    """As torch.empty(), in memory that the other ranks of the node reach: collectives on it move no copies.

    group   a ddp group, for which it is meant; None: the default one. Its end does not end the tensor"""
    group = group or dist.group.WORLD
    shape = torch.Size(size[0]) if len(size) == 1 and not isinstance(size[0], int) else torch.Size(size)
    n_bytes = shape.numel() * torch.empty(0, dtype=dtype).element_size()
    if n_bytes == 0:
        return torch.empty(shape, dtype=dtype)
    memory = ctypes.c_void_p()
    status = library.alloc(group.handle, n_bytes, ctypes.byref(memory))
    if status != 0:
        raise library.error("empty", status)
    buffer = (ctypes.c_char * n_bytes).from_address(memory.value)
    weakref.finalize(buffer, _free, weakref.ref(group), memory.value).atexit = False
    return torch.frombuffer(buffer, dtype=dtype).view(shape)


def _free(group_of, address):
    """Once no tensor looks there. Without the group it stays, to the end of the process."""
    group = group_of()
    if group is not None and group.handle is not None:
        library.free(group.handle, address)


@atexit.register
def leave_all():
    for group in list(_alive):
        group.leave_at_exit()
    leave_orphans()
