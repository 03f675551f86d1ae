"""Ports for jobs of the tests and benchmarks."""
import random
import socket

_FIRST, _LAST = 20000, 31999  # below those that the kernel gives out by itself
_taken = []


def free_port():
    """A port that is free now. No other caller of this function gets it while this process runs.

    A job listens some time after its port was chosen, and others may choose in between. So this process also takes the port's
    name: a socket in the abstract name space, which the kernel removes when this process ends for any reason.
    """
    while True:
        port = random.randint(_FIRST, _LAST)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0ddprun-test-port-{port}")
            with socket.socket() as s:
                s.bind(("", port))
        except OSError:
            name.close()
            continue
        _taken.append(name)
        return port
