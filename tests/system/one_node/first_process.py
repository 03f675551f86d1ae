"""ddprun as the first process of a container: strangers become its children, and it reaps them."""
import os
import shutil
import signal
import subprocess
import unittest

from harness import DDPRUN, RANK, Job, await_true, describe, main

SPACE = ["--fork", "--pid", "--mount-proc", "--kill-child"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
N_STRANGERS = 20
# each one is left behind by a shell that has ended, and ends itself when it is told to
LEAVE = f"for i in $(seq {N_STRANGERS}); do sh -c 'echo stranger > $TEST_FIFO; read x < $1' sh \"$1\" & done"


def field_of(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return next(line for line in f if line.startswith(name + ":")).split()[1:]


class FirstProcess(unittest.TestCase):
    def setUp(self):
        if subprocess.run(["unshare", *SPACE, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no PID namespaces here")

    def container(self, *args):
        return Job(*SPACE, DDPRUN, *args, launcher=shutil.which("unshare"))

    def first_of(self, job):
        found = [pid for pid in job.processes() if field_of(pid, "NSpid")[-1] == "1"]
        self.assertEqual(len(found), 1)
        return found[0]

    def leave_strangers(self, job, first):
        """Processes in the container whose parent has ended: their pids."""
        gate = os.path.join(job.dir, "gate")
        os.mkfifo(gate)
        env = {**os.environ, "TEST_FIFO": job.fifo, **dict([job.mark.split("=")])}
        enter = ["nsenter", "-t", str(first), "--pid"] + ([] if os.geteuid() == 0 else ["--user", "--preserve-credentials"])
        before = set(job.processes())
        subprocess.run([*enter, "sh", "-c", LEAVE, "sh", gate], env=env, stdin=subprocess.DEVNULL, check=True)
        self.assertEqual(job.hear(N_STRANGERS), ["stranger"] * N_STRANGERS)
        return gate, set(job.processes()) - before

    def test_strangers_are_reaped_while_ranks_run(self):
        with self.container(RANK, "tell", "up", "wait") as job:
            self.assertEqual(job.hear(1), ["0 up"])
            first = self.first_of(job)
            gate, strangers = self.leave_strangers(job, first)
            self.assertEqual(len(strangers), N_STRANGERS)
            self.assertEqual({int(field_of(pid, "PPid")[0]) for pid in strangers}, {first})
            with open(gate, "w", encoding="utf-8") as f:
                f.write("\n" * N_STRANGERS)
                f.flush()
                # a process that has ended and is not reaped keeps its folder
                await_true(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in strangers),
                           lambda: [describe(pid) for pid in strangers])
            os.kill(first, signal.SIGTERM)
            self.assertEqual(job.end()[0], 143)

    def test_a_signal_ends_it_with_strangers_about(self):
        with self.container(RANK, "tell", "up", "wait") as job:
            self.assertEqual(job.hear(1), ["0 up"])
            first = self.first_of(job)
            self.leave_strangers(job, first)
            os.kill(first, signal.SIGTERM)
            self.assertEqual(job.end()[0], 143)
            job.await_gone()

    def test_its_status_is_the_job_s(self):
        with self.container("-n", "2", RANK, "only", "1", "exit", "7", "end", "wait") as job:
            self.assertEqual(job.end()[0], 7)


main()
