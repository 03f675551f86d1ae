"""Nodes join, leave and die, and the job continues: elastic_cases.py with ddprun and C workers, on addresses of the loopback
interface and in network namespaces. Torch's workers: tests/interop/elastic_gloo.py.

Covers: launcher/node, launcher/membership, rendezvous/membership, rendezvous/channel
"""
import os
import re
import unittest

from elastic_cases import CASES, is_possible, try_case
from elastic_job import Launcher, Workers
from harness import DDPRUN, DEADLINE_S, main
from places import Loopback, Namespaces, NoPlace

OURS = Launcher("ddprun", [DDPRUN], dict(os.environ), is_ours=True)
C = Workers("C", ["--no-python", os.environ["ELASTIC_PROGRAM"]], {}, n_local=2)


class OnLoopback(unittest.TestCase):
    make_place = Loopback

    @classmethod
    def setUpClass(cls):
        try:
            cls.place = cls.enterClassContext(cls.make_place())
        except NoPlace as reason:
            raise unittest.SkipTest(str(reason)) from None

    def check(self, case):
        if not is_possible(case, self.place):
            self.skipTest("the case cuts a network: it runs in network namespaces only")
        outcome = try_case(case, OURS, C, self.place, DEADLINE_S)
        self.assertEqual(outcome.why, "", outcome.logs)


class InNamespaces(OnLoopback):
    make_place = Namespaces


for one in CASES:
    name = "test_" + re.sub(r"\W+", "_", one.title)
    setattr(OnLoopback, name, lambda self, case=one: self.check(case))

main()
