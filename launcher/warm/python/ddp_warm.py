"""The parent of a --warm job's ranks: imports what they import, and is forked from. docs/design/warm.md has the
reasons.

All of this happens while Python imports sitecustomize. In a preforked process that has become a rank it returns, and
the interpreter continues with the script by itself, as it would have without us.
"""
import array
import atexit
import ctypes
import fcntl
import gc
import importlib
import io
import mmap
import os
import posix
import select
import socket
import struct
import sys
import time

from ddp_warm_look import (find_children, find_device, find_own_folder, get_umask, is_for_installed, is_root, kept, names_in,
                           other_threads, predict, read_file, read_words)

ORDERS_FD, NOTES_FD, WISH_FD = 3, 4, 5  # as the spawner gives them
N_RANK_FDS, NO_FD = 9, 255  # launcher/spawner/spawn.h, launcher/spawner/spawner_wire.h
ORDER = struct.Struct("=iI9s3x")  # struct prefork_order
WORD = struct.Struct("=Iii")  # struct prefork_word
IMAGE_HEAD, IMAGE_WORKER = struct.Struct("@NN"), struct.Struct("@NNNN")  # launcher/spawner/image.c
PROMISE, SEED, TAKEN = 1, 2, 3
PR_SET_PDEATHSIG, SIGKILL = 1, 9
AT_ONCE = 8  # SPAWN_AT_ONCE
CPU_SET_WORDS = 128  # launcher/placement/placement.h
LOOK_S, LOOK_MOST_S = 0.1, 1.0  # between two looks at what the ranks have imported
SETTLE_S = 0.3  # they have not imported anything for so long
TAKEN_LINE = "+"  # among the names of modules: a preforked process has become a rank
ADOPTED_S = 10  # a preforked process waits so long for the spawner to become its parent
SEEN_MOST = 4 << 20  # bytes of names; more are not read
LEFT_OUT_MOST = 8  # modules; each costs all imports again


class NotWarm(Exception):
    """Why this job's ranks are started plain."""


def begin(role, archive, seen, rest, hide, learn):
    archive, seen, rest = archive, os.fsdecode(seen), rest.decode()
    if role == b"probe":  # the following words are those of a rank, and this has proven that we are loaded
        env = dict(os.environb)
        enter(env, archive, "parent", seen, rest)
        words = read_words()  # ... -u -c GUARD WORD...; what stands before -u is what a script in Python's place puts there
        os.execve(sys.executable, words[:-len(sys.argv) - 2] + sys.argv[2:], env)
    parent = Parent()
    try:
        parent.begin(archive, seen, rest, hide, learn)
        parent.live()  # returns in a rank
    except BaseException as error:  # whatever it is: this must never continue and run the script
        if parent.is_rank:
            raise
        reason = error if isinstance(error, NotWarm) else f"the fork parent failed: {type(error).__name__}: {error}"
        parent.note(f"not available, starting ranks normally: {reason}")
        os._exit(0)


class Watched(dict):
    """The environment of the parent, which has no rank's variables in it: code that reads one would get a wrong
    answer."""
    hidden = frozenset()
    asked = ""

    def __missing__(self, name):
        if name in self.hidden:
            self.asked = name.decode()
        raise KeyError(name)


