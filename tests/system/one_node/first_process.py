"""ddprun as the first process of a container: orphans become its children, and it reaps them.

Covers: launcher/spawner, launcher/node
"""
import os
import shutil
import signal
import subprocess
import unittest

from facilities import lacks_namespaces
from harness import DDPRUN, RANK, Job, await_true, describe, main

SPACE = ["--fork", "--pid", "--mount-proc", "--kill-child"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
N_ORPHANS = 20
# each is an orphan of a shell that has exited, and exits on request
LEAVE = f"for i in $(seq {N_ORPHANS}); do sh -c 'echo orphan > $TEST_FIFO; read x < $1' sh \"$1\" & done"


def field_of(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(line for line in f if line.startswith(name + ":")).split()[1:]


class FirstProcess(unittest.TestCase):
    def setUp(self):
        if lacks_namespaces(*SPACE):
            self.skipTest(lacks_namespaces(*SPACE))

    def container(self, *args):
        return Job(*SPACE, DDPRUN, *args, launcher=shutil.which("unshare"))

    def first_of(self, job):
        found = [pid for pid in job.processes() if field_of(pid, "NSpid")[-1] == "1"]
        self.assertEqual(len(found), 1)
        return found[0]

    def leave_orphans(self, job, first):
        """Processes in the container whose parent has ended: their pids."""
        gate = os.path.join(job.dir, "gate")
        os.mkfifo(gate)
        env = {**os.environ, "TEST_FIFO": job.fifo, **dict([job.mark.split("=")])}
        enter = ["nsenter", "-t", str(first), "--pid"] + ([] if os.geteuid() == 0 else ["--user", "--preserve-credentials"])
        before = set(job.processes())
        subprocess.run([*enter, "sh", "-c", LEAVE, "sh", gate], env=env, stdin=subprocess.DEVNULL, check=True)
        self.assertEqual(job.hear(N_ORPHANS), ["orphan"] * N_ORPHANS)
        return gate, set(job.processes()) - before

    def test_orphans_are_reaped_while_ranks_run(self):
        with self.container(RANK, "tell", "up", "wait") as job:
            self.assertEqual(job.hear(1), ["0 up"])
            first = self.first_of(job)
            gate, orphans = self.leave_orphans(job, first)
            self.assertEqual(len(orphans), N_ORPHANS)
            self.assertEqual({int(field_of(pid, "PPid")[0]) for pid in orphans}, {first})
            with open(gate, "w", encoding="utf-8") as f:
                f.write("\n" * N_ORPHANS)
                f.flush()
                # a process that has ended and is not reaped keeps its directory in /proc
                await_true(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in orphans),
                           lambda: [describe(pid) for pid in orphans])
            os.kill(first, signal.SIGTERM)
            self.assertEqual(job.end()[0], 143)

    def test_a_signal_ends_it_although_orphans_remain(self):
        with self.container(RANK, "tell", "up", "wait") as job:
            self.assertEqual(job.hear(1), ["0 up"])
            first = self.first_of(job)
            self.leave_orphans(job, first)
            os.kill(first, signal.SIGTERM)
            self.assertEqual(job.end()[0], 143)
            job.await_gone()

    def test_its_exit_status_is_that_of_the_job(self):
        with self.container("-n", "2", RANK, "only", "1", "exit", "7", "end", "wait") as job:
            self.assertEqual(job.end()[0], 7)


main()
