"""Tensors as libddp sees them: a pointer, a count, an element type; and reductions by its numbers."""
import torch

from torch.distributed import ReduceOp

from . import library

# The types that are added up. All others are copied as bytes.
DTYPES = {
    torch.float32: library.FLOAT32,
    torch.float64: library.FLOAT64,
    torch.int32: library.INT32,
    torch.int64: library.INT64,
    torch.float16: library.FLOAT16,
    torch.bfloat16: library.BFLOAT16,
    torch.int8: library.INT8,
    torch.uint8: library.UINT8,
}
for _name, _number in ("uint32", library.UINT32), ("uint64", library.UINT64):
    if hasattr(torch, _name):
        DTYPES[getattr(torch, _name)] = _number

OPS = {
    "SUM": library.SUM,
    "AVG": library.AVG,
    "MIN": library.MIN,
    "MAX": library.MAX,
    "PRODUCT": library.PROD,
    "BAND": library.BAND,
    "BOR": library.BOR,
}
# Of truth values, which are bytes of 0 and 1: any of them, or all of them.
BOOL_OPS = {"SUM": "BOR", "MAX": "BOR", "BOR": "BOR", "PRODUCT": "BAND", "MIN": "BAND", "BAND": "BAND"}

_numbers = {int(getattr(ReduceOp, name)): name for name in OPS}
_known = {
    (dtype, number): (DTYPES[dtype], OPS[name])
    for dtype in DTYPES
    for number, name in _numbers.items()
    if not (dtype.is_floating_point and name in ("BAND", "BOR"))
}
_known.update(
    {
        (torch.bool, number): (library.UINT8, OPS[BOOL_OPS[name]])
        for number, name in _numbers.items()
        if name in BOOL_OPS
    }
)


def reduction(tensor, op):
    """(element type, operation) of libddp.

    op   a torch.distributed.ReduceOp, as options hold it"""
    found = _known.get((tensor.dtype, int(op.op)))
    if found is None:
        raise ValueError(f"ddp: {op.op.name} does not support {tensor.dtype}: use SUM, AVG, PRODUCT, MIN and MAX with numbers, "
                         "and BAND and BOR with integers and booleans")
    return found


def copied(tensor):
    """(element type of libddp, its elements in each of the tensor's)"""
    number = DTYPES.get(tensor.dtype)
    return (library.UINT8, tensor.element_size()) if number is None else (number, 1)


def check_dense(tensors):
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise ValueError(f"ddp: tensors must be dense, not {tensor.layout}: use gloo for sparse ones")


def check_same_type(tensors):
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise ValueError(f"ddp: the tensors of a call have different types: {sorted({str(t.dtype) for t in tensors})}")


def one_behind_the_other(tensors):
    """Whether their elements lie in memory as those of one tensor would."""
    end = tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or (tensor.data_ptr() != end and tensor.numel() > 0):
            return False
        end += tensor.numel() * tensor.element_size()
    return True


def packed(tensors):
    """A contiguous tensor that begins with the elements of all of them: what is read."""
    check_same_type(tensors)
    if one_behind_the_other(tensors):
        return tensors[0]
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def room_for(tensors):
    """(A contiguous tensor to write into, a function that deals it out to the tensors afterwards, or None.)"""
    check_same_type(tensors)
    if one_behind_the_other(tensors):
        return tensors[0], None
    room = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)

    def deal():
        begin = 0
        for tensor in tensors:
            tensor.copy_(room[begin:begin + tensor.numel()].view(tensor.shape))
            begin += tensor.numel()

    return room, deal


def deal_out(finish):
    """Call what fills tensors from elsewhere. They may be parameters: no history is kept of it."""
    with torch.no_grad():
        finish()
