"""--memory-checkpoints: ranks that start again find their states in the memory that ddprun holds, and those of a lost node in the copies
on another one. The ranks compare every byte (tests/support/programs/rememberer.c).

Covers: segments, worker-runtime/memory, launcher/start, launcher/node, launcher/options
"""
import os
import signal
import unittest

from facilities import lacks_network_namespaces
from harness import Job, main, run
from machines import Machines
from node import Node, await_endpoint, c10d, end
from ports import free_port

REMEMBERER = os.environ["REMEMBERER_PROGRAM"]
BYTES = 5_000_004  # no multiple of a page
SIZE = "--memory-checkpoints", "8M"


def words_of(lines, kind):
    """rank -> its numbers, of the lines that begin with `kind`"""
    return {int(rank): tuple(map(int, rest)) for first, rank, *rest in map(str.split, lines) if first == kind}


class Heard:
    """What the ranks of one or more jobs report: `found` or `saved` of each rank of a generation."""

    def __init__(self, test, *jobs):
        self.test, self.jobs = test, jobs

    def hear(self, kind, per_job):
        lines = [line for job in self.jobs for line in job.hear(per_job)]
        self.test.assertTrue(all(line.startswith(kind + " ") for line in lines), lines)
        return words_of(lines, kind)


def one_node(*words, n=2):
    return ("-n", str(n), "--max-restarts", "9", "--on-failure", "restart", *SIZE, *words)


class OneNode(unittest.TestCase):
    def test_killed_ranks_load_what_they_saved_last(self):
        with Job(*one_node(REMEMBERER, "3", str(BYTES))) as job:
            ranks = Heard(self, job)
            self.assertEqual(ranks.hear("found", 2), {0: (0, -1, 0, -1), 1: (0, -1, 1, -1)})
            for generation in range(3):
                saved = ranks.hear("saved", 2)
                self.assertEqual([saved[r][:2] for r in (0, 1)], 2 * [(generation, 3 * generation + 3)])
                os.kill(saved[generation % 2][2], signal.SIGKILL)
                found = ranks.hear("found", 2)
                self.assertEqual(found, {r: (generation + 1, 3 * generation + 3, r, -1) for r in (0, 1)})

    def test_without_the_option_the_ranks_get_an_error(self):
        with Job("-n", "2", REMEMBERER, "1", "1000") as job:
            for line in job.hear(2):
                self.assertIn("ddp_memory_open: rank 0: this process cannot keep checkpoints in memory: start the job with ddprun "
                              "--memory-checkpoints SIZE", line)

    def test_a_state_that_is_too_large_is_named(self):
        with Job("-n", "1", "--memory-checkpoints", "4K", REMEMBERER, "1", "5000") as job:
            job.hear(1)
            self.assertIn("the state has 5016 bytes, but --memory-checkpoints allows 4096: use a larger value", job.hear(1)[0])

    def test_values_that_make_no_sense_are_refused(self):
        for value in "0", "x", "4095", "2T", "-1", "":
            with self.subTest(value):
                code, _, err = run("-n", "1", "--memory-checkpoints", value, "true")
                self.assertEqual(code, 2)
                self.assertIn("--memory-checkpoints", err)

    def test_the_memory_is_freed_when_the_job_ends(self):
        with Job(*one_node(REMEMBERER, "2", str(BYTES), n=1)) as job:
            job.hear(2)
            pids = job.processes()
            held = [pid for pid in pids if any("ddp-checkpoints" in fd for fd in descriptors(pid))]
            self.assertGreaterEqual(len(held), 2)  # ddprun and the rank; not the spawner
        job.await_gone()


def descriptors(pid):
    try:
        return [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


class TwoNodes(unittest.TestCase):
    """On one machine; the memory of a ddprun that is killed is gone."""

    def words(self, port, number, *more):
        return (*c10d(port, "--local-addr", f"127.0.0.{number}", "--max-restarts", "9", "--on-failure", "restart", "-p", "2", *SIZE, *more),
                REMEMBERER, "2", str(BYTES))

    def test_a_restart_needs_no_copy(self):
        port = free_port()
        with Node(*self.words(port, 1)) as a:
            await_endpoint(port)
            with Node(*self.words(port, 2)) as b:
                ranks = Heard(self, a, b)
                self.assertEqual(ranks.hear("found", 2), {r: (0, -1, r, (r + 2) % 4) for r in range(4)})
                saved = ranks.hear("saved", 2)
                os.kill(saved[3][2], signal.SIGKILL)
                self.assertEqual(ranks.hear("found", 2), {r: (1, 2, r, (r + 2) % 4) for r in range(4)})
                ranks.hear("saved", 2)
                end(self, b, a)

    def test_a_lost_node_gets_its_states_from_the_copies(self):
        port = free_port()
        with Node(*self.words(port, 1)) as a:
            await_endpoint(port)
            with Node(*self.words(port, 2)) as b:
                both = Heard(self, a, b)
                both.hear("found", 2)
                both.hear("saved", 2)
                b.process.kill()
                self.check_new_node(a, Node(*self.words(port, 3)))

    def check_new_node(self, old, new):
        with new:
            kept, got = Heard(self, old).hear("found", 2), Heard(self, new).hear("found", 2)
            self.assertEqual(kept, {r: (1, 2, r, (r + 2) % 4) for r in kept})
            self.assertEqual(got, {r: (1, 2, (r + 2) % 4, (r + 2) % 4) for r in got})
            self.assertEqual(sorted((*kept, *got)), [0, 1, 2, 3])
            saved = Heard(self, old, new).hear("saved", 2)
            self.assertEqual({row[1] for row in saved.values()}, {4})
            end(self, new, old)

    def test_another_size_on_another_node_is_refused(self):
        port = free_port()
        with Node(*self.words(port, 1)) as a:
            await_endpoint(port)
            with Node(*self.words(port, 2, "--memory-checkpoints", "9M")) as b:
                for job in a, b:
                    for line in job.hear(2):
                        self.assertIn("give all nodes the same value", line)


@unittest.skipIf(lacks_network_namespaces(), lacks_network_namespaces())
class Encrypted(Machines):
    def test_the_copies_travel_encrypted(self):
        def words(i):
            return (*c10d(29432, "--local-addr", f"10.77.0.{i}", "--max-restarts", "9", "--on-failure", "restart", "-p", "2", "--encrypt", *SIZE,
                          host="10.77.0.1"), REMEMBERER, "2", str(BYTES))

        with self.node(1, *words(1)) as a, self.node(2, *words(2)) as b:
            both = Heard(self, a, b)
            both.hear("found", 2)
            both.hear("saved", 2)
            b.process.kill()
            TwoNodes.check_new_node(self, a, self.node(3, *words(3)))


if __name__ == "__main__":
    main()
