"""Open MPI programs that others have made, under ddprun: mpi4py's own test suite, LAMMPS, HPCC, and NetPIPE. The suite runs with Open MPI 4 and 5.
What is not installed is skipped: scripts/install-deps --hosts --programs.

Covers: rendezvous/pmix, launcher/generation
"""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import Job, main, run
from mpi_cases import OPEN_MPI_5, OpenMpi4, OpenMpi5, load_plugin

# Tests of what ddprun rejects: spawn and connect (two modules of tests), and MPI_Comm_create_from_group.
LEFT_OUT = "-e", "spawn", "-e", "dynproc", "-x", "CreateFromGroup"
SUITE_S = 1200 * float(os.environ.get("TEST_PATIENCE", "1"))
MELT = """\
units lj
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 50
run 100
"""
HPCC = """\
HPLinpack benchmark input file

HPL.out output file name (if any)
8 device out
1 # of problems sizes (N)
400 Ns
1 # of NBs
80 NBs
0 PMAP
1 # of process grids (P x Q)
{rows} Ps
{columns} Qs
16.0 threshold
1 # of panel fact
2 PFACTs
1 # of recursive stopping criterium
4 NBMINs
1 # of panels in recursion
2 NDIVs
1 # of recursive panel fact.
1 RFACTs
1 # of broadcast
1 BCASTs
1 # of lookahead depth
1 DEPTHs
2 SWAP
64 swapping threshold
0 L1
0 U
1 Equilibration
8 memory alignment
##### separator
0 Number of additional problem sizes for PTRANS
1200 values of N
0 number of additional blocking sizes for PTRANS
40 values of NB
"""


def setUpModule():
    load_plugin()


class Suite(unittest.TestCase):
    """mpi4py of PyPI, with the Open MPI of PyPI and with the system's."""

    def run_suite(self, env):
        suite = os.path.join(OPEN_MPI_5 or "", "mpi4py-tests/main.py")
        if not os.path.exists(suite):
            self.skipTest("no mpi4py with its tests: scripts/install-deps --hosts --programs")
        python = os.path.join(OPEN_MPI_5, "bin/python")
        # Not meson's MALLOC_PERTURB_, which fills what is allocated: Open MPI's collective reads allocate 32 MiB each.
        env = {**env, "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_PERTURB_": "0"}
        for n in 2, 4:
            with self.subTest(ranks=n):
                with Job("-n", str(n), "--mpi", "pmix", python, suite, *LEFT_OUT, env=env) as job:
                    _, err = (text.decode() for text in job.process.communicate(timeout=SUITE_S))
                    print(f"{n} ranks:", re.findall(r"MPI \d.*", err)[:1], re.findall(r"(?m)^Ran \d+ tests in .*\n\n.*$", err), flush=True)
                    self.assertEqual(job.process.returncode, 0, err[-8000:])

    def test_suite_of_mpi4py_passes_with_open_mpi_5(self):
        self.run_suite(OpenMpi5.ENV)

    def test_suite_of_mpi4py_passes_with_open_mpi_4(self):
        library = shutil.which("mpicc.openmpi") and next((path for path in ("/usr/lib/x86_64-linux-gnu/libmpi.so.40", "/usr/lib64/openmpi/lib/libmpi.so.40")
                                                           if os.path.exists(path)), None)
        if not library:
            self.skipTest("no Open MPI 4")
        self.run_suite({**OpenMpi4.ENV, "MPI4PY_LIBMPI": library})


def last_energies(text):
    [line] = re.findall(r"^ +100 .*\..*$", text, re.MULTILINE)
    return line.split()


class Programs(unittest.TestCase):
    """Of Debian. ddprun recognizes them as Open MPI programs."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, n, *words):
        if shutil.which(words[0]) is None:
            self.skipTest(f"not installed: {words[0]}")
        code, out, err = run("-n", str(n), *words, env={**OpenMpi4.ENV, "OMP_NUM_THREADS": "1"}, cwd=self.folder)
        self.assertEqual(code, 0, out + err)
        self.assertNotIn("ddprun: ", err)
        return out

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
            file.write(text)

    def test_lammps_computes_the_same_as_under_mpirun(self):
        self.write("in.melt", MELT)
        words = "lmp", "-in", "in.melt", "-log", "none"
        mpirun = shutil.which("mpirun.openmpi") or self.skipTest("not installed: mpirun.openmpi")
        as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        for n in 2, 4:
            with self.subTest(n):
                theirs = subprocess.run([mpirun, *as_root, "--oversubscribe", "-n", str(n), *words], cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": "1"},
                                        stdout=subprocess.PIPE, text=True, check=True, timeout=SUITE_S).stdout
                self.assertEqual(last_energies(self.start(n, *words)), last_energies(theirs))

    def test_hpcc_succeeds(self):
        for n, rows in (2, 1), (4, 2):
            with self.subTest(n):
                self.write("hpccinf.txt", HPCC.format(rows=rows, columns=n // rows))
                self.start(n, "hpcc")
                with open(os.path.join(self.folder, "hpccoutf.txt"), encoding="ascii") as file:
                    text = file.read()
                self.assertRegex(text, r"(?m)^Success=1$")
                self.assertRegex(text, rf"(?m)^CommWorldProcs={n}$")
                os.remove(os.path.join(self.folder, "hpccoutf.txt"))

    def test_netpipe_reaches_its_largest_message(self):
        self.start(2, "NPopenmpi", "-u", "65536", "-n", "50", "-o", "times")
        with open(os.path.join(self.folder, "times"), encoding="ascii") as file:
            self.assertGreaterEqual(max(int(line.split()[0]) for line in file), 65536)


if __name__ == "__main__":
    main()
