#!/usr/bin/env python3
"""Compare our store with torch's two servers, Redis, and a server that does nothing.

usage: bench/store.py [--runs R] [--seconds S] [--build DIR] [--joins N]...

Runs in network and mount namespaces of its own (as root), twice: once where the names of the clients' addresses
resolve at once, and once where DNS does not answer. The servers take turns for each figure.
"""
import argparse
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import results
from torch_venv import torch_venv

LIMIT_S = 120
SERVER_LIMIT_S = 30
CLIENTS = [1, 16, 256]
SETS = 2000000
IDLE_FOR_LATENCY, GETS = 1000, 20000
IDLE_FOR_MEMORY, KEYS = 8000, 200000
OURS, TORCH, LEGACY, REDIS, NOTHING = "ddp-rendezvous", "torch, libuv", "torch, legacy", "Redis", "nothing"

TORCH_SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=sys.argv[1] == "libuv")
print(store.port, flush=True)
sys.stdin.read()
"""


class Server:
    def __init__(self, name, command, protocol="tcpstore", env=None, port=None):
        self.name, self.protocol = name, protocol
        begin = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env, stderr=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL if port else subprocess.PIPE, text=True)
        self.port = port or int(self.process.stdout.readline())
        end = time.monotonic() + SERVER_LIMIT_S
        while port and not self.answers():
            if time.monotonic() > end:
                raise SystemExit(f"{name} does not start")
            time.sleep(0.01)
        self.start_s = time.monotonic() - begin

    def answers(self):
        return subprocess.run(["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{self.port}"], check=False,
                              stderr=subprocess.DEVNULL).returncode == 0

    def cpu_s(self):
        folder = f"/proc/{self.process.pid}/task"
        total = 0
        for task in os.listdir(folder):
            with open(f"{folder}/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def servers(build):
    yield lambda: Server(OURS, [f"{build}/rendezvous/daemon/ddp-rendezvous", "--bind", "127.0.0.1:16378"], port=16378)
    venv = torch_venv()
    if venv:
        for name, kind in (TORCH, "libuv"), (LEGACY, "legacy"):
            yield lambda name=name, kind=kind: Server(name, [venv[0], "-c", TORCH_SERVER, kind], env=venv[1])
    if shutil.which("redis-server"):
        yield lambda: Server(REDIS, ["redis-server", "--port", "16379", "--bind", "127.0.0.1", "--save", "",
                                     "--protected-mode", "no"], "redis", port=16379)
    yield lambda: Server(NOTHING, [f"{build}/bench/nothing_server", "112:72", "28:8"], "nothing")


def load(build, server, *run, hold=None):
    """What the load program prints, as a dict, and the server's CPU seconds; None if it failed."""
    cpu_s = server.cpu_s()
    command = [f"{build}/bench/store_load", server.protocol, str(server.port), *map(str, run)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if hold:
            words = process.stdout.readline().split()
            hold()
        else:
            words = process.communicate(timeout=LIMIT_S)[0].split()
    except subprocess.TimeoutExpired:
        print(f"{server.name}: {' '.join(map(str, run))} took more than {LIMIT_S} s", file=sys.stderr)
        process.kill()
        words = []
    if hold:
        process.communicate()
    if not words:
        return None
    said = dict(zip(words[::2], map(float, words[1::2])))
    said["cpu_s"] = server.cpu_s() - cpu_s
    return said


def measure(args, contestants, figures):
    """Figure name -> server name -> list of what the load program printed."""
    found = {name: {s.name: [] for s in contestants} for name, _, _ in figures}
    for name, run, who in figures:
        for run_number in range(args.runs):
            for server in contestants:
                if server.name in who and (server.name != LEGACY or run_number == 0):  # once is enough for comparison, and it is slow
                    said = load(args.build, server, *run)
                    if said:
                        found[name][server.name].append(said)
    return found


def measure_memory(args, contestants):
    found = {}
    for server in contestants:
        if server.name == NOTHING:
            continue
        before = server.rss_bytes()
        load(args.build, server, "fill", KEYS)
        between = server.rss_bytes()
        held = []  # after the keys, which stay: the connections do not reuse freed memory
        load(args.build, server, "hold", IDLE_FOR_MEMORY, hold=lambda s=server: held.append(s.rss_bytes()))
        found[server.name] = [(held[0] - between) / IDLE_FOR_MEMORY, (between - before) / KEYS]
    return found


def inside(args):
    """Runs in the namespaces; prints JSON."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    speakers = [OURS, TORCH, LEGACY, REDIS]
    stores = speakers[:3]
    clients = CLIENTS if args.inside == "answered" else [1, 16]
    figures = [(f"turns {n}", ["turns", n, args.seconds], speakers + [NOTHING]) for n in clients]
    if args.inside == "answered":
        figures.append(("pipeline", ["pipeline", SETS], speakers))
        figures.append(("latency", ["latency", IDLE_FOR_LATENCY, GETS], speakers))
        figures.extend((f"join {n}", ["join", n], stores) for n in args.joins)
    else:
        figures.append((f"join {clients[-1]}", ["join", clients[-1]], stores))
    chosen = [make() for make in servers(args.build)]
    try:
        memory = measure_memory(args, chosen) if args.inside == "answered" else {}
        json.dump({"figures": measure(args, chosen, figures), "memory": memory,
                   "start_s": {s.name: s.start_s for s in chosen}}, sys.stdout)
    finally:
        for server in chosen:
            server.stop()


def in_namespaces(dns):
    """Run this script again in namespaces where the clients' names are known, or where no server resolves them."""
    with tempfile.TemporaryDirectory() as folder:
        names = "".join(f"127.0.0.{i} client{i}\n" for i in range(2, 17)) + "127.0.0.1 localhost\n"
        with open(f"{folder}/hosts", "w", encoding="ascii") as f:
            f.write(names if dns == "answered" else "")
        with open(f"{folder}/resolv.conf", "w", encoding="ascii") as f:
            f.write("nameserver 192.0.2.1\n")
        with open(f"{folder}/nsswitch.conf", "w", encoding="ascii") as f:
            f.write("passwd: files\ngroup: files\nhosts: files dns\n")
        # packets to the name server vanish in a device that leads nowhere
        script = ('for f in hosts resolv.conf nsswitch.conf; do mount --bind "$0/$f" "/etc/$f"; done && '
                  'ip link add nowhere type veth peer name nobody && ip link set nobody up && '
                  'ip addr add 192.0.2.2/24 dev nowhere && ip link set nowhere up && '
                  'ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev nowhere && exec "$@"')
        done = subprocess.run(["unshare", "--mount", "--net", "sh", "-c", script, folder, sys.executable,
                               *sys.argv, "--inside", dns], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)


def mean(said, key):
    return statistics.fmean(s[key] for s in said) if said else None


def number(value, digits):
    return "-" if value is None else f"{value:,.{digits}f}"


def rows_of(figures):
    for name, by_server in figures.items():
        if name == "latency":
            continue
        base = mean(by_server.get(TORCH), "per_s")
        for server, said in by_server.items():
            if not said:
                continue
            rate = mean(said, "per_s")
            cpu_us = statistics.fmean(s["cpu_s"] / s["requests"] for s in said) * 1e6
            yield [name, server, len(said), number(rate, 0), number(max(s["per_s"] for s in said), 0),
                   number(cpu_us, 3), number(rate / base if base else None, 2)]


def latency_rows(answers):
    for server, said in answers["figures"]["latency"].items():
        memory = answers["memory"].get(server)
        if said and memory:
            yield [server, *(number(mean(said, key), 1) for key in ("p50_us", "p99_us", "max_us")),
                   *(number(m, 0) for m in memory)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run of requests in turn")
    parser.add_argument("--joins", type=int, action="append", help="clients (default: 1000, 8000, 16000)")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    parser.add_argument("--inside", choices=["answered", "unanswered"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    args.joins = args.joins or [1000, 8000, 16000]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if args.inside:
        inside(args)
        return
    before = results.load_average()
    answers, silent = in_namespaces("answered"), in_namespaces("unanswered")
    head = ["load", "server", "runs", "mean a second", "best", "server CPU us each", "mean / torch, libuv"]
    text = "\n\n".join([
        "Where DNS answers:", results.table(head, rows_of(answers["figures"])),
        f"A get with {IDLE_FOR_LATENCY} silent clients connected; memory per silent client (of {IDLE_FOR_MEMORY}) and "
        f"per key (of {KEYS}, 16 bytes with a value of 64):",
        results.table(["server", "p50 us", "p99 us", "max us", "bytes per client", "bytes per key"],
                      latency_rows(answers)),
        "Where DNS does not answer:", results.table(head, rows_of(silent["figures"])),
        "Seconds from the start of the server's program until it served, Python's own included: " + "; ".join(
            f"{name} {took:.2f} (where DNS answers {answers['start_s'][name]:.2f})"
            for name, took in silent["start_s"].items()) + "."])
    results.report("store", text, before)


if __name__ == "__main__":
    main()
