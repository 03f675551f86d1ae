"""How jobs end: the engine, and what can happen to the ranks of a job, the same for every launcher. one_node/exit_status.py has the
cases and what ddprun is to do in each; bench/failures.py shows the rows for ddprun and others.

A job that has not ended by its limit is reported as such and ended.
"""
import contextlib
import dataclasses
import os
import resource
import select
import signal
import socket
import subprocess
import tempfile
import time

from harness import DDPRUN, DEADLINE_S, Job, await_true, describe, is_gone
from ports import free_port

LIMIT_S = 10 if DDPRUN is None else DEADLINE_S  # a launcher that has not ended by then runs on; in a test, none does
GRACE_LIMIT_S = 45  # the longest known time between SIGTERM and SIGKILL is 30 s
START_LIMIT_S = 60
STDIN_BYTES = 10

resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # ranks die of all signals


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
    called: str = None  # the name by which it is started, if it is not its own

    def command(self, n, *words):
        return [*self.words, self.ranks, str(n), *words]

    def start(self, words, n, env, **kw):
        """A job of n ranks. -> its launchers"""
        return [Job(*self.command(n, *words), launcher=self.program, name=self.called, env={**self.env, **env}, **kw)]


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@dataclasses.dataclass
class TwoNodes(Launcher):
    """Two ddpruns of one job, each with half of the ranks. The reports of all ranks arrive at the first, which has the
    roster: the second starts when the endpoint listens."""

    def start(self, words, n, env, **kw):
        port = free_port()
        meet = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "endings"]
        env = {**self.env, "HOME": "/nonexistent", "DDP_TOKEN": "", **env}
        jobs = []
        for node in range(2):
            shared = {"TEST_FIFO": jobs[0].fifo} if jobs else {}
            command = self.command(n // 2, *meet, "--node-rank", str(node), *words)
            jobs.append(Job(*command, launcher=self.program, env={**env, **shared}, **kw))
            await_true(lambda: jobs[0].process.poll() is not None or answers(port))
        return jobs


@dataclasses.dataclass
class Seen:
    status: int = None  # as a shell has it; None: it ran on, or the launchers of a job end in different ways
    died: bool = False  # of a signal; a shell then also stops a script
    after_s: float = None  # from what happened to the last launcher's end, or the ranks'; None: of no interest
    headline: str = None  # what matters instead of the status
    notes: list = dataclasses.field(default_factory=list)
    output: str = ""
    left: list = dataclasses.field(default_factory=list)  # processes and files of the job, when its launchers had ended
    codes: tuple = ()  # how each launcher ended, as subprocess has it
    pids: dict = dataclasses.field(default_factory=dict)  # of the ranks that reported them


class Trial:
    """A job of n ranks under way. `words` are what follows the number of ranks."""

    def __init__(self, launcher, words, n=2, **kw):
        self.folder = tempfile.TemporaryDirectory(prefix="endings-")  # launchers leave things in TMPDIR
        self.output = tempfile.TemporaryFile()
        self.jobs = launcher.start(words, n, {"TMPDIR": self.folder.name}, stdout=self.output, stderr=self.output,
                                   start_new_session=True, **kw)
        self.job = self.jobs[0]
        self.pids, self.daemons = {}, {}  # by rank; the daemons that the ranks have started

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for job in self.jobs:
            job.__exit__()
        self.output.close()
        self.folder.cleanup()

    def text(self):
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), size, 0).decode(errors="replace")

    def await_end(self, begin, limit_s=LIMIT_S):
        for job in self.jobs:
            if job.process.returncode is not None:
                continue
            fd = os.pidfd_open(job.process.pid)
            ended = select.select([fd], [], [], max(0, begin + limit_s - time.monotonic()))[0]
            os.close(fd)
            if not ended:
                return Seen(output=self.text())
        after_s = time.monotonic() - begin
        codes = tuple(job.process.wait() for job in self.jobs)
        status, died = (codes[0] if codes[0] >= 0 else 128 - codes[0], codes[0] < 0) if len(set(codes)) == 1 else (None, False)
        return Seen(status, died, after_s, output=self.text(), left=self.find_left(), codes=codes, pids=self.pids)

    def find_left(self):
        processes = [describe(pid) for job in self.jobs for pid in job.processes()]
        return processes + [name for job in self.jobs for name in os.listdir(job.runtime)]

    def hear_pids(self, n_lines):
        """So many lines, in which ranks report their pids, those of their daemons, and that they are up."""
        for _ in range(n_lines):
            rank, what, *number = self.job.hear(1, START_LIMIT_S)[0].split()
            if what == "pid":
                self.pids[int(rank)] = int(number[0])
            elif what == "daemon":
                self.daemons[int(rank)] = int(number[0])

    def hear_all(self):
        """What the ranks have reported so far."""
        lines = []
        with contextlib.suppress(AssertionError):
            while True:
                lines += self.job.hear(1, 0)
        return lines