class Parent:
    is_rank = False
    callbacks = NOTES_FD

    def begin(self, archive, seen, rest, hide, learn):
        n_prefork, at_start, n_words, hidden, left_out = rest.split(":")
        self.archive, self.seen, self.hide, self.learn = archive, seen, hide, learn
        self.n_prefork, self.at_start = int(n_prefork), at_start == "start"
        self.left_out = [name for name in left_out.split(",") if name]
        self.n_first_words = int(n_words) - (len(sys.argv) - 1)  # of a rank's command line; the rest goes to sys.argv
        self.rest = f"{n_prefork}:{at_start}:{n_words}:{hidden}"
        self.spawner = os.getppid()
        self.prctl = ctypes.CDLL(None).prctl
        self.all_words = read_words()
        self.words = self.all_words[-int(n_words):]  # as ddprun passed them: a script in Python's place may add to them
        self.n_seen = 0
        self.known = set()
        if sys.version_info < (3, 8):
            raise NotWarm(f"Python {sys.version_info[0]}.{sys.version_info[1]} is too old: expected 3.8 or later")
        self.take_fds()
        self.boot_env = dict(os.environb)
        self.watch_env(frozenset(hidden.encode().split(b",")))
        self.boot_modules = set(sys.modules)
        self.roots = [path for path in sys.path if is_root(path)]
        own_folders = [find_own_folder(self.words), *(path for path in sys.path if path not in self.roots)]
        self.own = set().union(*map(names_in, own_folders))
        self.cwd, self.umask = os.getcwd(), get_umask()

    def take_fds(self):
        """Ours out of the way: what lies below 9 in a rank is the rank's, and what an import opens must lie above."""
        null = lift(os.open("/dev/null", os.O_RDWR))
        orders = fcntl.fcntl(ORDERS_FD, fcntl.F_DUPFD_CLOEXEC, 64)
        self.callbacks = fcntl.fcntl(NOTES_FD, fcntl.F_DUPFD_CLOEXEC, 64)
        self.wish = fcntl.fcntl(WISH_FD, fcntl.F_DUPFD_CLOEXEC, 64)
        os.close(WISH_FD)
        written = lift(os.memfd_create("written"))
        for number in range(N_RANK_FDS):
            os.dup2(written if number in (1, 2) else null, number)
        for fd in null, written:
            os.close(fd)
        self.orders = socket.socket(fileno=orders)

    def watch_env(self, hidden):
        self.watched = Watched(os.environ._data)
        self.watched.hidden = hidden
        os.environ._data = os.environb._data = self.watched

    def note(self, text):
        try:
            os.write(self.callbacks, text.replace("\n", " ").encode(errors="replace")[:400] + b"\n")
        except OSError:
            pass  # the reader is gone

    def live(self):
        """Import what the ranks import, and have preforked processes ready. Returns in a rank."""
        if self.at_start:
            self.load(predict(self.words))
            self.fork_prefork()
        wait_s, n_bytes, has_prefork, waiting = LOOK_S, 0, self.at_start, []
        while not self.is_rank:
            if self.is_asked(wait_s):
                self.fork_prefork()
                continue
            n_before, n_bytes = n_bytes, os.stat(self.seen).st_size
            if n_bytes != n_before:
                wait_s = SETTLE_S  # they are at it: this must not take a CPU from them
                continue
            waiting += self.read_seen()
            if not waiting:
                wait_s = min(wait_s * 1.5, LOOK_MOST_S)
                continue
            new = self.load(waiting)
            if new or TAKEN_LINE in waiting or not has_prefork:
                self.fork_prefork()
                has_prefork = True
            wait_s, waiting = LOOK_S, []

    def is_asked(self, wait_s):
        """Wait so long, or until the spawner has used up all preforked processes and needs others: whatever else needs
        the CPU, the ranks that would be forked are waited for."""
        if not select.select([self.wish], [], [], wait_s)[0]:
            return False
        os.read(self.wish, 8)
        return True

    def read_seen(self):
        with open(self.seen, "rb") as f:
            f.seek(self.n_seen)
            text = f.read(SEEN_MOST - self.n_seen)
        text = text[:text.rfind(b"\n") + 1]
        self.n_seen += len(text)
        return list(dict.fromkeys(text.decode(errors="replace").split()))

    # --- Importing ---

    def load(self, names):
        """Returns how many of these modules are new."""
        n_before = len(sys.modules)
        names = [name for name in names if name not in self.known and name != TAKEN_LINE]
        self.known.update(names)
        with kept(sys.path, lambda path: path in self.roots), kept(sys.meta_path, is_for_installed):
            gc.callbacks.append(freeze)
            for name in names:
                if self.may_load(name):
                    self.load_one(name)
            if freeze in gc.callbacks:
                gc.callbacks.remove(freeze)
        hidden = sorted({name.partition(".")[0] for name in set(sys.modules) - self.boot_modules} & self.own)
        if hidden:
            raise NotWarm(f"the script's directory or PYTHONPATH has its own module '{hidden[0]}'")
        return len(sys.modules) - n_before

    def may_load(self, name):
        package, _, last = name.partition(".")
        return (name not in sys.modules and all(part.isidentifier() for part in name.split("."))
                and not last.endswith("__main__") and package not in self.own
                and not any(name == left or name.startswith(left + ".") for left in self.left_out)
                and not (self.words[2] == "-m" and name == self.words[3]) and package not in ("sitecustomize", "usercustomize"))

    def load_one(self, name):
        try:
            importlib.import_module(name)
        except BaseException:  # the package's own error: the rank has hit the same, and still reached this point
            pass
        trouble = self.find_trouble()
        if trouble:
            self.leave_out(name, trouble)

    def find_trouble(self):
        """What a rank would have done itself, and has not, or what cannot be forked."""
        if self.watched.asked:
            return f"reads {self.watched.asked} while it is imported"
        if os.fstat(1).st_size > 0:
            return "writes something while it is imported"
        if os.getcwd() != self.cwd or os.umask(self.umask) != self.umask:
            return "changes the directory or the umask"
        if other_threads():
            return f"starts a thread, '{read_file(f'/proc/self/task/{other_threads()[0]}/comm').strip()}'"
        if find_children():
            return "starts a process"
        device = find_device()
        return f"opens {device}" if device else None

    def leave_out(self, name, trouble):
        """What is done cannot be undone: begin again, without it."""
        self.note(f"not preloading '{name}', each rank imports it: it {trouble}")
        if len(self.left_out) >= LEFT_OUT_MOST:
            raise NotWarm(f"more than {LEFT_OUT_MOST} modules cannot be preloaded")
        for pid in find_children():
            os.kill(pid, SIGKILL)
            os.waitpid(pid, 0)
        env = dict(self.boot_env)
        enter(env, self.archive, "parent", self.seen, f"{self.rest}:{','.join([*self.left_out, name])}")
        os.dup2(self.orders.fileno(), ORDERS_FD)
        os.dup2(self.callbacks, NOTES_FD)
        os.dup2(self.wish, WISH_FD)
        os.execve(sys.executable, self.all_words, env)

    # --- Forking ---

    def say(self, what, pid, value):
        self.orders.send(WORD.pack(what, pid, value))

    def fork_prefork(self):
        version = int(time.monotonic() * 1000) & 0x7fffffff
        n = len(set(sys.modules) - self.boot_modules)
        gc.freeze()  # a collection would write to all of it, and so copy it
        self.say(PROMISE, self.n_prefork, version)
        between = []
        for _ in range(self.n_prefork):
            pid = os.fork()
            if pid == 0:
                self.be_between(version)
                return
            between.append(pid)
        for pid in between:
            os.waitpid(pid, 0)
        self.note(f"{self.n_prefork} processes with {n} imported modules are ready to become ranks; "
                  f"the pid of the fork parent is {os.getpid()}")

    def be_between(self, version):
        """The process in between ends at once, so that the spawner becomes the parent of the preforked process. The
        spawner is notified before."""
        pid = os.fork()
        if pid > 0:
            self.say(SEED, pid, version)
            os._exit(0)
        end = time.monotonic() + ADOPTED_S
        while os.getppid() != self.spawner:
            if time.monotonic() > end:
                os._exit(70)
            time.sleep(0.0005)
        self.prctl(PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != self.spawner:  # it died before the line above: nothing will kill us
            os._exit(70)
        self.become_rank(*self.receive())

    def receive(self):
        numbers = array.array("i")
        data, rights, _, _ = self.orders.recvmsg(64, socket.CMSG_SPACE((1 + N_RANK_FDS) * 4), socket.MSG_CMSG_CLOEXEC)
        for _, _, some in rights:
            numbers.frombytes(some[:len(some) - len(some) % 4])
        if len(data) != ORDER.size or not numbers:
            os._exit(70)  # the spawner has gone
        return ORDER.unpack(data), list(numbers)

    def become_rank(self, order, fds):
        local_rank, index, fd_of = order
        argv, env, cpus = read_image(fds[0], index)
        os.setsid()
        if cpus:
            os.sched_setaffinity(0, cpus)
        for number, at in enumerate(fd_of[:N_RANK_FDS]):
            if at == NO_FD:
                os.close(number)
            else:
                os.dup2(fds[at], number)
        for fd in fds:
            os.close(fd)
        role_and_seen = self.hide(env)
        self.take_env(env)
        n_arguments = len(sys.argv) - 1
        sys.argv[1:] = argv[self.n_first_words:]
        if hasattr(sys, "orig_argv"):
            sys.orig_argv[len(self.all_words) - n_arguments:] = sys.argv[1:]
        renew_stdio()
        renew_state()
        atexit.register(gc.unfreeze)  # what only a last collection takes apart shall be taken apart
        self.say(TAKEN, os.getpid(), local_rank)
        self.is_rank = True
        self.orders.close()
        os.close(self.callbacks)
        os.close(self.wish)
        self.learn(role_and_seen.split(b":")[1], TAKEN_LINE)

    def take_env(self, env):
        """The rank's own variables that the parent lacks, and everything else from the parent: a script that runs
        instead of Python, or an import, may have changed it."""
        now = dict(self.watched)
        os.environ._data = os.environb._data = dict(now)
        os.environ.clear()
        for name, value in env.items():
            if name in self.watched.hidden:
                os.environb[name] = value
            elif name in now:
                os.environb[name] = now.pop(name)
        os.environb.update(now)
        posix.environ.clear()
        posix.environ.update(os.environb)


# --- What a process has for itself alone ---

def freeze(phase, _):
    """A callback for gc.callbacks: a collection that is about to begin finds nothing. Collections take a quarter of the
    time of PyTorch's imports, for megabytes that are shared; imports would notice if collections were off, and may turn
    them off themselves."""
    if phase == "start":
        gc.freeze()



def enter(env, archive, role, seen, rest):
    """Let a Python with this environment begin with us."""
    own = env.get(b"PYTHONPATH")
    env[b"PYTHONPATH"] = os.fsencode(archive) + (b":" + own if own is not None else b"")
    env[b"DDP_WARM"] = b":".join([role.encode(), os.fsencode(seen), rest.encode()])


def lift(fd):
    """Above those of a rank."""
    lifted = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)
    os.close(fd)
    return lifted


