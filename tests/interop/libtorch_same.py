#!/usr/bin/env python3
"""ddp/torch.hpp: a libtorch program compared with Python's DistributedDataParallel over gloo, and with itself after deaths.

usage: libtorch_same.py --program DDPRUN --libddp LIBRARY --torch VERSION [--kills N] [--seed N] [--sanitize KINDS] [TEST...]

Builds tests/interop/programs/libtorch_rank.cpp, which contains the examples, once, with the libtorch that is in the Python of that version, and
runs it. --kills: as many deaths of ranks, drawn at random, in the test `deaths` (6). --sanitize: the program is built with these
sanitizers (address,undefined, or thread); give a LIBRARY that is as well. libtorch itself is not.
Exit status 77, with the reason as the last line, if that PyTorch or a C++ compiler is not here.
"""
import argparse
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

import run as interop  # the functions that find a PyTorch, and run a program

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Tolerance 0 for two ranks: each gradient times 1/2, then one addition. With more, gloo adds in another order.
SAME = [
    (1, "n=128", 0), (2, "n=256,epochs=2", 0), (2, "n=256,accumulate=2", 0), (2, "n=256,unused=1,aux=1", 0), (2, "n=256,unused=1,aux=0", 0),
    (4, "n=256", 1e-6),
]

WAYS = {"replace": [], "standby": ["--standby", "1"], "shrink": ["--on-failure", "shrink"]}
RACE_STATUS = 66  # of a process in which ThreadSanitizer has found one
MARKS = ["called", "model", "step"]  # libtorch_rank's: the function is called again, has made its model, has completed a step

