#!/usr/bin/env python3
"""Lose a node of a job that has a spare (--spares 1), and measure the time from the detection of the loss until the spare's ranks and all
others have completed a step.

usage: bench/nodes/spares.py [--runs K] [--kinds KIND,...] [--python PYTHON] [--build DIR]

Two active nodes with one rank each and a spare, each a ddprun of its own at an address of the loopback interface; the coordinator is a
ddp-rendezvous. ddprun of one active node is killed by SIGKILL once both ranks make steps and the spare has nothing left to prepare (no
CPU time in the last second). The loss is detected when the coordinator's order to stop reaches the surviving node (the event stop in its
--events). KIND: `libddp` (tests/support/programs/recovery_rank.c, in-place recovery), `torch` (tests/interop/ddp_steps.py, an unmodified
script with DistributedDataParallel on gloo, --warm), `torch-cold` (the same without --warm). `death` is the time from the kill.
"""
import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import results  # noqa: E402 (found by the path above)

DEADLINE_S = 120
TOKEN = "0123456789abcdef0123456789abcdef"
SCRIPT = os.path.join(results.ROOT, "tests/interop/ddp_steps.py")
KINDS = "libddp", "torch", "torch-cold"


def cpu_ticks(pid):
    """Of a process and all that descend from it."""
    children, ticks = {}, {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
        ticks[int(name)] = int(fields[11]) + int(fields[12])
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        total += ticks.get(one, 0)
        todo += children.get(one, [])
    return total


class Job:
    def __init__(self, args, kind):
        self.kind, self.dir = kind, tempfile.mkdtemp()
        self.env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(args.build, "worker-runtime"), DDP_TOKEN=TOKEN,
                        XDG_RUNTIME_DIR=self.dir, TEST_STEP_S="0.005", TEST_FIFO="/dev/stdout",
                        PATH=os.path.dirname(args.python) + ":" + os.environ["PATH"])
        port_file = os.path.join(self.dir, "port")
        self.daemon = subprocess.Popen([os.path.join(args.build, "rendezvous/daemon/ddp-rendezvous"), "--bind", "127.0.0.1:0",
                                        "--port-file", port_file], env=self.env, stderr=subprocess.DEVNULL)
        while not os.path.exists(port_file) or os.path.getsize(port_file) == 0:
            time.sleep(0.001)
        with open(port_file) as f:
            port = int(f.read().split()[0])
        program = [os.path.join(args.build, "tests/support/recovery_rank"), "1000000", "40", "1"] if kind == "libddp" else [SCRIPT]
        self.words = [os.path.join(args.build, "launcher/ddprun"), "--nnodes", "2", "--spares", "1", "--max-restarts", "3",
                      "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "bench",
                      *(["--warm"] if kind == "torch" else []), *program]
        self.lines = queue.SimpleQueue()
        self.nodes = []

    def start(self):
        host = len(self.nodes) + 1
        words = [self.words[0], "--local-addr", f"127.0.0.{host}", "--events", self.events(host), *self.words[1:]]
        node = subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.nodes.append(node)
        threading.Thread(target=self.read, args=(host, node.stdout), daemon=True).start()

    def events(self, host):
        return os.path.join(self.dir, f"events{host}")

    def read(self, host, stream):
        for line in stream:
            self.lines.put((time.time(), host, line.decode()))

    def await_steps(self, hosts, after):
        """-> when the last of them has made its first step after that; a script reports only the first one of a process"""
        seen = {}
        while set(seen) != set(hosts):
            when, host, line = self.lines.get(timeout=DEADLINE_S)
            if (self.kind != "libddp" or line.startswith("step")) and when > after(host) and host in hosts:
                seen.setdefault(host, when)
        return max(seen.values())

    def find(self, host, event, generation):
        """The time of an event of that generation."""
        with open(self.events(host)) as f:
            for line in f:
                e = json.loads(line)
                if e["ev"] == event and e["gen"] == generation:
                    return e["t"]
        return None

    def await_idle(self, node):
        ticks, since = -1, time.monotonic()
        while time.monotonic() - since < 1:
            time.sleep(0.05)
            now = cpu_ticks(node.pid)
            if now != ticks:
                ticks, since = now, time.monotonic()

    def close(self):
        for process in [*self.nodes, self.daemon]:
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def measure(args, kind):
    job = Job(args, kind)
    try:
        job.start()
        job.start()
        job.await_steps({1, 2}, lambda _: 0)
        job.start()
        time.sleep(2.5)  # it learns that it is a spare within a second
        job.await_idle(job.nodes[2])
        killed = time.time()
        job.nodes[1].send_signal(signal.SIGKILL)
        # steps of generation 1 come after the rendezvous of it
        last = job.await_steps({1, 3}, lambda host: job.find(host, "rdzv", 1) or float("inf"))
        return last - job.find(1, "stop", 0), last - killed
    finally:
        job.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load, rows = results.load_average(), []
    for kind in args.kinds.split(","):
        times = [measure(args, kind) for _ in range(args.runs)]
        detected, killed = ([one[i] * 1000 for one in times] for i in range(2))
        rows.append([kind, *(f"{f:.0f} / {m:.0f} / {max(v):.0f}" for v in (detected, killed) for f, m in [results.spread(v)]), len(times)])
    results.show(results.table(["ranks", "from detection, ms (min / median / max)", "from the kill, ms", "runs"], rows), load)


if __name__ == "__main__":
    main()
