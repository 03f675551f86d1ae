"""Parts of bench/gpu with failures: ranks that die, hang, or lose the network while others wait in NCCL's kernels."""
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import time

import results
from gpu_runner import Failed, NoTorch, OutOfTime, end_process, probe_torch, read_events

STEPS = 12
N = 3
MOST_FAILURES = 2  # in a row: then the section ends


class Recovery:
    """Jobs of gpu_recover in which ranks die, with the same faults each time."""

    def __init__(self, runner, faults, options=("--max-restarts", "3"), n=N, way=(), deaths=1):
        self.runner, self.faults, self.options, self.n, self.way, self.deaths = runner, faults, options, n, way, deaths
        self.n_jobs = self.n_kills = self.n_recovered = 0
        self.to_step, self.paths, self.why = [], {}, ""

    def run_once(self):
        path = self.runner.log_path()
        done = self.runner.job(self.runner.program("bench", "gpu_recover"), str(STEPS), *self.way, n=self.n, limit_s=90,
                               faults=self.faults, options=self.options, env={"GPU_LOG": path})
        events = read_events(path)
        kills = [e for e in events if e.what == "kill"]
        cuts = [e for e in events if e.what == "netcut"]
        self.n_kills += len(kills)
        if done.status != 0 or f"done {STEPS} " not in done.out:
            raise Failed(f"status {done.status}: {done.said.strip()[-400:]}")
        if len(kills) != self.deaths or any(cut.number == 0 for cut in cuts):
            raise Failed(f"{len(kills)} ranks died, not {self.deaths}; connections that were cut: {[cut.number for cut in cuts]}")
        self.n_recovered += len(kills)
        self.note(events, kills or cuts)

    def note(self, events, causes):
        """Times from the last death to the next step of a rank, and the way to it since the first one."""
        step = next((e for e in events if e.ns > causes[-1].ns and e.what == "step"), None)
        if step is None:
            raise Failed("no step followed")
        self.to_step.append((step.ns - causes[-1].ns) * 1e-6)
        between = {e.what for e in events if causes[0].ns < e.ns < step.ns and e.pid not in {c.pid for c in causes}}
        way = "shrink" if "shrink" in between else "new" if "revoke" in between else "new, without a revoke"
        self.paths[way] = self.paths.get(way, 0) + 1

    def run(self, times, seconds):
        """Up to so many times, and so many seconds."""
        end = time.monotonic() + seconds
        in_a_row = 0
        while self.n_jobs < times and in_a_row < MOST_FAILURES and time.monotonic() < end:
            self.n_jobs += 1
            try:
                self.run_once()
                in_a_row = 0
            except OutOfTime:
                self.n_jobs -= 1
                break
            except Failed as error:
                in_a_row += 1
                self.why = str(error)
        return self

    def row(self, name):
        times = [f"{min(self.to_step):.0f}", f"{statistics.median(self.to_step):.0f}", f"{max(self.to_step):.0f}"] if self.to_step \
            else ["-", "-", "-"]
        ways = ", ".join(f"{way} {n}" for way, n in sorted(self.paths.items()))
        return [name, self.n, self.n_jobs, self.n_kills, self.n_recovered, *times, ways or "-"]


HEAD = ["failure", "ranks", "jobs", "kills", "recovered", "min, ms", "median, ms", "max, ms", "way of the survivors"]
NOTE = "\n\nFrom SIGKILL, 50 ms after the rank had begun its last call, to the next step that counted."


def table(rows):
    """The rows of Recovery objects. If one failed, the section did, with the table."""
    text = results.table(HEAD, [job.row(name) for name, job in rows]) + NOTE
    failed = [f"{name}: {job.why}" for name, job in rows if job.why or job.n_jobs == 0]
    if failed:
        raise Failed(text + "\n\n" + "\n".join(failed))
    return text


def count(runner, full):
    return min(full, runner.args.jobs) if runner.args.jobs else full


def recoveries(runner):
    """A rank dies while others wait for it in a kernel"""
    shrink = ("--max-restarts", "3", "--on-failure", "shrink")
    return table([
        ("shrink", Recovery(runner, "r1g0:kill@5", shrink).run(count(runner, 14), 110)),
        ("abort, then a new communicator", Recovery(runner, "r1g0:kill@5;revoke_error", shrink).run(count(runner, 14), 110)),
        ("replaced", Recovery(runner, "r1g0:kill@5", n=4).run(count(runner, 10), 110)),
    ])


