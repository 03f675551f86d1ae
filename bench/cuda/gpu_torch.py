"""Sections of bench/gpu with PyTorch and libtorch: in-place recovery over NCCL, what NCCL's RAS reports about a hang, and ddp/torch.hpp."""
import array
import glob
import math
import os
import re
import signal
import struct
import subprocess
import tempfile
import time

import results
from gpu_runner import Failed, end_process, probe_torch, read_events

N = 3
STEPS = 30  # of programs/torch_elastic.py
LIMIT_S = 60  # of a job; the start of torch is most of it
TAIL = 1500
REPLACE, STANDBY, SHRINK = ("--max-restarts", "2"), ("--max-restarts", "2", "--standby", "1"), ("--max-restarts", "2", "--on-failure", "shrink")

# What torch's watchdog of NCCL does when a peer dies, and that it does not end this process, or hold it up for a minute.
KEEP_PROCESS = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}
NO_DUMP = {**KEEP_PROCESS, "TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
NO_WATCHDOG = {"TORCH_NCCL_BLOCKING_WAIT": "1"}


class Torch:
    """The Python that has PyTorch."""

    def __init__(self, runner):
        self.python = runner.args.python
        # its libraries find CUDA and NCCL themselves: those that the other programs load may be older
        paths = [os.path.join(results.ROOT, "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.env = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""), "PYTHONPATH": ":".join(paths),
                    "DDP_LIBRARY": runner.program("worker-runtime", "libddp.so.0"), "OMP_NUM_THREADS": "1"}
        self.version, self.has_gpu, self.folder = probe_torch(runner, self.env)
        self.backend = "nccl" if self.has_gpu else "gloo"

    def libraries(self):
        """Directories for programs that are linked with libtorch."""
        nvidia = os.path.join(os.path.dirname(self.folder), "nvidia")
        return [os.path.join(self.folder, "lib"), *sorted(glob.glob(os.path.join(nvidia, "*", "lib")))]


def require(condition, what, done):
    if not condition:
        raise Failed(f"{what}: status {done.status}\nstdout: {done.out.strip()[-500:]}\nstderr: {done.said.strip()[-TAIL:]}")


def ms_after(kill, events):
    return (events - kill) * 1e-6


# --- ddp_torch.elastic ---

class Elastic:
    """A job of programs/torch_elastic.py.

    options   of ddprun
    kill      rank 1 dies
    env       for torch"""

    def __init__(self, runner, torch, backend, options=(), kill=True, env=NO_DUMP, words=(), n_standby=0, limit_s=LIMIT_S):
        self.log, self.values = runner.log_path(), os.path.join(runner.folder, "values")
        script = os.path.join(results.HERE, "programs", "torch_elastic.py")
        command = [torch.python, script, "--backend", backend, "--log", self.log, "--save", self.values, *words]
        command += ["--kill", "--await", str(N + n_standby)] if kill else []
        self.done = runner.job(*command, n=N, limit_s=limit_s, options=options, env={**torch.env, **env})
        self.events = read_events(self.log)
        self.check(kill, "shrink" in options)

    def check(self, kill, shrinks):
        """That all survivors are the same processes, all steps are there, and all ranks have the same parameters."""
        what = "ddp_torch.elastic"
        require(self.done.status == 0, what, self.done)
        kills = [e for e in self.events if e.what == "kill"]
        steps = [e for e in self.events if e.what == "step"]
        ends = [e for e in self.events if e.what.startswith("done:")]
        size = N - (kill and shrinks)
        first = {e.pid for e in steps if not kills or e.ns < kills[0].ns}
        require(len(kills) == kill, f"{what}: {len(kills)} deaths, not {int(kill)}", self.done)
        require(len(ends) == size and {e.number for e in ends} == {size}, f"{what}: {len(ends)} ranks ended, not {size}", self.done)
        require(len({e.what for e in ends}) == 1, f"{what}: ranks have different parameters: {sorted(e.what for e in ends)}", self.done)
        require({e.number for e in steps} == set(range(1, STEPS + 1)), f"{what}: steps are missing: {sorted({e.number for e in steps})}", self.done)
        self.n_kept = len(first & {e.pid for e in ends})
        require(self.n_kept == (N - 1 if kill else N), f"{what}: {self.n_kept} processes were kept", self.done)
        self.to_first = self.to_all = None
        if kill:
            later = {}
            for e in steps:
                if e.ns > kills[0].ns and e.number > kills[0].number:
                    later.setdefault(e.pid, e.ns)
            require(len(later) == size, f"{what}: {len(later)} ranks completed a step after the death, not {size}", self.done)
            self.to_first, self.to_all = ms_after(kills[0].ns, min(later.values())), ms_after(kills[0].ns, max(later.values()))

    def read_values(self):
        with open(self.values, "rb") as f:
            return array.array("f", f.read())

    def row(self, name, apart):
        times = ["-" if t is None else f"{t:.0f}" for t in (self.to_first, self.to_all)]
        return [name, self.n_kept, STEPS, *times, "-" if apart is None else f"{apart:.1e}", f"{self.done.seconds:.1f}"]


def distance(a, b):
    """The largest difference, relative to the largest value; infinity if a value is not a number."""
    if len(a) != len(b) or not all(map(math.isfinite, a)) or not all(map(math.isfinite, b)):
        return math.inf
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))


