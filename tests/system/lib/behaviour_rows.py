"""What launchers do when a job goes wrong: one function for each thing that can happen to two ranks, the same for
every launcher. behaviour.py holds ddprun to it; bench/behaviour.py shows it for ddprun and others.

No row takes longer than its limit: what runs on then is reported as such and ended.
"""
import contextlib
import dataclasses
import os
import resource
import select
import signal
import subprocess
import tempfile
import time

from harness import Job, await_true

LIMIT_S = 10  # who has not ended by then runs on
GRACE_LIMIT_S = 45  # the longest known time between SIGTERM and SIGKILL is 30 s
START_LIMIT_S = 60
STDIN_BYTES = 10


@dataclasses.dataclass
class Launcher:
    name: str
    program: str
    words: list  # options of every job
    ranks: str  # the option for the number of ranks
    label: list  # options that put a label before each line
    rank_program: str  # tests/support/programs/rank.c, built
    env: dict = dataclasses.field(default_factory=dict)
    unknown_host: list = None  # options that name a host which does not exist; None: it has none
    mpi_abort: str = None  # a program that calls MPI_Abort(77) on rank 1, for this launcher's MPI; None: it has none

    def command(self, n, *words):
        return [*self.words, self.ranks, str(n), *words]


@dataclasses.dataclass
class Seen:
    status: int = None  # as a shell has it; None: it ran on
    died: bool = False  # of a signal; a shell then stops a script, too
    after_s: float = None  # from what happened to the launcher's end, or the ranks'; None: of no interest
    headline: str = None  # what matters instead of the status
    notes: list = dataclasses.field(default_factory=list)
    output: str = ""


class Trial:
    """A job of n ranks that are up and wait. Each says its pid first; `words` are what it does before it waits."""

    def __init__(self, launcher, words, n=2, **kw):
        self.folder = tempfile.TemporaryDirectory(prefix="behaviour-")  # launchers leave things in TMPDIR
        self.output = tempfile.TemporaryFile()
        self.job = Job(*launcher.command(n, *words), launcher=launcher.program, stdout=self.output, stderr=self.output,
                       env={**launcher.env, "TMPDIR": self.folder.name}, start_new_session=True, preexec_fn=no_core, **kw)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.__exit__()
        self.output.close()
        self.folder.cleanup()

    def text(self):
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), size, 0).decode(errors="replace")

    def await_end(self, begin, limit_s=LIMIT_S):
        fd = os.pidfd_open(self.job.process.pid)
        ended = select.select([fd], [], [], max(0, begin + limit_s - time.monotonic()))[0]
        after_s = time.monotonic() - begin
        os.close(fd)
        if not ended:
            return Seen(output=self.text())
        code = self.job.process.wait()
        return Seen(code if code >= 0 else 128 - code, code < 0, after_s, output=self.text())

    def hear_all(self):
        """What the ranks told up to now."""
        lines = []
        with contextlib.suppress(AssertionError):
            while True:
                lines += self.job.hear(1, 0)
        return lines


