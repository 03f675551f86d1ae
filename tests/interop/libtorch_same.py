#!/usr/bin/env python3
"""ddp/torch.hpp: a libtorch program compared with Python's DistributedDataParallel over gloo, and with itself after deaths.

usage: libtorch_same.py --program DDPRUN --libddp LIBRARY --torch VERSION [--kills N] [TEST...]

Builds tests/interop/programs/libtorch_rank.cpp, once, with the libtorch that is in the Python of that version, and runs it. --kills: as many
deaths of ranks, drawn at random, in the test `deaths` (6).
Exit status 77, with the reason as the last line, if that PyTorch or a C++ compiler is not here.
"""
import argparse
import os
import random
import shutil
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


def torch_directory(python, env):
    found = subprocess.run([python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"],
                           env=env, stdout=subprocess.PIPE, text=True, check=True)
    return found.stdout.strip()


def build(directory, libddp, torch, sanitize, target):
    """The ranks' program. About a minute, and 2 GB."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or interop.skip("no C++ compiler (g++, or CXX)")
    cache = [shutil.which("ccache")] if shutil.which("ccache") else []
    libraries = os.path.join(torch, "lib")
    flags = ["-std=c++20", "-O0", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(ROOT, "include"), "-D_GLIBCXX_USE_CXX11_ABI=1"]
    flags += [word for path in ("include", "include/torch/csrc/api/include") for word in ("-isystem", os.path.join(torch, path))]
    flags += [f"-fsanitize={sanitize}", "-g"] if sanitize else []
    name = os.path.join(directory, "libtorch_rank")
    interop.DEADLINE_S = 1200  # of the compiler, on a busy machine
    interop.run([*cache, *compiler.split(), *flags, "-c", os.path.join(HERE, "programs/libtorch_rank.cpp"), "-o", name + ".o"], dict(os.environ))
    interop.run([*compiler.split(), *flags, name + ".o", "-o", target, "-L", libraries, "-L", os.path.dirname(libddp), "-ltorch", "-ltorch_cpu", "-lc10",
                 "-lddp", "-Wl,--allow-shlib-undefined", f"-Wl,-rpath,{libraries}:{os.path.dirname(libddp)}"], dict(os.environ))
    interop.DEADLINE_S = 300


class Tests:
    def __init__(self, arguments, python, env, folder, program):
        self.ddprun, self.python, self.env, self.folder, self.rank_program = arguments.program, python, env, folder, program
        self.n_kills = arguments.kills
        self.n_runs = 0

    def run(self, n, words, *options, expect=(0,)):
        return interop.run([self.ddprun, "-n", str(n), *options, self.rank_program, *words], self.env, expect)

    def train(self, n, case, *options):
        """-> the files of ranks 0 ... that are left: ([losses], [state])"""
        self.n_runs += 1
        directory = os.path.join(self.folder, str(self.n_runs))
        os.mkdir(directory)
        out, err = self.run(n, ["train", directory, *case.split(",")], *options)
        self.out = out
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
        for n in 1, 2, 3:
            self.run(n, ["kinds"])

    def deaths(self):
        """A run in which a rank is killed has the bits of one in which none is."""
        draw = random.Random(4)
        expected = {(n, adam): self.train(n, f"n=256,epochs=2,adam={adam}") for n in (2, 4) for adam in (0, 1)}
        for i in range(self.n_kills):
            n, adam, where = (2, 4)[i % 2], i // 2 % 2, ("backward", "forward", "optimizer")[i % 3]
            options = ["--standby", "1"] if i % 4 == 3 else []
            case = f"n=256,epochs=2,adam={adam},kill_in={where},kill_at={draw.randrange(0 if n == 4 else 4, 7)},kill_rank={draw.randrange(n)}"
            _, states = self.train(n, case, "--max-restarts", "3", *options)
            if states != expected[n, adam][1]:
                interop.fail(f"{n} ranks, {case}: other bits than without a death")
            self.check_in_place()

    def check_in_place(self):
        for line in self.out.splitlines():
            words = line.replace(",", "").split()
            if words[:1] == ["rank"] and words[words.index("buckets") - 1] != words[words.index("place") - 2]:
                interop.fail(f"a bucket is copied: {line}")

    def shrink(self):
        """Ranks that are left agree, to the bit, and equal a run of that size from a checkpoint of the last completed step."""
        directory = os.path.join(self.folder, "checkpoint")
        case = "n=256,epochs=2,kill_in=forward,kill_at=3,kill_rank=1"
        _, states = self.train(4, case, "--max-restarts", "1", "--on-failure", "shrink")
        if len(states) != 3 or len(set(states)) != 1:
            interop.fail(f"{len(states)} ranks are left, with {len(set(states))} states")
        self.train(4, f"n=256,epochs=2,steps=3,save_at=3,checkpoint={directory}")
        _, resumed = self.train(3, f"n=256,epochs=2,checkpoint={directory}")
        if resumed != states:
            interop.fail("a run of 3 ranks from the checkpoint of step 3 has other bits")

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
        _, err = self.run(3, ["throw"], expect=(1, 143))  # the other ranks exit before it
        interop.require(err, r"(?ms)^ddprun: error: rank 1 failed.*the labels are upside down", "stderr")


def read_files(directory):
    losses, states = [], []
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as file:
            (losses if name.startswith("losses") else states).append(file.read())
    return losses, states


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
    parser.add_argument("--sanitize", default="", help="address or thread: build the ranks' program with it")
    parser.add_argument("--rank-program", help="one that was built before")
    parser.add_argument("tests", nargs="*")
    arguments = parser.parse_args()
    python, env = interop.find_python(arguments.torch)
    env["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        program = arguments.rank_program or os.path.join(folder, "libtorch_rank")
        if not os.path.exists(program):
            build(folder, arguments.libddp, torch_directory(python, env), arguments.sanitize, program)
        tests = Tests(arguments, python, env, folder, program)
        for name in arguments.tests or ["equality", "kinds", "deaths", "shrink", "misuse"]:
            getattr(tests, name)()
            print(f"ok: {name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
