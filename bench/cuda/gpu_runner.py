"""How bench/gpu runs programs: with a deadline each, several ranks on one GPU, and their events."""
import collections
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

EX_UNAVAILABLE = 69
EX_NOT_FOUND = 127  # the dynamic loader's status: a library is missing
KILL_S = 5

# All ranks use one GPU: NCCL has to take them for ranks of several hosts, or be allowed to.
COMMON = {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=lo", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
          "NCCL_MAX_CTAS": "4", "DDP_TIMEOUT": "60", "DDP_NCCL_ABORT_TIMEOUT": "20"}
TRANSPORTS = {
    "sockets": {**COMMON, "NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none"},  # and an NCCL_HOSTID for each process
    "p2p": {**COMMON, "NCCL_MULTI_RANK_GPU_ENABLE": "1"},
    "shm": {**COMMON, "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_P2P_DISABLE": "1"},
}


class Failed(Exception):
    """A section did not complete; the text is the reason."""


class NoTorch(Failed):
    """The Python has no PyTorch."""


class OutOfTime(Failed):
    """The part's time was over before it."""


class Done:
    """A program that has ended."""

    def __init__(self, status, out, said, seconds):
        self.status, self.out, self.said, self.seconds = status, out, said, seconds


Event = collections.namedtuple("Event", "ns pid rank what number")


