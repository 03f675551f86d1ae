"""What the demo trains: chargpt, which is C with libddp, or gpt.py, which is PyTorch with ddp_torch.elastic."""
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
N_STEPS = 10**9  # more than there will be: the job is stopped


class Chargpt:
    """The C program."""

    comm = b"chargpt\n"  # of its processes
    words = "A small GPT"
    options = ()

    def __init__(self, build):
        self.path = os.path.join(build, "examples/chargpt")

    def env(self, _):
        return {}

    def command(self, batch, texts):
        return [self.path, "--layers", "2", "--width", "64", "--context", "64", "--batch", str(batch), "--steps", str(N_STEPS),
                "--print-every", "1", "--test-every", "0", *texts]


class Gpt:
    """The Python program. Its ranks are forked from a process that has imported torch."""

    comm = b"gpt.py\n"
    words = "A small GPT in PyTorch"
    options = ("--warm=start",)

    def __init__(self, build, python):
        self.build, self.python = build, python

    def env(self, interface):
        path = os.path.join(HERE, "../../python")
        return {"PYTHON_EXEC": self.python, "PYTHONPATH": ":".join(filter(None, [path, os.environ.get("PYTHONPATH")])),
                "DDP_LIBRARY": os.path.join(self.build, "worker-runtime/libddp.so.0"), "GLOO_SOCKET_IFNAME": interface}

    def command(self, batch, texts):
        return [os.path.join(HERE, "gpt.py"), "--batch", str(batch), *texts]


def has_torch(python):
    find = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    try:
        return subprocess.run([python, "-c", find], stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False
