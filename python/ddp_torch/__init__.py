"""libddp as a back end of torch.distributed, for tensors of the CPU: no C++ to compile, PyTorch 2.1 and later.

    import ddp_torch
    torch.distributed.init_process_group("ddp")                  # or "cpu:ddp,cuda:nccl"

Everything else stays as it is: DistributedDataParallel, FSDP, DTensor, new_group() and the collectives by their names.
docs/how-to/ddp-torch.md describes what it can do, and how it is measured.
"""
import sys

try:
    import torch.distributed
except ModuleNotFoundError:
    # `python -m ddp_torch --cflags` is for C programs, which need no PyTorch: "-m" while Python imports the package for it.
    if sys.argv[0] != "-m":
        raise
else:
    from .memory import load, save
    from .process_group import ProcessGroupDdp, create, empty
    from .progress import step

    __all__ = ["ProcessGroupDdp", "empty", "load", "save", "step"]

    if "ddp" not in torch.distributed.Backend.backend_list:
        torch.distributed.Backend.register_backend("ddp", create, devices=["cpu"])