def other_deaths(runner):
    """Two deaths at once, a death while a communicator is made"""
    return table([
        ("two at once", Recovery(runner, "r1g0:kill@5;r2g0:kill@5", n=4, deaths=2).run(count(runner, 3), 60)),
        ("in the first init", Recovery(runner, "r1g0:kill_init@1").run(count(runner, 3), 50)),
        ("in a later init", Recovery(runner, "r1g0:kill@5;r2g0:kill_init@2", deaths=2).run(count(runner, 3), 60)),
    ])


def lost_network(runner):
    """NCCL's TCP connections of a rank are cut: no rank dies, and one is replaced"""
    return table([("TCP connections of a rank are cut", Recovery(runner, "r1g0:netcut@5", deaths=0).run(count(runner, 3), 60))])


def replays(runner):
    """A rank dies while others wait for it in a replayed graph"""
    shrink = ("--max-restarts", "3", "--on-failure", "shrink")
    return table([
        ("shrink", Recovery(runner, "r1g0:kill_launch@4", shrink, way=["graph"]).run(count(runner, 4), 90)),
        ("replaced", Recovery(runner, "r1g0:kill_launch@4", way=["graph"]).run(count(runner, 4), 90)),
    ])


def hang(runner):
    """A rank that never calls: ddprun names it"""
    path = runner.log_path()
    done = runner.job(runner.program("bench", "gpu_recover"), str(STEPS), n=N, limit_s=120, faults="r1g0:sleep@5",
                      options=("--hang-timeout", "5s", "--shutdown-timeout", "5"), env={"GPU_LOG": path})
    if not any(e.what == "sleep" for e in read_events(path)):
        raise Failed(f"no rank hung: status {done.status}: {done.said.strip()[-400:]}")
    lines = [line for line in done.said.splitlines() if re.search(r"rank 1\b", line)]
    if done.status == 0 or not lines:
        raise Failed(f"status {done.status}, and rank 1 is not named: {done.said.strip()[-600:]}")
    return f"With `--hang-timeout 5s` the job ended after {done.seconds:.1f} s with status {done.status}. It printed:\n\n```\n" + \
        "\n".join(lines[:3]) + "\n```"


def teardown(runner):
    """How long a killed process with much GPU memory takes to end"""
    rows = []
    for gib in [1, 20, 60] if not runner.args.jobs else [0.001]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(60)
            command = [runner.program("bench", "gpu_questions"), "hold", str(int(gib * 2**30)), str(server.getsockname()[1])]
            job = subprocess.Popen(command, env=runner.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                with server.accept()[0] as link:
                    link.settimeout(60)
                    link.recv(1)
                    time.sleep(0.2)  # it computes
                    began = time.monotonic()
                    os.kill(job.pid, signal.SIGKILL)
                    while link.recv(64):
                        pass
                    closed = time.monotonic()
                    job.wait(60)
                    rows.append([f"{gib:g}", f"{(closed - began) * 1e3:.1f}", f"{(time.monotonic() - began) * 1e3:.1f}"])
            except (OSError, subprocess.TimeoutExpired) as error:
                rows.append([f"{gib:g}", str(error), "-"])
            finally:
                end_process(job)
    return results.table(["GiB of GPU memory", "its socket is closed after, ms", "waitid() returns after, ms"], rows) + \
        "\n\nlibddp waits 5 s for the news of a death after an error of NCCL's network (`CAUSE_NETWORK_MS`)."


def torch(runner):
    """PyTorch with NCCL under ddprun: a rank is killed, and the job restarts"""
    script = os.path.join(results.HERE, "programs", "torch_nccl.py")
    try:
        version, has_gpu, _ = probe_torch(runner)
    except NoTorch as error:
        return f"Not run: {error}"
    backend = "nccl" if has_gpu else "gloo"
    rows = []
    for options, kills in ([], 0), (["--max-restarts", "1"], 1):
        done = runner.job(runner.args.python, script, "--backend", backend, *(["--kill"] if kills else []), n=2, limit_s=150,
                          options=options)
        found = re.search(r"^torch_nccl (\{.*\})$", done.out, re.MULTILINE)
        if done.status != 0 or not found:
            raise Failed(f"status {done.status}: {done.said.strip()[-600:]}")
        said = json.loads(found[1])
        if said["restarts"] != kills:
            raise Failed(f"{said['restarts']} restarts, not {kills}")
        rows.append([kills, said["ranks"], said["steps"], said["restarts"], f"{done.seconds:.1f}"])
    return f"torch {version}, backend `{backend}`.\n\n" + results.table(["kills", "ranks", "steps", "restarts", "whole job, s"], rows)