def read_image(fd, index):
    """(argv, environment, CPUs or []) of one worker: launcher/spawner/image.c."""
    with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as image:
        n_slots, _ = IMAGE_HEAD.unpack_from(image, 0)
        _, argv_slot, env_slot, cpus_at = IMAGE_WORKER.unpack_from(image, IMAGE_HEAD.size + index * IMAGE_WORKER.size)
        slots = struct.unpack_from(f"@{n_slots}N", image, IMAGE_HEAD.size + AT_ONCE * IMAGE_WORKER.size)

        def read_list(slot):
            words = []
            while slots[slot] != 0:
                words.append(image[slots[slot]:image.find(b"\0", slots[slot])])
                slot += 1
            return words

        env = {}
        for variable in read_list(env_slot):
            name, _, value = variable.partition(b"=")
            env.setdefault(name, value)
        cpus = struct.unpack_from(f"@{CPU_SET_WORDS}Q", image, cpus_at) if cpus_at != 0 else ()
        return ([os.fsdecode(word) for word in read_list(argv_slot)], env,
                [64 * i + bit for i, word in enumerate(cpus) for bit in range(64) if word >> bit & 1])


def renew_stdio():
    """As Python makes them with -u: what 0 to 2 lead to is seen only now. The streams stay the same objects, since
    others may have them already; a file remembers whether it is one, so that has to be a new one."""
    for fd, stream, mode in (0, sys.__stdin__, "rb"), (1, sys.__stdout__, "wb"), (2, sys.__stderr__, "wb"):
        encoding, errors, name = stream.encoding, stream.errors, stream.name
        buffer = io.open(fd, mode, -1 if mode == "rb" else 0, closefd=False)
        (buffer.raw if mode == "rb" else buffer).name = name
        stream.__init__(buffer, encoding, errors, "\n", False, True)
        stream.mode = mode[0]


def renew_state():
    """What is drawn, or read from a clock, when a module is imported."""
    modules = sys.modules
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "torch" in modules:
        modules["torch"].default_generator.seed()
    if "multiprocessing.process" in modules:
        process = modules["multiprocessing.process"]
        process._current_process._config["authkey"] = process.AuthenticationString(os.urandom(32))
    if "logging" in modules:
        logging = modules["logging"]
        logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
