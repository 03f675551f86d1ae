"""Pods of an Indexed Job, as far as they can be had on one machine: each with a host name and an /etc/hosts of its own,
in which the others' names appear only after a while, as in a cluster's DNS.

Covers: launcher/hosts, launcher/membership, launcher/platform
"""
import os
import shutil
import signal
import unittest

from facilities import lacks_namespaces
from harness import DDPRUN, RANK, Job, main

DOMAIN = "pods.default.svc.cluster.local"
ENTER = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


class Pod(Job):
    def __init__(self, index, *args, domain="." + DOMAIN):
        self.name = f"train-{index}"
        self.hosts = f"/tmp/ddp-test-pod-{os.getpid()}-{index}"
        self.names = []
        with open(self.hosts, "w", encoding="utf-8") as f:
            f.write(f"127.0.0.1 localhost\n127.0.0.1 {self.name}{domain} {self.name}\n")
        super().__init__("--mount", "--uts", "sh", "-c", ENTER, "sh", self.name, self.hosts, DDPRUN, *args,
                         launcher=shutil.which("unshare"),
                         env={"JOB_COMPLETION_INDEX": str(index), "HOME": "/nonexistent",
                              "DDP_TOKEN": "0123456789abcdef0123456789abcdef"})

    def learn(self, index):
        """From now on this pod can look the other one up."""
        with open(self.hosts, "a", encoding="utf-8") as f:
            f.write(f"127.0.0.1 train-{index}.{DOMAIN}\n")

    def __exit__(self, *args):
        super().__exit__(*args)
        os.unlink(self.hosts)


class Pods(unittest.TestCase):
    def setUp(self):
        if lacks_namespaces("--mount", "--uts"):
            self.skipTest(lacks_namespaces("--mount", "--uts"))

    def test_the_first_pods_name_is_looked_up_until_it_resolves(self):
        args = ("--nnodes", "2", RANK, "tell", "up", "wait")
        with Pod(1, *args) as b:
            b.read_until(f"train-0.{DOMAIN}")  # what it waits for, and why
            with Pod(0, *args) as a:
                b.learn(0)
                self.assertEqual((a.hear(1), b.hear(1)), (["0 up"], ["1 up"]))
                b.signal(signal.SIGTERM)
                b.end()
                self.assertEqual(a.end()[0], 75)

    def test_a_pod_without_a_domain_reports_what_is_missing(self):
        with Pod(1, "--nnodes", "2", "true", domain="") as pod:
            code, _, err = pod.end()
            self.assertEqual(code, 2)
            self.assertIn(b"headless Service", err)

    def test_a_pod_alone_is_a_job_of_one_node(self):
        with Pod(1, "-n", "2", "sh", "-c", "echo $RANK/$WORLD_SIZE > $TEST_FIFO") as pod:
            self.assertEqual(pod.end()[0], 0)
            self.assertEqual(pod.hear(2), ["0/2", "1/2"])


main()
