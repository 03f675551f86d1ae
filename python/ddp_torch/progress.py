"""Steps of a training, for ddprun: --hang-timeout, --restart-after-progress, --no-progress, the pace of the ranks, and the goodput."""
import faulthandler
import os
import signal
import stat

_UNKNOWN, _NONE = -2, -1
_fd = _UNKNOWN


def _find():
    """The pipe of this rank. Its number may mean something else in a process that was started without it."""
    try:
        fd = int(os.environ["DDP_PROGRESS_FD"])
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            return _NONE
    except (KeyError, ValueError, OSError):
        return _NONE
    _offer_stack(fd)
    return fd


def _offer_stack(fd):
    """For `ddpctl stack`, and before a rank that hangs is ended: the stacks of all threads go to stderr on this signal, also while the
    rank hangs in C code. No debugger is needed."""
    sig = signal.SIGRTMAX
    try:
        if signal.getsignal(sig) == signal.SIG_DFL:
            faulthandler.register(sig, all_threads=True, chain=False)
            os.write(fd, b"stack_signal %d\n" % sig)
    except (OSError, RuntimeError, ValueError, AttributeError):  # stderr is not a file
        pass


def step(n, waited_s=None, *, _write=os.write):
    """Report that n steps of the training are complete, counted from its very beginning, also before a restart. Every rank may call it,
    or only some. Costs one system call, and never waits; without ddprun it does nothing.

    n          0 or more; call step() after the optimizer's step, or every few steps
    waited_s   how long the rank waited for others in that step, if the program knows it: so ddprun finds the slowest rank"""
    global _fd
    if _fd < 0:
        if _fd == _UNKNOWN:
            _fd = _find()
        if _fd < 0:
            return
    try:
        if waited_s is None:
            _write(_fd, b"step %d\n" % n)
        else:
            _write(_fd, b"step %d wait_ms %.3f\n" % (n, waited_s * 1e3))
    except BlockingIOError:  # ddprun has not read for long: the next line has a larger number
        pass
    except OSError:
        _fd = _NONE
