#!/usr/bin/env python3
"""Real torchrun 2.11 and ddprun, under its own name and as a link called torchrun, on the same command
lines: do workers get the same, and does the shell? Standard library only.

usage: torchrun_same.py --launcher DDPRUN [CASE]...

A case says where the three differ on purpose; docs/differences.md says why. To compare more, add a
function to COMPARE: it gets a case and the three runs.
"""
import argparse
import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from run import HERE, fail, find_python, free_port

DEADLINE_S = 60
WHO = "torchrun", "link", "ddprun"
ANY_PORT = r"[1-9][0-9]{0,4}"
RANDOM_ID = r"[-0-9a-f]{36}"


@dataclasses.dataclass
class Case:
    name: str
    words: str  # of one command line, blanks between; @WORKER@, @PORT@ (a free one), @DIR@ (empty)
    ranks: int = 2  # that are started; 0: it is refused, or there is no program
    env: dict = dataclasses.field(default_factory=dict)
    status: tuple = (0, 0, 0)  # of torchrun, the link, ddprun
    module: str = "run"  # or "launch": torch.distributed.launch
    ours: str = None  # the words for link and ddprun, if they are to be others
    unlike: dict = dataclasses.field(default_factory=dict)  # variable: a form for each of the three
    python: bool = True  # compare how Python was called, too
    only: tuple = WHO


@dataclasses.dataclass
class Run:
    who: str
    dir: str
    status: int
    output: str
    ranks: dict


SERVED = {"TORCHELASTIC_USE_AGENT_STORE": ("True", "False", "False")}  # a world of 1 has no store
NAMELESS = {"TORCHELASTIC_RUN_ID": ("none", "none", RANDOM_ID)}


def case(name, words, **more):
    """A job without an id is called none by torchrun; one of one rank gets no store from us."""
    unlike = {**NAMELESS, **(SERVED if more.get("ranks", 2) == 1 else {}), **more.pop("unlike", {})}
    return Case(name, words, unlike=unlike, **more)


def alone(name, words, **more):
    """With --standalone; the id is random for all."""
    more["unlike"] = {"TORCHELASTIC_RUN_ID": (RANDOM_ID,) * 3, **more.get("unlike", {})}
    return case(name, "--standalone " + words, **more)


def identified(name, words, run_id, **more):
    more["unlike"] = {"TORCHELASTIC_RUN_ID": (run_id,) * 3, **more.get("unlike", {})}
    return case(name, words, **more)


