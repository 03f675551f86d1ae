"""The PyTorchs of the comparisons: the newest that is tested, of scripts/install-deps --interop, and 2.11, of --interop-old."""
import os

import results

with open(os.path.join(results.ROOT, "scripts/torch-version.txt"), encoding="ascii") as pin:
    NEWEST = ".".join(pin.read().split(".")[:2])
VERSIONS = ["2.11", NEWEST]
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # rank 0's worker serves the store, not the agent


def torch_venv(version=NEWEST):
    """(its Python, the variables of the environment to run it in), or None. $TORCH_PYTHON and $TORCH_2_11_PYTHON override."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    variable = "TORCH_PYTHON" if version == NEWEST else f"TORCH_{version.replace('.', '_')}_PYTHON"
    python = os.environ.get(variable) or os.path.join(base, f"ddprun/torch-{version}/bin/python")
    if not os.access(python, os.X_OK):
        return None
    env = dict(os.environ, PYTHON_EXEC=python, OMP_NUM_THREADS="1")
    cuda = "/usr/local/cuda/lib64"  # the virtual environment uses the machine's CUDA 13, if there is one
    if os.path.exists(cuda + "/libcudart.so.13"):
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [cuda, env.get("LD_LIBRARY_PATH")]))
    return python, env


def torchruns():
    """Name -> (the command, its environment), for each version that is installed."""
    found = {f"torchrun {version}": torch_venv(version) for version in VERSIONS}
    return {name: ([venv[0], "-m", "torch.distributed.run"], venv[1]) for name, venv in found.items() if venv}
