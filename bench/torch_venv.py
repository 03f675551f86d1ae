"""Where PyTorch 2.11 is: $TORCH_2_11_PYTHON, else the environment of scripts/install-deps --interop-old."""
import os


def torch_venv():
    """(its Python, the variables of the environment to run it in), or None."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.cache")
    python = os.environ.get("TORCH_2_11_PYTHON") or os.path.join(base, "ddprun/torch-2.11/bin/python")
    if not os.access(python, os.X_OK):
        return None
    env = dict(os.environ, PYTHON_EXEC=python, OMP_NUM_THREADS="1")
    cuda = "/usr/local/cuda/lib64"  # the virtual environment uses the machine's CUDA 13, if there is one
    if os.path.exists(cuda + "/libcudart.so.13"):
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [cuda, env.get("LD_LIBRARY_PATH")]))
    return python, env