@contextlib.contextmanager
def ranks_up(launcher, *words, n=2):
    """A trial whose ranks wait: `pids` by rank, and `daemons` by rank, the pids of what they have started."""
    with Trial(launcher, [launcher.rank_program, "pid", *words, "tell", "up", "wait"], n) as trial:
        trial.pids, trial.daemons = {}, {}
        for _ in range(n * (2 + words.count("daemon"))):
            try:
                rank, what, *number = trial.job.hear(1, START_LIMIT_S)[0].split()
            except AssertionError as error:
                raise AssertionError(f"{launcher.name}: {error}; it wrote:\n{trial.text()}") from None
            if what == "pid":
                trial.pids[int(rank)] = int(number[0])
            elif what == "daemon":
                trial.daemons[int(rank)] = int(number[0])
        yield trial


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def is_gone(pid):
    """A dead one that nobody has reaped is gone, too."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def are_gone(pids, limit_s):
    with contextlib.suppress(AssertionError):
        await_true(lambda: all(map(is_gone, pids)), deadline_s=limit_s)
        return True
    return False


def send(pid, sig):
    """Now; returns when."""
    begin = time.monotonic()
    with contextlib.suppress(ProcessLookupError):  # the launcher was faster
        os.kill(pid, sig)
    return begin


EXITS_3 = "only", "1", "on", "10", "3", "end"  # rank 1, at SIGUSR1


def rank_exits_3(launcher):
    with ranks_up(launcher, *EXITS_3) as trial:
        return trial.await_end(send(trial.pids[1], signal.SIGUSR1))


def rank_crashes(launcher):
    with ranks_up(launcher) as trial:
        return trial.await_end(send(trial.pids[1], signal.SIGSEGV))


def rank_is_killed(launcher):
    with ranks_up(launcher) as trial:
        return trial.await_end(send(trial.pids[1], signal.SIGKILL))


def both_fail(launcher):
    """Rank 1 ends by itself in any case, after rank 0."""
    with ranks_up(launcher, "only", "0", "on", "10", "3", "end", "only", "1", "ignore", "15", "on", "10", "5", "end") as trial:
        begin = send(trial.pids[0], signal.SIGUSR1)
        await_true(lambda: is_gone(trial.pids[0]))
        send(trial.pids[1], signal.SIGUSR1)
        return trial.await_end(begin)


def told_to_stop(launcher, sig):
    with ranks_up(launcher, "note", str(int(signal.SIGCONT)), "on", "15", "0", "on", "2", "0") as trial:
        seen = trial.await_end(send(trial.job.process.pid, sig))
        got = dict.fromkeys(signal.Signals(int(line.split()[2])).name for line in trial.hear_all())
        nothing = "nothing" if seen.status is None else "SIGKILL"  # they wait for ever, and have a word for all others
        seen.notes.append(f"ranks got {', '.join(got) or nothing}")
        return seen


def launcher_gets_sigterm(launcher):
    return told_to_stop(launcher, signal.SIGTERM)


def launcher_gets_sigint(launcher):
    return told_to_stop(launcher, signal.SIGINT)


def launcher_is_killed(launcher):
    with ranks_up(launcher) as trial:
        begin = send(trial.job.process.pid, signal.SIGKILL)
        gone = are_gone(trial.pids.values(), LIMIT_S)
        if not gone:
            return Seen(headline="**ranks live on**")
        return Seen(headline="ranks are gone", after_s=time.monotonic() - begin)


def daemon_of_a_rank(launcher):
    """Each rank has started a process in a session of its own; then rank 1 is killed. If the job runs on, only that rank's
    daemon has nothing left to do."""
    with ranks_up(launcher, "daemon") as trial:
        seen = trial.await_end(send(trial.pids[1], signal.SIGKILL), GRACE_LIMIT_S)
        idle = [trial.daemons[1]] if seen.status is None else trial.daemons.values()
        seen.notes.append("daemons are gone" if are_gone(idle, 2) else "daemons live on")
        return seen


def rank_ignores_sigterm(launcher):
    with ranks_up(launcher, "only", "0", "ignore", "15", "end") as trial:
        begin = send(trial.pids[1], signal.SIGKILL)
        gone = are_gone([trial.pids[0]], GRACE_LIMIT_S)
        after_s = time.monotonic() - begin
        seen = trial.await_end(time.monotonic())
        seen.after_s = after_s
        seen.notes.append("it is killed" if gone else "it lives on")
        return seen


def program_is_missing(launcher):
    begin = time.monotonic()
    with Trial(launcher, ["/nowhere/program"]) as trial:
        seen = trial.await_end(begin, START_LIMIT_S)
        n_lines = len(seen.output.splitlines())
        seen.notes.append(f"{n_lines} line{'s' * (n_lines != 1)}")
        return seen


def input_of_three_ranks(launcher):
    with Trial(launcher, [launcher.rank_program, "stdin"], n=3, stdin=subprocess.PIPE) as trial:
        trial.job.process.stdin.write(b"x" * STDIN_BYTES)
        trial.job.process.stdin.close()
        read = {}
        with contextlib.suppress(AssertionError):
            for _ in range(3):
                rank, _, n = trial.job.hear(1, START_LIMIT_S if not read else LIMIT_S)[0].split()
                read[int(rank)] = int(n)
        seen = trial.await_end(time.monotonic())
        seen.after_s = None
        words = {STDIN_BYTES: "all", 0: "nothing", None: "waits"}
        seen.notes.append(", ".join(f"{rank}: {words.get(read.get(rank), 'a part')}" for rank in range(3)))
        return seen


def half_a_line(launcher):
    """Rank 0 writes half a line; rank 1 a whole one; rank 0 the rest."""
    words = ["only", "0", "put", "first-", "await", "10", "say", "half", "exit", "0", "end", "await", "10", "say", "second"]
    with Trial(launcher, [*launcher.label, launcher.rank_program, "pid", *words]) as trial:
        lines = [line.split() for _ in range(4) for line in trial.job.hear(1, START_LIMIT_S)]
        pids = {int(rank): int(rest[0]) for rank, what, *rest in lines if what == "pid"}
        send(pids[1], signal.SIGUSR1)
        with contextlib.suppress(AssertionError):  # some show it only at the end
            await_true(lambda: "second" in trial.text(), deadline_s=2)
        seen = trial.await_end(send(pids[0], signal.SIGUSR1))
        seen.after_s = None
        whole = [line for line in seen.output.splitlines() if line.endswith("first-half")]
        alone = [line for line in seen.output.splitlines() if "second" in line and "first-" not in line]
        seen.notes.append("lines are whole" if whole and alone else "lines are torn")
        return seen


def host_is_unknown(launcher):
    if launcher.unknown_host is None:
        return "starts nothing on other hosts"
    begin = time.monotonic()
    with Trial(launcher, [*launcher.unknown_host, launcher.rank_program]) as trial:
        return trial.await_end(begin, 2 * LIMIT_S)


def rank_calls_mpi_abort(launcher):
    if launcher.mpi_abort is None:
        return "starts no MPI programs"
    begin = time.monotonic()
    with Trial(launcher, [launcher.mpi_abort]) as trial:
        return trial.await_end(begin, 2 * LIMIT_S)


# A function that takes a Launcher, returns a Seen, or a text: why this launcher has no such case.
ROWS = {
    "a rank exits with 3": rank_exits_3,
    "SIGSEGV in a rank": rank_crashes,
    "kill -9 of a rank": rank_is_killed,
    "both fail, 3, then 5": both_fail,
    "SIGTERM to the launcher": launcher_gets_sigterm,
    "SIGINT to the launcher": launcher_gets_sigint,
    "kill -9 of the launcher": launcher_is_killed,
    "daemons of the ranks after kill -9 of a rank": daemon_of_a_rank,
    "a rank ignores SIGTERM after kill -9 of the other": rank_ignores_sigterm,
    "no such program": program_is_missing,
    "standard input of three ranks": input_of_three_ranks,
    "half a line, then one of the other rank": half_a_line,
    "unknown host": host_is_unknown,
    "MPI_Abort(77)": rank_calls_mpi_abort,
}
