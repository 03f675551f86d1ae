"""C and C++ programs of users, built against an installed libddp in each way that README describes, and started by ddprun: they run, and
each way in which such a program ends has its status. ddp-perf over a wire.

Covers: include/ddp, worker-runtime/group, launcher/supervisor, perf
"""
import contextlib
import os
import shutil
import subprocess
import tempfile
import unittest

from harness import DDPRUN, DEADLINE_S, main, run
from node import Node, static
from places import Namespaces, NoPlace

BUILD = os.environ["BUILD_ROOT"]
PERF = os.environ["DDP_PERF"]
COLLECTIVES = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter", "all_to_all", "send_recv",
               "barrier")
FEW_CALLS = "-b", "8", "-e", "512K", "-f", "64", "-n", "2", "-w", "1"
BUILD_S = 3 * DEADLINE_S

PROGRAM = r"""
#include <ddp/ddp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *how;

static int train(struct ddp_group *g, void *arg)
{
    int32_t sum = ddp_rank(g) + 1;
    char line[64];
    (void)arg;
    if (strcmp(how, "early") == 0 && ddp_rank(g) == 1)
        return 0;
    if (ddp_rank(g) == 1 && strcmp(how, "exit") == 0)
        exit(3);
    if (ddp_rank(g) == 1 && strcmp(how, "abort") == 0)
        abort();
    if (ddp_rank(g) == 1 && strcmp(how, "segv") == 0)
        raise(SIGSEGV);
    int rc = ddp_all_reduce(g, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL);
    if (rc == 0 && write(1, line, (size_t)snprintf(line, sizeof line, "sum %d\n", (int)sum)) < 0)
        return DDP_EINVAL;
    return rc;
}

int main(int argc, char **argv)
{
    how = argc > 1 ? argv[1] : "";
    for (int i = 0; i < (strcmp(how, "twice") == 0 ? 2 : 1); i++)
        if (ddp_run(train, NULL) != 0)
            ddp_fatal("user");
    return 0;
}
"""

WITH_MPI = r"""
#include <ddp/ddp.h>
#include <mpi.h>
#include <unistd.h>

static int train(struct ddp_group *g, void *arg)
{
    int32_t ours = ddp_rank(g), theirs = 0;
    if (MPI_Allreduce(&ours, &theirs, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS)
        return DDP_EINVAL;
    int rc = ddp_all_reduce(g, &ours, &ours, 1, DDP_INT32, DDP_SUM, NULL);
    (void)arg;
    return rc != 0 ? rc : ours == theirs && write(1, "same\n", 5) == 5 ? 0 : DDP_EINVAL;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (ddp_run(train, NULL) != 0)
        ddp_fatal("user");
    return MPI_Finalize();
}
"""

