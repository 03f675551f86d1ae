"""Scripts that look at themselves behave the same as a plain rank and as one forked from the parent of --warm.

Covers: launcher/warm
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import main, run

# name: (options of ddprun, arguments of the script, the script)
SCRIPTS = {
    "arguments": ([], ["--lr", "0.1", "", "a b", "$local_rank", "$$x", "ä"], """
import sys
print(sys.argv, sys.orig_argv[1:], len(sys.argv))
"""),
    "the_main_module": ([], [], """
\"\"\"Its text.\"\"\"
import sys
import json
here: int = 1
print(sorted(globals()), __name__, __file__, __doc__, __package__, __spec__, __cached__, __annotations__)
print(type(__loader__).__name__, __loader__.name, __loader__.path, __loader__.get_source("__main__") is not None)
print(vars(sys.modules["__main__"]) is globals(), __builtins__ is sys.modules["builtins"])
"""),
    "the_path": ([], [], """
import sys
import beside
print(sys.path, beside.__file__, beside.NAME)
print([type(f).__name__ if not isinstance(f, type) else f.__name__ for f in sys.meta_path], len(sys.path_hooks))
print([p for p in sys.path_importer_cache if "warm" in p or "ddprun" in p], "ddp_warm" in sys.modules)
print(getattr(sys.modules.get("sitecustomize"), "__file__", None))
"""),
    "the_environment": ([], [], """
import os
import subprocess
VARYING = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "TEST_", "XDG_RUNTIME_DIR", "_=", "DDP_NODE_FD", "DDP_NODE_DIR")
NAMED = "TORCHELASTIC_ERROR_FILE", "DDP_NODE_DIR"
def show(items):
    print(sorted(k if k in NAMED else f"{k}={v}" for k, v in items if k in NAMED or not f"{k}=".startswith(VARYING)))
show(os.environ.items())
show(line.split("=", 1) for line in subprocess.run(["env"], capture_output=True, text=True).stdout.splitlines() if "=" in line)
print(type(os.environ._data), os.getenv("DDP_WARM"), len(os.environb) == len(os.environ))
os.environ["NEW"] = "1"
del os.environ["HOME"]
print(subprocess.run(["sh", "-c", "echo $NEW ${HOME-none}"], capture_output=True, text=True).stdout)
"""),
    "pickles_of_main": ([], [], """
import pickle
class Point:
    def __init__(self, x): self.x = x
    def __reduce__(self): return Point, (self.x,)
p = pickle.loads(pickle.dumps(Point(3)))
print(type(p) is Point, p.x, Point, Point.__module__, pickle.dumps(Point))
"""),
    **{"processes_by_" + method: ([], [], f"""
import multiprocessing
import os
import sys
def square(x):
    return x * x, __name__, multiprocessing.current_process().name.rstrip("0123456789"), os.path.basename(sys.argv[0]), sys.path[0]
if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    queue = context.SimpleQueue()
    child = context.Process(target=queue.put, args=(sys.argv,))
    child.start()
    print(queue.get(), child.join(), child.exitcode, multiprocessing.parent_process())
    with context.Pool(2) as pool:
        print([row[0] for row in pool.map(square, range(6))], sorted(set(pool.map(square, [2] * 8, 8))))
""") for method in ("fork", "spawn", "forkserver")},
    "argparse_errors": ([], ["--epochs", "many"], """
import argparse
parser = argparse.ArgumentParser(description="Train.")
parser.add_argument("--epochs", type=int)
parser.parse_args()
"""),
    "argparse_help": ([], ["-h"], """
import argparse
argparse.ArgumentParser().parse_args()
"""),
    "a_module": (["-m"], ["x", "y"], """
import sys
from . import sibling
from .sibling import NAME
print(sys.argv, __package__, __spec__.name, __file__, __name__, NAME, sys.path[0], sys.orig_argv[1:4])
print(type(__loader__).__name__, sorted(globals()))
"""),
    "run_path": (["--run-path"], ["x"], """
import sys
print(sys.argv, __name__, __file__, sys.path[0], sys.orig_argv[1:3])
"""),
    "some_warnings": ([], [], """
import warnings
def old():
    warnings.warn("old is old", DeprecationWarning, stacklevel=2)
old()
warnings.warn("as it is")
warnings.warn("from below", stacklevel=2)
warnings.warn("from far below", stacklevel=5)
print(len(warnings.filters) > 0, warnings.filters[0])
"""),
    "an_exception": ([], [], """
