"""Seeded chaos with the coordinator among the victims (--rdzv-conf failover=majority): ddpruns are killed, leave, are stopped for longer
than a lease and continue, and others join, also at the endpoint. After each event the nodes that stand are in one generation, no rank
of the others runs, and one node coordinates. SEED selects the events, CHAOS_S the duration.

Covers: rendezvous/ballots, rendezvous/quorum, launcher/membership
"""
import os
import random
import signal
import time
import unittest

from failover_job import LEADS, MOVED, ONCE, Group
from harness import DEADLINE_S, await_true, main

SEED = os.environ.get("SEED", "1")
CHAOS_S = float(os.environ.get("CHAOS_S", "15"))
N_HOSTS, MOST, LEAST = 6, 4, 2


class Chaos(Group):
    """Names are in `hosts` while their ddpruns stand."""

    def __init__(self, draw):
        super().__init__(f"{LEAST}:{MOST}", ONCE, endpoints=range(1, N_HOSTS + 1), seeks="10m")
        self.draw = draw
        self.hosts = {}
        self.done = []  # for the report of a failed test
        self.n_events = 0

    # --- what is so ---

    def leads(self, name):
        said = self.nodes[name].said_so_far()
        began, ended = said.rfind(LEADS.encode()), said.rfind(MOVED.encode())
        return began > ended or (name == "a" and ended < 0)

    def leader(self):
        return next((name for name in self.hosts if self.leads(name)), None)

    def all_vote(self):
        leader = self.leader()
        lines = [line for line in self.nodes[leader].said_so_far().split(b"\n") if b"on the coordinator" in line] if leader else []
        return bool(lines) and f" {len(self.hosts)} node".encode() in lines[-1]

    def settle(self):
        names = list(self.hosts)
        ranks = {name: self.told[name] for name in names if name in self.told}
        while set(ranks) != set(names) or {(rank.world, rank.generation) for rank in ranks.values()} != {(len(names), self.newest_generation())}:
            for name in names:
                while self.nodes[name].unheard():
                    ranks.update(self.hear_some(-1, [name]))
            time.sleep(0.01)  # until the deadline of the caller
            yield
        for name in set(self.told) - set(names):  # once: later another process may have the pid
            rank = self.told.pop(name)
            assert not rank.lives(), f"a rank of {name} runs in generation {self.newest_generation()}"

    def newest_generation(self):
        return max(rank.generation for rank in self.told.values())

    def await_settled(self):
        end = time.monotonic() + 2 * DEADLINE_S
        for _ in self.settle():
            if time.monotonic() > end:
                raise AssertionError(f"no generation of {sorted(self.hosts)}; the last reports were "
                                     f"{ {name: vars(rank) for name, rank in self.told.items()} }")
        await_true(self.all_vote, lambda: f"{sorted(self.hosts)}", DEADLINE_S)

    # --- what is done ---

    def note(self, text):
        self.done.append(text)
        self.n_events += 1

    def join(self):
        host = self.draw.choice(sorted(set(range(1, N_HOSTS + 1)) - set(self.hosts.values())))
        name = self.name(1)[0]
        self.note(f"{name} joins at host {host}")
        self.hosts[name] = host
        self.start_at(host, name)

    def choose(self):
        """The coordinator every second time."""
        leader = self.leader()
        return leader if self.draw.random() < 0.5 else self.draw.choice(sorted(set(self.hosts) - {leader}))

    def kill_one(self):
        name = self.choose()
        self.note(f"SIGKILL of {name}{', the coordinator' if name == self.leader() else ''}")
        del self.hosts[name]
        self.kill(name)

    def leave(self):
        name = self.choose()
        self.note(f"SIGTERM to {name}{', the coordinator' if name == self.leader() else ''}")
        del self.hosts[name]
        self.nodes[name].signal(signal.SIGTERM)
        code, _, err = self.nodes[name].finish()
        assert code == -signal.SIGTERM, f"{name} ended with {code}: {err}"
        self.drop(name)

    def stop(self):
        name = self.choose()
        self.note(f"SIGSTOP to {name}{', the coordinator' if name == self.leader() else ''}")
        host = self.hosts.pop(name)
        self.nodes[name].signal(signal.SIGSTOP)
        self.await_settled()
        self.note(f"SIGCONT to {name}")
        self.nodes[name].signal(signal.SIGCONT)
        self.hosts[name] = host

    def disturb(self):
        acts = [self.kill_one, self.leave, self.stop] if len(self.hosts) > LEAST + 1 else []
        self.draw.choice(acts + [self.join] * (len(self.hosts) < MOST))()
        self.await_settled()


class FailoverChaos(unittest.TestCase):
    def test_the_job_outlives_its_coordinators(self):
        draw = random.Random(SEED)
        end = time.monotonic() + CHAOS_S
        with Chaos(draw) as job:
            try:
                names, _ = job.begin(MOST)
                job.hosts = dict(zip(names, range(1, MOST + 1)))
                while time.monotonic() < end or job.n_events < 3:
                    job.disturb()
                job.finish()
            except Exception as error:
                said = "".join(f"\n--- {name}\n{node.said_so_far().decode()}" for name, node in job.nodes.items())
                raise AssertionError(f"SEED={SEED}: {error}\n" + "\n".join(job.done) + said) from error
        print(f"{job.n_events} events")


if __name__ == "__main__":
    main()
