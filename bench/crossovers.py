#!/usr/bin/env python3
"""Measure the algorithms of an all-reduce between nodes, and compare them with the choice of the model.

usage: bench/crossovers.py [--nodes LIST] [--rate MBIT] [--sizes LIST] [--rounds N] [--build DIR]

Run it as root.

The nodes are network namespaces of this machine with one rank each, joined by a bridge. A token bucket limits what each node sends to --rate
Mbit/s; 0 sets no limit. A row 'network:' of DDP_TUNING with extreme numbers makes libddp choose each algorithm in turn; bench/cost_model
confirms that it does. In each of --rounds rounds each algorithm makes 17 calls of a size, or more for half a second.

The model gets its latency, its cost of a message, and its cost of a byte from three of these times: the smallest size by 'whole', the same by
'doubling' (or none, where the model never takes it: then the latency is 0), and the largest by 'parts'. All other times test it.
"""
import argparse
import os
import subprocess
import sys

import results
from collectives_net import MOST_NODES, Namespaces
from interfaces import limit
from lanes import add_options, outputs

MS = "500"
ALGOS = ["whole", "doubling", "passing", "parts"]
DEFAULT = (10000, 6500, 200, 20)  # COST_NETWORK_DEFAULT


def model(args, nodes, network, sizes):
    """Of each size: the chosen algorithm, and the four times"""
    done = subprocess.run([f"{args.build}/bench/cost_model", str(nodes), *map(str, [*network, *sizes])], stdout=subprocess.PIPE, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [(row[0], dict(zip(ALGOS, map(float, row[1:])))) for row in rows]


def forced(algo, size):
    """Numbers with which the model takes the algorithm, if it ever does for so many nodes"""
    return {"whole": (10 ** 8, 0, 0, 0), "doubling": (0, 10 ** 7, 0, 0), "parts": (0, 0, 1000, 0),
            "passing": (0, 10 ** 5, min(3 * 10 ** 8 // size, 10 ** 6), 0)}[algo]


def run(spaces, args, job, size, network):
    """Microseconds of a call, on the slowest rank"""
    names = ["latency_ns", "message_ns", "byte_ps", "sum_ps"]
    tuning = "network: " + " ".join(f"{name}={number}" for name, number in zip(names, network))
    command = [f"{args.build}/bench/collectives", "segment", "steady", MS, str(size)]
    return max(float(text.split()[3]) for text in outputs(spaces, args, command, {"DDP_TUNING": tuning}, job))


def fit(args, nodes, times, sizes):
    """The numbers of the model from the smallest and the largest size"""
    small, large = times[sizes[0]], times[sizes[-1]]
    unit = model(args, nodes, (1000, 0, 0, 0), [0])[0][1], model(args, nodes, (0, 1000, 0, 0), [0])[0][1]  # of 1 us
    latency, message = 0.0, small["whole"] / unit[1]["whole"]
    if "doubling" in small:
        (a, b), (c, d) = [(unit[0][algo], unit[1][algo]) for algo in ("whole", "doubling")]
        latency = (small["whole"] * d - small["doubling"] * b) / (a * d - c * b)
        latency = min(max(latency, 0), small["whole"])
        message = (small["whole"] - latency * a) / b
    byte = model(args, nodes, (0, 0, 1000, 0), [sizes[-1]])[0][1]["parts"]  # us, at 1000 ps
    paid = model(args, nodes, (round(latency * 1000), round(message * 1000), 0, DEFAULT[3]), [sizes[-1]])[0][1]["parts"]
    return round(latency * 1000), round(message * 1000), max(round(1000 * (large["parts"] - paid) / byte), 0), DEFAULT[3]


def measure(args, nodes, sizes):
    args.nodes, job = nodes, os.getpid()
    samples = {}
    with Namespaces(nodes) as spaces:
        for node in range(nodes if args.rate else 0):
            limit(spaces, node, spaces.links[node], args.rate)
        for _ in range(args.rounds):
            for size in sizes:
                for algo in ALGOS:
                    if model(args, nodes, forced(algo, size), [size])[0][0] == algo:
                        job += 1
                        samples.setdefault((size, algo), []).append(run(spaces, args, job, size, forced(algo, size)))
    times = {size: {algo: results.spread(us)[1] for (s, algo), us in samples.items() if s == size} for size in sizes}
    network = fit(args, nodes, times, sizes)
    fitted, usual = model(args, nodes, network, sizes), model(args, nodes, DEFAULT, sizes)
    rows = []
    for size, (choice, _), (default, _) in zip(sizes, fitted, usual):
        best = min(times[size], key=times[size].get)
        rows.append([str(nodes), str(size), *(f"{times[size][algo]:.0f}" if algo in times[size] else "-" for algo in ALGOS), best, choice, default,
                     f"{times[size][choice] / times[size][best]:.2f}", f"{times[size][default] / times[size][best]:.2f}"])
    return network, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", dest="counts", default="3,4,8,16", help=f"3 to {MOST_NODES} each (3,4,8,16)")
    parser.add_argument("--rate", type=int, default=400, help="of each node, Mbit/s (400); 0: no limit")
    parser.add_argument("--sizes", default="4,1024,4096,16384,65536,262144,1048576")
    add_options(parser, rounds=3)
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("crossovers.py: making network namespaces takes root")
    load, rows, numbers = results.load_average(), [], []
    for nodes in map(int, args.counts.split(",")):
        network, more = measure(args, nodes, [int(size) for size in args.sizes.split(",")])
        rows += more
        numbers.append(f"{nodes} nodes: latency {network[0] / 1000:.1f} us, message {network[1] / 1000:.1f} us, {network[2]} ps for a byte")
    rate = f"{args.rate} Mbit/s for each node" if args.rate else "no limit"
    head = ["nodes", "bytes", *ALGOS, "fastest", "chosen", "by default", "chosen / fastest", "default / fastest"]
    results.report("crossovers" if args.rate else "crossovers_unlimited",
                   f"{rate}. Medians in us; the numbers of the model, from three of the times: " + "; ".join(numbers) + ".\n\n" + results.table(head, rows), load)


if __name__ == "__main__":
    main()