import json
def deeper(text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise RuntimeError("the settings are bad") from error
deeper("{")
"""),
    "a_syntax_error": ([], [], "def f(:\n    pass\n"),
    "an_exception_of_its_hook": ([], [], """
import sys
def hook(kind, value, trace):
    depth = 0
    while trace:
        depth, trace = depth + 1, trace.tb_next
    print(kind, value, depth, file=sys.stderr)
sys.excepthook = hook
def f(): raise KeyError("x")
f()
"""),
    "frames": ([], [], """
import inspect
import sys
import traceback
traceback.print_stack()
print([(frame.function, frame.lineno) for frame in inspect.stack()], sys._getframe().f_back)
"""),
    "the_end": ([], [], """
import atexit
import threading
atexit.register(print, "registered first, runs last")
atexit.register(print, "registered last, runs first")
go_on = threading.Event()
threading.Thread(target=lambda: (go_on.wait(), print("the thread is waited for"))).start()
class Late:
    def __del__(self): print("deleted")
late = Late()
print(threading.main_thread() is threading.current_thread(), threading.active_count(), threading.current_thread().name)
go_on.set()
"""),
    "exit_with_text": ([], [], "import sys\nsys.exit('no data')\n"),
    "exit_with_300": ([], [], "raise SystemExit(300)\n"),
    "exit_at_once": ([], [], "import os\nprint('a', end='')\nos._exit(7)\n"),
    "an_interrupt": ([], [], "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"),
    "an_abort": ([], [], "import faulthandler, os, sys\nfaulthandler.enable()\nsys.stdout.write('x')\nos.abort()\n"),
    "signals": ([], [], """
import signal
print([(s.name, str(signal.getsignal(s))) for s in sorted(signal.valid_signals()) if isinstance(s, signal.Signals)
       and s not in (signal.SIGINT,)])
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.pthread_sigmask(signal.SIG_BLOCK, []))
signal.signal(signal.SIGALRM, lambda number, frame: print("rang", number, frame.f_code.co_name))
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
"""),
    "descriptors": ([], [], """
import fcntl
import os
import stat
import tempfile
for fd in range(16):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        continue
    print(fd, oct(stat.S_IFMT(mode)), fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.fcntl(fd, fcntl.F_GETFL), os.isatty(fd))
with tempfile.TemporaryFile() as f:
    print(f.fileno())
print(sorted(os.listdir("/proc/self/fd"), key=int)[-1])
"""),
    "the_process": ([], [], """
import ctypes
import os
import resource
death = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(death))
print(death.value, oct(os.umask(0o77)), os.getcwd(), os.getsid(0) == os.getpid() == os.getpgrp(), os.nice(0))
def read(path):
    with open(path) as f:
        return f.read()
print(read(f"/proc/{os.getppid()}/comm"), os.sched_getscheduler(0), os.sched_getaffinity(0))
print([resource.getrlimit(getattr(resource, name)) for name in sorted(vars(resource)) if name.startswith("RLIMIT_")])
status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
for name in "Name", "Threads", "SigBlk", "SigIgn", "SigCgt", "Umask", "NoNewPrivs", "CoreDumping", "Groups", "Uid":
    print(name, status[name])
print(read("/proc/self/cmdline").split("\\0")[1:], read("/proc/self/oom_score_adj"), read("/proc/self/cgroup"))
"""),
    "standard_streams": ([], [], """
import io
import sys
for stream in sys.stdin, sys.stdout, sys.stderr:
    raw = stream.buffer.raw if hasattr(stream.buffer, "raw") else stream.buffer
    print(stream, stream.line_buffering, stream.write_through, stream.errors, stream.newlines, stream.seekable(),
          type(stream.buffer).__name__, raw, raw.mode, raw.closefd, raw.seekable())
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
print([sys.stdin.readline(), input(), sys.stdin.read()])
sys.stderr.write("\\udcff\\n")
print("now", end=" ")
sys.stdout.buffer.write(b"bytes ")
print("then", flush=True)
"""),
    "flags": ([], [], """
import gc
import locale
import sys
print(sys.flags, sys.warnoptions, sys._xoptions, sys.executable, sys.prefix, sys.exec_prefix, sys.dont_write_bytecode)
print(gc.isenabled(), gc.get_threshold(), gc.callbacks, sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile())
print(locale.setlocale(locale.LC_CTYPE), sys.getfilesystemencoding(), sys.getdefaultencoding(), sys.stdout.encoding)
"""),
    "asyncio_and_threads": ([], [], """
