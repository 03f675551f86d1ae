"""Whether an exception can come from a call that waited for other ranks, or is the program's own."""
import dis

import torch

OWN_KINDS = (NotImplementedError, RecursionError, torch.cuda.OutOfMemoryError)
RAISES = {dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in dis.opmap}
LIBRARIES = "torch", "ddp_torch"


def innermost(error):
    found = error.__traceback__
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    return found


def is_raised_by_program(error):
    """By a raise statement outside of torch: what C++ raises has no such statement."""
    place = innermost(error)
    if place is None or place.tb_lasti < 0:
        return False
    module = place.tb_frame.f_globals.get("__name__", "")
    return place.tb_frame.f_code.co_code[place.tb_lasti] in RAISES and module.split(".")[0] not in LIBRARIES


def may_be_of_communication(error):
    """Also if the program has caught it, and has raised another one because of it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, RuntimeError) and not isinstance(error, OWN_KINDS) and not is_raised_by_program(error):
            return True
        error = error.__cause__ or error.__context__
    return False
