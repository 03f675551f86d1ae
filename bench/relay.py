#!/usr/bin/env python3
"""Compare the store with the store through its relay (--store-relay).

usage: bench/relay.py [--runs R] [--requests N] [--barriers N] [--gets N] [--ranks RANKS:NODES]... [--no-round-trip] [--build DIR]

On one machine, over loopback: a process with the store, and others with the relays of the nodes (tests/support/programs/relayed_store.c).
The ways of access take turns for each figure.

  direct               each rank has a connection to the store (bench/programs/store_load.c)
  relays, encrypted    each rank has a connection to one of the relays, which share the machine with the ranks and the store
  relays, in the clear
  links                no relays and no connections of ranks: one process sends on each node's link what its ddprun would
                       (bench/programs/relay_load.c); requests that a node's ranks make at one moment travel in one frame
  links, ranks apart   each of them in a frame of its own

  --runs R             runs of each figure (default: 5)
  --requests N         requests of a round trip figure (default: 20000)
  --barriers N         barriers in a row (default: 10)
  --gets N             values that each rank gets, in turn, after all have set theirs (default: 16)
  --ranks RANKS:NODES  how many ranks of how many nodes; default: 1024:128, 8192:1024, 16384:2048
  --no-round-trip      only the figures of many ranks
  --build DIR          default: build

Beyond 4096 nodes there are only links. Connections and links are left out if the limit of open files, which root may be able to raise, is
smaller than their number.
"""
import argparse
import contextlib
import os
import resource
import select
import socket
import statistics
import subprocess
import sys

import results

LIMIT_S = 600
FILES_BESIDE = 200
MAX_RELAYS, MAX_FILES = 4096, 1 << 17
TOKEN = "0123456789abcdef0123456789abcdef"  # of relayed_store
DIRECT, SEALED, PLAIN, LINKS, APART = "direct", "relays, encrypted", "relays, in the clear", "links", "links, ranks apart"


class Store:
    """A store of its own for each figure: none finds keys or memory of another."""

    def __init__(self, build, n_relays, *more):
        self.process = subprocess.Popen([f"{build}/tests/support/relayed_store", str(n_relays), *more], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.pid, self.port, self.links, *self.relays = map(int, self.process.stdout.readline().split())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def cpu_s(self):
        with open(f"/proc/{self.pid}/schedstat", encoding="ascii") as f:
            return int(f.read().split()[0]) / 1e9

    def rss_bytes(self):
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def n_sockets(self):
        folder = f"/proc/{self.pid}/fd"
        return sum(os.readlink(f"{folder}/{fd}").startswith("socket:") for fd in os.listdir(folder))


def store_load(build, ports, *run):
    return [f"{build}/bench/store_load", "tcpstore", ",".join(map(str, ports)), *map(str, run)]


def start(command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "DDP_TOKEN": TOKEN})


def end(process):
    """What it still prints. Ends this program if that takes too long."""
    try:
        out = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        sys.exit(f"{process.args[0]} took more than {LIMIT_S} s")
    if process.returncode != 0:
        sys.exit(f"{process.args[0]} failed")
    return out


def ratio(value, base):
    return f"{value / base:.2f}" if base else "-"


# --- one client ---

def round_trips(args):
    found = {DIRECT: [], SEALED: [], PLAIN: []}
    for _ in range(args.runs):
        for way, runs in found.items():
            with Store(args.build, 1, *(["plain"] if way == PLAIN else [])) as store:
                words = end(start(store_load(args.build, [store.port] if way == DIRECT else store.relays, "latency", 1, args.requests))).split()
                runs.append(dict(zip(words[::2], map(float, words[1::2]))))
    base = statistics.median(run["p50_us"] for run in found[DIRECT])
    for way, runs in found.items():
        low, middle = results.spread(run["p50_us"] for run in runs)
        yield [way, len(runs), f"{low:.1f}", f"{middle:.1f}", f"{statistics.median(run['p99_us'] for run in runs):.1f}",
               ratio(middle, base)]


# --- many ranks ---

