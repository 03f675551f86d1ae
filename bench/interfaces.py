#!/usr/bin/env python3
"""Measure what a second network interface gains (DDP_SOCKET_IFNAME): an all-reduce between two nodes.

usage: bench/interfaces.py [--rate MBIT] [--bytes BYTES] [--rounds N] [--build DIR]

Run it as root.

The nodes are two network namespaces joined by two veth pairs, with one rank each. A token bucket (tc-tbf) at both ends of each pair limits it
to --rate Mbit/s in each direction. In each of --rounds rounds, one interface, the same with two lanes, and both interfaces take turns; each
makes 17 calls, or more for a second. An all-reduce between two ranks sends as many bytes as its vector has, each way.
"""
import argparse
import os
import subprocess
import sys

import results
from collectives_net import Namespaces, ip
from lanes import add_options, run

SECOND = "10.117.1"


def limit(spaces, node, link, mbit):
    """The burst is what 4 ms carry: a timer of the kernel is at least as late."""
    burst = str(max(mbit * 1_000_000 // 8 // 250, 64 << 10))
    subprocess.run(spaces.command(node, ["tc", "qdisc", "add", "dev", link, "root", "tbf", "rate", f"{mbit}mbit", "burst", burst, "latency", "20ms"]),
                   check=True)


def add_second(spaces):
    """returns the names of the interfaces: the same on both nodes would do, but those of the first pair differ"""
    links = [f"{link}x" for link in spaces.links]
    ip("link", "add", links[0], "netns", spaces.names[0], "type", "veth", "peer", "name", links[1], "netns", spaces.names[1])
    for node, (name, link) in enumerate(zip(spaces.names, links)):
        ip("-n", name, "address", "add", f"{SECOND}.{node + 1}/24", "dev", link)
        ip("-n", name, "link", "set", link, "up")
    return links


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rate", type=int, default=800, help="of each interface in each direction, Mbit/s (800)")
    parser.add_argument("--bytes", type=int, default=32 << 20, help="of the vector (32 MiB)")
    add_options(parser, rounds=3)
    return parser.parse_args()


def main():
    args = read_options()
    if os.geteuid() != 0:
        sys.exit("interfaces.py: making network namespaces takes root")
    load, job = results.load_average(), os.getpid()
    with Namespaces(2) as spaces:
        first, second = spaces.links, add_second(spaces)
        for node in range(2):
            for link in (first[node], second[node]):
                limit(spaces, node, link, args.rate)
        # a node has only its own ends: so the other ones are left out by what their names begin with
        ways = {"one": {"DDP_SOCKET_LANES": "1"}, "one, 2 lanes": {"DDP_SOCKET_LANES": "2"}, "two": {"DDP_SOCKET_IFNAME": "^lo"}}
        rates = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way, env in ways.items():
                job += 1
                rates[way].append(run(spaces, args, job, env))
    base = results.spread(rates["one"])[1]
    rows = [[way, str(len(rates[way])), f"{min(rates[way]) / 1e6:.1f}", f"{results.spread(rates[way])[1] / 1e6:.1f}",
             f"{results.spread(rates[way])[1] / base:.2f}"] for way in ways]
    results.report("interfaces", f"all_reduce of {args.bytes} bytes, {args.rate} Mbit/s for each interface in each direction. Rates each way:\n\n" +
                   results.table(["interfaces", "runs", "min MB/s", "median MB/s", "median / one"], rows), load)


if __name__ == "__main__":
    main()
