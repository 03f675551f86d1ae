"""Kill -9 of anybody, at any time: nothing is left. Seeded; KILLS and SEED say how many and which.

Covers: launcher/spawner, launcher/supervisor, launcher/node
"""
import os
import random
import signal
import unittest

from harness import RANK, Job, main

KILLS = int(os.environ.get("KILLS", "20"))
SEED = int(os.environ.get("SEED", "1"))


def is_spawner(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip() == "ddp-spawner"
    except OSError:
        return False


class RandomKills(unittest.TestCase):
    def test_nothing_is_left(self):
        for number in range(KILLS):
            rng = random.Random(f"{SEED}:{number}")
            n_ranks = rng.randint(1, 4)
            family = rng.choices(("child", "daemon"), k=rng.randint(0, 3))
            stubborn = ("ignore", "15") if rng.random() < 0.5 else ()
            options = ("--shutdown-timeout", "50ms", "--max-restarts", str(rng.randint(0, 2)))
            what = f"SEED={SEED}, kill {number}: {n_ranks} ranks, {family}"
            with self.subTest(what), Job(*options, "-n", str(n_ranks), RANK, *stubborn, *family, "tell", "up",
                                         "wait") as job:
                # at a random point of the start: after that many lines were heard
                job.hear(rng.randint(0, n_ranks * (1 + len(family))))
                # not ddprun and the spawner together: then nobody is left to clean up (docs/launcher.md)
                spare_spawner = rng.random() < 0.5
                for _ in range(rng.randint(1, 3)):
                    alive = sorted(pid for pid in job.processes()
                                   if not (is_spawner(pid) if spare_spawner else pid == job.process.pid))
                    if not alive:
                        break
                    try:
                        os.kill(rng.choice(alive), signal.SIGKILL)
                    except ProcessLookupError:
                        pass  # it ended between the two lines
                if job.process.poll() is None:
                    job.signal(signal.SIGTERM)  # a rank's child may have been the victim: the job goes on
                job.await_gone()


main()
