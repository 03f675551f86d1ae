"""The exit status of ddprun shows how the job ended, on one node and on two: a table of cases, which lib/endings.py runs. They
include SIGKILL of each part of a job. After each case nothing of the job is left.

Covers: launcher/node, launcher/supervisor, launcher/reporting, launcher/spawner, launcher/stdio, launcher/membership
"""
import json
import os
import re
import resource
import signal
import stat
import subprocess
import tempfile
import unittest

import endings
from endings import Case, Launcher, TwoNodes, await_processes, both, hear, kills, know_pids, rank_gets, sends, sends_until_end
from facilities import lacks_namespaces
from harness import DDPRUN, RANK, Job, main, run

ADDER = os.environ["ADDER_PROGRAM"]
HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGURG,
            signal.SIGWINCH}
FATAL = [s for s in range(1, 32) if s not in HARMLESS] + list(range(signal.SIGRTMIN, signal.SIGRTMAX + 1))
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
UP = ("tell", "up", "wait")
FAMILY = ("child", "daemon", "daemon")
STUBBORN = ("ignore", "15", "ignore", "2", "ignore", "1")
# a sanitizer would make an abort of the SIGSEGV that a rank is sent
SETTINGS = {"env": {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}}
ON_ONE_NODE = Launcher("ddprun", DDPRUN, [], "-n", ["--label"], RANK, **SETTINGS)
ON_TWO_NODES = TwoNodes("ddprun", DDPRUN, [], "-p", ["--label"], RANK, **SETTINGS)
AS_TORCHRUN = Launcher("torchrun", DDPRUN, ["--no-python"], "--nproc-per-node", [], RANK, called="torchrun", **SETTINGS)


def n(sig):
    return str(int(sig))


def name(sig):
    return signal.Signals(sig).name


def obeys(sig):
    return Case(-sig, ("on", n(sig), "0", *UP), (both("up"), sends(sig), both(f"got {n(sig)}")), says=(f"stopped by {name(sig)}",))


def ignores(sig):
    """The ranks and their children: the process group is killed."""
    return Case(-sig, ("ignore", n(sig), "child", *UP), (know_pids(4), sends(sig)), options=("--shutdown-timeout", "50ms"),
                says=("did not stop in time",))


def has_it_again(sig):
    """The second and the third signal are passed on. SIGINT does not kill yet when it is the first of its kind."""
    again = (sends(sig), both(f"got {n(sig)}"))
    return Case(-sig, ("note", n(sig), *UP), (both("up"), *again, *(again * 2 if sig != signal.SIGINT else ()),
                                              *((sends(signal.SIGINT),) if sig != signal.SIGINT else ()),
                                              sends_until_end(signal.SIGINT)))


def is_passed_on(sig):
    return Case(-signal.SIGTERM, ("note", n(sig), "on", "15", "0", *UP),
                (both("up"), *(sends(sig), both(f"got {n(sig)}")) * 3, sends(signal.SIGTERM), both("got 15")))


def keeps_the_first(first, second):
    return Case(-first, ("note", n(first), "on", n(second), "0", *UP),
                (hear("0 up"), sends(first), hear(f"0 got {n(first)}"), sends(second), hear(f"0 got {n(second)}")), n=1)


def dies_in_a_sum(sig, rank, n_ranks):
    """The ranks that wait for its part see it die, and fail before anybody else does."""
    return Case(128 + sig, (str(rank), n(sig)), n=n_ranks, program=ADDER,
                says=(rf"ddprun: error: rank {rank} (failed|on \S+): killed by {name(sig)}", rf"rank {rank}( on node \d+ \(.*\))? died",
                      "exit status 5 after a peer was lost"))


def rank_1_dies(sig):
    return Case(128 + sig, ("only", "1", "die", n(sig), "end", "wait"))


def of_families(status, kill, words=(), n_nodes=1, says=()):
    """Each rank has a child and two daemons when a part of the job is killed."""
    n = 3 if n_nodes == 1 else 2
    steps = (know_pids(n * 5), await_processes(n * 4 + n_nodes * 2), kill)
    return Case(status, ("pid", *words, *FAMILY, *UP), steps, n=n, says=says)


