"""The kernel's OOM killer, for real: ddprun in a control group with a limit, whose ranks use more.

Covers: launcher/diagnosis, launcher/reporting
"""
import json
import os
import select
import signal
import time
import unittest

from harness import DEADLINE_S, RANK, Job, await_true, main

MIB = 1 << 20
LIMIT_MIB = 192  # enough for ddprun, the spawner and idle ranks, also with sanitizers
USED_MIB = "600"


def own_group(controller):
    """(version, path) of the control group that a controller puts us in, or None."""
    found = None
    with open("/proc/self/cgroup", encoding="utf-8") as f:
        for line in f:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                return 1, path
            if controllers == "":
                found = 2, path
    return found


class Groups:
    """A control group of our own, and another one in it; skips the test where they cannot be made."""

    def __init__(self, test):
        group = own_group("memory")
        if group is None:
            test.skipTest("no control groups")
        self.version, path = group
        # version 2 lets only its top have both processes and groups that are limited
        top = "/sys/fs/cgroup/memory" + path if self.version == 1 else "/sys/fs/cgroup"
        self.outer = os.path.join(top, f"ddprun-test-{os.getpid()}")
        self.inner = os.path.join(self.outer, "inner")
        try:
            os.mkdir(self.outer)
        except OSError as e:
            test.skipTest(f"cannot make a control group: {e}")
        test.addCleanup(self.remove)
        try:
            if self.version == 2:
                self.write(self.outer, "cgroup.subtree_control", "+memory")
            os.mkdir(self.inner)
            self.limit(self.outer, LIMIT_MIB * MIB)
        except OSError as e:
            test.skipTest(f"cannot limit the memory of a control group: {e}")

    @staticmethod
    def write(group, name, text):
        with open(os.path.join(group, name), "w", encoding="utf-8") as f:
            f.write(text)

    def limit(self, group, n_bytes):
        names = [("memory.limit_in_bytes", n_bytes), ("memory.memsw.limit_in_bytes", n_bytes)]
        if self.version == 2:
            names = [("memory.max", n_bytes), ("memory.swap.max", 0)]
        self.write(group, names[0][0], str(names[0][1]))
        if os.path.exists(os.path.join(group, names[1][0])):  # else the kernel has no swap
            self.write(group, names[1][0], str(names[1][1]))

    def enter(self):
        self.write(self.inner, "cgroup.procs", str(os.getpid()))

    def shown(self, group):
        """The path as /proc/PID/cgroup has it."""
        return group[len("/sys/fs/cgroup/memory" if self.version == 1 else "/sys/fs/cgroup"):]

    def remove(self):
        for group in self.inner, self.outer:
            await_true(lambda group=group: is_removed(group), lambda group=group: f"{group} stays")


def is_removed(group):
    try:
        os.rmdir(group)
    except FileNotFoundError:
        pass
    except OSError:  # a process that has just ended is still counted
        return False
    return True


def log_is_readable():
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"


