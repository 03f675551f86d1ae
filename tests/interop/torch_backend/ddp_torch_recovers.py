"""Ranks of a PyTorch program die, and the others continue in place: ddp_torch.elastic. The ranks are recovering_rank.py.

usage: ddp_torch_recovers.py DDPRUN DIRECTORY [CASE...]

Runs with the Python whose torch is tested. $SEED chooses the kills of the case `random`; it is printed.
"""
import collections
import difflib
import importlib.util
import os
import random
import re
import subprocess
import sys
import tempfile

from step_reports import Report, counted

HERE = os.path.dirname(os.path.abspath(__file__))
RANK = os.path.join(HERE, "recovering_rank.py")
SHARDS = os.path.join(HERE, "recovering_shards.py")
STEPS = 40
DEADLINE_S = 600
PLACES = "forward", "backward", "reduced", "done"


class Run:
    """A job, and what its ranks have reported."""

    def __init__(self, launcher, *words, backend="gloo", kills=(), options=(), steps=STEPS, expect=0, program=RANK):
        marks = tempfile.mkdtemp(dir=FOLDER)
        command = [*launcher, *words, program, "--steps", str(steps), "--backend", backend, "--marks", marks, *options]
        for kill in kills:
            command += ["--kill", kill]
        print("+", *command, flush=True)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
        self.err, self.happened = done.stderr, sorted(m for m in os.listdir(marks) if not m.startswith("ready-"))
        check(done.returncode == expect, f"exit status {done.returncode}, not {expect}:\n{done.stdout}\n{done.stderr}")
        self.results = collections.defaultdict(set)  # step -> {(parameters, learning rate)}
        self.took = collections.defaultdict(list)  # step -> samples
        self.worlds = {}
        self.n_reports = collections.Counter()  # step -> ranks that completed it and did not receive its state
        self.retried = 0
        reports = [report for report in map(Report.read, done.stdout.splitlines()) if report]
        for report in counted(reports):
            self.results[report.step].add((report.parameters, report.lr))
            self.n_reports[report.step] += 1
            self.worlds[report.step] = report.world
            self.took[report.step] += report.took
        self.pids = {report.pid for report in reports}

    def check_steps(self, steps=STEPS, n_results=1):
        check(sorted(self.results) == list(range(1, steps + 1)), f"steps {sorted(self.results)}")
        for step, results in self.results.items():
            check(len(results) == n_results, f"step {step} has different results: {results}")

    def check_kills(self, kills, n):
        """All happened, and each of them cost one process."""
        wanted = sorted(f"{step}-{place}-{rank}" for step, place, ranks in (k.split(":") for k in kills) for rank in ranks.split(","))
        check(self.happened == wanted, f"killed {self.happened}, not {wanted}")
        check(self.err.count("killed by SIGKILL") == len(wanted), self.err)
        check(len(self.pids) <= n + len(wanted), f"{len(self.pids)} processes for {n} ranks and {len(wanted)} kills")
        check("restarting" not in self.err, self.err)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def ddprun(n, *words):
    return [DDPRUN, "-n", str(n), "--warm=start", "--max-restarts", "50", *words]


ALL_KILLS = ["3:forward:0", "6:backward:1", "9:reduced:2", "12:done:0", "15:forward:1,2", "18:backward:0", "18:sharing:1", "21:reduced:0,1",
             "24:backward:0", "24:joining:1"]


def replaced_with_the_same_bits():
    """Sums are added in rank order, and a replacement has the generators of its predecessor."""
    expected = Run(ddprun(3), backend="ddp")
    found = Run(ddprun(3), backend="ddp", kills=ALL_KILLS)
    found.check_steps()
    found.check_kills(ALL_KILLS, 3)
    check(found.results == expected.results, f"{found.results}\nnot\n{expected.results}")
    # a log directory has another directory for each generation
    found = Run(ddprun(3, "--log-dir", os.path.join(FOLDER, "logs")), backend="ddp", kills=ALL_KILLS[:2])
    check(found.results == expected.results, f"{found.results}\nnot\n{expected.results}")


