"""A host is lost whose processes do not end by themselves (--rdzv-conf host_timeout): in network namespaces its link is cut, and all
its processes are killed or live on. A ddprun that is stopped for 2 s costs no node.

Covers: launcher/spawner, launcher/membership, launcher/node, rendezvous/jobs, rendezvous/membership, rendezvous/quorum
"""
import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest

from failover_job import LEADS, ONCE, Group, LastingGroup
from harness import DEADLINE_S, await_true, main
from places import Namespaces, NoPlace

CONF = f"{ONCE},host_timeout=500ms"
PATIENT = f"{CONF},keep_alive_max_attempt=30"
SILENT = "its host has not answered for 625 ms"
STOP_S = 2


class LostHosts(unittest.TestCase):
    def enter(self, nodes="1:3"):
        try:
            self.place = self.enterContext(Namespaces(3))
        except NoPlace as why:
            self.skipTest(str(why))
        return self.enterContext(LastingGroup(nodes, self.place, CONF))

    def lose(self, job, node):
        pids = job.jobs[node].processes()
        self.place.cut(node + 1)
        for pid in {job.jobs[node].process.pid, *pids}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def assert_continue(self, job, before, nodes):
        after = job.await_world(2, job.generation + 1)
        for node in nodes:
            self.assertEqual(after[node], before[node], "the ranks that are left live on")

    def test_the_coordinators_host_is_lost(self):
        job = self.enter()
        before = job.begin()
        self.lose(job, 0)
        self.assert_continue(job, before, (1, 2))
        self.assertIn(LEADS, job.told())
        self.assertEqual(job.finish([1, 2]), [0, 0])

    def test_another_host_is_lost(self):
        job = self.enter()
        before = job.begin()
        self.lose(job, 2)
        self.assert_continue(job, before, (0, 1))
        self.assertIn(SILENT, job.told())
        self.assertNotIn(LEADS, job.told())
        self.assertEqual(job.finish([0, 1]), [0, 0])


class CutHosts(unittest.TestCase):
    """The ranks of a host that is cut off are suspended before others continue, and killed with the lease."""

    def enter(self):
        try:
            self.place = self.enterContext(Namespaces(3))
        except NoPlace as why:
            self.skipTest(str(why))
        return self.enterContext(Group("2:3", CONF, self.place))

    def cut(self, host, left):
        group = self.enter()
        _, ranks = group.begin(3)
        name = "abc"[host - 1]
        self.place.part(host)
        again = group.hear(ranks[name].generation + 1, left)
        self.assertEqual({rank.world for rank in again.values()}, {2})
        self.assertTrue(ranks[name].is_suspended() or not ranks[name].lives(), "ranks of a lost host run in the next generation")
        group.assert_end(75, [name])
        self.assertFalse(ranks[name].lives())
        group.finish()

    def test_the_coordinator_is_cut_off(self):
        self.cut(1, ["b", "c"])

    def test_another_node_is_cut_off(self):
        self.cut(3, ["a", "b"])


class StoppedProcesses(unittest.TestCase):
    """On this host: kernels acknowledge heartbeats."""

    def stop(self, job, node):
        process = job.jobs[node].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(STOP_S)  # the fault is so long
        process.send_signal(signal.SIGCONT)

    def test_a_node_whose_ddprun_is_stopped_for_2_s_stays(self):
        with LastingGroup("1:3", conf=PATIENT) as job:
            job.begin()
            generation = job.generation
            self.stop(job, 2)
            self.assertEqual(job.finish([0, 1, 2]), [0, 0, 0])
            self.assertEqual(job.generation, generation)
            self.assertNotIn("note: lost ", job.told())

    def test_a_coordinator_that_is_stopped_for_2_s_costs_no_node(self):
        with LastingGroup("1:3", conf=PATIENT, has_events=True) as job:
            before = job.begin()
            generation = job.generation
            self.stop(job, 0)
            await_true(lambda: LEADS in job.told(), job.told, DEADLINE_S)
            self.assertEqual(job.finish([0, 1, 2]), [0, 0, 0])
            self.assertEqual(job.generation, generation)
            self.assertEqual(job.pids, before)
            self.assertNotIn("note: lost ", job.told())
            self.assertEqual([event["state"] for event in job.events(0, "suspend")], ["suspended", "resumed"])
            self.assertEqual(job.events(1, "suspend") + job.events(2, "suspend"), [])


@unittest.skipUnless("LOAD_S" in os.environ, "LOAD_S is not set: so many seconds at a load of 8")
class Loaded(unittest.TestCase):
    def test_no_node_is_lost_at_a_load_of_8(self):
        until = time.monotonic() + int(os.environ["LOAD_S"])
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                stack.callback(busy.kill)
            job = stack.enter_context(LastingGroup("1:3", conf=CONF, has_events=True))
            before = job.begin()
            generation = job.generation
            while time.monotonic() < until:
                job.hear()
            self.assertEqual(job.finish([0, 1, 2]), [0, 0, 0])
            suspended = [len(job.events(node, "suspend")) // 2 for node in range(3)]
            print(f"suspended: {suspended} times, load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
            self.assertEqual((job.generation, job.pids), (generation, before), job.told(4000))
            self.assertNotIn("note: lost ", job.told())


if __name__ == "__main__":
    main()
