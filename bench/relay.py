#!/usr/bin/env python3
"""Compare the store with the store through its relay (--store-relay).

usage: bench/relay.py [--runs R] [--requests N] [--join CLIENTS:NODES]... [--build DIR]

On one machine, over loopback: a process with the store, and others with the relays of the nodes (tests/support/programs/relayed_store.c).
Both ways of access take turns for each figure.

  --runs R               runs of each figure (default: 5)
  --requests N           requests of a round trip figure (default: 20000)
  --join CLIENTS:NODES   clients that join, over the relays of so many nodes; default: 1024:128, 8192:1024, 16384:2048
  --build DIR            default: build
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys

import results

LIMIT_S = 120
FILES_BESIDE = 200
DIRECT, SEALED, PLAIN = "direct", "relay, encrypted", "relay, in the clear"


class Store:
    """A store of its own for each figure: none finds keys or memory of another."""

    def __init__(self, build, n_nodes, *more):
        self.process = subprocess.Popen([f"{build}/tests/support/relayed_store", str(n_nodes), *more], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        pid, self.port, *self.relays = map(int, self.process.stdout.readline().split())
        self.pid = pid

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


def load(build, ports, *run, hold=None):
    """What the load program prints, as a dict."""
    process = subprocess.Popen([f"{build}/bench/store_load", "tcpstore", ",".join(map(str, ports)), *map(str, run)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if hold:
            words = process.stdout.readline().split()
            hold()
            process.communicate(timeout=LIMIT_S)
        else:
            words = process.communicate(timeout=LIMIT_S)[0].split()
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        words = []
    if not words:
        sys.exit(f"store_load {' '.join(map(str, run))} failed, or took more than {LIMIT_S} s")
    return dict(zip(words[::2], map(float, words[1::2])))


WAYS = {DIRECT: (), SEALED: (), PLAIN: ("plain",)}


def in_turn(args, n_nodes, *run):
    """way -> [(what the load printed, facts about the store)]"""
    found = {way: [] for way in WAYS}
    for _ in range(args.runs):
        for way, more in WAYS.items():
            with Store(args.build, n_nodes, *more) as store:
                rss, cpu_s = store.rss_bytes(), store.cpu_s()
                said = load(args.build, [store.port] if way == DIRECT else store.relays, *run)
                found[way].append({**said, "cpu_s": store.cpu_s() - cpu_s, "rss": store.rss_bytes() - rss})
    return found


def ratio(value, base):
    return f"{value / base:.2f}" if base else "-"


def round_trips(args):
    found = in_turn(args, 1, "latency", 1, args.requests)
    base = statistics.median(run["p50_us"] for run in found[DIRECT])
    for way, runs in found.items():
        low, middle = results.spread(run["p50_us"] for run in runs)
        yield [way, len(runs), f"{low:.1f}", f"{middle:.1f}", f"{statistics.median(run['p99_us'] for run in runs):.1f}",
               ratio(middle, base)]


def joins(args):
    for n_clients, n_nodes in args.join:
        found = in_turn(args, n_nodes, "join", n_clients)
        base = {key: statistics.median(run[key] for run in found[DIRECT]) for key in ("seconds", "cpu_s", "rss")}
        for way, runs in found.items():
            middle = {key: statistics.median(run[key] for run in runs) for key in base}
            with Store(args.build, n_nodes, *WAYS[way]) as store:
                held = []
                load(args.build, [store.port] if way == DIRECT else store.relays, "hold", n_clients,
                     hold=lambda held=held, store=store: held.append(store.n_sockets()))
            yield [f"{n_clients:,} of {n_nodes:,} nodes", way, len(runs), f"{min(run['seconds'] for run in runs):.3f}",
                   f"{middle['seconds']:.3f}", ratio(middle["seconds"], base["seconds"]), f"{middle['cpu_s']:.3f}",
                   ratio(middle["cpu_s"], base["cpu_s"]), f"{middle['rss'] / 1e6:.1f}", held[0]]


def pair(text):
    clients, nodes = map(int, text.split(":"))
    if not 1 <= nodes <= clients:
        raise argparse.ArgumentTypeError("expected CLIENTS:NODES")
    return clients, nodes


def may_open(n_files):
    """As root also beyond the hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, n_files),) * 2)
    except (OSError, ValueError) as error:
        print(f"left out: {n_files} open files: {error}", file=sys.stderr)
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--join", type=pair, action="append", metavar="CLIENTS:NODES")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.join = args.join or [(1024, 128), (8192, 1024), (16384, 2048)]
    args.join = [(clients, nodes) for clients, nodes in args.join if may_open(clients + FILES_BESIDE)]
    before = results.load_average()
    text = "\n\n".join([
        f"A get, {args.requests:,} in turn by one client:",
        results.table(["access", "runs", "min p50 us", "median p50 us", "median p99 us", "median / direct"], round_trips(args)),
        "Clients that connect, count themselves, and wait for one key that the last one sets. CPU and memory of the process with the store; "
        "its sockets while the clients are connected:",
        results.table(["clients", "access", "runs", "min s", "median s", "/ direct", "median CPU s", "/ direct", "MB", "sockets"],
                      joins(args))])
    results.report("relay", text, before)


if __name__ == "__main__":
    main()