HEAD = ["job", "processes kept", "steps", "to the next step, ms", "of all ranks, ms", "from an undisturbed job", "whole job, s"]


class Rows:
    """Jobs of Elastic, one after the other. Those that fail do not end the section."""

    def __init__(self, runner, torch):
        self.runner, self.torch = runner, torch
        self.rows, self.failed, self.values = [], [], {}

    def run(self, name, backend, like=None, keep=None, **how):
        """like, keep   the names of values of an undisturbed job, to compare with, and to keep"""
        try:
            job = Elastic(self.runner, self.torch, backend, **how)
            found = job.read_values()
        except (Failed, OSError) as error:
            self.failed.append(f"{name}: {error}")
            self.rows.append([name, *["-"] * (len(HEAD) - 2), "failed"])
            return
        self.rows.append(job.row(name, distance(found, self.values[like]) if like in self.values else None))
        if keep:
            self.values[keep] = found

    def text(self, env):
        text = f"torch {self.torch.version}.\n\n" + results.table(HEAD, self.rows) + \
            "\n\nThe time is from SIGKILL to the next step that a rank, and the last rank, completed. " + \
            " ".join(f"`{k}={v}`" for k, v in env.items())
        if self.failed:
            raise Failed(text + "\n\n" + "\n\n".join(self.failed))
        return text


def elastic(runner):
    """ddp_torch.elastic: a rank of three is killed in a backward pass, the others continue in place"""
    torch = Torch(runner)
    one, both = torch.backend, "cpu:gloo,cuda:nccl" if torch.has_gpu else "gloo"
    rows = Rows(runner, torch)
    rows.run(f"{one}, no death", one, kill=False, keep="plain")
    rows.run(f"{one}, shrink", one, options=SHRINK)
    rows.run(f"{one}, replaced", one, options=REPLACE, like="plain")
    if not runner.args.jobs:
        rows.run(f"{one}, standby", one, options=STANDBY, n_standby=1, like="plain")
        rows.run(f"{both}, GradScaler, no death", both, kill=False, keep="scaled", words=["--scaler"])
        rows.run(f"{both}, GradScaler, replaced", both, options=REPLACE, like="scaled", words=["--scaler"])
    return rows.text(NO_DUMP)


def watchdog(runner):
    """ddp_torch.elastic with other settings of torch's watchdog of NCCL"""
    torch = Torch(runner)
    rows = Rows(runner, torch)
    for name, env in ("without a watchdog", NO_WATCHDOG), ("TORCH_NCCL_ASYNC_ERROR_HANDLING=0 alone", KEEP_PROCESS), ("no variable", {}):
        rows.run(name, torch.backend, options=SHRINK, env=env, limit_s=40)
    return rows.text(NO_WATCHDOG)


# --- NCCL's RAS ---

def hang_lines(text):
    """{what: seconds} of programs/torch_hang.py"""
    return [(float(at), what) for at, what in re.findall(r"^at (\S+): (.*)$", text, re.MULTILINE)]


def longest_silence(began, lines):
    times = [began] + sorted(at for at, _ in lines)
    return max(b - a for a, b in zip(times, times[1:]))