SANITIZERS = {"address,undefined": {"ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:strict_string_checks=1",
                                    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"},
              "thread": {"TSAN_OPTIONS": "halt_on_error=1:ignore_noninstrumented_modules=1"}}


def torch_directory(python, env):
    found = subprocess.run([python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"],
                           env=env, stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


def build(directory, libddp, torch, target, sanitize="", optimize=0):
    """The ranks' program. About a minute, and 2 GB."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or interop.skip("no C++ compiler (g++, or CXX)")
    cache = [shutil.which("ccache")] if shutil.which("ccache") else []
    libraries = os.path.join(torch, "lib")
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(ROOT, "include"), "-D_GLIBCXX_USE_CXX11_ABI=1"]
    flags += [word for path in ("include", "include/torch/csrc/api/include") for word in ("-isystem", os.path.join(torch, path))]
    flags += [f"-fsanitize={sanitize}", "-g1"] if sanitize else [f"-O{optimize}"]
    flags += ["-Wno-tsan"] if sanitize == "thread" else []  # libtorch has fences, which it does not follow
    name = os.path.join(directory, "libtorch_rank")
    interop.DEADLINE_S = 1200  # of the compiler, on a busy machine
    interop.run([*cache, *compiler.split(), *flags, "-c", os.path.join(HERE, "programs/libtorch_rank.cpp"), "-o", name + ".o"], dict(os.environ))
    interop.run([*compiler.split(), *flags, name + ".o", "-o", target, "-L", libraries, "-L", os.path.dirname(libddp), "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu",
                 "-lc10", "-lddp", "-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{libraries}:{os.path.dirname(libddp)}"], dict(os.environ))
    interop.DEADLINE_S = 300


class Tests:
    def __init__(self, arguments, python, env, folder, program):
        self.ddprun, self.python, self.env, self.folder, self.rank_program = arguments.program, python, env, folder, program
        self.n_kills, self.seed = arguments.kills, arguments.seed
        self.n_runs = 0
        # gcc 12's runtimes fail if the kernel randomizes mappings over more than 28 bits
        self.around = ["setarch", "-R"] if arguments.sanitize else []
        self.env.update(SANITIZERS.get(arguments.sanitize, {}))

    def run(self, n, words, *options, expect=(0,)):
        return interop.run([*self.around, self.ddprun, "-n", str(n), *options, self.rank_program, *words], self.env, expect)

    def train(self, n, case, *options):
        """-> the files of ranks 0 ... that are left: ([losses], [state])"""
        self.n_runs += 1
        directory = os.path.join(self.folder, str(self.n_runs))
        os.mkdir(directory)
        self.out, _ = self.run(n, ["train", directory, *case.split(",")], *options)
        return read_files(directory)

    # --- the tests

    def equality(self):
        """Losses, parameters, buffers and momentum are those of Python's DistributedDataParallel over gloo."""
        for n in sorted({n for n, _, _ in SAME}):
            cases = {case: tolerance for of, case, tolerance in SAME if of == n}
            gloo = os.path.join(self.folder, f"gloo.{n}")
            interop.run([self.ddprun, "-n", str(n), os.path.join(HERE, "programs/libtorch_gloo.py"), gloo, *cases], self.env)
            for case, tolerance in cases.items():
                compare(self.train(n, case), read_files(os.path.join(gloo, case)), tolerance, f"{n} ranks, {case}")

    def kinds(self):
        """Tensors and calls of all kinds."""
        for n, thread in (1, "0"), (2, "0"), (3, "0"), (2, "1"):
            self.env["DDP_PROGRESS_THREAD"] = thread
            self.run(n, ["kinds", os.path.join(self.folder, f"kinds.{n}.{thread}")])
        del self.env["DDP_PROGRESS_THREAD"]
        results = [interop.require(self.run(2, ["two", *dies], "--max-restarts", "1")[0], "two models: .*", "stdout")[0] for dies in ((), ("die",))]
        if results[0] != results[1]:
            interop.fail(f"{results[1]} after a death, else {results[0]}")

    def deaths(self):
        for (way, n), taken in sorted(self.kill_ranks(self.n_kills).items()):
            print(f"{way}, {n} ranks, {len(taken)} kills, ms from the kill to: " + ", ".join(
                f"{what} {statistics.median(t):.0f} ({min(t):.0f} to {max(t):.0f})" for what, t in zip(MARKS, zip(*taken))))

    def kill_ranks(self, n_kills):
        """A run in which a rank is killed has the bits of one in which none is; a job of n ranks that continues with n - 1, those of
        n - 1 ranks that resume from a checkpoint of the last completed step. -> (way, n) -> [[ms to each of MARKS] of a kill]"""
        draw, times, expected = random.Random(self.seed), {}, {}
        for i in range(n_kills):
            way, n, adam = tuple(WAYS)[i % len(WAYS)], (2, 4)[i // len(WAYS) % 2], draw.randrange(2)
            where, rank = draw.choice(("forward", "backward", "optimizer")), draw.randrange(n)
            # of 32 / n: at least one is left; a standby begins after the first
            step = draw.randrange(where == "optimizer" or way == "standby", 32 // n - 1)
            case = f"n=256,epochs=2,adam={adam}"
            death = f"{case},kill_in={where},kill_at={step},kill_rank={rank}" + (f",begun={n + 1}" if way == "standby" else "")
            _, states = self.train(n, death, "--max-restarts", "3", *WAYS[way])
            times.setdefault((way, n), []).append(self.recovery_times())
            self.check_in_place()
            print(f"kill {i + 1}: {way}, {n} ranks, ms to {', '.join(MARKS)}: {[round(t) for t in times[way, n][-1]]}", flush=True)
            at = (n - 1, adam, step) if way == "shrink" else (n, adam, 0)
            if at not in expected:
                expected[at] = self.resumed(n, step, case) if way == "shrink" else self.train(n, case)[1]
            if states != expected[at] or len(set(states)) != 1:
                interop.fail(f"{way}, {n} ranks, {death}: other bits than expected")
        return times

    def resumed(self, n, step, case):
        """n - 1 ranks from a checkpoint of n ranks after so many steps."""
        directory = os.path.join(self.folder, f"checkpoint.{self.n_runs}")
        if step > 0:
            self.train(n, f"{case},steps={step},save_at={step},checkpoint={directory}")
        return self.train(n - 1, f"{case},checkpoint={directory}")[1]

    def recovery_times(self):
        """Until the last rank was past each mark."""
        text = "".join(read_all(os.path.join(self.folder, str(self.n_runs)), "times"))
        [killed] = re.findall(r"^killed (\S+)$", text, re.MULTILINE)
        return [max(float(t) for t in re.findall(rf"^{mark} (\S+)$", text, re.MULTILINE)) - float(killed) for mark in MARKS]

    def check_in_place(self):
        for line in self.out.splitlines():
            words = line.replace(",", "").split()
            if words[:1] == ["rank"] and words[words.index("buckets") - 1] != words[words.index("place") - 2]:
                interop.fail(f"a bucket is copied: {line}")

    def examples(self):
        """The programs of examples/libtorch learn what they are for; digits continues from a checkpoint."""
        directory = os.path.join(self.folder, "digits")
        out, _ = self.run(2, ["digits", directory])
        if float(interop.require(out, r"epoch 2: loss \S+, accuracy (\S+)", "stdout")[1]) < 0.9:
            interop.fail("it learned too little")
        out, _ = self.run(1, ["digits", directory])
        if "epoch 0" in out or "epoch 1" in out:  # epoch 2, of which nothing is left, is evaluated
            interop.fail("it trained again what the checkpoint has")
        out, _ = self.run(2, ["gpt", "150"])
        if float(interop.require(out, r"step 150: loss \S+, (\S+) % of the letters are right", "stdout")[1]) < 50:
            interop.fail("it learned too little")

    def misuse(self):
        """What programs do wrong has a clear error, and the rank that did it is named."""
        again = ["--max-restarts", "1"]
        _, err = self.run(2, ["inside"], *again, expect=(1,))
        interop.require(err, "the module .* was made inside of the function that ddp::run", "stderr")
        _, err = self.run(2, ["optimizer"], *again, expect=(1,))
        interop.require(err, "the optimizer was made inside of the function that ddp::run", "stderr")
        out, _ = self.run(2, ["swallow"], *again)
        interop.require(out, "caught: ", "stdout")
        interop.require(out, "rank 0 has completed 25 steps", "stdout")
        _, err = self.run(2, ["move"], expect=(1,))
        interop.require(err, "weight: the parameter has moved", "stderr")
        _, err = self.run(3, ["throw"], expect=(1, 143))  # the other ranks exit before it
        interop.require(err, r"(?ms)^ddprun: error: rank 1 failed.*the labels are upside down", "stderr")

    def races(self):
        """ThreadSanitizer finds a race that a program causes, where it is."""
        for where, file in ("header", "parallel.hpp"), ("libddp", "worker-runtime/model/"):
            _, err = self.run(2, ["race", where], expect=(RACE_STATUS,))
            interop.require(err, rf"(?s)WARNING: ThreadSanitizer: data race.*{file}", "stderr")


def read_all(directory, kind, mode="r"):
    """The files of that name, by rank."""
    texts = []
    for name in sorted(name for name in os.listdir(directory) if name.startswith(kind)):
        with open(os.path.join(directory, name), mode) as file:
            texts.append(file.read())
    return texts


def read_files(directory):
    return read_all(directory, "losses", "rb"), read_all(directory, "state", "rb")


def compare(ours, theirs, tolerance, what):
    if len(ours[1]) != len(theirs[1]) or [len(x) for x in ours[0]] != [len(x) for x in theirs[0]]:
        interop.fail(f"{what}: {len(ours[1])} and {len(theirs[1])} ranks, or not as many losses")
    if tolerance == 0 and ours != theirs:
        interop.fail(f"{what}: losses {'equal' if ours[0] == theirs[0] else 'differ'}, states {'equal' if ours[1] == theirs[1] else 'differ'}")
    most = 0
    for own, other in zip(ours[0], theirs[0]):
        for a, b in zip(own.split(), other.split()):
            x, y = (struct.unpack(">f", bytes.fromhex(bits.decode()))[0] for bits in (a, b))
            most = max(most, abs(x - y) / max(1, abs(y)))
    print(f"{what}: {sum(len(x.split()) for x in ours[0])} losses, difference at most {most:g}")
    if most > tolerance:
        interop.fail(f"{what}: a loss differs by {most:g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--libddp", required=True)
    parser.add_argument("--torch", required=True, choices=interop.VERSIONS)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--sanitize", default="", choices=SANITIZERS)
    parser.add_argument("--rank-program", help="one that was built before")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    python, env = interop.find_python(arguments.torch)
    env["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        program = arguments.rank_program or os.path.join(folder, "libtorch_rank")
        if not os.path.exists(program):
            build(folder, arguments.libddp, torch_directory(python, env), program, arguments.sanitize)
        tests = Tests(arguments, python, env, folder, program)
        for name in arguments.tests or ["equality", "kinds", "deaths", "examples", "misuse"]:
            getattr(tests, name)()
            print(f"ok: {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