def slab_bytes():
    with open("/proc/meminfo", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Slab:")) * 1024


def kernel_bytes_a_socket(n=3000):
    """What the kernel needs for a connected socket that a process polls."""
    sockets, poll = [], select.epoll()

    def connect(times):
        for _ in range(times):
            here = socket.create_connection(listener.getsockname())
            sockets.extend((here, listener.accept()[0]))
            for end_of_it in sockets[-2:]:
                poll.register(end_of_it, select.EPOLLIN)

    with socket.create_server(("127.0.0.1", 0), backlog=8) as listener:
        connect(n // 10)  # what is allocated once
        before = slab_bytes()
        connect(n)
        per_socket = (slab_bytes() - before) / (2 * n)
    for one in sockets:
        one.close()
    poll.close()
    return per_socket


def ways_of(n_ranks, n_nodes, max_files):
    has_files = n_ranks + FILES_BESIDE <= max_files
    found = [way for way, is_possible in ((DIRECT, has_files), (SEALED, has_files and n_nodes <= MAX_RELAYS),
                                          (PLAIN, has_files and n_nodes <= MAX_RELAYS), (LINKS, n_nodes + FILES_BESIDE <= max_files),
                                          (APART, n_nodes + FILES_BESIDE <= max_files)) if is_possible]
    if DIRECT not in found:
        print(f"left out: connections of {n_ranks:,} ranks; the limit of open files is {max_files:,}", file=sys.stderr)
    return found


def run_phases(args, way, n_ranks, n_nodes):
    """{phase: figures}, in order"""
    found = {}
    with Store(args.build, n_nodes if way in (SEALED, PLAIN) else 0, *(["plain"] if way == PLAIN else [])) as store:
        if way in (LINKS, APART):
            command = [f"{args.build}/bench/relay_load", str(store.links), str(n_nodes), str(n_ranks), str(args.barriers), str(args.gets),
                       *(["apart"] if way == APART else [])]
        else:
            command = store_load(args.build, [store.port] if way == DIRECT else store.relays, "ranks", n_ranks, args.barriers, args.gets)
        rss, cpu_s = store.rss_bytes(), store.cpu_s()
        process = start(command)
        while line := process.stdout.readline():
            _, phase, _, requests, _, seconds = line.split()
            found[phase] = {"requests": int(requests), "seconds": float(seconds), "cpu_s": store.cpu_s() - cpu_s,
                            "mb": (store.rss_bytes() - rss) / 1e6, "sockets": store.n_sockets()}
            cpu_s = store.cpu_s()
            process.stdin.write("\n")
            process.stdin.flush()
        end(process)
    return found


def rank_rows(args, per_socket):
    max_files = raise_file_limit()
    for n_ranks, n_nodes in args.ranks:
        ways = ways_of(n_ranks, n_nodes, max_files)
        if not ways:
            continue
        found = {way: [] for way in ways}
        for _ in range(args.runs):
            for way in ways:
                found[way].append(run_phases(args, way, n_ranks, n_nodes))
        for phase in found[ways[0]][0]:
            base = {}
            for way in ways:
                runs = [run[phase] for run in found[way]]
                middle = {key: statistics.median(run[key] for run in runs) for key in ("seconds", "cpu_s", "mb", "sockets")}
                middle["all_mb"] = middle["mb"] + middle["sockets"] * per_socket / 1e6
                base = base or (middle if way == DIRECT else dict.fromkeys(middle, 0))
                yield [f"{n_ranks:,} of {n_nodes:,}", phase, way, len(runs), f"{runs[0]['requests']:,}", f"{min(run['seconds'] for run in runs):.3f}",
                       f"{middle['seconds']:.3f}", ratio(middle["seconds"], base["seconds"]), f"{middle['cpu_s']:.3f}",
                       ratio(middle["cpu_s"], base["cpu_s"]), f"{middle['mb']:.1f}", f"{middle['sockets']:.0f}", f"{middle['all_mb']:.1f}",
                       ratio(middle["all_mb"], base["all_mb"])]


def pair(text):
    ranks, nodes = map(int, text.split(":"))
    if not 1 <= nodes <= ranks:
        raise argparse.ArgumentTypeError("expected RANKS:NODES")
    return ranks, nodes


def raise_file_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, MAX_FILES),) * 2)
        return max(hard, MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--barriers", type=int, default=10)
    parser.add_argument("--gets", type=int, default=16)
    parser.add_argument("--ranks", type=pair, action="append", metavar="RANKS:NODES")
    parser.add_argument("--no-round-trip", action="store_true")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.ranks = args.ranks or [(1024, 128), (8192, 1024), (16384, 2048)]
    before = results.load_average()
    per_socket = kernel_bytes_a_socket()
    parts = [] if args.no_round_trip else [
        f"A get, {args.requests:,} in turn by one client:",
        results.table(["access", "runs", "min p50 us", "median p50 us", "median p99 us", "median / direct"], round_trips(args))]
    parts += [
        "Ranks of nodes: join (connect, handshake, count, wait for a key that the last one sets), "
        f"{args.barriers} barriers (count, wait), gather (set a value, a barrier, get {args.gets} values one by one). "
        "CPU, memory and sockets are those of the process with the store; requests are those with a reply. "
        f"The kernel needs {per_socket:,.0f} bytes for a socket:",
        results.table(["ranks of nodes", "phase", "access", "runs", "requests", "min s", "median s", "/ direct", "median CPU s", "/ direct", "MB",
                       "sockets", "MB with sockets", "/ direct"], rank_rows(args, per_socket))]
    results.report("relay", "\n\n".join(parts), before)


if __name__ == "__main__":
    main()
