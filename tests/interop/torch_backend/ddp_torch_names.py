"""Compare what torch's classes and torch.distributed offer with what ddp_torch defines and ddp_torch_collectives.py calls: a new
release of torch that adds a name fails here.

usage: ddp_torch_names.py

Each name of torch's ProcessGroup and Backend must be defined by ProcessGroupDdp or be in one of the tables below, with the reason.
"""
import os
import re
import sys

import torch
import torch.distributed as dist

from torch._C._distributed_c10d import Backend

from ddp_torch import ProcessGroupDdp

# torch's own definition is right for a group without back ends of C++
INHERITED = {
    "rank", "size", "boxed", "unbox", "group_desc", "bound_device_id", "get_group_store",
    "_set_group_desc", "_get_backend_name", "_id", "_backend_id", "_has_hooks", "_wait_for_pending_works",
    "_device_types",  # empty: torch attaches its flight recorder to a group that has some
    "_set_default_backend", "_register_backend", "_set_sequence_number_for_group",
    "_add_ephemeral_timeout", "_register_on_completion_hook", "_enable_collectives_timing",
    "use_pg_for_symm_mem_rendezvous", "_pybind11_conduit_v1_",
    "BackendType", "UNDEFINED", "GLOO", "NCCL", "XCCL", "UCC", "MPI", "CUSTOM",
    "supports_abort_hooks", "supports_completion_hooks",  # torch has no back end to ask
}
# docs/how-to/ddp-torch.md lists what users may miss
NOT_SUPPORTED = {
    "_get_sequence_number_for_group",  # 2.15 asks for it in the debug mode of gloo and NCCL
    "split_group", "merge_remote_group",
    "get_reconfigure_handle", "reconfigure", "new_window",
    "register_abort_hook", "unregister_abort_hook",
    "register_pre_hook", "unregister_pre_hook", "register_post_hook", "unregister_post_hook",
}
# Of Backend, which is not our base: torch asks for these after a supports_..., for NCCL, or not at all
ONLY_OF_BACKEND = {
    "Options", "options", "allocate_tensor", "mem_allocator", "memory_stats", "eager_connect_single_device", "shrink", "split", "merge",
    "suspend", "resume", "get_error", "allreduce_sparse", "supports_time_estimate", "_supports_time_estimate", "_start_time_estimate",
    "_end_time_estimate", "_set_group_uid", "setUsePgForSymmMemRendezvous",
}
# of torch.distributed: functions that do not depend on the back end
INDEPENDENT = {
    "get_backend_config", "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available", "get_debug_level", "supports_complex", "record_comm", "reduce_op", "GroupName", "group",
    "monitored_barrier",  # torch's is for gloo only: the group has a method
    "split_group", "shrink_group",  # NOT_SUPPORTED
}


def names(of):
    return {name for name in dir(of) if not name.startswith("__")}


def functions():
    """The public functions of torch.distributed: the rest are types, options, and constants."""
    found = (name for name in dist.distributed_c10d.__all__ if not isinstance(getattr(dist.distributed_c10d, name), type))
    return {name for name in found if callable(getattr(dist.distributed_c10d, name))}


def main():
    ours = set(vars(ProcessGroupDdp))
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "ddp_torch_collectives.py"), encoding="utf-8") as f:
        called = set(re.findall(r"\bdist\.(\w+)", f.read()))
    unknown = [f"ProcessGroup.{name}" for name in names(dist.ProcessGroup) - ours - INHERITED - NOT_SUPPORTED]
    unknown += [f"Backend.{name}" for name in names(Backend) - ours - INHERITED - NOT_SUPPORTED - ONLY_OF_BACKEND]
    unknown += [f"torch.distributed.{name}()" for name in functions() - called - INDEPENDENT]
    if unknown:
        sys.exit(f"torch {torch.__version__} has names that ddp_torch and its tests do not know: {', '.join(sorted(unknown))}: "
                 "define each in python/ddp_torch/process_group.py, call it in ddp_torch_collectives.py, or add it to a table here")
    both = ours & (INHERITED | NOT_SUPPORTED | ONLY_OF_BACKEND)
    if both:
        sys.exit(f"ddp_torch defines names that a table here has: {', '.join(sorted(both))}")
    print(f"torch {torch.__version__}: all names are known")


main()