FAILS_FIRST = ("only", "2", "exit", "5", "end", "on", "15", "7", "wait")
IS_LATE = ("only", "1", "note", "15", *UP, "end", "pid", "on", "10", "6", *UP)  # which of the two gets a CPU to report it

# What is the same on any number of nodes.
ANYWHERE = {
    "a rank's status is the job's": [Case(3, row=endings.rank_exits_3)],
    "a crash is 128 and the signal": [
        Case(139, row=endings.rank_crashes, says=(r"rank 1 (failed|on \S+): killed by SIGSEGV",))],
    "kill -9 of a rank is 137": [
        Case(137, row=endings.rank_is_killed, says=(r"rank 1 (failed|on \S+): killed by SIGKILL",))],
    "the first failure counts and both are told": [
        Case(3, row=endings.both_fail, says=(r"rank 0 (failed|on \S+): exit status 3", "rank 1: .*exit status 5"))],
    "the first failure counts and stopped ranks do not": [
        Case(5, FAILS_FIRST, n=4, says=(r"rank 2 (failed|on \S+): exit status 5",))],
    "no daemon survives the job": [Case(137, row=endings.daemon_of_a_rank, notes=("daemons are gone",))],
    "a missing program is 127": [
        Case(127, program=word) for word in ("/nowhere/prog", "no-such-program-in-path")],
}

ONE_NODE = {
    **ANYWHERE,
    "zero when all ranks end well": [Case(0, n=n_ranks) for n_ranks in (1, 2, 5, 33, 70)],
    "every exit status of a rank is passed on": [Case(code, ("exit", str(code)), n=1) for code in range(256)],
    "every fatal signal is 128 and its number": [rank_1_dies(sig) for sig in FATAL],
    "the first failure of three counts": [Case(5, FAILS_FIRST, n=3, says=("rank 2 failed: exit status 5",))],
    "a rank fails after another succeeded": [
        Case(4, ("only", "0", "exit", "0", "end", "tell", "up", "on", "10", "4", "tell", "ready", "wait"),
             (hear("1 ready", "1 up"), await_processes(3), sends(signal.SIGUSR1), hear("1 got 10")))],
    "a rank that others saw die is the root cause": [dies_in_a_sum(sig, 2, 3) for sig in (signal.SIGKILL, signal.SIGTERM)],
    "a missing program is one line": [Case(127, row=endings.program_is_missing, notes=("1 line",))],
    "no rank survives its launcher": [Case(None, row=endings.launcher_is_killed)],
    "no process survives kill -9 of ddprun": [
        of_families(-signal.SIGKILL, kills("ddprun")), of_families(-signal.SIGKILL, kills("ddprun"), STUBBORN)],
    "kill -9 of the spawner is an internal error": [of_families(70, kills("spawner"), says=("internal error",))],
    "no process survives kill -9 of a rank": [
        of_families(137, rank_gets(1, signal.SIGKILL), says=(
            "rank 1 failed: killed by SIGKILL", r"ranks 0, 2: stopped by ddprun \(SIGTERM\)",
            lambda seen: rf"pid {seen.pids[1]}\b"))],
    "a rank that does not stop is killed": [Case(137, row=endings.rank_ignores_sigterm, notes=("it is killed",))],
    "ranks get SIGTERM after a failure and then SIGKILL": [
        Case(6, IS_LATE, (know_pids(3), rank_gets(0, signal.SIGUSR1), hear("0 got 10", "1 got 15")),
             options=("--shutdown-timeout", "2s"), says=(r"rank 1: stopped by ddprun \(SIGKILL\)",))],
    "rank 0 reads the input": [Case(0, row=endings.input_of_three_ranks, notes=("0: all, 1: nothing, 2: nothing",))],
    "labelled lines are whole": [Case(0, row=endings.half_a_line, notes=("lines are whole",))],
    "SIGTERM and SIGINT reach the ranks": [
        Case(-signal.SIGTERM, row=endings.launcher_gets_sigterm, notes=("ranks got SIGTERM",)),
        Case(-signal.SIGINT, row=endings.launcher_gets_sigint, notes=("ranks got SIGINT",))],
    "ddprun dies of the signal after its ranks had it": [obeys(sig) for sig in STOPPING],
    "ranks that ignore the signal are killed with their group": [ignores(sig) for sig in STOPPING],
    "a second signal is passed on but an interrupt kills": [has_it_again(sig) for sig in STOPPING],
    "other signals are passed on and the job goes on": [
        is_passed_on(sig) for sig in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)],
    "a signal of another kind does not change the verdict": [
        keeps_the_first(first, second) for first in STOPPING for second in STOPPING if second not in (first, signal.SIGINT)],
    "only the first process of a rank is signaled": [
        # the child has a handler for SIGUSR1 only; it is swept
        Case(-15, ("note", "10", "child", "on", "15", "0", *UP),
             (know_pids(2), sends(signal.SIGUSR1), hear("0 got 10"), sends(signal.SIGTERM), hear("0 got 15")), n=1)],
}

