#!/usr/bin/env python3
"""Measure a job on three hosts, each a network namespace with a real sshd: the time from the start of `ddprun -H` until all
six ranks run, and from ^C until no process of the job is left on any host.

usage: bench/hosts.py [--runs R] [--build DIR]     as root
"""
import argparse
import os
import select
import signal
import sys
import time
import unittest

import results

sys.path.insert(0, os.path.join(results.ROOT, "tests/system/lib"))

LIMIT_S = 60
N_HOSTS = 3
RANKS_EACH = 2


def await_ends(pids):
    """A function that waits until all processes have ended. Each is watched through a descriptor."""
    poll = select.poll()
    end = time.monotonic() + LIMIT_S
    watched = set()
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll.register(fd, select.POLLIN)
        watched.add(fd)

    def wait():
        while watched:
            ready = poll.poll(max(0, end - time.monotonic()) * 1000)
            if not ready:
                raise SystemExit(f"{len(watched)} processes are left after {LIMIT_S} s")
            for fd, _ in ready:
                poll.unregister(fd)
                os.close(fd)
                watched.remove(fd)

    return wait


def time_once(hosts, job_class, ddprun, rank):
    """(milliseconds until all ranks run, until ddprun has exited, until no process is left)"""
    names = ",".join(f"{name}:{RANKS_EACH}" for name in hosts.names)
    begin = time.perf_counter()
    with job_class("netns", "exec", hosts.netns, ddprun, "--ssh-command", hosts.ssh, "-H", names, rank, "tell", "up", "wait",
                   launcher="/bin/ip") as job:
        job.hear(N_HOSTS * RANKS_EACH, LIMIT_S)
        started = time.perf_counter()
        wait = await_ends(set(job.processes()).union(*(hosts.inside(i) for i in range(N_HOSTS))) - {job.process.pid})
        wait_head = await_ends([job.process.pid])
        stopped = time.perf_counter()
        job.signal(signal.SIGINT)
        wait_head()
        ended = time.perf_counter()
        wait()
        gone = time.perf_counter()
    return (started - begin) * 1000, (ended - stopped) * 1000, (gone - stopped) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--build", default=os.path.join(results.ROOT, "build"))
    args = parser.parse_args()
    load_before = results.load_average()
    ddprun, rank = (os.path.join(os.path.abspath(args.build), name) for name in ("launcher/ddprun", "tests/support/rank"))
    os.environ.update(DDPRUN=ddprun, RANK_PROGRAM=rank)
    from harness import Job  # pylint: disable=import-outside-toplevel
    from ssh_hosts import SshHosts  # both need the path of ddprun
    try:
        hosts = SshHosts(N_HOSTS)
    except unittest.SkipTest as e:
        raise SystemExit(str(e)) from e
    try:
        times = [time_once(hosts, Job, ddprun, rank) for _ in range(args.runs)]
    finally:
        hosts.close()
    what = ("start, until all ranks run", "^C, until ddprun has ended", "^C, until nothing is left anywhere")
    rows = [[name, len(took), *(f"{t:.1f}" for t in results.spread(took)), f"{max(took):.1f}"]
            for name, took in zip(what, zip(*times))]
    results.report("hosts", results.table([f"{N_HOSTS} hosts, {N_HOSTS * RANKS_EACH} ranks", "runs", "min ms", "median ms", "max ms"],
                                          rows), load_before)


if __name__ == "__main__":
    main()