def replaced_with_gloo():
    for options in [], ["--workers", "2", "--accumulate", "2"], ["--scaler", "--static-graph"]:
        found = Run(ddprun(3), kills=ALL_KILLS, options=options)
        found.check_steps()
        found.check_kills(ALL_KILLS, 3)


def shrunk():
    for backend in "gloo", "ddp":
        kills = ["5:backward:1", "10:forward:0", "15:reduced:2"]
        found = Run(ddprun(5, "--on-failure", "shrink"), backend=backend, kills=kills, steps=60)
        found.check_steps(60)
        found.check_kills(kills, 5)
        check(found.worlds[1] == 5 and found.worlds[60] == 2, f"worlds {found.worlds}")
        check(len(found.pids) == 5, "a process was started")


def shrunk_to_one_and_no_sample_is_lost():
    kills = ["3:done:1", "6:done:1"]
    found = Run(ddprun(3, "--on-failure", "shrink"), kills=kills, steps=20)
    found.check_steps(20)
    check(found.worlds[20] == 1, f"worlds {found.worlds}")
    epoch = [i for step in sorted(found.took) for i in found.took[step]]
    # the batch of a rank that did not report a step is unknown: it died, or it received the state of a rank that had completed the step
    n_silent = sum(world - found.n_reports[step] for step, world in found.worlds.items())
    check(n_silent <= 3, f"{n_silent} reports are missing")
    known = 101 - 4 * n_silent
    check(len(set(epoch)) >= known, f"{len(set(epoch))} samples, not {known}")
    check(max(collections.Counter(epoch[:known]).values()) == 1, "a sample was used twice in an epoch")


def sharded():
    """Two replicas of two shards: a rank that starts again gets its shard from the other replica."""
    kills = ["3:forward:0", "6:backward:1", "9:reduced:2", "12:forward:0,3", "15:backward:1", "15:sharing:0"]
    for backend in "gloo", "ddp":
        found = Run(ddprun(4), backend=backend, kills=kills, steps=20, program=SHARDS)
        found.check_steps(20, n_results=2)
        found.check_kills(kills, 4)
    expected = Run(ddprun(4), backend="ddp", steps=20, program=SHARDS)
    check(found.results == expected.results, f"{found.results}\nnot\n{expected.results}")


def sharded_without_a_replica():
    found = Run(ddprun(4), kills=["3:forward:0,2"], steps=10, program=SHARDS)
    check("no rank has shard 0 of 2 after step 3: those that had it died; restart the job from a checkpoint" in found.err, found.err)
    found.check_steps(10, n_results=2)
    found = Run([DDPRUN, "-n", "3"], steps=10, program=SHARDS, expect=1)
    check("3 ranks cannot hold replicas of 2 shards" in found.err, found.err)


def own_exceptions():
    """Also right after a recovery."""
    found = Run([DDPRUN, "-n", "3", "--warm=start"], options=["--raise-at", "5"], expect=1)
    check("an error of the program's own" in found.err, found.err)
    found = Run(ddprun(3, "--max-restarts", "1"), kills=["4:done:0"], options=["--raise-at", "5"], expect=1)
    check("an error of the program's own" in found.err and "rank 1 failed: exit status 1" in found.err, found.err)


def a_rank_that_torch_keeps_ends_itself():
    kills = ["5:forward:1", "5:stuck:0"]
    found = Run(ddprun(3), kills=kills)
    found.check_steps()
    check(found.happened == ["5-forward-1", "5-stuck-0"], f"{found.happened}")
    check("rank 0 ended itself" in found.err and "restarting" not in found.err and len(found.pids) == 5, found.err)