TWO_NODES = {
    **ANYWHERE,
    "zero when all ranks end well": [Case(0, n=n_ranks) for n_ranks in (2, 6)],
    "an exit status that ddprun itself has is passed on": [
        Case(code, ("only", "1", "exit", str(code), "end", "wait")) for code in (1, 2, 69, 70, 75, 124, 126, 255)],
    "a fatal signal is 128 and its number": [rank_1_dies(sig) for sig in (signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMAX)],
    "a rank that others saw die is the root cause": [dies_in_a_sum(signal.SIGKILL, rank, 4) for rank in (0, 3)],
    "kill -9 of a ddprun is a lost node for the other": [
        of_families(status, kills("ddprun", node), n_nodes=2, says=(text,)) for node, status, text in (
            (0, (-signal.SIGKILL, 75), "lost "), (1, (75, -signal.SIGKILL), "lost .*; 1 of at least 2 nodes remain"))],
    "kill -9 of a spawner is a node that leaves": [
        of_families(status, kills("spawner", node), n_nodes=2, says=(
            "ddprun: error: the process that starts and reaps its ranks is gone", r"(is shutting down|left): the process that starts and reaps its ranks"))
        for node, status in ((0, (70, 75)), (1, (75, 70)))],
}

UNDER_THE_NAME_TORCHRUN = {
    "1 for any failure": [Case(0), Case(1, ("exit", "3")), Case(1, ("die", "11")), Case(1, program="/nowhere/prog")],
    "1 when a signal stops the job": [Case(1, UP, (both("up"), sends(signal.SIGTERM)))],
}


class Table(unittest.TestCase):
    def check(self, launcher, case):
        seen = endings.play(launcher, case)
        if case.status is None:
            self.assertEqual(seen.headline, "ranks are gone")
        else:
            wanted = case.status if isinstance(case.status, tuple) else (case.status,) * max(1, len(seen.codes))
            self.assertEqual(seen.codes, wanted, f"{seen.notes}\n{seen.output}")
        self.assertEqual(seen.notes, list(case.notes), seen.output)
        for text in case.says:
            self.assertRegex(seen.output, text(seen) if callable(text) else text)
        self.assertEqual(seen.left, [])


def add_tests(cls, launcher, groups):
    def test(self, cases):
        for number, case in enumerate(cases):
            with self.subTest(case=number, status=case.status):
                self.check(launcher, case)

    for title, cases in groups.items():
        setattr(cls, "test_" + re.sub(r"\W+", "_", title), lambda self, cases=cases: test(self, cases))


class OnOneNode(Table):
    pass


class OnTwoNodes(Table):
    pass


class UnderTheNameTorchrun(Table):
    pass


add_tests(OnOneNode, ON_ONE_NODE, ONE_NODE)
add_tests(OnTwoNodes, ON_TWO_NODES, TWO_NODES)
add_tests(UnderTheNameTorchrun, AS_TORCHRUN, UNDER_THE_NAME_TORCHRUN)


class Words(unittest.TestCase):
    def test_2_for_wrong_usage(self):
        for args in (("-n", "0", RANK), ("-n", "two", RANK), ("--nproc-per-node", "-1", RANK), ("--no-such", RANK), ("-n",), ()):
            self.assertEqual(run(*args)[0], 2, args)
        self.assertEqual(run("--no-such", name="torchrun")[0], 2)

    def test_0_for_help_and_version(self):
        self.assertEqual(run("--help")[0], 0)
        self.assertEqual(run("--version")[0], 0)


