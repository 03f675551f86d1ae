"""Ranks on their CPUs, as the kernel reports them: on any machine, with the CPUs that it allows us.

Covers: launcher/placement, launcher/platform
"""
import glob
import os
import re
import tempfile
import unittest

from harness import Job, main, numbers_of, run

ALLOWED = os.sched_getaffinity(0)
# What a rank finds out about itself: rank, CPUs, the memory node in its environment, the nodes of a large array's pages.
LOOK = r"""
import os, re
fill = bytearray(b"x") * (16 << 20)
status = open("/proc/self/status").read()
pages = {}
try:
    for line in open("/proc/self/numa_maps"):
        for node, n in re.findall(r" N(\d+)=(\d+)", line):
            pages[node] = max(pages.get(node, 0), int(n) if "anon=" in line else 0)
except OSError:
    pass
large = ",".join(sorted(node for node, n in pages.items() if n > 1000))
own = os.environ.get("DDP_NUMA_NODES", "-").split(",")
own = own[int(os.environ["LOCAL_RANK"])] if own != ["-"] else "-"
cpus = re.search(r"Cpus_allowed_list:\s*(\S*)", status)[1]
line = " ".join((os.environ["RANK"], cpus, own, large or own, os.environ["OMP_NUM_THREADS"])) + "\n"
os.write(1, line.encode())  # in one piece: ranks share the stream
"""


def read_list(path):
    with open(path) as f:
        return numbers_of(f.read().strip())


def cores():
    """The allowed CPUs, by core."""
    found = {}
    for cpu in ALLOWED:
        siblings = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        key = min(read_list(siblings)) if os.path.exists(siblings) else cpu
        found.setdefault(key, set()).add(cpu)
    return list(found.values())


def nodes():
    """The allowed CPUs, by memory node; {0: all} where the kernel knows none."""
    found = {}
    for path in glob.glob("/sys/devices/system/node/node*/cpulist"):
        with open(path) as f:
            text = f.read().strip()
        cpus = (numbers_of(text) if text else set()) & ALLOWED
        if cpus:
            found[int(re.search(r"node(\d+)/", path)[1])] = cpus
    return found or {0: ALLOWED}


class Placement(unittest.TestCase):
    def look(self, *words, **kw):
        """What the ranks found: rank -> (CPUs, node in its environment, nodes of pages, threads)."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
            script.write(LOOK)
            script.flush()
            code, out, err = run(*words, script.name, **kw)
        self.assertEqual(code, 0, err)
        found = {}
        for line in out.splitlines():
            rank, cpus, own, pages, threads = line.split()
            found[int(rank)] = (numbers_of(cpus), own, pages, int(threads))
        return found, err

    def test_cores_are_shared_out(self):
        n = min(len(cores()), 4)
        if len(nodes()) > 1:
            n = 1
        found, _ = self.look("-n", str(n), "--bind-to", "core")
        self.assertEqual(len(found), n)
        self.assertEqual(set.union(*(f[0] for f in found.values())), ALLOWED)
        self.assertEqual(sum(len(f[0]) for f in found.values()), len(ALLOWED))
        for cpus, _, _, threads in found.values():
            self.assertLessEqual(threads, len(cpus))
            for core in cores():
                self.assertIn(len(core & cpus), (0, len(core)))

    def test_numa_binding_covers_the_node_and_its_memory(self):
        n = 2 * len(nodes())
        for words in (["--bind-to", "numa"], ["--numa-binding", "node"]):
            found, _ = self.look("-n", str(n), *words)
            for cpus, own, pages, _ in found.values():
                self.assertEqual(cpus, nodes()[int(own)])
                self.assertEqual(pages, own)

    def test_without_the_option_no_rank_is_bound(self):
        for words in ([], ["--bind-to", "none"]):
            found, err = self.look("-n", "2", *words, env={"DDP_NUMA_NODES": "7,7"})
            self.assertEqual([f[:2] for f in found.values()], [(ALLOWED, "-")] * 2)
            self.assertEqual(err, "")

    def test_ranks_get_no_cpus_that_ddprun_may_not_use(self):
        one = {max(ALLOWED)}
        for mode in "core", "cache", "numa", "socket":
            found, _ = self.look("-n", "1", "--bind-to", mode, preexec_fn=lambda: os.sched_setaffinity(0, one))
            self.assertEqual(found[0][0], one, mode)
        code, out, err = run("-n", "2", "--bind-to", "core", "true", preexec_fn=lambda: os.sched_setaffinity(0, one))
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, r"^ddprun: error: --bind-to core: NUMA node \d+ has 1 usable core for 2 ranks, ")

    def test_the_report_and_the_dry_run_show_the_binding(self):
        found, err = self.look("-n", "1", "--bind-to", "core", "--report-bindings")
        line = re.fullmatch(r"ddprun: note: rank 0: bound to (CPUs? (\S+) \(\d+ cores?, .*\))\n", err)
        self.assertEqual(numbers_of(line[2]), found[0][0])
        code, out, err = run("-n", "1", "--bind-to", "core", "--dry-run", "true")
        self.assertEqual((code, err), (0, ""))
        self.assertIn(f"\n    bound to {line[1]}\n", out)
        code, out, err = run("-n", "1", "--report-bindings", "true")
        self.assertRegex(err, r"^ddprun: note: rank 0: not bound: CPU")

    def test_a_restarted_rank_is_bound_again(self):
        script = 'grep Cpus_allowed_list /proc/self/status; exit $((1 - TORCHELASTIC_RESTART_COUNT))'
        code, out, _ = run("-n", "1", "--bind-to", "core", "--max-restarts", "1", "sh", "-c", script,
                           preexec_fn=lambda: os.sched_setaffinity(0, {max(ALLOWED)}))
        self.assertEqual((code, out), (0, f"Cpus_allowed_list:\t{max(ALLOWED)}\n" * 2))

    def test_a_requested_number_of_threads_is_kept(self):
        for words, env in ((["--omp", "3"], {}), ([], {"OMP_NUM_THREADS": "3"})):
            found, _ = self.look("-n", "1", "--bind-to", "core", *words, env=env,
                                 preexec_fn=lambda: os.sched_setaffinity(0, {max(ALLOWED)}))
            self.assertEqual(found[0][3], 3)

    def test_hwloc_is_loaded_only_on_request(self):
        with Job("-n", "1", "sh", "-c", 'echo up >"$TEST_FIFO"; read _', stdin=-1) as job:
            job.hear(1)
            with open(f"/proc/{job.process.pid}/maps") as f:
                self.assertNotIn("hwloc", f.read())
            job.process.stdin.close()
            job.process.stdin = None
            job.end()
        with tempfile.TemporaryDirectory() as broken:
            open(os.path.join(broken, "libhwloc.so.15"), "w").close()
            env = {"LD_LIBRARY_PATH": broken}
            self.assertEqual(run("-n", "1", "true", env=env), (0, "", ""))
            code, out, err = run("-n", "1", "--bind-to", "numa", "true", env=env)
        self.assertEqual((code, out), (70, ""))
        self.assertRegex(err, r"^ddprun: error: --bind-to numa: cannot load libhwloc.so.15: .*; install hwloc 2\n$")


if __name__ == "__main__":
    main()