class Watched:
    """A job that hangs, in the background. Its output is in files."""

    def __init__(self, runner, command, env):
        self.out, self.said = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self.began = time.monotonic()
        self.job = subprocess.Popen(command, env={**runner.env, **env}, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.said,
                                    start_new_session=True)

    def __enter__(self):
        return self

    def lines(self):
        """Read without moving what the ranks append to."""
        return hang_lines(os.pread(self.out.fileno(), 1 << 20, 0).decode(errors="replace"))

    def errors(self):
        return os.pread(self.said.fileno(), 1 << 20, 0).decode(errors="replace")

    def await_hang(self, limit_s):
        """-> when rank 1 hung"""
        end = time.monotonic() + limit_s
        while time.monotonic() < end and self.job.poll() is None:
            found = [at for at, what in self.lines() if what == "hangs"]
            if found:
                return found[0]
            time.sleep(0.1)
        raise Failed(f"no rank hung: status {self.job.poll()}: {self.errors().strip()[-TAIL:]}")

    def __exit__(self, *_):
        end_process(self.job)
        self.out.close()
        self.said.close()


def until_lags(runner, command, limit_s):
    """Run it each second, until it names a rank that lags. -> its output"""
    end = time.monotonic() + limit_s
    while True:
        done = runner.call(command, 40)
        if " lags" in done.out or time.monotonic() > end:
            return done.out + done.said
        time.sleep(1)


def ras(runner):
    """A torch script hangs: what ddprun, ddpctl and NCCL's RAS report"""
    torch = Torch(runner)
    script = [torch.python, os.path.join(results.HERE, "programs", "torch_hang.py"), torch.backend]
    ddprun, ddpctl = runner.program("launcher", "ddprun"), runner.program("ctl", "ddpctl")
    env = {**torch.env, **runner.ranks_env(N)}
    command = [ddprun, "-n", str(N), "--worker-server", "on", "--shutdown-timeout", "3s", *runner.wrapped(script, N, None)]
    texts = []
    with Watched(runner, command, env) as job:
        job.await_hang(min(90, runner.left_s()))
        time.sleep(1)
        silence = longest_silence(job.began, job.lines())
        pid = str(job.job.pid)
        texts.append(f"$ ddpctl status\n{until_lags(runner, [ddpctl, 'status', pid], 14 if torch.has_gpu else 1)}")
        stack = runner.call([ddpctl, "stack", "all", pid], 60)
        texts.append(f"$ ddpctl stack all\n{stack.out + stack.said}")
        job.job.send_signal(signal.SIGTERM)
    timeout_s = max(5, math.ceil(1.5 * silence))  # the start of torch is also silent
    # if the address that ddprun chooses does not do, at least one that is given
    address = {"NCCL_RAS_ADDR": "127.0.0.1:28128"} if torch.has_gpu and " lags" not in texts[0] else {}
    done = runner.job(*script, n=N, limit_s=90, options=("--hang-timeout", f"{timeout_s}s", "--shutdown-timeout", "3s"), env={**torch.env, **address})
    ended = time.monotonic()
    hung = [at for at, what in hang_lines(done.out) if what == "hangs"]
    given = "".join(f"{k}={v} " for k, v in address.items())
    texts.append(f"$ {given}ddprun -n {N} --hang-timeout {timeout_s}s --shutdown-timeout 3s torch_hang.py {torch.backend}\n{done.said[:6000]}")
    shown = "\n\n".join(re.sub(r"\n(\s*\n)+", "\n", text.strip()) for text in texts)
    text = f"torch {torch.version}. Longest time without a line before the hang: {silence:.1f} s.\n\n```\n{shown}\n```"
    wanted = [("rank 1 is not named", r"(?m)^ddprun: warning: (rank 1 hangs|the job hangs: .*rank 1)", done.said)]
    if torch.has_gpu:
        wanted += [(f"{what} names no rank of a communicator that lags", r"communicator 0x[0-9a-f]+ of 3 ranks:[\s|]+rank 1 .*lags", said)
                   for what, said in (("ddpctl status", texts[0]), ("ddpctl stack", texts[1]), ("ddprun --hang-timeout", done.said))]
    failures = [what for what, pattern, said in wanted if not re.search(pattern, said)]
    if done.status == 0 or not hung or failures:
        raise Failed(f"{'; '.join(failures) or 'no rank hung'}; status {done.status}\n\n{text}")
    return f"With `--hang-timeout {timeout_s}s` the job ended {ended - hung[0]:.1f} s after rank 1 had stopped, with status {done.status}. {text}"