@contextlib.contextmanager
def ranks_up(launcher, *words, n=2):
    """A trial whose ranks wait; its `pids` and `daemons` are known. `words` are what the ranks do before they wait."""
    with Trial(launcher, [launcher.rank_program, "pid", *words, "tell", "up", "wait"], n) as trial:
        try:
            trial.hear_pids(n * (2 + words.count("daemon")))
        except AssertionError as error:
            raise AssertionError(f"{launcher.name}: {error}; it wrote:\n{trial.text()}") from None
        yield trial


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
    """Rank 1 ends by itself once the launcher, which knows of rank 0's end, has sent it SIGTERM."""
    with ranks_up(launcher, "only", "0", "on", "10", "3", "end", "only", "1", "note", "15", "on", "10", "5", "end") as trial:
        begin = send(trial.pids[0], signal.SIGUSR1)
        await_true(lambda: is_gone(trial.pids[0]))
        with contextlib.suppress(AssertionError):  # a launcher may send no SIGTERM
            trial.job.hear(2, LIMIT_S)  # "0 got 10", "1 got 15"
        send(trial.pids[1], signal.SIGUSR1)
        return trial.await_end(begin, 2 * LIMIT_S)


def launcher_gets(launcher, sig):
    with ranks_up(launcher, "note", str(int(signal.SIGCONT)), "on", "15", "0", "on", "2", "0") as trial:
        seen = trial.await_end(send(trial.job.process.pid, sig))
        got = dict.fromkeys(signal.Signals(int(line.split()[2])).name for line in trial.hear_all())
        nothing = "nothing" if seen.status is None else "SIGKILL"  # they report every other signal, and wait forever
        seen.notes.append(f"ranks got {', '.join(got) or nothing}")
        return seen


def launcher_gets_sigterm(launcher):
    return launcher_gets(launcher, signal.SIGTERM)


def launcher_gets_sigint(launcher):
    return launcher_gets(launcher, signal.SIGINT)


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


# --- Cases: rows with what ddprun is to do, and jobs whose ranks follow commands ---


@dataclasses.dataclass(frozen=True)
class Case:
    status: object  # of each launcher, as subprocess has it: negative, it dies of that signal; a tuple if they end differently
    words: tuple = ()  # what each rank does, in the language of rank.c
    steps: tuple = ()  # what is done from outside, and what the ranks are to report: functions of a trial
    n: int = 2  # ranks
    options: tuple = ()  # of ddprun
    program: str = None  # instead of rank.c
    says: tuple = ()  # texts that ddprun or a rank writes; a function gives it for what was Seen
    row: object = None  # a row, instead of all that
    notes: tuple = ()  # of the row


def hear(*lines):
    """All ranks together report this next."""
    def step(trial):
        heard = trial.job.hear(len(lines), DEADLINE_S)
        if heard != sorted(lines):
            raise AssertionError(f"expected {sorted(lines)}, heard {heard}")
    return step


def both(*texts):
    """Each of two ranks reports this next."""
    return hear(*(f"{rank} {text}" for rank in range(2) for text in texts))


def sends(sig):
    """The launcher gets a signal."""
    return lambda trial: trial.job.signal(sig)


def sends_until_end(sig):
    """Again and again: two that come at once are one."""
    return lambda trial: await_true(lambda: trial.job.process.poll() is not None or trial.job.signal(sig))


def rank_gets(rank, sig):
    """A rank that has reported its pid gets a signal."""
    return lambda trial: os.kill(trial.pids[rank], sig)


def kills(part, node=0):
    """SIGKILL to "ddprun" or "spawner" of a node; until nothing of that node is left."""
    def step(trial):
        job = trial.jobs[node]
        send(job.process.pid if part == "ddprun" else job.spawner(), signal.SIGKILL)
        job.await_gone()
    return step


def know_pids(n_lines):
    return lambda trial: trial.hear_pids(n_lines)


def await_processes(n):
    """Until the job has so many, its ddpruns and spawners included."""
    return lambda trial: await_true(lambda: sum(len(job.processes()) for job in trial.jobs) == n)


def play(launcher, case):
    if case.row is not None:
        return case.row(launcher)
    with Trial(launcher, [*case.options, case.program or launcher.rank_program, *case.words], case.n) as trial:
        try:
            for step in case.steps:
                step(trial)
            return trial.await_end(time.monotonic(), DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it wrote:\n{trial.text()}") from None
