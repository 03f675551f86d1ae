"""ddprun under a real Slurm of four nodes, on this machine: as srun's task, in a batch script and under salloc, once
for each rank. Runs itself in namespaces of its own, where both nodes' names lead to this machine.

Covers: launcher/hosts, launcher/remote, launcher/placement, launcher/generation, launcher/node
"""
import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from harness import DDPRUN, NAME_MAX, RANK, Job, await_true, describe, main, name_of
from slurm import NoSlurm, Slurm

SHOW = ("sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $SLURMD_NODENAME "
        "$TORCHELASTIC_USE_AGENT_STORE ${PMI_RANK-none} > $TEST_FIFO")
UP = ("tell", "up", "wait")
DDPCTL = os.path.abspath(os.environ["DDPCTL"])
INSIDE = "DDP_TEST_SLURM_INSIDE"
SAMPLES = os.path.join(os.environ["SOURCE_ROOT"], "examples/managers")
MEETER = os.environ["MEETER_PROGRAM"]
MPICH = os.environ.get("MPICH_PROGRAM")
MNIST = os.environ.get("MNIST")
CHECKPOINTER = os.environ["CHECKPOINTER_PROGRAM"]
TORCH_PYTHON = os.environ.get("TORCH_PYTHON")
TIMES = int(os.environ.get("SLURM_TIMES", "1"))  # how often the cases run that may depend on time

# Ranks that ask the store how many keys it has, as PyTorch's clients do; rank 0 stays until all have been answered.
ASK_STORE = """
import os, socket, time
end = time.monotonic() + 60
def until(condition):
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)
def connects():
    global store
    try:
        store = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 10)
    except ConnectionRefusedError:
        return False
    return True
until(connects)
store.sendall(bytes([0x00, 0xce, 0xf7, 0x85, 0x3c, 0x07]))
answer = store.recv(8)
with open(os.environ["TEST_FIFO"], "w") as f:
    print(os.environ["RANK"], "answered" if len(answer) == 8 else answer, os.environ["TORCHELASTIC_RUN_ID"], file=f)
done = os.environ["TEST_FIFO"] + ".done"
open(done + os.environ["RANK"], "w").close()
until(lambda: all(os.path.exists(f"{done}{rank}") for rank in range(int(os.environ["WORLD_SIZE"]))))
"""
TORCH = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(sum)
with open(os.environ["TEST_FIFO"], "w") as f:
    print(f"{dist.get_rank()} of {dist.get_world_size()}, sum {sum.item()}", file=f)
dist.barrier()
dist.destroy_process_group()
"""
slurm = None


def setUpModule():
    global slurm
    try:
        slurm = Slurm(4)
        slurm.__enter__()
    except NoSlurm as e:
        slurm = None
        raise unittest.SkipTest(f"no Slurm: {e}") from e


def tearDownModule():
    if slurm is not None:
        slurm.__exit__()


class Submitted(Job):
    """A program of Slurm's, which starts ddprun."""

    def __init__(self, program, *args, env=None, **kw):
        quiet = ("--quiet",) if program != "sbatch" else ()  # it prints a message when it has to wait
        super().__init__(*quiet, *args, launcher=shutil.which(program), env={**slurm.env, "HOME": "/nonexistent", **(env or {})}, **kw)

    def finish(self):
        code, out, err = self.end()
        await_true(lambda: not self.processes(), lambda: [describe(p) for p in self.processes()])
        return code, out.decode(), err.decode()


def warned(err):
    """Without the line that warns of a missing token."""
    return "".join(line for line in err.splitlines(True) if "can take part in this job" not in line)