class OutOfMemory(unittest.TestCase):
    def setUp(self):
        self.groups = Groups(self)

    def run_job(self, *args, n_told=1, n_generations=1):
        """A job whose ranks report n_told lines and await a signal, which they get when ddprun counts OOM kills:
        (exit status, report, events, stderr)."""
        with Job("-v", "--report", "report.json", "--events", "events", *args, preexec_fn=self.groups.enter,
                 cwd=self.make_folder()) as job:
            seen = self.await_line(job, b"OOM kills are counted by control group")
            for _ in range(n_generations):
                job.hear(n_told)
                job.signal(signal.SIGUSR1)
            code, _, err = job.end()
            return code, self.read("report.json")[0], self.read("events"), (seen + err).decode()

    def await_line(self, job, text):
        seen = b""
        end = time.monotonic() + DEADLINE_S
        fd = job.process.stderr.fileno()
        while text not in seen:
            left = end - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                self.fail(f"waited in vain for {text!r} in {seen!r}")
            chunk = os.read(fd, 65536)
            self.assertNotEqual(chunk, b"", seen)
            seen += chunk
        return seen

    def make_folder(self):
        self.folder = os.path.join("/tmp", f"ddprun-test-oom-{os.getpid()}")
        os.mkdir(self.folder)
        self.addCleanup(os.rmdir, self.folder)
        for name in "report.json", "events":
            self.addCleanup(os.unlink, os.path.join(self.folder, name))
        return self.folder

    def read(self, name):
        """The JSON values of a file: a line each, or one."""
        with open(os.path.join(self.folder, name), encoding="utf-8") as f:
            text = f.read()
        return [json.loads(text)] if name == "report.json" else [json.loads(line) for line in text.splitlines()]

    def check_figures(self, oom):
        self.assertEqual((oom["scope"], oom["cgroup"]), ("group", self.groups.shown(self.groups.outer)))
        self.assertEqual(oom["limit_bytes"], LIMIT_MIB * MIB)
        if oom["peak_bytes"] is not None:
            self.assertGreater(oom["peak_bytes"], LIMIT_MIB * MIB * 9 // 10)
        if oom["victim"] is not None:
            self.assertEqual(oom["victim"]["name"], "rank")
            self.assertGreater(oom["victim"]["anon_bytes"], LIMIT_MIB * MIB // 4)

    def test_a_rank_is_killed_at_the_limit_of_a_group_above(self):
        code, report, events, err = self.run_job("-n", "2", RANK, "only", "1", "await", "10", "use", USED_MIB, "end",
                                                 "note", "10", "tell", "is ready", "wait", n_told=2)
        self.assertEqual(code, 137)
        root = report["root_cause"]
        self.assertEqual((root["rank"], root["signal"]), (1, signal.SIGKILL))
        self.assertEqual((root["oom"]["blame"], root["oom"]["kills"]), ("rank", 1))
        self.check_figures(root["oom"])
        group = self.groups.shown(self.groups.outer)
        self.assertIn("  out of memory: killed by the kernel's OOM killer\n"
                      f"    limit of control group {group}: {LIMIT_MIB}.0 MiB", err)
        self.assertIn("; 1 OOM kill since the ranks' start\n", err)
        self.assertIn("    try: a higher limit (memory.", err)
        if log_is_readable():  # it may lack lines about processes other than ranks: the kernel limits their rate
            self.assertEqual(root["oom"]["victim"]["pid"], root["pid"])
            self.assertIn(f"    pid {root['pid']} (rank) held ", err)
        event = next(e for e in events if e["ev"] == "oom")
        self.assertEqual((event["rank"], event["pid"], event["blame"]), (1, root["pid"], "rank"))
        self.assertEqual(event["limit_bytes"], LIMIT_MIB * MIB)

    def test_a_ranks_child_is_killed_and_each_generation_counts_its_own(self):
        code, report, events, err = self.run_job("-n", "1", "--max-restarts", "1", RANK, "await", "10", "feed", USED_MIB,
                                                 "exit", "3", n_generations=2)
        self.assertEqual(code, 3)
        self.assertIn(" (the OOM killer killed another process of its control group); restart 1 of 1\n", err)
        oom = report["root_cause"]["oom"]
        self.assertEqual((oom["blame"], oom["kills"]), ("other", 1))
        self.check_figures(oom)
        self.assertIn("  out of memory: while it ran, the kernel's OOM killer killed 1 process of its control group", err)
        self.assertEqual([(e["gen"], e["kills"]) for e in events if e["ev"] == "oom"], [(0, 1), (1, 1)])

    def test_a_sigkill_by_a_user_is_not_an_oom_kill(self):
        code, report, events, err = self.run_job("-n", "1", RANK, "await", "10", "die", "9")
        self.assertEqual(code, 137)
        self.assertIsNone(report["root_cause"]["oom"])
        self.assertNotIn("out of memory", err)
        self.assertNotIn("oom", [e["ev"] for e in events])


main()
