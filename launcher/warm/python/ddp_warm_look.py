"""What the parent of warm ranks has to know: what is installed, what a script will import, and what the kernel reports
about this process. docs/design/warm.md
"""
import ast
import contextlib
import ctypes
import os

SCAN_MOST = 200  # files of the user's own that are looked through for imports

# What the first step of a training script imports by itself, deep inside: known in advance for --warm=start.
FOLLOWERS = {"torch": ("torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data",
                       "torch.distributed.algorithms.join", "torch.distributed.rpc", "torch.distributed._tensor",
                       "torch.distributed.utils", "torch.onnx", "sympy", "numpy.random", "numpy.fft")}


# --- What is installed, and what is the user's own ---

def is_root(path):
    """Does pip, or the system, put modules there?"""
    name = os.path.basename(path)
    return (name in ("site-packages", "dist-packages", "lib-dynload") or path == os.path.dirname(os.__file__)
            or (name.startswith("python3") and name.endswith(".zip")))


def is_for_installed(finder):
    """Not one that leads to a directory that is being edited (pip install --editable)."""
    return not (getattr(finder, "__module__", None) or type(finder).__module__).startswith("__editable__")


@contextlib.contextmanager
def kept(items, is_kept):
    """Only some items are in a list for a while; what is put into it meanwhile stays."""
    before = list(items)
    items[:] = filter(is_kept, before)
    try:
        yield
    finally:
        items[:] = before + [item for item in items if item not in before]


def find_own_folder(words):
    """What will be sys.path[0]."""
    return os.getcwd() if words[2] in ("-m", "-c") else os.path.dirname(os.path.realpath(words[2]))


def names_in(folder):
    """The modules that can be imported from a directory."""
    names = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                stem, dot, ending = entry.name.partition(".")
                if ending == "py" or ending.endswith("so") or (not dot and is_package(entry.path)):
                    names.add(stem)
    except OSError:
        pass  # it need not be there
    return names


def is_package(folder):
    return os.path.exists(os.path.join(folder, "__init__.py"))


# --- What a script will import, as far as it can be seen ---

def predict(words):
    """Names of modules, best first those that the script names itself."""
    folder = find_own_folder(words)
    script = words[4] if words[2] == "-c" and len(words) > 4 else words[2]
    if words[2] == "-m":
        base = os.path.join(folder, *words[3].split("."))
        script = os.path.join(base, "__main__.py") if os.path.isdir(base) else base + ".py"
    names, files, done = [], [script], set()
    while files and len(done) < SCAN_MOST:
        path = files.pop(0)
        if path in done:
            continue
        done.add(path)
        for name in read_imports(path):
            base = os.path.join(folder, *name.split("."))
            own = [file for file in (base + ".py", os.path.join(base, "__init__.py")) if os.path.exists(file)]
            files += own
            if not own:
                names.append(name)
    for package, followers in FOLLOWERS.items():
        if any(name.partition(".")[0] == package for name in names):
            names += followers
    return list(dict.fromkeys(names))


def read_imports(path):
    try:
        with open(path, "rb") as f:
            tree = ast.parse(f.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    names, blocks = [], list(tree.body)
    while blocks:
        node = blocks.pop(0)
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module)
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, (ast.If, ast.Try, ast.With)) and "TYPE_CHECKING" not in ast.dump(getattr(node, "test", node))[:200]:
            blocks += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.ExceptHandler))]
    return names


# --- What the kernel knows of this process ---

def read_file(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def read_words():
    with open("/proc/self/cmdline", "rb") as f:
        return [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]


def get_umask():
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def other_threads():
    """OpenBLAS ends those of its pool before a fork, and starts them again when it needs them; no other library does."""
    def listed():
        return [tid for tid in os.listdir("/proc/self/task") if int(tid) != os.getpid()]
    if listed() and "openblas" in read_file("/proc/self/maps"):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return listed()


def find_children():
    try:
        return [int(pid) for pid in read_file("/proc/thread-self/children").split()]
    except OSError:
        return []  # a kernel that has no such lists


def find_device():
    """A GPU's driver, or a device of its, that is open: neither survives a fork."""
    try:
        ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return "libcuda.so.1"
    except OSError:
        pass  # it is not loaded
    for fd in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue  # that of the listing itself
        if path.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri/")):
            return path
    return None
