"""ddpctl on running jobs: what it shows, and what it makes them do.

Covers: ctl/job, ctl, console, launcher/node, launcher/reporting
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from ctl import DDPCTL, TIMEOUT, await_running, await_socket, ctl, socket_of, status
from harness import DEADLINE_S, RANK, Job, await_true, main


class Seeing(unittest.TestCase):
    def test_a_job_is_listed_with_its_ranks(self):
        with Job("--rdzv-id", "job7", "-n", "3", RANK, "err", "hello", "only", "2", "exit", "0", "end", "pid", "wait") as job:
            pids = {int(line.split()[0]): int(line.split()[2]) for line in job.hear(2)}
            await_socket(job)
            await_true(lambda: [r["state"] for r in status(job)[0]["ranks"]] == ["running", "running", "ended"])
            (node,) = status(job)
            self.assertEqual((node["job"], node["state"], node["world"], node["nodes"]), ("job7", "running", 3, 1))
            self.assertEqual(node["pid"], job.process.pid)
            self.assertEqual(node["program"][0], RANK)
            for rank in 0, 1:
                self.assertEqual(node["ranks"][rank]["pid"], pids[rank])
                self.assertEqual(node["ranks"][rank]["state"], "running")
                self.assertGreater(node["ranks"][rank]["rss_bytes"], 0)
            self.assertEqual(node["ranks"][2]["exit_code"], 0)
            await_true(lambda: all(r["last_line"] == "hello" for r in status(job)[0]["ranks"]))
            code, out, _ = ctl(job, "ps", *TIMEOUT)
            self.assertEqual(code, 0)
            self.assertRegex(out, r"(?m)^job7 +\d+ +running +0/1 +2/3 +0 ")
            code, out, _ = ctl(job, "status", *TIMEOUT)
            self.assertEqual(code, 0)
            self.assertIn("job job7: running, generation 0", out)
            self.assertEqual(len(re.findall("hello$", out, re.M)), 3)
            code, out, _ = ctl(job, "status", "--start", *TIMEOUT)
            self.assertEqual(code, 0)
            self.assertIn("  last: rank", out)

    def test_a_stopped_rank_and_a_stopped_ddprun_are_shown(self):
        with Job("-n", "2", RANK, "pid", "wait") as job:
            pids = {int(line.split()[0]): int(line.split()[2]) for line in job.hear(2)}
            await_running(job)
            os.kill(pids[1], signal.SIGSTOP)
            await_true(lambda: status(job)[0]["ranks"][1]["process_state"] == "T")
            self.assertRegex(ctl(job, "status", *TIMEOUT)[1], r"(?m)^ +1 +\d+ +stopped ")
            job.signal(signal.SIGSTOP)
            code, out, _ = ctl(job, "ps", "-t", "0.1")
            self.assertEqual(code, 0)
            self.assertRegex(out, rf"(?m)^\? +{job.process.pid} +no answer .* {job.runtime}/ddprun-")
            job.signal(signal.SIGCONT)
            self.assertEqual(status(job)[0]["state"], "running")

    def test_the_output_of_a_rank_is_shown_and_followed(self):
        with Job("-n", "2", RANK, "err", "first", "only", "1", "pid", "await", str(signal.SIGUSR1), "err", "second", "tell",
                 "said", "end", "wait") as job:
            pid = int(next(line for line in job.hear(2) if "pid" in line).split()[2])
            await_socket(job)
            await_true(lambda: ctl(job, "logs", "1", *TIMEOUT)[1] == "first\n")
            env = {**os.environ, "XDG_RUNTIME_DIR": job.runtime}
            with subprocess.Popen([DDPCTL, "logs", "-f", "1", str(job.process.pid)], env=env, stdout=subprocess.PIPE) as follower:
                self.assertEqual(follower.stdout.readline(), b"first\n")
                os.kill(pid, signal.SIGUSR1)
                self.assertEqual(follower.stdout.readline(), b"second\n")
                self.assertEqual(ctl(job, "logs", "0", *TIMEOUT)[1], "first\n")
                self.assertEqual(ctl(job, "stop", *TIMEOUT)[0], 0)
                self.assertEqual(follower.wait(DEADLINE_S), 0)

    def test_log_files_are_named(self):
        with tempfile.TemporaryDirectory() as folder, \
                Job("-n", "1", "--log-dir", folder, "-r", "3", RANK, "pid", "wait") as job:
            job.hear(1)
            await_socket(job)
            code, _, err = ctl(job, "logs", "0", *TIMEOUT)
            self.assertEqual(code, 0)
            self.assertRegex(err, rf"its standard output is in {folder}/.*/0/stdout.log")

    def test_status_reads_no_log_file(self):
        with tempfile.TemporaryDirectory() as folder:
            events = os.path.join(folder, ".", "events")
            with Job("-n", "1", "--log-dir", folder, "-r", "3", "--events", events, RANK, "err", "hello", "pid", "wait") as job:
                job.hear(1)  # after its output
                await_socket(job)
                self.assertIn("standard error is in", ctl(job, "logs", "0", *TIMEOUT)[2])
                (node,) = status(job)
                self.assertIsNone(node["ranks"][0]["last_line"])
                self.assertEqual(node["events"], os.path.realpath(events))

    def test_a_missing_rank_is_reported(self):
        with Job("-n", "1", RANK, "pid", "wait") as job:
            job.hear(1)
            await_socket(job)
            code, _, err = ctl(job, "logs", "7", *TIMEOUT)
            self.assertEqual(code, 1)
            self.assertIn("rank 7 of job", err)


    def test_a_missing_job_is_reported(self):
        done = subprocess.run([DDPCTL, "status", "no such job"], capture_output=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, b"ddpctl: error: no such job: 'no such job'; see ddpctl ps\n")


class Steering(unittest.TestCase):
    def test_stop_sends_a_signal(self):
        for words, code in ((), -signal.SIGTERM), (("--signal", "INT"), -signal.SIGINT):
            with Job("-n", "2", RANK, "pid", "wait") as job:
                job.hear(2)
                await_socket(job)
                self.assertEqual(ctl(job, "stop", *TIMEOUT, *words)[0], 0)
                self.assertEqual(job.end()[0], code)
                self.assertEqual(os.listdir(job.runtime), [])

    def test_stop_refuses_a_signal_that_stops_nothing(self):
        with Job("-n", "1", RANK, "pid", "wait") as job:
            job.hear(1)
            await_socket(job)
            code, _, err = ctl(job, "stop", "--signal", "USR1", *TIMEOUT)
            self.assertEqual(code, 1)
            self.assertIn("does not stop the job", err)

    def test_restart_starts_all_ranks_again(self):
        with Job("-n", "2", RANK, "pid", "wait") as job:
            before = job.hear(2)
            await_socket(job)
            self.assertEqual(ctl(job, "restart", *TIMEOUT)[0], 0)
            self.assertNotEqual(job.hear(2), before)
            await_true(lambda: status(job)[0]["state"] == "running")
            (node,) = status(job)
            self.assertEqual(node["generation"], 1)
            self.assertEqual([r["restarts"] for r in node["ranks"]], [1, 1])
            self.assertEqual(ctl(job, "stop", *TIMEOUT)[0], 0)
            _, _, err = job.end()
            self.assertIn(b"restarting all ranks as requested; restart 1", err)


# As torch's scripts do after their imports; rank 1 is the last, and a shell starts it.
COMES = """
import os, socket, sys, time
if os.environ["RANK"] == "1":
    sys.stdin.read()
