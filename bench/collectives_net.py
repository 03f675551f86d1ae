#!/usr/bin/env python3
"""Compare the time of an all-reduce of float32 between nodes: libddp, gloo, and Open MPI over TCP.

usage: bench/collectives_net.py [--nodes N] [-p RANKS] [--ways] [--encrypt] [--rate RATE] [--repeats R] [--rounds N] [--max-bytes B]
                                [--streams N] [--first] [--build DIR]

Run it as root.

The nodes are network namespaces of this machine: a veth pair joins two nodes, a bridge joins more. In each of --rounds
rounds, each library in turn runs its whole sweep of sizes. The results for a size are the fastest time of all rounds and
the median of the rounds' medians, on the slowest rank. Between two nodes iperf3 also takes a turn, one way and both ways,
with --streams connections.
Programs that are not installed are left out, as are programs that once did not end within a minute.

--ways adds Open MPI with each of the algorithms that libddp does not have, for all sizes.

--encrypt compares libddp only, with DDP_ENCRYPT=1 and without, and states which share of the plain rate the encrypted one has.

--rate limits what each node sends, with a token bucket (tbf) of tc(8): 5gbit

--first gives the measured processes priority over everything else on the machine, for a machine that is not idle. The
times mean more than times without --first there, and less than times on an idle machine.
"""
import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile

import results
from contestants import GLOO, LIMIT_S, OPEN_MPI, build_mpi
from torch_venv import torch_venv

OURS, ENCRYPTED = "libddp", "libddp, encrypted"
GOALS = {4 << 10: {GLOO: 4, OPEN_MPI: 1}, 64 << 20: {GLOO: 1.2, OPEN_MPI: 1}}  # for two nodes: so many times as fast
NETWORK = "10.117.0.0/24"
WAYS = {"ring": 4, "recursive doubling": 3, "halving and doubling": 6}  # values of coll_tuned_allreduce_algorithm
MOST_NODES = 16


class Namespaces:
    """Network namespaces and the devices that join them. They exist while the object is open."""

    def __init__(self, n, rate=None):
        self.rate = rate
        mark = os.getpid() % 100000
        self.names = [f"ddp-bench-{os.getpid()}-{i}" for i in range(n)]
        self.links = [f"ddpb{mark}{'abcdefghijklmnop'[i]}" for i in range(n)]
        self.addresses = [f"10.117.0.{i + 1}" for i in range(n)]
        self.switch = f"ddp-bench-{os.getpid()}-switch"

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            if len(self.names) == 2:
                ip("link", "add", self.links[0], "netns", self.names[0], "type", "veth",
                   "peer", "name", self.links[1], "netns", self.names[1])
            else:
                self.join_by_bridge()
            for name, link, address in zip(self.names, self.links, self.addresses):
                ip("-n", name, "address", "add", address + "/24", "dev", link)
                ip("-n", name, "link", "set", link, "up")
                ip("-n", name, "link", "set", "lo", "up")
                if self.rate:
                    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", link, "root", "tbf", "rate", self.rate, "burst", "1mb",
                                    "latency", "50ms"], check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def join_by_bridge(self):
        """In a namespace of its own, so that none of it is visible outside."""
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for name, link in zip(self.names, self.links):
            ip("link", "add", link, "netns", name, "type", "veth", "peer", "name", link, "netns", self.switch)
            ip("-n", self.switch, "link", "set", link, "master", "bridge", "up")

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def command(self, node, command):
        return ["ip", "netns", "exec", self.names[node], *command]


def is_crowded(args):
    return args.nodes * args.p > len(os.sched_getaffinity(0))


def ip(*args):
    subprocess.run(["ip", *args], check=True)