LOADER = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    (void)argc;
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL || dlsym(library, "ddp_run") == NULL || dlclose(library) != 0) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    return 0;
}
"""

CMAKE = """
cmake_minimum_required(VERSION 3.10)
project(user C)
find_package(ddp REQUIRED)
add_executable(shared user.c)
target_link_libraries(shared ddp::ddp)
add_executable(archive user.c)
target_link_libraries(archive ddp::static)
"""

# name: (compiler and options, before the libraries; their words)
WAYS = {
    "shared": (["cc", "-std=c11", "-D_GNU_SOURCE"], ["@LIBS@", "-Wl,-rpath,@LIBDIR@"]),
    "archive": (["cc", "-std=gnu17"], ["@LIBDIR@/libddp.a", "-pthread", "-lm"]),
    "-static": (["cc", "-static"], ["@STATIC@"]),
    "clang": (["clang"], ["@LIBS@", "-Wl,-rpath,@LIBDIR@"]),
    **{f"C++{year}": (["c++", "-x", "c++", f"-std=c++{year}", "-pedantic-errors"], ["-x", "none", "@LIBS@", "-Wl,-rpath,@LIBDIR@"])
       for year in ("11", "14", "17", "20")},
    "AddressSanitizer": (["cc", "-fsanitize=address,undefined"], ["@LIBS@", "-Wl,-rpath,@LIBDIR@"]),
    "ThreadSanitizer": (["cc", "-fsanitize=thread"], ["@LIBS@", "-Wl,-rpath,@LIBDIR@"]),
}

# name: (status of the job of 3 ranks, how many sums are written, what is in a message)
ENDS = {
    "": (0, 3, ""),
    "twice": (0, 6, ""),
    "early": (None, 0, "rank 1"),
    "exit": (3, 0, "rank 1 failed: exit status 3"),
    "abort": (134, 0, "rank 1 failed: killed by SIGABRT"),
    "segv": (139, 0, "rank 1 failed: killed by SIGSEGV"),
}


@unittest.skipIf("SANITIZED" in os.environ, "libddp with sanitizers wants programs that have them")
class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("cc") is None or shutil.which("meson") is None:
            raise unittest.SkipTest("no C compiler or no Meson")
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = holder.name
        subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--tags", "runtime,devel", "--destdir", cls.folder],
                       check=True, timeout=BUILD_S, stdout=subprocess.DEVNULL)
        configs = [os.path.join(path, name) for path, _, names in os.walk(cls.folder) for name in names
                   if name in ("ddp.pc", "ddpConfig.cmake")]
        pc = next(path for path in configs if path.endswith(".pc"))
        with open(pc, encoding="utf-8") as f:
            prefix = f.readline().strip().partition("=")[2]
        for path in configs:  # as if it had been configured for where it is
            with open(path, encoding="utf-8") as f:
                text = f.read().replace(prefix, cls.folder + prefix)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        cls.libdir = os.path.dirname(os.path.dirname(pc))
        cls.prefix = cls.folder + prefix
        cls.write("user.c", PROGRAM)

    @classmethod
    def write(cls, name, text):
        with open(os.path.join(cls.folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def execute(self, *words, **kw):
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=BUILD_S, check=False, **kw)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stderr}")
        return done.stdout.split()

    def pkg_config(self, *words):
        return self.execute("pkg-config", *words, "ddp", env={**os.environ, "PKG_CONFIG_PATH": self.libdir + "/pkgconfig"})

    def check(self, program):
        code, out, err = run("-n", "3", program)
        self.assertEqual((code, out, err), (0, "sum 6\n" * 3, ""))

    @unittest.skipIf(shutil.which("pkg-config") is None, "no pkg-config")
    def test_built_in_each_way(self):
        values = {"@LIBS@": self.pkg_config("--libs"), "@STATIC@": self.pkg_config("--libs", "--static"), "@LIBDIR@/libddp.a":
                  [self.libdir + "/libddp.a"], "-Wl,-rpath,@LIBDIR@": [f"-Wl,-rpath,{self.libdir}"]}
        for name, (compiler, libraries) in WAYS.items():
            with self.subTest(name):
                if shutil.which(compiler[0]) is None:
                    self.skipTest(f"no {compiler[0]}")
                program = os.path.join(self.folder, "user-" + name)
                words = [part for word in libraries for part in values.get(word, [word])]
                self.execute(*compiler, "-Wall", "-Wextra", "-Werror", *self.pkg_config("--cflags"), "-o", program, "user.c", *words)
                self.check(program)

    @unittest.skipIf(shutil.which("cmake") is None, "no CMake")
    def test_built_by_cmake(self):
        self.write("CMakeLists.txt", CMAKE)
        self.execute("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix};{self.libdir}/cmake/ddp",
                     f"-Dddp_DIR={self.libdir}/cmake/ddp")
        self.execute("cmake", "--build", "build")
        for name in "shared", "archive":
            with self.subTest(name):
                self.check(os.path.join(self.folder, "build", name))

    def test_loaded_and_unloaded_again(self):
        self.write("loader.c", LOADER)
        self.execute("cc", "-o", "loader", "loader.c", "-ldl")
        self.execute(os.path.join(self.folder, "loader"), self.libdir + "/libddp.so")

    @unittest.skipIf(shutil.which("mpicc.mpich") is None, "no MPICH: scripts/install-deps --hosts")
    def test_one_program_uses_mpi_and_libddp(self):
        self.write("mpi.c", WITH_MPI)
        program = os.path.join(self.folder, "mpi")
        self.execute("mpicc.mpich", "-I", self.prefix + "/include", "-o", program, "mpi.c", self.libdir + "/libddp.a", "-pthread", "-lm")
        self.assertEqual(run("-n", "3", program), (0, "same\n" * 3, ""))

    def test_each_way_to_end_has_its_status(self):
        program = os.path.join(self.folder, "user-ends")
        self.execute("cc", "-I", self.prefix + "/include", "-o", program, "user.c", self.libdir + "/libddp.a", "-pthread", "-lm")
        for how, (status, n_sums, said) in ENDS.items():
            with self.subTest(how):
                code, out, err = run("-n", "3", program, how)
                self.assertEqual(out.count("sum 6\n"), n_sums, err)
                self.assertIn(said, err)
                if status is None:
                    self.assertNotEqual(code, 0)
                else:
                    self.assertEqual(code, status, err)


class Perf(unittest.TestCase):
    def test_each_collective_works_over_a_network(self):
        try:
            place = self.enterContext(Namespaces())
        except NoPlace as error:
            self.skipTest(str(error))
        for collective in COLLECTIVES:
            with self.subTest(collective), contextlib.ExitStack() as stack:
                nodes = []
                for rank in range(2):
                    words = static(place.port(), rank, "-p", "2", "--local-addr", place.address(1 + rank), host=place.address(1))
                    launcher, *first = place.command(1 + rank, [DDPRUN])
                    nodes.append(stack.enter_context(Node(*first, *words, PERF, collective, *FEW_CALLS, launcher=launcher)))
                for code, _, err in [node.finish() for node in nodes]:
                    self.assertEqual(code, 0, err)


main()
