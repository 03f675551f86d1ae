#!/usr/bin/env python3
"""Measure how a job that uses etcd for rendezvous reacts to the loss of the coordinator's node and to the loss of etcd.

usage: bench/takeover.py [--runs N] [--away-s S] [--build DIR]

Three nodes on this host run one rank each, with `--nnodes 2:3` and a real etcd (scripts/install-deps --etcd). Times are in ms from the
event, the worst and the median of the runs: until another node runs the coordinator, and until the last rank of the next generation
has started. Ranks: how many of the possible survivors were alive then. etcd is stopped for S seconds, 10 by default: the results are
how many ranks were lost, and when the leader reported that etcd does not answer and that it answers again.
"""
import argparse
import os
import signal
import sys
import time

import results

sys.path[:0] = [os.path.join(results.ROOT, "tests/system", folder) for folder in ("lib", "nodes")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--away-s", type=float, default=10)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    return parser.parse_args()


ARGS = parse()
for name, path in {"DDPRUN": "launcher/ddprun", "RANK_PROGRAM": "tests/support/rank", "DDP_PLUGIN_DIR": "rendezvous/etcd"}.items():
    os.environ[name] = os.path.join(os.path.abspath(ARGS.build), path)
for name in "ADDER_PROGRAM", "DDPCTL", "CHECKPOINTER_PROGRAM", "DDP_RENDEZVOUS", "RECOVERY_RANK":  # for tests that do not run here
    os.environ.setdefault(name, "")

# found by the path above; they need the path of ddprun
import etcd as cases  # noqa: E402
from etcd_server import Etcd  # noqa: E402


def ms_since(begin):
    return (time.monotonic() - begin) * 1000


def lose_leader(sig):
    """(ms to the next leader, ms to the next generation, ranks that survived, ranks that could survive)"""
    with Etcd() as server, cases.Party(server, "2:3") as party:
        names = party.start(3)
        ranks = party.hear(0, names)
        old = party.await_leader()
        others = [n for n in names if n != old]
        begin = time.monotonic()
        party.nodes[old].signal(sig)
        party.await_leader(but=old)
        led_ms = ms_since(begin)
        n_alive = sum(ranks[n].lives() for n in others)
        party.hear(1, others)
        again_ms = ms_since(begin)
        if sig == signal.SIGSTOP:
            party.nodes[old].signal(signal.SIGCONT)
        else:
            party.nodes[old].end()
            party.nodes.pop(old).__exit__()
        party.end()
        for node in party.nodes.values():
            node.finish()
        return led_ms, again_ms, n_alive, len(others)


def restart_without_data(server):
    server.forget()
    server.start()


def lose_etcd(go, come_back):
    """(ms until the outage is reported, ms until the return is reported, ranks that survived, ranks that could survive)"""
    with Etcd() as server, cases.Party(server, "2:3") as party:
        names = party.start(3)
        ranks = party.hear(0, names)
        leader = party.await_leader()
        begin = time.monotonic()
        go(server)
        party.nodes[leader].read_until("lost contact with etcd: ")
        said_ms = ms_since(begin)
        time.sleep(max(0, ARGS.away_s - (time.monotonic() - begin)))  # the length of the outage
        begin = time.monotonic()
        come_back(server)
        party.nodes[leader].read_until("etcd is back")
        back_ms = ms_since(begin)
        n_alive = sum(rank.lives() for rank in ranks.values())
        names += party.start(1)  # a spare: the coordinator admits it
        party.finish()
        return said_ms, back_ms, n_alive, len(ranks)


def row(what, runs):
    def cell(i):
        return f"{max(r[i] for r in runs):.0f} ({sorted(r[i] for r in runs)[len(runs) // 2]:.0f})"
    return what, cell(0), cell(1), f"{sum(r[2] for r in runs)} of {sum(r[3] for r in runs)}"


def repeat(what, run, *args):
    return row(what, [run(*args) for _ in range(ARGS.runs)])


def main():
    load = results.load_average()
    nodes = [repeat("is killed", lose_leader, signal.SIGKILL),
             repeat("leaves (SIGTERM)", lose_leader, signal.SIGTERM),
             repeat("is stopped (SIGSTOP)", lose_leader, signal.SIGSTOP)]
    away = [repeat("is stopped, continues", lose_etcd, Etcd.stop, Etcd.go_on),
            repeat("is killed, restarted", lose_etcd, Etcd.kill, Etcd.start),
            repeat("is killed, restarted without its data", lose_etcd, Etcd.kill, restart_without_data)]
    results.report("takeover",
                   results.table(["the coordinator's node", "next leader, ms", "next generation, ms", "surviving ranks"],
                                 nodes) + "\n\n" +
                   results.table([f"etcd, away for {ARGS.away_s:.0f} s", "outage reported, ms", "return reported, ms",
                                  "surviving ranks"], away), load)


if __name__ == "__main__":
    main()
