"""Ranks that write random words all over the memory that they share with ddprun: ddprun exits with the documented status.
Each seed is a job of its own.

SCRIBBLES=FIRST:LAST:MS in the environment: these seeds, MS milliseconds each, instead of a few short ones; SCRIBBLES_AT_ONCE=N jobs at
a time. Prints the longest time that a ddprun ran after the end of its last rank.

Covers: segments, launcher/generation, launcher/supervisor, launcher/node, launcher/reporting
"""
import concurrent.futures
import os
import random
import subprocess
import tempfile
import time
import unittest

from ctl import ctl
from harness import DEADLINE_S, Job, main

SCRIBBLER = os.environ["SCRIBBLER_PROGRAM"]
FIRST, LAST, MS = (int(number) for number in os.environ.get("SCRIBBLES", "1:24:200").split(":"))
AT_ONCE = int(os.environ.get("SCRIBBLES_AT_ONCE", "2"))
SIGABRT, SIGKILL = 128 + 6, 128 + 9


def plan_of(seed):
    """(options of ddprun, arguments of the ranks, the statuses that ddprun may exit with, whether ddpctl reads the status)"""
    chance = random.Random(seed)
    n_ranks = chance.randint(1, 4)
    failing = chance.choice((None, 7, SIGKILL))
    ends = ["0"] * n_ranks
    options, joins, statuses = ["-n", str(n_ranks)], "joins", {0}
    if failing is not None:
        ends[chance.randrange(n_ranks)] = str(failing)
        statuses = {failing}
        after = chance.choice(("ends", "restart", "replace"))
        if after != "ends":
            options += ["--max-restarts", "9", "--on-failure", after]
            statuses = {0}
        if after == "replace":
            joins = "recovers"
    if chance.randrange(3) == 0:  # what ranks write looks like progress
        options += ["--restart-after-progress"]
        statuses.add(0)
    if chance.randrange(3) == 0:  # the ranks look as if they hang, or as if they did not
        options += ["--hang-timeout", f"{MS * 2 / 3:g}ms"]
        statuses.add(SIGABRT)
    return options, (str(seed), str(MS), joins, *ends), statuses, chance.randrange(2) == 0


def watch(job, statuses, asks):
    """One job to its end. returns how many seconds ddprun ran after its last rank"""
    if asks:
        job.hear(1)
        ctl(job, "status", "--json")  # any answer: the job may be over
    _, err = job.process.communicate(timeout=DEADLINE_S + 3 * MS / 1000)
    ended_s = time.monotonic()
    ends = [int(line) for line in job.unheard().split() if line != b"up"]
    status = job.process.returncode
    if status not in statuses:
        raise AssertionError(f"status {status}, expected {statuses}: {' '.join(job.args)}\n{err.decode()}")
    return ended_s - max(ends) / 1e9 if ends else 0


def scribble(seed):
    """returns (what is wrong with the job, how many seconds ddprun ran after its last rank)"""
    options, words, statuses, asks = plan_of(seed)
    try:
        with tempfile.TemporaryDirectory() as folder, \
                Job(*options, "--events", f"{folder}/events", "--report", f"{folder}/report", SCRIBBLER, *words) as job:
            return "", watch(job, statuses, asks)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return f"seed {seed}: {error}", 0


class Scribbles(unittest.TestCase):
    def test_ddprun_exits_with_the_documented_status(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(scribble, range(FIRST, LAST + 1)))
        late_s = sorted(late for _, late in found)
        print(f"{len(found)} seeds of {MS} ms: ddprun ended {late_s[len(found) // 2]:.3f} s after its last rank in the median, "
              f"{late_s[-1]:.3f} s at most")
        wrong = [text for text, _ in found if text]
        if wrong:
            self.fail(f"{len(wrong)} of {len(found)} seeds:\n" + "\n".join(wrong))


main()
