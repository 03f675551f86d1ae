#!/usr/bin/env python3
"""Kill, remove and add nodes of a job with in-place recovery (docs/design/recovery.md), and measure the time until all ranks of
the next generation hold its state, and for how long the survivors make no step.

usage: bench/recovery_nodes.py [--nodes N,...] [--local L] [--mb M,...] [--runs K] [--loopback] [--build DIR]

The ranks are tests/support/programs/recovery_rank.c, L on each node, with M MB of parameters besides a few that change. Nodes are network
namespaces on one network (needs root), or addresses of the loopback interface; the daemon is on a host of its own. `state` is the
time from the event (kill -9 of a node's ddprun, SIGTERM to it, the start of another) until the last rank holds the state of the
next generation. `pause` is the longest time of all survivors from their last step until they hold that state. `step` is the time
of a step otherwise.
"""
import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import results

sys.path.insert(0, os.path.join(results.ROOT, "tests/system/lib"))
from places import Loopback, Namespaces  # noqa: E402

DAEMON_HOST = 1
DEADLINE_S = 120
TOKEN = "0123456789abcdef0123456789abcdef"


class Job:
    def __init__(self, args, place, nodes, mb):
        self.place, self.n_local = place, args.local
        self.dir = tempfile.mkdtemp()
        port_file = os.path.join(self.dir, "port")
        self.env = dict(os.environ, LD_LIBRARY_PATH=os.path.join(args.build, "worker-runtime"), DDP_TOKEN=TOKEN,
                        XDG_RUNTIME_DIR=self.dir)
        daemon = [os.path.join(args.build, "rendezvous/daemon/ddp-rendezvous"), "--bind", f"{place.address(DAEMON_HOST)}:0",
                  "--port-file", port_file]
        self.daemon = subprocess.Popen(place.command(DAEMON_HOST, daemon), env=self.env, stderr=subprocess.DEVNULL)
        while not os.path.exists(port_file) or os.path.getsize(port_file) == 0:
            time.sleep(0.001)
        with open(port_file) as f:
            port = int(f.read().split()[0])
        self.words = [os.path.join(args.build, "launcher/ddprun"), "--nnodes", nodes, "-p", str(args.local), "--max-restarts",
                      "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{place.address(DAEMON_HOST)}:{port}", "--rdzv-id",
                      "bench", "--join-window", "0", os.path.join(args.build, "tests/support/recovery_rank"), "1000000", "40", "1",
                      str(mb * 250000), "30000"]
        self.lines = queue.SimpleQueue()
        self.generation = 0  # the newest generation that a rank has reported
        self.nodes, self.readers = {}, []

    def start(self, host):
        words = [*self.words[:1], "--local-addr", self.place.address(host), *self.words[1:]]
        node = subprocess.Popen(self.place.command(host, words), env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.nodes[host] = node
        reader = threading.Thread(target=self.read, args=(host, node.stdout), daemon=True)
        reader.start()
        self.readers.append(reader)

    def read(self, host, stream):
        for line in stream:
            self.lines.put((time.perf_counter(), host, line.decode().split()))

    def hear(self):
        return self.lines.get(timeout=DEADLINE_S)

    def await_steps(self, world, n):
        """Wait until all ranks of that world have completed n steps together -> {pid: time of its last step}"""
        seen = {}
        while len(seen) < world or min(count for count, _ in seen.values()) < n:
            when, _, words = self.hear()
            if words[0] != "step":
                continue
            self.generation = max(self.generation, int(words[5]))
            if int(words[11]) == world:
                seen[int(words[7])] = seen.get(int(words[7]), (0, 0))[0] + 1, when
        return {pid: when for pid, (_, when) in seen.items()}

    def await_state(self, last_steps, world):
        """For the next generation -> when the last rank held the state, the longest pause of the ranks that had made steps"""
        held = {}
        while len(held) < world:
            when, _, words = self.hear()
            if words[0] == "step" and int(words[5]) == self.generation:
                last_steps[int(words[7])] = when
            if words[0] == "holds" and int(words[2]) == self.generation + 1:
                held[int(words[4])] = when
        return max(held.values()), max(when - last_steps[pid] for pid, when in held.items() if pid in last_steps)

    def end(self):
        for node in self.nodes.values():
            node.terminate()
        for node in self.nodes.values():
            node.wait()
        for reader in self.readers:
            reader.join()
        self.daemon.terminate()
        self.daemon.wait()
        shutil.rmtree(self.dir)


def happen(job, event, host):
    if event == "joins":
        job.start(host)
    else:
        job.nodes[host].send_signal(signal.SIGKILL if event == "is killed" else signal.SIGTERM)


def measure(args, place, event, n_nodes, mb):
    """-> step, state, pause in ms"""
    before = n_nodes - 1 if event == "joins" else n_nodes
    after = n_nodes if event == "joins" else n_nodes - 1
    job = Job(args, place, f"{before if event == 'joins' else after}:{n_nodes}", mb)
    hosts = range(DAEMON_HOST + 1, DAEMON_HOST + 1 + n_nodes)
    try:
        for host in hosts[:before]:
            job.start(host)
        begun = min(job.await_steps(before * args.local, 3).values())
        last_steps = job.await_steps(before * args.local, 5)
        step_ms = (max(last_steps.values()) - begun) / 5 * 1000
        begun = time.perf_counter()
        happen(job, event, hosts[-1])
        state, pause = job.await_state(last_steps, after * args.local)
        return step_ms, (state - begun) * 1000, pause * 1000
    finally:
        job.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", default="2,3")
    parser.add_argument("--local", type=int, default=1)
    parser.add_argument("--mb", default="1,100")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load_before = results.load_average()
    rows = []
    for n_nodes in map(int, args.nodes.split(",")):
        for event in "is killed", "leaves", "joins":
            for mb in map(int, args.mb.split(",")):
                with Loopback() if args.loopback else Namespaces() as place:
                    runs = [measure(args, place, event, n_nodes, mb) for _ in range(args.runs)]
                cells = [text for values in zip(*runs) for text in
                         (f"{sorted(values)[len(values) // 2]:.1f}", f"{max(values):.1f}")]
                rows.append([f"of {n_nodes} nodes one {event}", mb, args.runs, cells[0], *cells[2:]])
    results.report("recovery_nodes", results.table(
        ["what happens", "MB", "runs", "step: median ms", "state: median ms", "most ms", "pause: median ms", "most ms"], rows),
        load_before)


if __name__ == "__main__":
    main()