class Step(unittest.TestCase):
    def test_srun_starts_a_ddprun_on_each_node(self):
        with Submitted("srun", "-N2", "--ntasks-per-node=1", DDPRUN, "-p", "2", *SHOW) as job:
            code, out, err = job.finish()
            self.assertEqual((code, out, warned(err)), (0, "", ""))
            self.assertEqual(job.hear(4), [
                "0/4 0/2 0/2 n1 True none", "1/4 1/2 0/2 n1 True none", "2/4 0/2 1/2 n2 True none", "3/4 1/2 1/2 n2 True none"])

    def test_on_one_node_ddprun_works_as_usual(self):
        with Submitted("srun", "-N1", "-n1", DDPRUN, "-p", "2", *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual([line.split()[:3] for line in job.hear(2)], [["0/2", "0/2", "0/1"], ["1/2", "1/2", "0/1"]])

    def test_the_step_has_the_status_of_the_failed_rank(self):
        with Submitted("srun", "-N2", "--ntasks-per-node=1", DDPRUN, RANK, "only", "1", "exit", "7", "end", "wait") as job:
            code, _, err = job.finish()
            self.assertEqual(code, 7)
            self.assertIn("rank 1", err)

    def test_usr1_goes_to_the_ranks(self):
        usr1 = str(int(signal.SIGUSR1))
        with Submitted("srun", "-N2", "--ntasks-per-node=1", DDPRUN, RANK, "await", usr1, "tell", "heard") as job:
            self.assertEqual(job.hear(2), [f"0 awaits {usr1}", f"1 awaits {usr1}"])
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(2), ["0 heard", "1 heard"])
            code, _, err = job.finish()
            self.assertEqual((code, warned(err)), (0, ""))


class Check(unittest.TestCase):
    def test_ddpctl_finds_the_nodes_of_the_allocation(self):
        path = os.path.dirname(os.path.abspath(DDPRUN)) + ":" + os.environ["PATH"]
        with Submitted("salloc", "-N2", "--ntasks-per-node=1", DDPCTL, "check", "--json", "--net", "-t", "60", env={"PATH": path}) as job:
            _, out, err = job.finish()
            self.assertEqual(err, "")
            report = json.loads(out)
            self.assertEqual([(n["node"], n["up"], n["facts"]["version"] != "") for n in report["nodes"]], [("n1", True, True), ("n2", True, True)])
            self.assertEqual([f for f in report["findings"] if f["what"] in ("reach", "version", "clock")], [])