import asyncio
import concurrent.futures
import subprocess
import sys
async def run():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import os; print(os.environ.get('DDP_WARM'), 42)",
                                                 stdout=asyncio.subprocess.PIPE)
    return await child.communicate()
print(asyncio.run(run()))
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(list(pool.map(str, range(8))))
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    print(list(pool.map(str, range(8))))
"""),
    "typing_and_logging": ([], [], """
import dataclasses
import logging
import typing
@dataclasses.dataclass
class Settings:
    lr: "float" = 0.1
print(typing.get_type_hints(Settings), Settings())
logging.basicConfig(format="%(name)s %(levelname)s %(process)s %(message)s".replace("%(process)s", ""))
logging.getLogger("x").warning("to stderr")
print(logging.root.handlers, logging.LogRecord("x", 1, "f", 1, "m", (), None).relativeCreated < 60_000)
"""),
    "a_seeded_generator": ([], [], """
import random
random.preforked process(5)
print([random.random() for _ in range(3)], random.Random(7).getrandbits(64))
"""),
}

# Two ranks must not draw the same, and neither may two jobs.
DRAWS = """
import os
import multiprocessing
import random
import sys
import tempfile
import uuid
drawn = [random.random(), random.SystemRandom().random(), uuid.uuid4(), bytes(multiprocessing.current_process().authkey).hex(),
         next(tempfile._get_candidate_names())]
if sys.argv[1:] == ["numpy"]:
    import numpy
    drawn += [numpy.random.random(), numpy.random.default_rng().random()]
os.write(1, (" ".join(map(str, drawn)) + "\\n").encode())
"""


def outcome(folder, name, warm, options, words, stdin=b"one\ntwo\nthree"):
    """(exit status, what the rank wrote to stdout, what it wrote to stderr)"""
    path, events = os.path.join(folder, "stdin"), os.path.join(folder, "events")
    with open(path, "wb") as f:
        f.write(stdin)
    program = {"-m": "package." + name}.get(options[0] if options else "", os.path.join(folder, name + ".py"))
    with open(path, "rb") as f:
        code, out, err = run("--events", events, "-n", "1", *(["--warm=start"] if warm else []), *options, program, *words,
                             stdin=f, cwd=folder, env={"PYTHONWARNINGS": "default", "PYTHONPATH": folder + "/extra"})
    assert take_ways(events) == [warm], err
    mine = "".join(line for line in err.splitlines(True) if not re.match(r"ddprun:|  \S", line))
    return code, out, re.sub(r"0x[0-9a-f]+", "0x...", mine)


def take_ways(path):
    """Of each rank's start, whether it was forked; and the file is gone."""
    with open(path, encoding="utf-8") as f:
        events = [json.loads(line) for line in f]
    os.remove(path)
    return [event["forked"] for event in events if event["ev"] == "rank_start"]


class Same(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        os.makedirs(cls.folder + "/package")
        os.makedirs(cls.folder + "/extra")
        files = {"beside.py": "NAME = 'beside'\n", "package/__init__.py": "", "package/sibling.py": "NAME = 'sibling'\n",
                 "draws.py": DRAWS, "extra/sitecustomize.py": "import builtins\nbuiltins.SITE = 'customised'\n"}
        for name, (options, _, text) in SCRIPTS.items():
            files[("package/" if options == ["-m"] else "") + name + ".py"] = text.lstrip("\n").replace("HERE", cls.folder)
        for name, text in files.items():
            with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as f:
                f.write(text)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_two_ranks_draw_different_numbers(self):
        python = os.environ.get("PYTHON_EXEC", "python3")
        has_numpy = subprocess.run([python, "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode == 0
        lines = []
        for _ in range(2):
            events = self.folder + "/events"
            code, out, err = run("--events", events, "-n", "2", "--warm=start", self.folder + "/draws.py",
                                 *(["numpy"] if has_numpy else []))
            self.assertEqual(code, 0, err)
            self.assertEqual(take_ways(events), [True, True], err)
            lines += out.splitlines()
        drawn = [value for line in lines for value in line.split()]
        self.assertEqual(len(set(drawn)), len(drawn), lines)


def add_test(name, options, words):
    def test(self):
        plain = outcome(self.folder, name, False, options, words)
        warm = outcome(self.folder, name, True, options, words)
        self.assertEqual(plain, warm)
        self.assertNotEqual(plain, (0, "", ""))
    setattr(Same, f"test_{name}", test)


for script, (its_options, its_words, _) in SCRIPTS.items():
    add_test(script, its_options, its_words)

main()