class Programs(unittest.TestCase):
    """What cannot be executed, and what can."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def write(self, text, mode=0o755):
        path = os.path.join(self.folder, "program")
        with open(path, "wb") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def test_126_for_what_cannot_be_executed(self):
        # like a shell, execvp hands what the kernel does not know to /bin/sh: which refuses binaries
        self.assertIn(run("--no-python", "-n", "2", self.write(b"\x7fELF and nothing more"))[0], (126, 127, 2))
        self.assertEqual(run("--no-python", "-n", "2", self.folder)[0], 126)
        self.assertEqual(run("--no-python", "-n", "2", self.write(b"\0binary", 0o644))[0], 126)

    def test_127_when_the_interpreter_is_missing(self):
        code, _, err = run("-n", "2", self.write(b"#!/nowhere/interpreter\n", 0o644 | stat.S_IXUSR))
        self.assertEqual(code, 127)
        self.assertEqual(err, f"ddprun: error: cannot execute '{self.folder}/program': its first line names the interpreter "
                              "'/nowhere/interpreter', which cannot be found; install it, or correct the line\n")

    def test_a_script_without_an_interpreter_line_runs_in_the_shell(self):
        script = self.write(b'echo "$0 $1 $RANK"\n')
        self.assertEqual(run("-n", "1", script, "word")[:2], (0, f"{script} word 0\n"))

    def test_too_long_arguments_are_reported(self):
        code, _, err = run("-n", "1", RANK, env={"TOO_LONG": "x" * 100_000, **{f"V{i}": "y" * 100_000 for i in range(19)}})
        if code != 0:  # the limit depends on the stack's: both ends are fine, a hang is not
            self.assertEqual(code, 126)
            self.assertIn("too long", err)


def allow_core():
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


class Ends(unittest.TestCase):
    """What no other launcher and no table has."""

    def test_the_report_names_ranks_that_failed_after_a_lost_peer(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "report.json")
            code, _, err = run("-n", "3", "--report", path, ADDER, "2", "9")
            with open(path, encoding="utf-8") as f:
                report = json.load(f)
        self.assertEqual((code, report["root_cause"]["rank"]), (137, 2))
        self.assertEqual([rank["lost_peer"] for rank in report["ranks"]], [True, True, False])
        self.assertIn("ranks 0-1: exit status 5 after a peer was lost", err)

    def test_sigquit_leaves_no_core_file(self):
        with Job("-n", "1", RANK, "on", "3", "0", *UP, preexec_fn=allow_core) as job:
            job.hear(1)
            job.signal(signal.SIGQUIT)
            job.process.stdout.close()
            job.process.stderr.close()
            _, status = os.waitpid(job.process.pid, 0)
            job.process.returncode = -3
            self.assertEqual(os.WTERMSIG(status), 3)
            self.assertFalse(os.WCOREDUMP(status))

    def test_nohup_is_respected(self):
        with Job("-n", "1", RANK, "note", "1", "on", "15", "0", *UP,
                 preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as job:
            job.hear(1)
            job.signal(signal.SIGHUP)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(1), ["0 got 15"])
            self.assertEqual(job.end()[0], -15)

    def test_ranks_start_with_default_dispositions_and_no_signal_blocked(self):
        def spoil():
            for sig in (signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD, signal.SIGUSR1):
                signal.signal(sig, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])

        with Job("-n", "1", "cat", "/proc/self/status", preexec_fn=spoil) as job:
            code, out, _ = job.end()
            self.assertEqual(code, 0)
            sets = dict(line.split(":\t", 1) for line in out.decode().splitlines())
            self.assertEqual([sets[name] for name in ("SigBlk", "SigIgn", "SigCgt")], ["0" * 16] * 3)

    def test_the_first_process_of_a_container_exits_with_128_and_the_signal(self):
        unshare = ["unshare", "--fork", "--pid", "--mount-proc"]
        if os.geteuid() != 0:
            unshare += ["--user", "--map-root-user"]
        if lacks_namespaces(*unshare[1:]):
            self.skipTest(lacks_namespaces(*unshare[1:]))
        script = f'{DDPRUN} -n 1 sh -c "kill -TERM 1; exec sleep 1000"'
        done = subprocess.run([*unshare, "sh", "-c", "exec " + script], capture_output=True, timeout=30)
        self.assertEqual(done.returncode, 143, done.stderr)


main()