store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
with open(os.environ["TEST_FIFO"], "w") as fifo:
    fifo.write("came\\n")
time.sleep(3600)
"""


class Start(unittest.TestCase):
    def test_a_rank_that_reaches_the_store_late_is_named(self):
        script = f"{sys.executable} -c \"$0\"; exit"
        with Job("-n", "2", "--stdin", "1", "sh", "-c", script, COMES, stdin=subprocess.PIPE) as job:
            job.hear(1)
            await_socket(job)
            await_true(lambda: status(job)[0]["ranks"][0]["came_ms"] is not None)
            self.assertIsNone(status(job)[0]["ranks"][1]["came_ms"])
            job.process.stdin.close()
            job.process.stdin = None
            job.hear(1)
            await_true(lambda: status(job)[0]["ranks"][1]["came_ms"] is not None)
            text = ctl(job, "status", "--start", *TIMEOUT)[1]
            self.assertRegex(text, r"(?m)^  RANK +EXEC +IMPORT +RENDEZVOUS +INIT +FIRST STEP$")
            (met,) = set(re.findall(r"(?m)^     [01] +[0-9.]+ s +[0-9.]+ s +([0-9.]+ s) +- +-$", text))
            self.assertRegex(text, r"(?m)^  slowest: rank 1 reached the rendezvous [0-9.]+ s after the first one$")
            self.assertIn(f"  last: rank 1 reached the rendezvous after {met}\n", text)


class Leftovers(unittest.TestCase):
    def test_the_socket_of_a_killed_ddprun_is_removed(self):
        with Job("-n", "1", RANK, "pid", "wait") as job:
            job.hear(1)
            await_socket(job)
            job.process.kill()
            job.await_gone()
            self.assertEqual(os.listdir(job.runtime), [])

    def test_ddpctl_removes_the_socket_of_a_killed_ddprun_and_spawner(self):
        with Job("-n", "1", RANK, "pid", "wait") as job:
            job.hear(1)
            await_socket(job)
            spawner = job.spawner()
            job.signal(signal.SIGSTOP)
            os.kill(spawner, signal.SIGKILL)
            job.process.kill()
            job.process.wait()
            await_true(lambda: spawner not in job.processes())
            self.assertIsNotNone(socket_of(job))
            self.assertEqual(ctl(job, "ps", *TIMEOUT)[0], 0)
            self.assertEqual(os.listdir(job.runtime), [])


NOBODY, ANOTHER = 65534, 65533


@unittest.skipUnless(os.geteuid() == 0, "only root can start processes of other users")
class OtherUsers(unittest.TestCase):
    """What root sees and does of them, and that no other user does."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o1777)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": folder.name, "HOME": "/nonexistent", "DDP_TOKEN": ""}
        try:
            subprocess.run([DDPCTL, "--version"], user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=True,
                           timeout=DEADLINE_S)
        except (PermissionError, subprocess.CalledProcessError):
            self.skipTest(f"other users cannot execute {DDPCTL}, which lies in a directory of root's")

    def ctl(self, *words, user=0):
        done = subprocess.run([DDPCTL, *words, *TIMEOUT], env=self.env, user=user, group=user, extra_groups=[],
                              capture_output=True, text=True, timeout=DEADLINE_S)
        return done.returncode, done.stdout, done.stderr

    def listed(self, *words, **kw):
        code, out, _ = self.ctl("ps", "--json", *words, **kw)
        self.assertEqual(code, 0)
        return {(job["job"], job.get("uid")): job["pid"] for job in json.loads(out)["jobs"] if job["job"].startswith("other")}

    def start(self, name, user):
        job = subprocess.Popen([os.environ["DDPRUN"], "-n", "1", "--rdzv-id", name, "sleep", "1000"], env=self.env, user=user,
                               group=user, extra_groups=[], cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        await_true(lambda: (name, user) in self.listed("-a"))
        await_true(lambda: f"job {name}: running" in self.ctl("status", str(job.pid))[1])
        return job

    def test_root_sees_and_stops_a_job_of_another_user(self):
        job = self.start("other1", NOBODY)
        self.assertNotIn(("other1", NOBODY), self.listed())  # the machine may have other jobs, of root too
        self.assertEqual(self.listed("--all-users")[("other1", NOBODY)], job.pid)
        self.assertRegex(self.ctl("ps", "-a")[1], rf"(?m)^ *{NOBODY} +other1 +{job.pid} ")
        self.assertNotIn(("other1", NOBODY), self.listed("-a", user=ANOTHER))
        self.assertEqual(self.ctl("stop", str(job.pid), user=ANOTHER)[0], 1)
        self.assertIn("job other1: running", self.ctl("status", str(job.pid))[1])
        self.assertIn("job other1: running", self.ctl("status", "other1")[1])
        self.assertEqual(self.ctl("status", "other")[0], 1)  # not by how it begins
        self.assertNotIn("other1", self.ctl("status")[1])  # nor without a name
        self.assertEqual(self.ctl("stop", "other1")[0], 0)
        self.assertEqual(job.wait(DEADLINE_S), -signal.SIGTERM)

    def test_jobs_with_the_same_name_are_distinguished(self):
        jobs = [self.start("other2", user) for user in (NOBODY, ANOTHER)]
        code, _, err = self.ctl("stop", "other2")
        self.assertEqual(code, 1)
        for job, user in zip(jobs, (NOBODY, ANOTHER)):
            self.assertIn(f"other2 (uid {user}, pid {job.pid})", err)
        self.assertEqual(self.ctl("stop", str(jobs[1].pid))[0], 0)
        self.assertEqual(jobs[1].wait(DEADLINE_S), -signal.SIGTERM)
        self.assertIsNone(jobs[0].poll())


if __name__ == "__main__":
    main()