class Tasks(unittest.TestCase):
    def test_each_task_becomes_a_rank(self):
        with Submitted("srun", "-N2", "-n3", DDPRUN, *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual(job.hear(3), [
                "0/3 0/2 0/2 n1 True none", "1/3 1/2 0/2 n1 True none", "2/3 0/1 1/2 n2 True none"])

    def test_libddp_ranks_rendezvous_on_one_node_and_on_several(self):
        for _ in range(TIMES):
            for nodes, tasks in ((1, 2), (2, 4), (2, 3)):
                with Submitted("srun", f"-N{nodes}", f"-n{tasks}", DDPRUN, MEETER) as job:
                    self.assertEqual(job.finish(), (0, "", ""))
                    total = tasks * (tasks - 1) // 2
                    self.assertEqual(job.hear(tasks),
                                     [f"joined {i} of {tasks}, sum {total}, received hello-from-{(i + 1) % tasks}" for i in range(tasks)])

    @unittest.skipIf(MNIST is None, "the examples are not built")
    def test_a_libddp_training_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            for nodes, tasks in (1, 2), (2, 4):
                with Submitted("srun", f"-N{nodes}", f"-n{tasks}", DDPRUN, MNIST, "--device", "cpu", "--data", folder, "--draw", "400", "--epochs", "1") as job:
                    code, out, err = job.finish()
                    self.assertEqual((code, err), (0, ""))
                    self.assertIn(f"{tasks} ranks, ", out)

    @unittest.skipIf(TORCH_PYTHON is None, "no PyTorch is named by TORCH_PYTHON")
    def test_pytorch_ranks_rendezvous(self):
        for nodes, tasks in (1, 2), (2, 4):
            for store in ("agent", "worker"):
                with Submitted("srun", f"-N{nodes}", f"-n{tasks}", DDPRUN, "--store", store, TORCH_PYTHON, "-c", TORCH) as job:
                    code, _, err = job.finish()
                    self.assertEqual(code, 0, err)
                    self.assertEqual(job.hear(tasks), [f"{i} of {tasks}, sum {tasks * (tasks + 1) / 2}" for i in range(tasks)])

    def test_the_store_is_at_master_addr(self):
        for nodes, tasks in (1, 2), (2, 3):
            with Submitted("srun", f"-N{nodes}", f"-n{tasks}", DDPRUN, sys.executable, "-c", ASK_STORE) as job:
                self.assertEqual(job.finish()[::2], (0, ""))
                answers = [line.split() for line in job.hear(tasks)]
                self.assertEqual([a[:2] for a in answers], [[str(i), "answered"] for i in range(tasks)])
                self.assertEqual(len({a[2] for a in answers}), 1, "a run id for each")

    def test_a_taken_port_is_an_error_of_rank_0(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            with Submitted("srun", "-N1", "-n2", "--kill-on-bad-exit=1", DDPRUN, "--master-port", port, RANK, "wait") as job:
                _, _, err = job.finish()  # the status may be that of the other task, which Slurm ends
                self.assertIn("task 0: Exited with exit code 69", err)
                self.assertRegex(err, rf"port {port}: address already in use by python[^ ]* \(pid {os.getpid()}\); "
                                      r"--master-port PORT, the same on all ranks, is for another")

    def test_options_that_need_a_supervisor_cause_a_warning(self):
        with Submitted("srun", "-N1", "-n2", DDPRUN, "--on-term", "5s", "true") as job:
            code, _, err = job.finish()
            self.assertEqual((code, err.count("ddprun: warning: --on-term ignored: Slurm started each rank")), (0, 1), err)

    def test_its_exit_status_is_that_of_the_program(self):
        with Submitted("srun", "-N2", "-n4", "--kill-on-bad-exit=1", DDPRUN, RANK, "only", "2", "exit", "9", "end", "exit", "0") as job:
            self.assertEqual(job.finish()[0], 9)

    def test_a_number_of_ranks_is_not_needed_twice(self):
        with Submitted("srun", "-N1", "-n2", DDPRUN, "-p", "2", "true") as job:
            code, _, err = job.finish()
            self.assertEqual(code, 2)
            self.assertIn("ddprun: error: -p 2: Slurm started 2 tasks on this node, and each becomes a rank; "
                          "use srun --ntasks-per-node 1 to have ddprun start the ranks\n", err)


class Pmi(unittest.TestCase):
    """libddp ranks without ddprun, on two nodes."""

    def test_nodes_rendezvous_without_an_external_store(self):
        with Submitted("srun", "--mpi=pmi2", "-N2", "-n4", MEETER, env={"MASTER_ADDR": "", "MASTER_PORT": ""}) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual(job.hear(4), [f"joined {i} of 4, sum 6, received hello-from-{(i + 1) % 4}" for i in range(4)])

    def test_ddp_perf_measures_on_two_nodes(self):
        words = (os.environ["DDP_PERF"], "all_reduce", "-b", "8", "-e", "8", "-n", "2", "-w", "1", "--json")
        with Submitted("srun", "--mpi=pmi2", "-N2", "-n4", *words, env={"MASTER_ADDR": "", "MASTER_PORT": ""}) as job:
            code, out, err = job.finish()
            self.assertEqual((code, err), (0, ""))
            rows = [json.loads(line) for line in out.splitlines()]
            self.assertEqual({(row["ranks"], row["wrong"]) for row in rows}, {(4, 0)})

    def test_without_pmi_the_error_names_the_srun_option(self):
        with Submitted("srun", "--mpi=none", "-N2", "-n2", MEETER, env={"MASTER_ADDR": "", "MASTER_PORT": ""}) as job:
            code, _, err = job.finish()
            self.assertNotEqual(code, 0)
            self.assertIn("rank 0 does by srun --mpi=pmi2", err)

    def test_an_mpich_program_runs_on_the_nodes_of_ddprun(self):
        if MPICH is None:
            self.skipTest("there is no mpicc.mpich")
        with Submitted("srun", "-N2", "--ntasks-per-node=1", DDPRUN, "-p", "2", MPICH, "hello", "ring") as job:
            code, out, err = job.finish()
            self.assertEqual((code, out, warned(err)), (0, "", ""))
            self.assertEqual(job.hear(5), ["hello 0 of 4, 0 of 2, program 0", "hello 1 of 4, 1 of 2, program 0",
                                           "hello 2 of 4, 0 of 2, program 0", "hello 3 of 4, 1 of 2, program 0", "ring 6"])


class Allocation(unittest.TestCase):
    def test_under_salloc_ddprun_starts_its_nodes(self):
        with Submitted("salloc", "-N2", "--ntasks-per-node=1", DDPRUN, "-p", "2", *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual(job.hear(4), [
                "0/4 0/2 0/2 n1 True none", "1/4 1/2 0/2 n1 True none", "2/4 0/2 1/2 n2 True none", "3/4 1/2 1/2 n2 True none"])

    def test_requested_tasks_become_ranks(self):
        with Submitted("salloc", "-N2", "-n5", DDPRUN, *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual([line.split()[0] for line in job.hear(5)], [f"{rank}/5" for rank in range(5)])

    def test_a_batch_script_starts_the_nodes(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            with Submitted("sbatch", "--wait", "-N2", "--ntasks-per-node=1", "-o", out, "--wrap",
                           " ".join([DDPRUN, RANK, "tell", "up", "say", "hello"])) as job:
                self.assertEqual(job.hear(2), ["0 up", "1 up"])
                self.assertEqual(job.finish()[0], 0)
                with open(out, encoding="utf-8") as f:
                    self.assertEqual(f.read(), "hello\nhello\n")

    def test_a_failure_is_reported_once(self):
        with Submitted("salloc", "-N2", "--ntasks-per-node=1", DDPRUN, RANK, "only", "1", "exit", "7", "end", "wait") as job:
            code, _, err = job.finish()
            self.assertEqual(code, 7)
            self.assertEqual(err.count("rank 1 failed: exit status 7"), 1, err)

    def test_ctrl_c_ends_the_job_on_both_nodes(self):
        with Submitted("salloc", "-N2", "--ntasks-per-node=1", "sh", "-c", f"exec {DDPRUN} {RANK} tell up wait") as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            heads = [pid for pid in job.processes() if name_of(pid) == os.path.basename(DDPRUN)[:NAME_MAX]
                     and b"--launch-channel" not in describe(pid)[1]]
            self.assertEqual(len(heads), 1, [describe(p) for p in heads])
            os.kill(heads[0], signal.SIGINT)
            err = job.finish()[2]  # salloc's status does not show it
            self.assertIn("ddprun: note: stopped by SIGINT after ", err)


def written(folder):
    """What Slurm has kept of standard output and error."""
    text = ""
    for name in os.listdir(folder):
        if name.endswith(".out"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                text += f.read()
    return text


def written_to(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Cancelled(unittest.TestCase):
    def test_scancel_ends_all_ranks_on_all_nodes(self):
        with Submitted("sbatch", "--wait", "--parsable", "-N2", "--ntasks-per-node=1", "-o", "/dev/null", "--wrap",
                       " ".join(["exec", DDPRUN, RANK, *UP])) as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            number = job.process.stdout.readline().decode().strip()
            subprocess.run([shutil.which("scancel"), number], env=slurm.env, check=True)
            job.finish()  # sbatch's status is Slurm's affair

    def test_a_requeued_job_restarts_on_all_nodes(self):
        script = '[ "${SLURM_RESTART_COUNT-0}" = 1 ] && say=again || say=up; exec "$0" tell $say wait'
        with Submitted("sbatch", "--wait", "--parsable", "--requeue", "-N2", "--ntasks-per-node=1", "-o", "/dev/null", "--wrap",
                       shlex.join(["exec", DDPRUN, "sh", "-c", script, RANK])) as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            number = job.process.stdout.readline().decode().strip()
            subprocess.run([shutil.which("scontrol"), "requeue", number], env=slurm.env, check=True)

            def has_begun():
                """Slurm would wait two minutes, and it ignores requests while the old step ends."""
                subprocess.run([shutil.which("scontrol"), "update", f"JobId={number}", "StartTime=now"], env=slurm.env, check=False,
                               stderr=subprocess.DEVNULL)
                return select.select([job.fifo_fd], [], [], 0)[0] != []
            await_true(has_begun)
            self.assertEqual(job.hear(2), ["0 again", "1 again"])
            subprocess.run([shutil.which("scancel"), number], env=slurm.env, check=True)
            job.finish()


# A rank that reports each signal when it arrives, and ends by SIGUSR2.
TELL_SIGNALS = """
import os, signal, sys
def tell(text):
    with open(os.environ["TEST_FIFO"], "w") as f:
        f.write(os.environ["RANK"] + " " + text + "\\n")
came = []
for s in signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM:
    signal.signal(s, lambda number, frame: came.append(signal.Signals(number).name))
tell(f"up {os.getpid()}")
while True:
    while came:
        tell(came[0])
        if came.pop(0) == "SIGUSR2":
            sys.exit(0)
    signal.sigtimedwait([], 0.01)
"""


class Signals(unittest.TestCase):
    """Slurm sends them to each process of a step here: to ddprun, and to the ranks (ProctrackType=proctrack/linuxproc)."""

    FORMS = "", "srun --quiet --ntasks-per-node=1"
    ANNOUNCED = DDPRUN, "--on-term", "600s", "--signals-to-handle", "SIGUSR1"
    LATE = "waiting for all ranks to save their state (--on-term)"

    @contextlib.contextmanager
    def submitted(self, form, *command, options=()):
        """-> a job that has begun, its number, and what it has written"""
        with tempfile.TemporaryDirectory() as folder:
            script, out = os.path.join(folder, "job.sh"), os.path.join(folder, "out")
            with open(script, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\nexec {form} {shlex.join(command)}\n")
            with self.subTest(form), Submitted("sbatch", "--wait", "--parsable", "-N2", "--ntasks-per-node=1", "-o", out, *options,
                                               script) as job:
                yield job, job.process.stdout.readline().decode().strip(), lambda: written_to(out)

    @staticmethod
    def cancel(number, *options):
        subprocess.run([shutil.which("scancel"), *options, number], env=slurm.env, check=True)

    @staticmethod
    def await_checkpointers(job):
        """One that is asked before it has joined saves in its first step."""
        def is_one(pid):
            try:
                return os.path.realpath(f"/proc/{pid}/exe") == os.path.realpath(CHECKPOINTER)
            except OSError:
                return False
        await_true(lambda: sum(is_one(pid) for pid in job.processes()) == 2)

    def test_a_rank_gets_each_signal_once(self):
        for form in self.FORMS * TIMES:
            with self.submitted(form, DDPRUN, sys.executable, "-c", TELL_SIGNALS) as (job, number, _):
                job.hear(2)  # they are up
                for name in "SIGUSR1", "SIGUSR2":
                    self.cancel(number, "--signal=" + name[3:])
                    self.assertEqual(job.hear(2), [f"0 {name}", f"1 {name}"])
                job.finish()
                self.assertEqual(job.unheard(), b"")

    def test_scancel_reaches_each_rank_once(self):
        """Without --on-term a node may stop its ranks because of the other one, before Slurm's SIGTERM comes to them."""
        for form in self.FORMS * TIMES:
            with self.submitted(form, DDPRUN, "--on-term", "600s", sys.executable, "-c", TELL_SIGNALS) as (job, number, _):
                pids = [int(line.split()[2]) for line in job.hear(2)]
                self.cancel(number)
                self.assertEqual(job.hear(2), ["0 SIGTERM", "1 SIGTERM"])
                for pid in pids:
                    os.kill(pid, signal.SIGUSR2)
                self.assertEqual(job.hear(2), ["0 SIGUSR2", "1 SIGUSR2"])
                job.finish()
                self.assertEqual(job.unheard(), b"")

    def test_ranks_without_a_handler_save_before_the_signal_ends_them(self):
        for form in self.FORMS * TIMES:
            with self.submitted(form, *self.ANNOUNCED, CHECKPOINTER) as (job, number, said):
                self.await_checkpointers(job)
                self.cancel(number, "--signal=USR1")
                self.assertEqual(job.hear(2), ["0 saved", "1 saved"])
                job.finish()
                self.assertIn("ddprun: note: SIGUSR1: asking the ranks to save their state within 600 s\n", said())
                self.assertNotIn(self.LATE, said())

    def test_a_signal_for_the_batch_step_reaches_ranks_only_by_ddprun(self):
        for _ in range(TIMES):
            with self.submitted("", *self.ANNOUNCED, CHECKPOINTER) as (job, number, said):
                self.await_checkpointers(job)
                self.cancel(number, "--batch", "--signal=USR1")
                self.assertEqual(job.hear(2), ["0 saved", "1 saved"])
                job.finish()
                self.assertIn("ddprun: note: stopped by SIGUSR1", said())
                self.assertNotIn(self.LATE, said())

    def test_a_preempted_job_saves_after_the_signal_of_its_script(self):
        for _ in range(TIMES):
            options = "--partition=low", "--exclusive", "--time=60", "--signal=B:USR1@60"
            with self.submitted("", *self.ANNOUNCED, CHECKPOINTER, options=options) as (job, _, said):
                self.await_checkpointers(job)
                with Submitted("sbatch", "--wait", "--partition=urgent", "--exclusive", "-N4", "-o", "/dev/null", "--wrap", "true") as urgent:
                    self.assertEqual(job.hear(2), ["0 saved", "1 saved"])
                    job.finish()
                    self.assertEqual(urgent.finish()[0], 0)
                self.assertIn("ddprun: note: stopped by SIGUSR1", said())
                self.assertNotIn(self.LATE, said())

    def test_scancel_gives_ranks_that_ignore_sigterm_their_time(self):
        for form in self.FORMS * TIMES:
            with self.submitted(form, *self.ANNOUNCED, "--shutdown-timeout", "500ms", "sh", "-c", "trap '' TERM; exec \"$0\"",
                                CHECKPOINTER) as (job, number, said):
                self.await_checkpointers(job)
                self.cancel(number)
                self.assertEqual(job.hear(2), ["0 saved", "1 saved"])
                job.finish()
                self.assertIn("ddprun: note: SIGTERM: asking the ranks to save their state within 600 s\n", said())
                self.assertNotIn(self.LATE, said())


# The beginning of a train.py.
TELLS = """
import os, sys, time
again = os.environ.get("SLURM_RESTART_COUNT", "0") != "0"
def tell(text):
    with open(os.environ["TEST_FIFO"], "w") as f:
        print(os.environ["RANK"] + "/" + os.environ["WORLD_SIZE"], os.environ["SLURMD_NODENAME"], os.getpid(), "again" if again else text, file=f)
def wait():
    while not os.path.exists(os.environ["TEST_END"]):
        time.sleep(0.05)
"""


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
        return int(f.read().rpartition(")")[2].split()[1])


class Samples(unittest.TestCase):
    """examples/managers, as they are."""

    def submit(self, n_ranks, name, *options):
        """-> what its ranks were, sorted"""
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(DDPRUN, os.path.join(folder, "ddprun"))
            with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as f:
                f.write('import os\nwith open(os.environ["TEST_FIFO"], "w") as f:\n'
                        '    print(os.environ["RANK"] + "/" + os.environ["WORLD_SIZE"], os.environ["SLURMD_NODENAME"], file=f)\n')
            path = folder + ":" + os.environ["PATH"]
            with Submitted("sbatch", "--wait", *options, os.path.join(SAMPLES, name), env={"PATH": path}, cwd=folder) as job:
                code, _, err = job.finish()
                self.assertEqual(code, 0, err + written(folder))
                return sorted(tuple(line.split()) for line in job.hear(n_ranks))

    def test_a_rank_on_each_node(self):
        self.assertEqual(self.submit(4, "train.sbatch"), [(f"{rank}/4", f"n{rank + 1}") for rank in range(4)])

    def test_a_task_for_each_rank(self):
        self.assertEqual(self.submit(8, "train-ranks.sbatch", "--ntasks-per-node=2"), [(f"{rank}/8", f"n{rank // 2 + 1}") for rank in range(8)])

    @contextlib.contextmanager
    def requeued(self, program):
        """train-requeue.sbatch, under way, with this train.py: (job, what Slurm has kept of its output)"""
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(DDPRUN, os.path.join(folder, "ddprun"))
            with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as f:
                f.write(TELLS + program)
            with Submitted("sbatch", "--wait", "--parsable", os.path.join(SAMPLES, "train-requeue.sbatch"), cwd=folder,
                           env={"PATH": folder + ":" + os.environ["PATH"], "TEST_END": os.path.join(folder, "end")}) as job:
                yield job, lambda: written(folder)

    def await_second_run(self, job, number, said):
        """Slurm would wait two minutes. It is asked seldom: each request delays what it has to do."""
        last_s = 0

        def has_begun_again():
            nonlocal last_s
            if time.monotonic() > last_s + 0.5 and "REQUEUE" in said():
                last_s = time.monotonic()
                subprocess.run([shutil.which("scontrol"), "update", f"JobId={number}", "StartTime=now"], env=slurm.env, check=False,
                               stderr=subprocess.DEVNULL)
            return b"again" in job.unheard()
        await_true(has_begun_again, said)

    def test_a_job_is_queued_again_by_its_status(self):
        with self.requeued('tell("runs")\nsys.exit(0 if again else 75)\n') as (job, said):
            number = job.process.stdout.readline().decode().strip()
            self.await_second_run(job, number, said)
            self.assertEqual(job.finish()[0], 0, said())

    def test_a_job_with_another_status_is_not_queued_again(self):
        with self.requeued('tell("runs")\nsys.exit(3)\n') as (job, said):
            self.assertEqual(job.finish()[0], 3, said())
            self.assertNotIn(b"again", job.unheard())

    def test_the_signal_before_the_time_limit_queues_the_job_again(self):
        """Slurm's signal, sent by hand: the tests cannot wait for a time limit."""
        with self.requeued('tell("runs")\nwait()\n') as (job, said):
            job.hear(3)
            number = job.process.stdout.readline().decode().strip()
            subprocess.run([shutil.which("scancel"), "--batch", "--signal=USR1", number], env=slurm.env, check=True)
            self.await_second_run(job, number, said)
            subprocess.run([shutil.which("scancel"), number], env=slurm.env, check=True)
            job.finish()

    def test_a_spare_of_the_allocation_takes_the_place_of_a_lost_node(self):
        with self.requeued('tell("runs")\nwait()\n') as (job, said):
            places = {line.split()[1]: int(line.split()[2]) for line in job.hear(3)}  # node -> pid of its rank
            self.assertEqual(len(places), 3)
            lost = sorted(places)[-1]
            os.kill(parent_of(parent_of(places[lost])), signal.SIGKILL)  # its ddprun: that of a rank's spawner
            again = {}
            while len(again) < 3 or lost in again:
                line = job.hear(1)[0].split()
                again[line[1]] = line[0]
            self.assertEqual(sorted(again.values()), [f"{rank}/3" for rank in range(3)], said())
            self.assertEqual(set(again) - set(places), {"n1", "n2", "n3", "n4"} - set(places))
            with open(job.cwd + "/end", "w", encoding="ascii"):
                pass
            self.assertEqual(job.finish()[0], 0, said())

    def test_an_elastic_job(self):
        ranks = self.submit(4, "train-elastic.sbatch")
        self.assertEqual([rank for rank, _ in ranks], [f"{rank}/4" for rank in range(4)])
        self.assertEqual(sorted(node for _, node in ranks), ["n1", "n2", "n3", "n4"])


def enter():
    """In a mount namespace, whose /etc/hosts knows the nodes; the programs that look names up find them there."""
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as f:
        with open("/etc/hosts", encoding="utf-8") as old:
            f.write(old.read() + "\n127.0.0.1 n1 n2 n3 n4\n")
        f.flush()
        lib = os.path.dirname(sys.modules["harness"].__file__)  # which has taken PYTHONPATH away
        return subprocess.run(["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', f.name, sys.executable,
                               *sys.argv], env={**os.environ, INSIDE: "1", "PYTHONPATH": lib}, check=False).returncode


if __name__ == "__main__":
    if INSIDE in os.environ or os.geteuid() != 0:
        main()
    sys.exit(enter())