# --- ddp/torch.hpp ---

LOSSES_APART = 1e-3  # between a CPU and a GPU; of 16 steps


def read_all(folder, kind):
    texts = []
    for path in sorted(glob.glob(os.path.join(folder, kind + ".*"))):
        with open(path, "rb") as f:
            texts.append(f.read())
    return texts


def floats(text):
    return [struct.unpack(">f", bytes.fromhex(word.decode()))[0] for word in text.split()]


class Train:
    """A job of libtorch_rank: rank 0's losses, and all ranks' states."""

    def __init__(self, runner, torch, n, *words, options=(), left=None):
        folder = tempfile.mkdtemp(dir=runner.folder)
        libraries = [runner.program("worker-runtime"), runner.program("worker-runtime", "nccl"), *torch.libraries()]
        env = {**torch.env, "LD_LIBRARY_PATH": ":".join(filter(None, [*libraries, torch.env["LD_LIBRARY_PATH"]])), "NVIDIA_TF32_OVERRIDE": "0"}
        self.done = runner.job(runner.program("bench", "libtorch_rank"), "train", folder, "n=256", *words, n=n, limit_s=LIMIT_S,
                               options=options, env={**env, **(runner.ranks_env(2) if n == 1 else {})})
        require(self.done.status == 0, f"libtorch_rank {' '.join(words)}", self.done)
        self.losses, self.states = [floats(text) for text in read_all(folder, "losses")], read_all(folder, "state")
        left = n if left is None else left
        require(len(self.states) == left, f"{len(self.states)} ranks ended, not {left}", self.done)
        require(len(set(self.states)) == 1, "ranks have different parameters", self.done)
        times = b"".join(read_all(folder, "times")).decode()
        killed, steps = (re.findall(rf"^{what} (\S+)$", times, re.MULTILINE) for what in ("killed", "step"))
        self.n_kills = len(killed)
        self.to_step = max(map(float, steps)) - float(killed[0]) if killed and steps else None


def losses_apart(a, b):
    if len(a) != len(b) or not a:
        return math.inf
    return max(abs(x - y) / max(1, abs(y)) for x, y in zip(a, b))


def libtorch(runner):
    """ddp/torch.hpp with tensors on a GPU: libtorch programs against the CPU, and with deaths"""
    if not os.path.exists(runner.program("bench", "libtorch_rank")):
        return "Not run: the build, or the kit, has no `libtorch_rank` (`--libtorch PYTHON`)"
    torch = Torch(runner)
    gpu, name = (["gpu=1"], "GPU") if torch.has_gpu else ([], "CPU again")
    rows, failed = [], []

    def compare(what, n, words, against, most, **how):
        try:
            job = Train(runner, torch, n, *words, **how)
        except Failed as error:
            failed.append(f"{what}, {n} ranks: {error}")
            return None
        apart = losses_apart(job.losses[0], against.losses[0]) if against else None
        bits = "-" if not against else "equal" if job.states[0] == against.states[0] else "differ"
        rows.append([what, n, len(job.losses[0]), "-" if apart is None else f"{apart:.1e}", bits, job.n_kills,
                     "-" if job.to_step is None else f"{job.to_step:.0f}", f"{job.done.seconds:.1f}"])
        if apart is not None and apart > most:
            failed.append(f"{what}, {n} ranks: losses are up to {apart:.1e} apart: {job.losses[0]}, not {against.losses[0]}")
        return job

    kill = ["kill_in=backward", "kill_at=3"]
    cpu = {n: compare("CPU", n, [], None, 0) for n in (1, 2)}
    for n in 1, 2:
        on_gpu = compare(name, n, gpu, cpu[n], LOSSES_APART)
    # a step that is repeated after a death is in rank 0's file once more if it had written its loss: it had not
    compare(f"{name}, replaced", 2, [*gpu, *kill], on_gpu, LOSSES_APART, options=REPLACE)
    compare(f"{name}, shrink", N, [*gpu, *kill], None, 0, options=SHRINK, left=N - 1)
    text = f"torch {torch.version}. Losses are those of rank 0; states are parameters, buffers and momentum.\n\n" + results.table(
        ["convolutional network", "ranks", "steps", "losses apart", "state", "kills", "to the next step of all, ms", "whole job, s"], rows)
    if failed:
        raise Failed(text + "\n\n" + "\n\n".join(failed))
    return text