def a_standby_takes_over():
    """With the generators of its predecessor; and survives the next death."""
    kills = ["20:backward:1", "30:forward:0"]
    expected = Run(ddprun(3), backend="ddp")
    for backend in "gloo", "ddp":
        found = Run([DDPRUN, "-n", "3", "--max-restarts", "50", "--standby", "1"], backend=backend, kills=kills, options=["--standby-of", "3"])
        found.check_steps()
        found.check_kills(kills, 3)
    check(found.results == expected.results, f"{found.results}\nnot\n{expected.results}")


def other_launchers():
    expected = Run(ddprun(2), steps=10)
    for launcher in [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"], [DDPRUN, "-n", "2"]:
        check(Run(launcher, steps=10).results == expected.results, "other results")
    Run([sys.executable], steps=3).check_steps(3)


def at_random():
    seed = os.environ.get("SEED") or str(random.randrange(10**6))
    print("SEED", seed, flush=True)
    draw = random.Random(seed)
    for backend in "gloo", "ddp":
        kills = []
        for step in range(2, STEPS - 4, 4):
            ranks = draw.sample(range(3), draw.choice([1, 1, 1, 2]))
            kills.append(f"{step}:{draw.choice(PLACES)}:{','.join(map(str, sorted(ranks)))}")
        found = Run(ddprun(3), backend=backend, kills=kills)
        found.check_steps()
        found.check_kills(kills, 3)


def tutorial():
    """The scripts of the page: they print the same, and few lines differ."""
    with open(os.path.join(HERE, "../../../docs/get-started/pytorch-recovery.md"), encoding="utf-8") as f:
        before, after = re.findall(r"(?ms)^```python\n(.*?)^```$", f.read())
    lines = [[line.strip() for line in text.splitlines() if line.strip()] for text in (before, after)]
    changed = [line for line in difflib.ndiff(*lines) if line.startswith("+ ")]
    check(len(changed) <= 15, f"{len(changed)} lines are new: {changed}")
    said = []
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    for text, launcher in (before, ddprun(3)), (after, ddprun(3)), (after, torchrun):
        script = os.path.join(FOLDER, "tutorial.py")
        with open(script, "w", encoding="utf-8") as f:
            f.write(text)
        done = subprocess.run([*launcher, script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=DEADLINE_S)
        check(done.returncode == 0, f"exit status {done.returncode}")
        said.append(re.findall(r"(?m)epoch \d+: loss .*$", done.stdout))
    check(len(said[0]) == 5 and said[0] == said[1] == said[2], f"{said}")


def framework(package, program):
    """A program for another package, which loses a rank."""
    if importlib.util.find_spec(package) is None:
        print(f"{sys.executable} has no {package}")
        sys.exit(77)
    command = [DDPRUN, "-n", "3", "--max-restarts", "3", os.path.join(HERE, program), os.path.join(FOLDER, program + ".mark")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S)
    check(done.returncode == 0, f"exit status {done.returncode}:\n{done.stdout}\n{done.stderr}")
    check(done.stderr.count("killed by SIGKILL") == 1, done.stderr)
    check("replacing it, restart 1 of 3" in done.stderr and "restart 2" not in done.stderr, done.stderr)
    check(len(re.findall(r"(?m)^rank \d of 3 pid \d+: 32 steps, same True$", done.stdout)) == 3, done.stdout)


def accelerate():
    framework("accelerate", "recovering_accelerate.py")


def lightning():
    framework("pytorch_lightning", "recovering_lightning.py")


def transformers():
    framework("transformers", "recovering_transformers.py")


CASES = [replaced_with_the_same_bits, replaced_with_gloo, shrunk, shrunk_to_one_and_no_sample_is_lost, sharded, sharded_without_a_replica, own_exceptions,
         a_rank_that_torch_keeps_ends_itself, a_standby_takes_over, other_launchers, at_random, tutorial, accelerate,
         lightning, transformers]

if __name__ == "__main__":
    DDPRUN, FOLDER, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    for case in CASES:
        if not wanted or case.__name__ in wanted:
            case()
            print("passed:", case.__name__, flush=True)