REFUSED = {"ranks": 0, "status": (2, 2, 2)}
CASES = [
    # how many, and where
    case("one_rank_by_default", "@WORKER@ a", ranks=1),
    alone("standalone", "--nproc-per-node 2 @WORKER@ a b"),
    alone("underscores", "--nproc_per_node=2 @WORKER@"),
    alone("unique_prefixes", "--nproc-per 2 --monitor-i 0.1 --max-r 0 --signals-t SIGTERM,SIGINT,SIGHUP,SIGQUIT @WORKER@"),
    alone("nodes_as_a_range", "--nnodes 1:1 --nproc-per-node 3 @WORKER@", ranks=3),
    alone("node_rank_0", "--nnodes=1 --node_rank=0 --nproc-per-node 2 @WORKER@"),
    case("options_of_last_and_first", "--nproc-per-node 3 --nproc-per-node 2 --master-port @PORT@ @WORKER@"),
    case("environment_gives_options", "@WORKER@", env={"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1", "PET_ROLE": "r"},
         unlike={"TORCHELASTIC_RUN_ID": (RANDOM_ID,) * 3}),
    case("command_line_beats_environment", "--nproc-per-node 2 --role b --master-port @PORT@ @WORKER@",
         env={"PET_NPROC_PER_NODE": "5", "PET_ROLE": "a", "PET_STANDALONE": "0"}),
    # meeting
    case("static_port", "--nproc-per-node 2 --master-addr 127.0.0.1 --master-port @PORT@ @WORKER@",
         unlike={"MASTER_PORT": ("@PORT@",) * 3, "MASTER_ADDR": (r"127\.0\.0\.1",) * 3}),
    case("static_localhost", "--nproc-per-node 2 --master_addr localhost --master_port @PORT@ @WORKER@",
         unlike={"MASTER_PORT": ("@PORT@",) * 3, "MASTER_ADDR": ("localhost",) * 3}),
    identified("static_endpoint", "--nproc-per-node 2 --rdzv-endpoint localhost:@PORT@ --rdzv-id j7 @WORKER@", "j7",
               unlike={"MASTER_PORT": ("@PORT@",) * 3, "MASTER_ADDR": ("localhost",) * 3}),
    identified("c10d_endpoint", "--nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:@PORT@ "
               "--rdzv-id job-8 @WORKER@", "job-8"),
    identified("rendezvous_settings", "--nproc-per-node 2 --rdzv_backend=c10d --rdzv_endpoint=localhost:0 --rdzv_id=a.b "
               "--rdzv_conf join_timeout=30,last_call_timeout=1 @WORKER@", r"a\.b"),
    alone("local_address", "--nproc-per-node 2 --local-addr 127.0.0.1 @WORKER@"),
    alone("id_with_standalone", "--rdzv-id mine --nproc-per-node 2 @WORKER@",
          unlike={"TORCHELASTIC_RUN_ID": (RANDOM_ID, "mine", "mine")}),
    # names, restarts, settings that workers see
    alone("role", "--nproc-per-node 2 --role trainer @WORKER@"),
    alone("restarts", "--nproc-per-node 2 --max-restarts 3 @WORKER@"),
    alone("signals", "--nproc-per-node 2 --signals-to-handle SIGTERM,SIGUSR1 @WORKER@"),
    alone("unknown_signal", "--nproc-per-node 2 --signals-to-handle SIGTERM,SIGNONE @WORKER@"),
    alone("accepted_for_nothing", "--nproc-per-node 2 --start-method fork --monitor-interval 0.05 @WORKER@"),
    alone("event_log", "--nproc-per-node 2 --event-log-handler null @WORKER@"),
    alone("threads_are_kept", "--nproc-per-node 2 @WORKER@", env={"OMP_NUM_THREADS": "3"},
          unlike={"OMP_NUM_THREADS": ("3",) * 3}),
    alone("nccl_setting_is_kept", "--nproc-per-node 2 @WORKER@", env={"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}),
    alone("virtual_local_rank", "--nproc-per-node 2 --virtual-local-rank @WORKER@"),
    alone("virtual_local_rank_of_a_list", "--nproc-per-node 2 --virtual-local-rank @WORKER@",
          env={"CUDA_VISIBLE_DEVICES": "5,GPU-8a1c"}),
    alone("devices_are_inherited", "--nproc-per-node 2 @WORKER@", env={"CUDA_VISIBLE_DEVICES": "1,0"}),
    # the program and its words
    alone("no_python", "--nproc-per-node 2 --no-python @WORKER@ a -b --c=d", python=False),
    alone("module", "--nproc-per-node 2 -m dump a", env={"PYTHONPATH": HERE}),
    alone("run_path", "--nproc-per-node 2 --run-path @WORKER@ a --b", python=False),
    alone("options_of_the_program", "--nproc-per-node 2 @WORKER@ --nproc-per-node 3 --help -t 3 -- x"),
    alone("double_dash_before", "--nproc-per-node 2 -- @WORKER@ -x"),
    alone("double_dash_behind", "--nproc-per-node 2 @WORKER@ -- -x", only=("torchrun", "link")),
    alone("double_dash_later", "--nproc-per-node 2 @WORKER@ a -- -x --"),
    alone("templates", "--nproc-per-node 2 @WORKER@ ${local_rank} a$local_rank.b $local_ranks $HOME $$ $$$ $${local_rank} "
          "${x} $ $1 ${local_rank"),
    alone("templates_without_python", "--nproc-per-node 2 --no-python @WORKER@ out/${local_rank} $$x", python=False),
    case("launch", "--nproc-per-node 2 --master-port @PORT@ @WORKER@ a", module="launch",
         ours="--nproc-per-node 2 --master-port @PORT@ --local-rank-arg=--local-rank @WORKER@ a"),
    case("launch_a_module", "--nproc-per-node 2 --master-port @PORT@ -m dump a", module="launch",
         ours="--nproc-per-node 2 --master-port @PORT@ --local-rank-arg=--local-rank -m dump a", env={"PYTHONPATH": HERE}),
    case("launch_with_environment", "--use-env --nproc-per-node 2 --master-port @PORT@ @WORKER@ a", module="launch"),
    # ends
    alone("a_rank_fails", "--nproc-per-node 2 @WORKER@", env={"DUMP_END": "1:3"}, status=(1, 1, 3)),
    alone("a_rank_is_killed", "--nproc-per-node 2 @WORKER@", env={"DUMP_END": "0:-9"}, status=(1, 1, 137)),
    alone("no_such_program", "--no-python @DIR@/missing", ranks=0, status=(1, 1, 127)),
    # refusals
    case("no_program", "", **REFUSED),
    case("unknown_option", "--nonsense @WORKER@", **REFUSED),
    case("option_without_value", "--nproc-per-node", **REFUSED),
    case("flag_with_value", "--standalone=1 @WORKER@", **REFUSED),
    case("unknown_choice", "--start-method thread @WORKER@", **REFUSED),
    case("ambiguous_prefix", "--rdzv x @WORKER@", **REFUSED),
    case("words_for_a_number", "--max-restarts many @WORKER@", **REFUSED),
    case("no_ranks", "--nproc-per-node 0 @WORKER@", ranks=0, status=(1, 2, 2)),
    case("nodes_backwards", "--nnodes 2:1 @WORKER@", ranks=0, status=(1, 2, 2)),
    case("module_and_no_python", "-m --no-python dump", ranks=0, status=(1, 2, 2)),
    case("help", "--help", ranks=0),
]

# What all three have in a form, and need not be equal in; the same goes for a case's `unlike`.
FORMS = {
    "MASTER_ADDR": (r"localhost|127\.0\.0\.1",) * 3,
    "MASTER_PORT": (ANY_PORT,) * 3,
    "OMP_NUM_THREADS": ("1", "1", "[1-9][0-9]*"),
    "TORCHELASTIC_ERROR_FILE": ("/.*/error.json", "/.+", "/.+"),
}
# What the interpreter and torch's import leave in torchrun's own environment; not meant for workers.
IGNORED = {"DUMP_DIR", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "LC_CTYPE", "TORCHINDUCTOR_CACHE_DIR"}


def compare_status(case, runs):
    for run in runs:
        expected = case.status[WHO.index(run.who)]
        if run.status != expected:
            yield f"{run.who} ended with {run.status}, expected {expected}:\n{run.output}"


def compare_ranks(case, runs):
    for run in runs:
        if sorted(run.ranks) != list(range(case.ranks)):
            yield f"{run.who} started ranks {sorted(run.ranks)}, expected {case.ranks}:\n{run.output}"


def compare_words(case, runs):
    """The arguments, the current directory, and how Python was called."""
    for what in ["name", "argv", "cwd"] + ["python"] * case.python:
        for rank, theirs in runs[0].ranks.items():
            for run in runs[1:]:
                if rank in run.ranks and run.ranks[rank][what] != theirs[what]:
                    yield f"rank {rank}, {what}: torchrun {theirs[what]}, {run.who} {run.ranks[rank][what]}"


def compare_environment(case, runs):
    forms = {**FORMS, **case.unlike}
    for rank in runs[0].ranks:
        seen = [run.ranks[rank]["environment"] if rank in run.ranks else {} for run in runs]
        names = {name for env in seen for name in env if not name.startswith("DDP_")} - IGNORED
        for name in sorted(names):
            values = [env.get(name) for env in seen]
            if name == "OMP_NUM_THREADS" and case.ranks == 1 and values[0] is None:
                same = values[1 if "link" in case.only else 0] is None
            elif name in forms:
                patterns = [forms[name][WHO.index(run.who)] for run in runs]
                same = all(value is not None and re.fullmatch(pattern, value)
                           for pattern, value in zip(patterns, values))
            else:
                same = len(set(values)) == 1
            if not same:
                yield f"rank {rank}, {name}: " + ", ".join(f"{run.who} {value!r}" for run, value in zip(runs, values))


COMPARE = [compare_status, compare_ranks, compare_words, compare_environment]


class Torchrun:
    """The server of real torchruns."""

    def __init__(self, python, env):
        self.process = subprocess.Popen([python, os.path.join(HERE, "torchrun_server.py")], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def run(self, task):
        signal.alarm(DEADLINE_S)
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        status = self.process.stdout.readline()
        signal.alarm(0)
        return int(status)

    def close(self):
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)


def run_ours(command, task):
    with open(task["output"], "w") as output:
        return subprocess.run(command + task["words"], env=task["env"], cwd=task["cwd"], stdin=subprocess.DEVNULL,
                              stdout=output, stderr=output, timeout=DEADLINE_S).returncode


def run_case(case, who, start, env, folder):
    """start(task) -> exit status"""
    run_dir = os.path.join(folder, case.name, who)
    dump_dir = os.path.join(run_dir, "dump")
    os.makedirs(dump_dir)
    words = case.words if who == "torchrun" or case.ours is None else case.ours
    task = {"module": case.module, "words": fill(words, case, folder).split(), "cwd": run_dir,
            "env": {**env, **case.env, "DUMP_DIR": dump_dir}, "output": os.path.join(run_dir, "output")}
    status = start(task)
    ranks = {}
    for name in os.listdir(dump_dir):
        with open(os.path.join(dump_dir, name)) as f:
            ranks[int(name.split(".")[0])] = json.load(f)
    for rank in ranks.values():  # each runs in a folder of its own
        rank["cwd"] = os.path.relpath(rank["cwd"], run_dir)
        rank["environment"] = {k: v.replace(run_dir, "RUN_DIR") for k, v in rank["environment"].items()}
    with open(task["output"], errors="replace") as f:
        return Run(who, run_dir, status, f.read(), ranks)


def fill(text, case, folder):
    return (text.replace("@WORKER@", os.path.join(HERE, "dump.py")).replace("@PORT@", case.port)
            .replace("@DIR@", folder))


def check(case, starts, env, folder):
    case.port = free_port()
    case.unlike = {name: [fill(form, case, folder) for form in forms] for name, forms in case.unlike.items()}
    runs = [run_case(case, who, starts[who], env, folder) for who in case.only]
    return [problem for compare in COMPARE for problem in compare(case, runs)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True, help="ddprun")
    parser.add_argument("case", nargs="*", help="default: all")
    args = parser.parse_args()
    chosen = [case for case in CASES if not args.case or case.name in args.case]
    python, env = find_python("2.11")
    for name in "RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "TORCHELASTIC_ERROR_FILE", "LOGLEVEL":
        env.pop(name, None)
    folder = tempfile.mkdtemp(prefix="ddprun-same-")
    env["TMPDIR"] = folder  # torchrun never removes its folders there
    link = os.path.join(folder, "torchrun")
    ddprun = shutil.which(args.launcher) or fail(f"there is no {args.launcher}")
    os.symlink(os.path.abspath(ddprun), link)
    torchrun = Torchrun(python, env)
    starts = {"torchrun": torchrun.run, "link": lambda task: run_ours([link], task),
              "ddprun": lambda task: run_ours([os.path.abspath(ddprun)], task)}
    n_failed = 0
    try:
        for case in chosen:
            problems = check(case, starts, env, folder)
            n_failed += bool(problems)
            print("not the same:" if problems else "same:", case.name, *problems, sep="\n    " if problems else " ", flush=True)
        torchrun.close()
    finally:
        torchrun.process.kill()
        torchrun.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    if n_failed:
        fail(f"{n_failed} of {len(chosen)} command lines")
    print(f"passed: {len(chosen)} command lines")


if __name__ == "__main__":
    sys.exit(main())
