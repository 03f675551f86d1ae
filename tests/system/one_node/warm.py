"""--warm: ranks of a restart are forked. If that is not possible for any reason, the job continues with executed ranks.

Covers: launcher/warm, launcher/spawner, launcher/node
"""
import ctypes
import glob
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from harness import DEADLINE_S, Job, await_true, main, run

# Reports its pid; in each generation but the last rank 1 waits to be killed, and the others for the end.
SCRIPT = """
import json, os, sys
{imports}
def tell(text):
    with open(os.environ["TEST_FIFO"], "a") as f:
        f.write(text + "\\n")
tell(f"{{os.environ['RANK']}} {{os.getpid()}} {{os.environ['TORCHELASTIC_RESTART_COUNT']}}")
if os.environ["TORCHELASTIC_RESTART_COUNT"] != "{last}":
    os.read(os.open({block!r}, os.O_RDONLY), 1)
"""


# Three threads more.
THREADS = """
import threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 17, 0x4206, 0x40
WALL = 0x40000000  # of waitpid(): also threads


class Warm(Job):
    """A job of two ranks whose standard error is read as it comes."""

    def __init__(self, folder, *options, imports="", env=None, words=(), restarts=1):
        self.generation = 0
        self.events = os.path.join(folder, "events")
        self.script = os.path.join(folder, "script.py")
        block = os.path.join(folder, "block")
        os.mkfifo(block)
        self.block_fd = os.open(block, os.O_RDWR | os.O_CLOEXEC)
        with open(self.script, "w", encoding="utf-8") as f:
            f.write(SCRIPT.format(imports=imports, block=block, last=restarts))
        super().__init__("-v", "--events", self.events, "--max-restarts", str(restarts), "-n", "2", *options, *(words or [self.script]),
                         env=env, cwd=folder)

    def __exit__(self, *args):
        os.close(self.block_fd)
        super().__exit__(*args)

    def await_said(self, pattern):
        end = time.monotonic() + DEADLINE_S
        fd = self.process.stderr.fileno()
        while True:
            found = re.search(pattern, self.said.decode())
            if found:
                return found
            ready = select.select([fd], [], [], max(0, end - time.monotonic()))[0]
            text = os.read(fd, 65536) if ready else b""
            if not text:
                raise AssertionError(f"waited in vain for '{pattern}'; it said: {self.said.decode()}")
            self.said += text

    def await_ready(self):
        """(the parent's pid, those of its preforked processes), once there are as many preforked processes as ranks."""
        parent = int(self.await_said(r"are ready to become ranks; the pid of the fork parent is (\d+)")[1])
        ranks = {int(line.split()[1]) for line in self.ranks}
        return parent, [pid for pid in self.pythons() if pid not in ranks | {parent}]

    def pythons(self):
        """Those that were forked from a parent, and it."""
        found = []
        for pid in self.processes():
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if b"DDP_WARM=parent:" in f.read():
                        found.append(pid)
            except OSError:
                pass
        return found

    def begin(self):
        self.ranks = self.hear(2)
        return self

    def fail(self):
        """Rank 1 dies; the pids of the ranks of the next generation."""
        os.kill(int(self.ranks[1].split()[1]), signal.SIGKILL)
        self.ranks = self.hear(2)
        self.generation += 1
        assert [line.split()[2] for line in self.ranks] == [str(self.generation)] * 2, self.ranks

    def ways(self, generation=1):
        """Whether each of its ranks was forked."""
        with open(self.events, encoding="utf-8") as f:
            events = [json.loads(line) for line in f]
        return [e["forked"] for e in events if e["ev"] == "rank_start" and e["gen"] == generation]

    def end_well(self, test):
        code, _, err = self.end()
        self.said += err
        test.assertEqual(code, 0, self.said.decode())
        test.assertEqual(self.processes(), [])
        return self.said.decode()


class HeldThread:
    """A thread that stops when it ends: until it is let go its process cannot be reaped, as if it had much memory to free."""

    def __init__(self, thread):
        self.thread = thread
        self.trace(PTRACE_SEIZE, PTRACE_O_TRACEEXIT)

    def trace(self, request, data):
        libc = ctypes.CDLL(None, use_errno=True)
        arguments = [ctypes.c_long(value) for value in (request, self.thread, 0, data)]
        if libc.ptrace(*arguments) < 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def let_go(self):
        os.waitpid(self.thread, WALL)
        self.trace(PTRACE_DETACH, 0)


def knows_ends_of_threads():
    """Linux 6.9 and later."""
    try:
        os.close(os.pidfd_open(os.getpid(), os.O_EXCL))
        return True
    except OSError:
        return False


def count_watched(spawner):
    links = []
    for fd in os.listdir(f"/proc/{spawner}/fd"):
        try:
            links.append(os.readlink(f"/proc/{spawner}/fd/{fd}"))
        except FileNotFoundError:
            pass  # closed meanwhile
    return sum("pidfd" in link for link in links)


class Restarts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def package(self, name, text):
        """Something that counts as installed."""
        self.installed = os.path.join(self.folder, "site-packages")
        os.makedirs(self.installed, exist_ok=True)
        with open(os.path.join(self.installed, name + ".py"), "w", encoding="utf-8") as f:
            f.write(text)
        return {"PYTHONPATH": self.installed}

    def test_a_rank_of_a_restart_is_forked(self):
        with Warm(self.folder, "--warm", imports="import decimal, xml.dom.minidom").begin() as job:
            job.await_ready()
            job.fail()
            job.end_well(self)
            self.assertEqual(job.ways(), [True, True])

    def test_used_up_seeds_are_requested(self):
        """By itself, the parent forks others when no rank has imported anything for a while: in this test, that never happens."""
        is_over = threading.Event()

        def import_on(path):
            with open(path, "ab", buffering=0) as f:
                while not is_over.wait(0.02):
                    f.write(b"\n")

        with Warm(self.folder, "--warm", restarts=3).begin() as job:
            job.await_ready()
            seen, = glob.glob(os.path.join(job.runtime, "*", "warm.seen"))
            busy = threading.Thread(target=import_on, args=(seen,))
            busy.start()
            try:
                for _ in range(3):
                    job.fail()
            finally:
                is_over.set()
                busy.join()
            job.end_well(self)
            self.assertEqual([job.ways(generation) for generation in (1, 2, 3)], [[True, True]] * 3)

    @unittest.skipUnless(knows_ends_of_threads(), "this kernel does not tell when a thread ends")
    def test_other_ranks_are_stopped_before_a_dead_rank_can_be_reaped(self):
        env = {"CUDA_VISIBLE_DEVICES": ""}  # on a machine with GPUs, dead processes must have released them
        with Warm(self.folder, "--warm", imports=THREADS, env=env).begin() as job:
            job.await_ready()
            alive, dead = (int(line.split()[1]) for line in job.ranks)
            await_true(lambda: count_watched(job.spawner()) == 4, lambda: "two threads of each rank are to be watched")
            try:
                held = HeldThread(int(os.listdir(f"/proc/{dead}/task")[-1]))  # the youngest: not watched
            except PermissionError as error:
                self.skipTest(f"processes may not be traced here: {error.strerror}")
            os.kill(dead, signal.SIGKILL)
            await_true(lambda: not os.path.exists(f"/proc/{alive}"), lambda: "the other rank was not stopped")
            self.assertTrue(os.path.exists(f"/proc/{dead}"))
            held.let_go()
            self.assertEqual([line.split()[2] for line in job.hear(2)], ["1", "1"])
            self.assertIn("rank 1 failed: killed by SIGKILL", job.end_well(self))
            self.assertEqual(job.ways(), [True, True])

    def test_the_first_ranks_are_executed(self):
        with Warm(self.folder, "--warm").begin() as job:
            job.await_ready()
            self.assertEqual(job.ways(0), [False, False])

    def test_the_parent_imports_what_ranks_import_and_nothing_of_the_users(self):
        with open(os.path.join(self.folder, "mine.py"), "w", encoding="utf-8") as f:
            f.write("import os\nwith open(os.path.join(os.path.dirname(__file__), 'by'), 'a') as f:\n    print(os.getpid(), file=f)\n")
        env = self.package("theirs", "import os\nBY = os.getpid()\n")
        with Warm(self.folder, "--warm", imports="import mine, theirs; tell = print", env=env).begin() as job:
            parent, _ = job.await_ready()
            ranks = {int(line.split()[1]) for line in job.ranks}
            job.fail()
            ranks |= {int(line.split()[1]) for line in job.ranks}
            job.end_well(self)
            with open(os.path.join(self.folder, "by"), encoding="utf-8") as f:
                self.assertEqual({int(line) for line in f}, ranks)
            self.assertNotIn(parent, ranks)
            self.assertEqual(job.ways(), [True, True])

    def test_a_killed_parent_does_no_harm(self):
        with Warm(self.folder, "--warm").begin() as job:
            parent, prefork = job.await_ready()
            os.kill(parent, signal.SIGKILL)
            job.await_said("starting ranks normally: the fork parent was killed by signal 9")
            await_true(lambda: not set(prefork) & set(job.processes()))
            job.fail()
            job.end_well(self)
            self.assertEqual(job.ways(), [False, False])

    def test_stalled_seeds_are_killed_and_replaced(self):
        with Warm(self.folder, "--warm").begin() as job:
            _, prefork = job.await_ready()
            self.assertEqual(len(prefork), 2)
            for pid in prefork:
                os.kill(pid, signal.SIGSTOP)
            job.fail()
            said = job.end_well(self)
            self.assertEqual(job.ways(), [False, False])
            self.assertIn("did not answer", said)

    def test_ddprun_does_not_wait_for_a_dead_seed(self):
        with Warm(self.folder, "--warm").begin() as job:
            parent, prefork = job.await_ready()
            os.kill(parent, signal.SIGSTOP)  # no new ones
            os.kill(prefork[0], signal.SIGKILL)
            await_true(lambda: prefork[0] not in job.processes())
            job.fail()
            said = job.end_well(self)
            self.assertEqual(job.ways(), [False, False])
            self.assertIn("starts normally: the fork parent has too few processes ready", said)

    def test_ddprun_does_not_wait_for_a_parent_that_hangs_in_an_import(self):
        env = self.package("endless", "import os, time\nif 'RANK' in dict(os.environ):\n    pass\nelse:\n"
                           "    open(os.environ['TEST_FIFO'], 'a').write('hangs x x\\n')\n    time.sleep(3600)\n")
        with Warm(self.folder, "--warm", imports="import endless", env=env).begin() as job:
            self.assertEqual(job.hear(1), ["hangs x x"])
            job.fail()
            job.end_well(self)
            self.assertEqual(job.ways(), [False, False])

    def left_out(self, text, reason, more_env=None):
        env = {**self.package("strange", text), **(more_env or {})}
        with Warm(self.folder, "--warm", imports="import strange", env=env).begin() as job:
            job.await_said(f"not preloading 'strange', each rank imports it: it {reason}")
            job.await_ready()
            job.fail()
            job.end_well(self)
            self.assertEqual(job.ways(), [True, True])

    def test_a_package_that_asks_for_its_rank_is_left_to_the_ranks(self):
        self.left_out("import os\nFIRST = os.environ.get('RANK') == '0'\n", "reads RANK")

    def test_a_package_that_writes_is_left_to_the_ranks(self):
        self.left_out("print('hello')\n", "writes something")

    def test_a_package_that_starts_a_thread_is_left_to_the_ranks(self):
        self.left_out("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n", "starts a thread")

    def test_a_package_that_starts_a_process_is_left_to_the_ranks(self):
        self.left_out("import subprocess\nP = subprocess.Popen(['sleep', '1000'])\n", "starts a process")

    def test_a_package_that_changes_the_directory_is_left_to_the_ranks(self):
        self.left_out("import os\nos.chdir('/')\n", "changes the directory")

    def test_a_package_that_loads_a_gpus_driver_is_left_to_the_ranks(self):
        driver = os.path.join(self.folder, "libcuda.so.1")  # a stand-in: any library will do
        shutil.copy(subprocess.check_output(["python3", "-c", "import _ctypes; print(_ctypes.__file__)"], text=True).strip(), driver)
        self.left_out("import ctypes\nDRIVER = ctypes.CDLL('libcuda.so.1')\n", "opens libcuda", {"LD_LIBRARY_PATH": self.folder})

    def test_only_the_module_that_does_it_is_left_to_the_ranks(self):
        os.makedirs(os.path.join(self.folder, "site-packages/strange"))
        self.package("strange/__init__", "")
        self.package("strange/part", "print('hello')\n")
        with Warm(self.folder, "--warm", imports="import strange.part", env={"PYTHONPATH": self.installed}).begin() as job:
            job.await_said("not preloading 'strange.part', each rank imports it: it writes")

    def test_a_file_of_the_users_that_hides_an_installed_one_forbids_it(self):
        env = self.package("theirs", "import hidden\n")
        self.package("hidden", "")
        with open(os.path.join(self.folder, "hidden.py"), "w", encoding="utf-8"):
            pass
        with Warm(self.folder, "--warm", imports="import theirs", env=env).begin() as job:
            job.await_said("not available, starting ranks normally: the script's directory or PYTHONPATH has its own module 'hidden'")
            job.fail()
            job.end_well(self)
            self.assertEqual(job.ways(), [False, False])

    def test_leftovers_of_ranks_are_swept_but_not_their_parent(self):
        leave = "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True, stderr=subprocess.DEVNULL)"
        with Warm(self.folder, "--warm", imports=leave).begin() as job:
            parent, _ = job.await_ready()
            before = set(job.processes()) - {parent, job.process.pid, job.spawner()}
            job.fail()
            stayed = before & set(job.processes())
            self.assertLessEqual(stayed, {int(line.split()[1]) for line in job.ranks})  # preforked processes that became ranks; they may have ended
            job.end_well(self)
            self.assertEqual(job.ways(), [True, True])

    def test_nothing_is_left_when_ddprun_is_killed(self):
        with Warm(self.folder, "--warm").begin() as job:
            job.await_ready()
            job.process.kill()
            job.await_gone()

    def test_nothing_is_left_when_the_spawner_is_killed(self):
        with Warm(self.folder, "--warm").begin() as job:
            job.await_ready()
            os.kill(job.spawner(), signal.SIGKILL)
            self.assertEqual(job.end()[0], 70)
            job.await_gone()

    def test_each_rank_has_its_own_arguments(self):
        with open(os.path.join(self.folder, "args.py"), "w", encoding="utf-8") as f:
            f.write("import os, sys\nos.write(1, f'{sys.argv} {sys.orig_argv[2:]}\\n'.encode())\n")
        with Warm(self.folder, "--warm=start", "--local-rank-arg=--local_rank", words=["args.py", "x$local_rank", "$$"]) as job:
            code, out, err = job.end()
        self.assertEqual(job.ways(0), [True, True])
        words = [f"['args.py', '--local_rank={n}', 'x{n}', '$$']" for n in range(2)]
        self.assertEqual((code, sorted(out.decode().splitlines())), (0, [f"{w} {w}" for w in words]), err)


    def test_each_rank_has_its_own_cpus(self):
        path = os.path.join(self.folder, "cpus.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write("import os\nos.write(1, f'{os.environ[\"RANK\"]} {sorted(os.sched_getaffinity(0))}\\n'.encode())\n")
        plain = run("--bind-to", "core", "-n", "2", path)
        if "hwloc" in plain[2]:
            self.skipTest(plain[2])
        warm = run("--bind-to", "core", "-n", "2", "--warm=start", path)
        self.assertEqual((warm[0], sorted(warm[1].splitlines())), (0, sorted(plain[1].splitlines())), warm[2])


class NotPython(unittest.TestCase):
    def test_a_program_is_executed_normally(self):
        for words in ["sh", "-c", "exit 0"], ["--no-python", "true"]:
            code, _, err = run("-v", "--warm=start", "-n", "2", *words)
            self.assertEqual(code, 0)
            self.assertIn("not available, starting ranks normally: ddprun does not start Python for this program", err)

    def test_a_python_that_ignores_the_environment_never_runs_the_script_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            python = os.path.join(folder, "python3")
            with open(python, "w", encoding="utf-8") as f:
                f.write('#!/bin/sh\nexec python3 -E "$@"\n')
            os.chmod(python, 0o755)
            with open(folder + "/s.py", "w", encoding="utf-8") as f:
                f.write("import os\nos.write(1, b'ran as ' + os.environ['RANK'].encode() + b'\\n')\n")
            code, out, err = run("-v", "--warm=start", "-n", "2", folder + "/s.py", env={"PYTHON_EXEC": python})
        self.assertEqual((code, sorted(out.splitlines())), (0, ["ran as 0", "ran as 1"]), err)
        self.assertIn("starting ranks normally: the fork parent exited with status 70", err)

    def test_values_other_than_start_and_restarts_are_refused(self):
        code, _, err = run("--warm=always", "true")
        self.assertEqual((code, "expected one of restarts, start" in err), (2, True), err)


main()
