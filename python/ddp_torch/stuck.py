"""Whether a thread sits in a call of torch that does not return."""
import sys
import threading


class Thread:
    """The one that makes this object."""

    def __init__(self):
        self._ident, self._stat = threading.get_ident(), f"/proc/self/task/{threading.get_native_id()}/stat"
        self._ticks = None

    def is_idle_in_torch(self):
        """It sleeps in a function of torch, and has used no CPU time since the last call. A program that sleeps, or waits for its
        data, has another function innermost."""
        with open(self._stat, encoding="utf-8", errors="replace") as f:
            words = f.read().rpartition(")")[2].split()
        ticks, before = (words[11], words[12]), self._ticks
        self._ticks = ticks
        frame = sys._current_frames().get(self._ident)
        module = frame.f_globals.get("__name__", "") if frame is not None else ""
        is_torchs = module.startswith("torch.") and not module.startswith("torch.utils.")
        return words[0] == "S" and ticks == before and is_torchs