def descendants(pid):
    """All processes below one. Those that end meanwhile are omitted."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as f:
                children = f.read().split()
        except OSError:
            continue
        for child in children:
            yield int(child)
            yield from descendants(int(child))


def end_process(job):
    """End a process and all below it. Returns whether they are gone: the driver may hold one forever."""
    below = list(descendants(job.pid))
    for how in signal.SIGTERM, signal.SIGKILL:
        for pid in [job.pid] if how == signal.SIGTERM else [job.pid, *below]:
            try:
                os.kill(pid, how)
            except ProcessLookupError:
                pass
        try:
            job.wait(KILL_S)
            if how == signal.SIGKILL or not any(os.path.exists(f"/proc/{pid}") for pid in below):
                return True
        except subprocess.TimeoutExpired:
            pass
    return False


def wheel_libraries():
    """Directories with NCCL and CUDA's runtime from Python's packages, for machines without the toolkit."""
    spec = importlib.util.find_spec("nvidia")
    found = []
    for top in (spec.submodule_search_locations or []) if spec else []:
        for name in "nccl/lib", "cu13/lib", "cuda_runtime/lib":
            path = os.path.join(top, name)
            if os.path.isdir(path):
                found.append(path)
    return found


class Runner:
    """Runs programs of a build until a deadline."""

    def __init__(self, args):
        self.args = args
        lib = os.path.join(args.cuda, "lib64")
        before = os.environ.get("LD_LIBRARY_PATH")
        path = [os.path.join(args.build, "worker-runtime/nccl"), *([before] if before else []), *([lib] if os.path.isdir(lib) else []),
                *wheel_libraries()]
        self.library_path = path
        self.env = dict(os.environ, LD_LIBRARY_PATH=":".join(path))
        self.n_gpus = 0
        self.transport = "sockets"
        self.deadline = None  # of the part
        self.folder = tempfile.mkdtemp(prefix="bench-gpu-")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def use_nccl(self, folder):
        """Put another NCCL first; None: as before."""
        path = ([folder] if folder else []) + self.library_path
        self.env["LD_LIBRARY_PATH"] = ":".join(path)

    def program(self, *parts):
        return os.path.join(self.args.build, *parts)

    def digits(self):
        """Options of mnist: images that are drawn once, and then kept in the build."""
        return ["--data", self.program(f"digits-{self.args.draw}"), "--draw", str(self.args.draw)]

    def left_s(self):
        return self.deadline - time.monotonic()

    def ranks_env(self, n):
        """What n ranks need that share a GPU; nothing if each has its own."""
        return TRANSPORTS[self.transport] if n is not None and n > max(1, self.n_gpus) else {}

    def wrapped(self, command, n, faults):
        """The command of a rank: with a host name of its own for NCCL where GPUs are shared, and with faults."""
        settings = []
        if self.ranks_env(n) and self.transport == "sockets":
            settings.append("NCCL_HOSTID=h$$")  # exec keeps the process's number
        if faults is not None:
            settings.append("LD_PRELOAD=" + self.program("bench", "libnccl_faults.so"))
        if not settings:
            return command
        return ["sh", "-c", "export " + " ".join(settings) + '; exec "$@"', "sh", *command]

    def call(self, command, limit_s, env=None):
        """Run it until it ends, or its time is over. Its output goes to files: a process that is left may hold them."""
        limit_s = min(limit_s, self.left_s())
        if limit_s <= 1:
            raise OutOfTime("not run: the time of this part is over")
        began = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
            try:
                job = subprocess.Popen(command, env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=out, stderr=said,
                                       start_new_session=True)
            except OSError as error:
                raise Failed(str(error)) from error
            try:
                status = job.wait(limit_s)
            except subprocess.TimeoutExpired:
                gone = end_process(job)
                status = None
            texts = []
            for f in out, said:
                f.seek(0)
                texts.append(f.read(1 << 20).decode(errors="replace"))
        if status is None:
            raise Failed(f"{os.path.basename(command[0])} did not end in {limit_s:.0f} s" +
                         ("" if gone else ", and cannot be killed") + f": {texts[1].strip()[-1500:]}")
        return Done(status, *texts, time.monotonic() - began)

    def job(self, *command, n=None, limit_s=90, faults=None, options=(), env=None):
        """A command on n ranks under ddprun, or alone.

        faults   of bench/cuda/nccl_faults.c; None: without it
        returns  Done"""
        env = {**(env or {}), **self.ranks_env(n)}
        if faults is not None:
            env["GPU_FAULTS"] = faults
        command = self.wrapped(list(command), n, faults)
        if n is not None:
            command = [self.program("launcher", "ddprun"), "-n", str(n), *options, *command]
        return self.call(command, limit_s, env)

    def run(self, *command, **how):
        """The same, which has to succeed. Returns its output."""
        done = self.job(*command, **how)
        if done.status != 0:
            raise Failed(f"{os.path.basename(command[0])} ended with status {done.status}: {done.said.strip()[-600:]}")
        return done.out

    def counts(self):
        """Numbers of ranks with a GPU each: one, and all."""
        return [1] if self.n_gpus < 2 else [1, self.n_gpus]

    def log_path(self):
        path = os.path.join(self.folder, "log")
        if os.path.exists(path):
            os.unlink(path)
        return path


def read_events(path):
    """Events of gpu_log.h, in the order of time."""
    events = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                ns, pid, rank, what, number = line.split()
                events.append(Event(int(ns), int(pid), int(rank), what, int(number)))
    return sorted(events)


def nccl_version(runner):
    """The version of the library that ranks load, from its debug output."""
    try:
        done = runner.job(runner.program("examples", "nccl_hello"), n=1, limit_s=60,
                          env={"NCCL_DEBUG": "VERSION", "NCCL_DEBUG_FILE": "/dev/stderr"})
    except Failed:
        return "unknown"
    found = re.search(r"NCCL version ([\w.+-]+)", done.said + done.out)
    return found[1] if found else "unknown"


def probe_torch(runner, env=None):
    """PyTorch's version, whether it sees a GPU, and its directory."""
    python = runner.args.python
    done = runner.call([python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available(), torch.__path__[0])"], 120, env)
    if done.status != 0:
        raise NoTorch(f"{python} cannot import PyTorch: {(done.said.strip().splitlines() or ['no reason'])[-1]}")
    version, has_gpu, folder = done.out.strip().split(maxsplit=2)
    return version, has_gpu == "True", folder
