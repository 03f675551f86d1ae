"""ddprun under a real Slurm of four nodes, on this machine: as srun's task, in a batch script and under salloc, once
for each rank. Runs itself in namespaces of its own, where both nodes' names lead to this machine.

Covers: launcher/hosts, launcher/remote, launcher/placement
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
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
        quiet = ("--quiet",) if program != "sbatch" else ()  # it tells when it has to wait
        super().__init__(*quiet, *args, launcher=shutil.which(program), env={**slurm.env, "HOME": "/nonexistent", **(env or {})}, **kw)

    def finish(self):
        code, out, err = self.end()
        await_true(lambda: not self.processes(), lambda: [describe(p) for p in self.processes()])
        return code, out.decode(), err.decode()


def warned(err):
    """Without the one line that says that nodes have no token."""
    return "".join(line for line in err.splitlines(True) if "can take part in this job" not in line)


class Step(unittest.TestCase):
    def test_srun_starts_a_ddprun_on_each_node(self):
        with Submitted("srun", "-N2", "--ntasks-per-node=1", DDPRUN, "-p", "2", *SHOW) as job:
            code, out, err = job.finish()
            self.assertEqual((code, out, warned(err)), (0, "", ""))
            self.assertEqual(job.hear(4), [
                "0/4 0/2 0/2 n1 True none", "1/4 1/2 0/2 n1 True none", "2/4 0/2 1/2 n2 True none", "3/4 1/2 1/2 n2 True none"])

    def test_on_one_node_it_is_a_ddprun_like_any_other(self):
        with Submitted("srun", "-N1", "-n1", DDPRUN, "-p", "2", *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual([line.split()[:3] for line in job.hear(2)], [["0/2", "0/2", "0/1"], ["1/2", "1/2", "0/1"]])

    def test_a_failure_is_the_step_s_status(self):
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
    def test_each_of_several_tasks_becomes_its_rank(self):
        with Submitted("srun", "-N2", "-n3", DDPRUN, *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual(job.hear(3), [
                "0/3 0/2 0/2 n1 False none", "1/3 1/2 0/2 n1 False none", "2/3 0/1 1/2 n2 False none"])

    def test_its_status_is_the_program_s(self):
        with Submitted("srun", "-N2", "-n4", "--kill-on-bad-exit=1", DDPRUN, RANK, "only", "2", "exit", "9", "end", "exit", "0") as job:
            self.assertEqual(job.finish()[0], 9)

    def test_ranks_are_not_asked_for_twice(self):
        with Submitted("srun", "-N1", "-n2", DDPRUN, "-p", "2", "true") as job:
            code, _, err = job.finish()
            self.assertEqual(code, 2)
            self.assertIn("ddprun: -p 2: Slurm has started 2 tasks on this node, each of which becomes a rank; "
                          "srun --ntasks-per-node 1 leaves the ranks to ddprun\n", err)


class Pmi(unittest.TestCase):
    """Ranks of libddp without ddprun, on two nodes."""

    def test_nodes_meet_without_a_store_of_anybody_s(self):
        with Submitted("srun", "--mpi=pmi2", "-N2", "-n4", MEETER, env={"MASTER_ADDR": "", "MASTER_PORT": ""}) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual(job.hear(4), [f"met {i} of 4, sum 6, heard hello-from-{(i + 1) % 4}" for i in range(4)])

    def test_without_pmi_they_are_told_how(self):
        with Submitted("srun", "--mpi=none", "-N2", "-n2", MEETER, env={"MASTER_ADDR": "", "MASTER_PORT": ""}) as job:
            code, _, err = job.finish()
            self.assertNotEqual(code, 0)
            self.assertIn("rank 0 does by srun --mpi=pmi2", err)

    def test_a_program_of_mpich_under_ddprun_s_nodes(self):
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

    def test_tasks_that_were_asked_for_are_ranks(self):
        with Submitted("salloc", "-N2", "-n5", DDPRUN, *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual([line.split()[0] for line in job.hear(5)], [f"{rank}/5" for rank in range(5)])

    def test_a_batch_script_does(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            with Submitted("sbatch", "--wait", "-N2", "--ntasks-per-node=1", "-o", out, "--wrap",
                           " ".join([DDPRUN, RANK, "tell", "up", "say", "hello"])) as job:
                self.assertEqual(job.hear(2), ["0 up", "1 up"])
                self.assertEqual(job.finish()[0], 0)
                with open(out, encoding="utf-8") as f:
                    self.assertEqual(f.read(), "hello\nhello\n")

    def test_a_failure_is_told_once(self):
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
            err = job.finish()[2]  # salloc's status does not tell
            self.assertIn("ddprun: stopped by SIGINT after ", err)


def written(folder):
    """What Slurm has kept of standard output and error."""
    text = ""
    for name in os.listdir(folder):
        if name.endswith(".out"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                text += f.read()
    return text


class Cancelled(unittest.TestCase):
    def test_scancel_ends_all_ranks_on_all_nodes(self):
        with Submitted("sbatch", "--wait", "--parsable", "-N2", "--ntasks-per-node=1", "-o", "/dev/null", "--wrap",
                       " ".join(["exec", DDPRUN, RANK, *UP])) as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            number = job.process.stdout.readline().decode().strip()
            subprocess.run([shutil.which("scancel"), number], env=slurm.env, check=True)
            job.finish()  # sbatch's status is Slurm's affair


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
