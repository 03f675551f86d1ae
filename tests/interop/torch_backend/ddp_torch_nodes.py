"""A job of several nodes loses a rank, gains a node, and loses the node of rank 0; a rank that is alone gains a peer: ddp_torch.elastic,
each node in a network namespace. The ranks are recovering_rank.py.

usage: ddp_torch_nodes.py DDPRUN DDP_RENDEZVOUS DIRECTORY BACKEND...

Exit status 77, with the reason as the last line, without network namespaces. Runs with the Python whose torch is tested.
"""
import collections
import os
import queue
import signal
import subprocess
import sys
import threading
import time

from step_reports import Report, counted

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../system/lib"))
from places import Namespaces, NoPlace  # noqa: E402 (found by the path above)

RANK = os.path.join(HERE, "recovering_rank.py")
DAEMON_HOST = 4
DEADLINE_S = 120 * float(os.environ.get("TEST_PATIENCE", "1"))
SKIPPED = 77


def check(condition, text):
    if not condition:
        raise AssertionError(text)


class Job:
    """Its nodes by the numbers of their hosts, and what their ranks have reported."""

    def __init__(self, place, backend, n_nodes, n_local):
        self.place, self.n_local = place, n_local
        self.env = dict(os.environ, GLOO_SOCKET_IFNAME=place.interface, XDG_RUNTIME_DIR=FOLDER, DDP_TOKEN="0123456789abcdef0123456789abcdef")
        port_file = os.path.join(FOLDER, f"port.{backend}.{n_local}")
        self.daemon = self.start_on(DAEMON_HOST, [RENDEZVOUS, "--bind", f"{place.address(DAEMON_HOST)}:0", "--port-file", port_file])
        end = time.monotonic() + DEADLINE_S
        while not (os.path.exists(port_file) and os.path.getsize(port_file)):
            check(time.monotonic() < end and self.daemon.poll() is None, "ddp-rendezvous does not listen")
            time.sleep(0.01)
        with open(port_file, encoding="ascii") as f:
            endpoint = f"{place.address(DAEMON_HOST)}:{f.read().split()[0]}"
        self.words = ["--nnodes", n_nodes, "-p", str(n_local), "--warm=start", "--max-restarts", "9", "--rdzv-backend", "c10d",
                      "--rdzv-endpoint", endpoint, "--rdzv-id", backend, "--join-window", "0", RANK, "--steps", "1000000", "--ms", "20",
                      "--backend", backend]
        self.nodes, self.readers = {}, []
        self.lines = queue.SimpleQueue()
        self.reports = []
        self.ranks, self.generation = {}, -1  # rank -> (host, pid), of the newest generation

    def start_on(self, host, words, **more):
        return subprocess.Popen(self.place.command(host, words), env=self.env, stdin=subprocess.DEVNULL, **more)

    def start(self, host):
        print("+ node", host, flush=True)
        node = self.start_on(host, [DDPRUN, "--local-addr", self.place.address(host), *self.words], stdout=subprocess.PIPE, text=True)
        self.nodes[host] = node
        self.readers.append(threading.Thread(target=self.read, args=(host, node.stdout)))
        self.readers[-1].start()

    def read(self, host, stream):
        for line in stream:
            report = Report.read(line)
            if report:
                self.lines.put((host, report))

    def note(self, host, report):
        self.reports.append(report)
        if report.generation > self.generation:
            self.generation, self.ranks = report.generation, {}
        if report.generation == self.generation:
            self.ranks[report.rank] = host, report.pid
        return report.generation, report.world

    def await_world(self, world):
        """Until all ranks of a generation after the present one have completed a step in a world of this size -> {(host, pid)}"""
        before = self.generation
        while True:
            generation, size = self.note(*self.lines.get(timeout=DEADLINE_S))
            if generation > before and size == world and generation == self.generation and len(self.ranks) == world:
                return set(self.ranks.values())

    def end(self):
        for node in self.nodes.values():
            node.terminate()
        for node in self.nodes.values():
            try:
                node.wait(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                node.kill()
        for reader in self.readers:
            reader.join()
        self.daemon.terminate()
        self.daemon.wait()
        while not self.lines.empty():
            self.note(*self.lines.get())


def losses_and_a_join(job):
    for host in 1, 2:
        job.start(host)
    before = job.await_world(2 * job.n_local)

    victim = job.ranks[2 * job.n_local - 1]
    os.kill(victim[1], signal.SIGKILL)
    after = job.await_world(2 * job.n_local)
    check(before - after == {victim}, f"a rank was lost: {before} {after}")

    job.start(3)
    before, after = after, job.await_world(3 * job.n_local)
    check(before < after, f"a node joined: {before} {after}")

    host = job.ranks[0][0]
    job.nodes[host].kill()
    before, after = after, job.await_world(2 * job.n_local)
    check(after == {(h, pid) for h, pid in before if h != host}, f"node {host} was lost: {before} {after}")


def alone_until_a_join(job):
    """Nothing that a rank calls alone fails."""
    job.start(1)
    before = job.await_world(1)
    job.start(2)
    after = job.await_world(2)
    check(before < after, f"a node joined: {before} {after}")


def run(place, backend, events, *size):
    job = Job(place, backend, *size)
    try:
        events(job)
    finally:
        job.end()
    results = collections.defaultdict(set)
    for report in counted(job.reports):
        results[report.step].add(report.parameters)
    check(sorted(results) == list(range(1, max(results) + 1)), f"steps {sorted(results)}")
    for step, found in results.items():
        check(len(found) == 1, f"step {step} has different results: {found}")
    print(f"passed: {backend}, {events.__name__}, {len(results)} steps", flush=True)


if __name__ == "__main__":
    DDPRUN, RENDEZVOUS, FOLDER, *backends = sys.argv[1:]
    try:
        with Namespaces() as there:
            for name in backends:
                run(there, name, losses_and_a_join, "2:3", 2)
                run(there, name, alone_until_a_join, "1:2", 1)
    except NoPlace as error:
        print(error)
        sys.exit(SKIPPED)