def iperf(spaces, *options):
    """What iperf3 reports at the end of a run between the nodes."""
    server = subprocess.Popen(spaces.command(0, ["iperf3", "-s", "-1", "--forceflush"]),
                              stdout=subprocess.PIPE, text=True)
    try:
        for line in server.stdout:
            if "listening" in line:
                break
        run = subprocess.run(spaces.command(1, ["iperf3", "-J", "-t", "3", "-c", spaces.addresses[0], *options]),
                             stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
        return json.loads(run.stdout)["end"]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def iperf_rates(spaces, streams):
    """(bytes a second one way, bytes a second each way with both ways at once)"""
    several = ["-P", str(streams)]
    one = iperf(spaces, *several)["sum_received"]["bits_per_second"] / 8
    both = iperf(spaces, "--bidir", *several)
    return one, (both["sum_received"]["bits_per_second"] +
                 both["sum_received_bidir_reverse"]["bits_per_second"]) / 16


def ranks_environment(spaces, rank, args, job, with_store):
    """The variables that torchrun would set."""
    node, local = divmod(rank, args.p)
    values = {"RANK": rank, "WORLD_SIZE": args.nodes * args.p, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": args.p,
              "GROUP_RANK": node, "GROUP_WORLD_SIZE": args.nodes, "MASTER_ADDR": spaces.addresses[0],
              "MASTER_PORT": 29400 + job % 500, "TORCHELASTIC_USE_AGENT_STORE": with_store, "OMP_NUM_THREADS": 1}
    return {name: str(value) for name, value in values.items()}


@contextlib.contextmanager
def store(spaces, args, port):
    """The store for libddp's ranks, which ddprun would serve."""
    program = f"{args.build}/tests/support/store_server"
    process = subprocess.Popen(spaces.command(0, [program, port, spaces.addresses[0]]), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()  # the server listens
        yield
    finally:
        process.communicate()  # the server ends when its input ends


def run_by_hand(spaces, args, command, env, job, with_store):
    """Start every rank in its namespace and return what they print."""
    ranks = []
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        if with_store:
            stack.enter_context(store(spaces, args, ranks_environment(spaces, 0, args, job, True)["MASTER_PORT"]))
        try:
            for rank in range(args.nodes * args.p):
                node = rank // args.p
                full = {**env, "GLOO_SOCKET_IFNAME": spaces.links[node],
                        **ranks_environment(spaces, rank, args, job, with_store)}
                ranks.append(subprocess.Popen(spaces.command(node, command), env=full,
                                              stdin=subprocess.DEVNULL, stdout=out))
            for process in ranks:
                if process.wait(timeout=LIMIT_S) != 0:
                    raise subprocess.SubprocessError(f"a rank ended with {process.returncode}")
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        out.seek(0)
        return out.read()


def as_host(spaces, node, command):
    """Open MPI treats nodes with the same host name as one node, whose ranks share one /dev/shm."""
    script = 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    return spaces.command(node, ["unshare", "--uts", "--mount", "sh", "-c", script, spaces.names[node], *command])


def write_agent(spaces, path):
    """Write a program that mpirun uses instead of ssh: it runs a command on the node with the given address."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n# HOST COMMAND..., behind options of ssh\nwhile :; do\n    host=$1\n    shift\n"
                "    case $host in\n")
        for node, address in enumerate(spaces.addresses):
            f.write(f"    {address}) exec {shlex.join(as_host(spaces, node, ['sh', '-c']))} \"$*\" ;;\n")
        f.write("    esac\ndone\n")
    os.chmod(path, 0o755)


def run_open_mpi(spaces, args, program, folder, way=None):
    """mpirun in the first namespace starts its daemons in the others with this script's substitute for ssh."""
    agent = os.path.join(folder, "agent")
    write_agent(spaces, agent)
    command = ["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--host",
               ",".join(f"{address}:{args.p}" for address in spaces.addresses), "-n", str(args.nodes * args.p),
               "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include",
               NETWORK, "--mca", "oob_tcp_if_include", NETWORK, "--mca", "orte_keep_fqdn_hostnames", "1"]
    if is_crowded(args):
        # Open MPI assumes that each node has as many processors as this machine, so its ranks would spin through
        # their time slices while the ranks that they wait for have no processor: 4 ms a step, minutes a sweep.
        command += ["--mca", "mpi_yield_when_idle", "1"]
    if way is not None:
        command += ["--mca", "coll_tuned_use_dynamic_rules", "1",
                    "--mca", "coll_tuned_allreduce_algorithm", str(WAYS[way])]
    return subprocess.run(as_host(spaces, 0, [*command, program, str(args.repeats), str(args.max_bytes)]),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S,
                          check=True).stdout


def contestants(args, spaces, folder):
    """Name -> a function that takes a job number, runs a sweep and returns its output."""
    words, plain = [str(args.repeats), str(args.max_bytes)], dict(os.environ)
    ours = [f"{args.build}/bench/collectives", "segment", *words]
    found = {OURS: lambda job: run_by_hand(spaces, args, ours, plain, job, True)}
    if args.encrypt:
        key = os.path.join(folder, "key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write(os.urandom(32).hex() + "\n")
        encrypted = {**plain, "DDP_ENCRYPT": "1", "DDP_ENCRYPT_KEY_FILE": key}
        found[ENCRYPTED] = lambda job: run_by_hand(spaces, args, ours, encrypted, job, True)
        return found
    venv = torch_venv()
    if venv:
        script = [venv[0], os.path.join(results.HERE, "torch_collectives.py"), *words]
        found[GLOO] = lambda job: run_by_hand(spaces, args, script, venv[1], job, False)
    program = build_mpi(folder, "mpicc.openmpi")
    if program:
        found[OPEN_MPI] = lambda job: run_open_mpi(spaces, args, program, folder)
        for way in WAYS if args.ways else ():
            found[f"{OPEN_MPI}, {way}"] = lambda job, way=way: run_open_mpi(spaces, args, program, folder, way)
    return found


def parse(text):
    """{bytes: (min, median)} in microseconds, of the slowest rank."""
    times = {}
    for line in text.splitlines():
        _rank, size, low, median = line.split()
        times.setdefault(int(size), []).append((float(low), float(median)))
    return {size: tuple(max(figures) for figures in zip(*ranks)) for size, ranks in times.items()}


def measure(args):
    """({name: [{bytes: (min, median)} of each round]}, [iperf_rates() of each round], [name and error of each failed run])"""
    sweeps, rates, failed, job = {}, [], {}, 0
    with tempfile.TemporaryDirectory(prefix="ddp-bench-") as folder, Namespaces(args.nodes, args.rate) as spaces:
        libraries = contestants(args, spaces, folder)
        for _ in range(args.rounds):
            for name, run in libraries.items():
                if name in failed:
                    continue
                job += 1
                try:
                    sweeps.setdefault(name, []).append(parse(run(job)))
                except subprocess.TimeoutExpired:
                    failed[name] = f"{name} did not end within {LIMIT_S} s."
                except (OSError, subprocess.SubprocessError) as error:
                    print(f"{name}: {error}", file=sys.stderr)
            if args.nodes == 2 and shutil.which("iperf3"):
                rates.append(iperf_rates(spaces, args.streams))
    return {name: runs for name, runs in sweeps.items() if runs and name not in failed}, rates, list(failed.values())


def ratios(medians, goals):
    """A table: how many times as fast as the others libddp is, and in brackets the goal, with `not` where it is missed."""
    others = [name for name in medians if name != OURS]
    rows = []
    for size in sorted(medians[OURS]):
        row = [str(size)]
        for other in others:
            ratio, goal = medians[other][size] / medians[OURS][size], goals.get(size, {}).get(other)
            row.append(f"{ratio:.3g}" + ("" if goal is None else f" ({'' if ratio >= goal else 'not '}{goal:g})"))
        rows.append(row)
    return results.table(["bytes", *[f"{OURS} / {other}" for other in others]], rows)


def share_of_plain(medians):
    rows = [[str(size), f"{medians[OURS][size]:.1f}", f"{medians[ENCRYPTED][size]:.1f}",
             f"{100 * medians[OURS][size] / medians[ENCRYPTED][size]:.0f} %"] for size in sorted(medians[OURS])]
    return results.table(["bytes", "plain, median us", "encrypted, median us", "share of the plain rate"], rows)


def share_of_iperf(size, median_us, rates, streams):
    """Each of two nodes sends the other as many bytes as the buffer has, for any number of ranks."""
    one, both = (results.spread(rate)[1] for rate in zip(*rates))
    ours = size / median_us * 1e6
    return (f"iperf3 -P {streams} carries {one / 1e9:.2f} GB/s one way, {both / 1e9:.2f} GB/s each way with both at once. An all-reduce "
            f"of {size} bytes sends that much each way: libddp at {ours / 1e9:.2f} GB/s, {ours / both:.2f} times "
            "iperf3's figure.\n\n")


def go_first():
    """Use a session of its own: the scheduler weighs sessions, and processes only within a session."""
    if os.getsid(0) != os.getpid():
        os.execvp("setsid", ["setsid", "--wait", *sys.argv])
    with open("/proc/self/autogroup", "w", encoding="ascii") as f:
        f.write("-20")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=2, choices=range(2, MOST_NODES + 1), metavar="N")
    parser.add_argument("-p", type=int, default=1, help="ranks on each node")
    parser.add_argument("--ways", action="store_true", help="Open MPI's other algorithms, too")
    parser.add_argument("--encrypt", action="store_true", help="libddp with encryption and without")
    parser.add_argument("--rate", help="of each node, at most: 5gbit")
    parser.add_argument("--repeats", type=int, help="timings of a size in one sweep (20; with more ranks than cores 8)")
    parser.add_argument("--rounds", type=int, help="(5; with more ranks than cores 3)")
    parser.add_argument("--max-bytes", type=int, default=64 << 20)
    parser.add_argument("--streams", type=int, default=1, help="connections of iperf3, each way (1)")
    parser.add_argument("--first", action="store_true", help="go before everything else on the machine")
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    args.repeats = args.repeats or (8 if is_crowded(args) else 20)
    args.rounds = args.rounds or (3 if is_crowded(args) else 5)
    return args


def main():
    args = read_options()
    if os.geteuid() != 0:
        sys.exit("collectives_net.py: making network namespaces takes root")
    if args.first:
        go_first()

    load = results.load_average()
    sweeps, rates, failed = measure(args)
    if OURS not in sweeps or (args.encrypt and ENCRYPTED not in sweeps):
        sys.exit("libddp could not be run")
    medians = {name: {size: results.spread(run[size][1] for run in runs)[1] for size in runs[0]}
               for name, runs in sweeps.items()}
    rows = [[name, size, f"{min(run[size][0] for run in runs):.2f}", f"{medians[name][size]:.2f}",
             f"{size / medians[name][size] / 1e3:.3f}"]
            for size in sorted(medians[OURS]) for name, runs in sweeps.items()]
    name = f"collectives_net_{args.p}" if args.nodes == 2 else f"collectives_net_{args.nodes}x{args.p}"
    if args.encrypt:
        limit = f", each limited to {args.rate}" if args.rate else ""
        summary = f"{args.nodes} nodes of {args.p}{limit}:\n\n{share_of_plain(medians)}\n\n"
        name += "_encrypted" + (f"_{args.rate}" if args.rate else "")
    else:
        summary = (f"{args.nodes} nodes of {args.p}. How many times as fast as others, by medians; in brackets the "
                   f"goal:\n\n{ratios(medians, GOALS if args.nodes == 2 else {})}\n\n")
    results.report(name, summary + "".join(line + "\n\n" for line in failed) +
                   (share_of_iperf(*max(medians[OURS].items()), rates, args.streams) if rates else "") +
                   results.table(["library", "bytes", "min us", "median us", "algbw GB/s"], rows), load)


if __name__ == "__main__":
    main()
