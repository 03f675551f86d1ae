#!/usr/bin/env python3
"""The time of an all-reduce of float32 between two nodes: libddp beside gloo and Open MPI over TCP.

usage: bench/collectives_net.py [-p RANKS] [--repeats R] [--rounds N] [--build DIR]   (as root)

The nodes are two network namespaces of this machine, joined by a veth pair. Each library runs its whole sweep
of sizes in turn, --rounds times over; of a size, the fastest of all rounds and the median of the rounds' medians
count. iperf3 sends between the two in the same run, one way and both ways. What is not installed is left out.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import results
from contestants import build_mpi
from torch_venv import torch_venv

LIMIT_S = 300
ADDRESSES = ("10.117.0.1", "10.117.0.2")


class Namespaces:
    """Two network namespaces and what joins them, for as long as the object is open."""

    def __init__(self):
        self.names = [f"ddp-bench-{os.getpid()}-{i}" for i in range(2)]
        self.links = [f"ddpb{os.getpid() % 100000}{'ab'[i]}" for i in range(2)]

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", self.links[0], "netns", self.names[0], "type", "veth",
               "peer", "name", self.links[1], "netns", self.names[1])
            for name, link, address in zip(self.names, self.links, ADDRESSES):
                ip("-n", name, "address", "add", address + "/24", "dev", link)
                ip("-n", name, "link", "set", link, "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def command(self, node, command):
        return ["ip", "netns", "exec", self.names[node], *command]


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def iperf(spaces, *options):
    """Gbit/s from one node to the other."""
    server = subprocess.Popen(spaces.command(0, ["iperf3", "-s", "-1", "--forceflush"]),
                              stdout=subprocess.PIPE, text=True)
    try:
        for line in server.stdout:
            if "listening" in line:
                break
        run = subprocess.run(spaces.command(1, ["iperf3", "-J", "-t", "3", "-c", ADDRESSES[0], *options]),
                             stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
        return json.loads(run.stdout)["end"]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def ranks_environment(rank, node, local, args, job):
    """What torchrun would set."""
    return {"RANK": rank, "WORLD_SIZE": 2 * args.p, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": args.p,
            "GROUP_RANK": node, "GROUP_WORLD_SIZE": 2, "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": 29400 + job % 500,
            "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": 1}


def run_by_hand(spaces, args, command, env, job, with_store):
    """Start every rank in its namespace; rank 0's output."""
    port = str(ranks_environment(0, 0, 0, args, job)["MASTER_PORT"])
    store = None
    if with_store:
        program = f"{args.build}/tests/unit/rendezvous/store_server"
        store = subprocess.Popen(spaces.command(0, [program, port, ADDRESSES[0]]), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        store.stdout.readline()  # it listens
    ranks = []
    try:
        for rank in range(2 * args.p):
            node, local = divmod(rank, args.p)
            full = dict(env, GLOO_SOCKET_IFNAME=spaces.links[node], **{k: str(v) for k, v in ranks_environment(rank, node, local, args, job).items()})
            if not with_store:
                full["TORCHELASTIC_USE_AGENT_STORE"] = "False"
            ranks.append(subprocess.Popen(spaces.command(node, command), env=full, stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL, text=True))
        for process in reversed(ranks): # rank 0 last: its output is short
            if process.wait(timeout=LIMIT_S) != 0:
                raise subprocess.SubprocessError(f"a rank ended with {process.returncode}")
        return ranks[0].stdout.read()
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()
        if store is not None:
            store.communicate()


def run_open_mpi(spaces, args, program, folder):
    """mpirun in the first namespace starts its daemon in the second by an "ssh" of this script's."""
    agent = os.path.join(folder, "agent")
    with open(agent, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n# mpirun's idea of ssh: HOST COMMAND...\n"
                f"while [ \"$1\" != {ADDRESSES[1]} ]; do shift; done\nshift\n"
                f"exec ip netns exec {spaces.names[1]} sh -c \"$*\"\n")
    os.chmod(agent, 0o755)
    network = ADDRESSES[0].rsplit(".", 1)[0] + ".0/24"
    command = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--host",
               ",".join(f"{address}:{args.p}" for address in ADDRESSES), "-n", str(2 * args.p),
               "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include",
               network, "--mca", "oob_tcp_if_include", network, "--mca", "orte_keep_fqdn_hostnames", "1",
               program, str(args.repeats)]
    return subprocess.run(spaces.command(0, command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          timeout=LIMIT_S, check=True).stdout


def contestants(args, spaces, folder):
    """Name -> a function that runs a sweep and gives its output, for a job number."""
    plain, repeats = dict(os.environ), str(args.repeats)
    ours = f"{args.build}/bench/collectives"
    found = {"libddp": lambda job: run_by_hand(spaces, args, [ours, "shared", repeats], plain, job, True)}
    venv = torch_venv()
    if venv:
        script = [venv[0], os.path.join(results.HERE, "torch_collectives.py"), repeats]
        found["torch gloo"] = lambda job: run_by_hand(spaces, args, script, venv[1], job, False)
    program = build_mpi(folder, "mpicc.openmpi")
    if program:
        found["Open MPI"] = lambda job: run_open_mpi(spaces, args, program, folder)
    return found


def parse(text):
    """{bytes: (min, median)} in microseconds."""
    lines = [line.split() for line in text.splitlines()]
    return {int(size): (float(low), float(median)) for size, low, median in lines}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-p", type=int, default=1, help="ranks on each node")
    parser.add_argument("--repeats", type=int, default=20, help="timings of a size in one sweep")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("collectives_net.py: making network namespaces takes root")

    load = results.load_average()
    sweeps, lines, job = {}, [], 0
    with tempfile.TemporaryDirectory(prefix="ddp-bench-") as folder, Namespaces() as spaces:
        for _ in range(args.rounds):
            for name, run in contestants(args, spaces, folder).items():
                job += 1
                try:
                    sweeps.setdefault(name, []).append(parse(run(job)))
                except (OSError, subprocess.SubprocessError) as error:
                    print(f"{name}: {error}", file=sys.stderr)
        if shutil.which("iperf3"):
            one = iperf(spaces)["sum_received"]["bits_per_second"] / 8e9
            both = iperf(spaces, "--bidir")
            each = (both["sum_received"]["bits_per_second"] + both["sum_received_bidir_reverse"]["bits_per_second"]) / 16e9
            lines.append(f"iperf3: {one:.2f} GB/s one way; {each:.2f} GB/s each way with both at once.")
    sweeps = {name: runs for name, runs in sweeps.items() if runs}
    if not sweeps:
        sys.exit("nothing could be run")
    rows = []
    for size in sorted(next(iter(sweeps.values()))[0]):
        for name, runs in sweeps.items():
            low = min(run[size][0] for run in runs)
            median = results.spread(run[size][1] for run in runs)[1]
            rows.append([name, size, f"{low:.2f}", f"{median:.2f}", f"{size / median / 1e3:.3f}"])
    head = ["library", "bytes", "min us", "median us", "algbw GB/s"]
    text = f"2 nodes, {args.p} ranks each.\n\n" + "".join(line + "\n\n" for line in lines) + results.table(head, rows)
    results.report(f"collectives_net_{args.p}", text, load)


if __name__ == "__main__":
    main()
