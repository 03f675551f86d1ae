"""Compare the options of torch's torchrun with ddprun's: a new release of torch that adds an option, a choice, a variable of the
environment or a key of --rdzv-conf fails here.

usage: torchrun_options.py DDPRUN

Each spelling of torchrun's options is given to ddprun with a value that torchrun accepts, and each option must be in a command line of
torchrun_same.py or in docs/reference/differences.md. Variables and keys are found in torchrun's source. The page has the reasons for
what is in REFUSED, and for each variable of OTHERWISE.
"""
import ast
import glob
import os
import re
import subprocess
import sys

import torch

from same_cases import CASES
from torch.distributed.run import get_args_parser

VALUES = {
    "--nnodes": "1:1", "--nproc-per-node": "1", "--rdzv-backend": "c10d", "--rdzv-endpoint": "localhost:29400", "--rdzv-id": "a",
    "--rdzv-conf": "join_timeout=9", "--max-restarts": "1", "--monitor-interval": "0.5", "--event-log-handler": "null", "--role": "a",
    "--log-dir": "/tmp", "--redirects": "3", "--tee": "3", "--log-line-prefix-template": "${rank}", "--local-ranks-filter": "0",
    "--duplicate-stdout-filters": "a", "--duplicate-stderr-filters": "a", "--node-rank": "0", "--master-addr": "localhost",
    "--master-port": "29500", "--local-addr": "localhost", "--logs-specs": "default", "--signals-to-handle": "SIGTERM",
    "--shutdown-timeout": "9",
}
PROGRAMS = {"--help": [], "--module": ["train"], "--run-path": [__file__]}  # what follows; else:
PROGRAM = ["/bin/true"]
NO_VARIABLE = {"--help", "--logs-specs", "--numa-binding", "--print-completion"}  # in torchrun
REFUSED = set()  # (option, choice)

# The files that make up torchrun; and the words in them that have the form of a variable, or are one of a single word.
SOURCES = ["distributed/run.py", "distributed/launch.py", "distributed/launcher/**/*.py", "distributed/elastic/**/*.py", "numa/*.py"]
VARIABLE = re.compile("[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|LOGLEVEL|RANK")
# Read with the same effect, or set for ranks with the same value.
SAME = {
    "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PYTHON_EXEC", "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCHELASTIC_SIGNALS_TO_HANDLE",
    "GROUP_RANK", "GROUP_WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RANK", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "WORLD_SIZE",
    "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT",
    "TORCH_WORKER_SERVER_SOCKET",  # for programs that serve it; passed on
}
OTHERWISE = {
    "LOGLEVEL", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "TORCHELASTIC_ENABLE_FILE_TIMER", "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_ETCD_BINARY_PATH", "TORCHELASTIC_HEALTH_CHECK_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_TIMER_FILE",
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", "TORCHELASTIC_USE_AGENT_STORE", "TORCH_ELASTIC_WORKER_IDENTICAL", "USE_LIBUV",
}
NO_VARIABLES = {"ASSIGN_WORKER_RANKS"}  # a label in torch's profiles
HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "../../docs/reference/differences.md"), encoding="utf-8") as page:
    PAGE = page.read()
COMPARED = {word.partition("=")[0].replace("_", "-") for case in CASES for word in case.words.split()}
SETTINGS = {"etcd_prefix": "/a", "keep_alive_max_attempt": "2", "protocol": "http"}  # the values of keys; else 1


def ddprun(program, words):
    """None, or what is wrong."""
    done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return None if done.returncode == 0 else f"{' '.join(words)}: {done.stderr.strip()}"


def problems_of(action, program, helped):
    names = [name for name in action.option_strings if name.startswith("--")]
    if "_" in names[0]:
        yield f"{names[0]}: expected a name with dashes"
    takes_value = action.nargs != 0
    if not takes_value or action.choices:
        values = action.choices or [None]
    elif names[0] in VALUES:
        values = [VALUES[names[0]]]
    else:
        yield f"{names[0]} has no value in VALUES"
        return
    rest = PROGRAMS.get(names[0], PROGRAM)
    for value in values:
        if (names[0], value) in REFUSED:
            continue
        for name in action.option_strings:
            problem = ddprun(program, ["--dry-run", name, *([value] if takes_value else []), *rest])
            if problem:
                yield problem
    if not COMPARED & set(action.option_strings) and not re.search(rf"`{names[0]}[`= ]", PAGE):
        yield f"{names[0]}: torchrun_same.py does not compare it, and differences.md does not have it"
    variable = "PET_" + action.dest.upper()
    if names[0] not in NO_VARIABLE and f"[{variable}]" not in helped.replace("\n", " "):
        yield f"{variable} sets no option"


def syntax_trees():
    """Those of torchrun's files."""
    base = os.path.dirname(torch.__file__)
    for path in (path for pattern in SOURCES for path in glob.glob(os.path.join(base, pattern), recursive=True)):
        with open(path, encoding="utf-8") as f:
            yield ast.parse(f.read(), path)


def variables_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value):
            yield node.value


def settings_of(tree):
    """The keys of --rdzv-conf: params.get("k"), params.config.get("k"), params.get_as_int("k"), _get_timeout(params, "k")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            called, last = ast.unparse(node.func), node.args[-1 if ast.unparse(node.func) == "_get_timeout" else 0]
            if isinstance(last, ast.Constant) and isinstance(last.value, str):
                if called == "_get_timeout":
                    yield last.value + "_timeout"
                elif re.fullmatch(r"params(\.config)?\.get(_as_\w+)?", called):
                    yield last.value


def environment_problems(trees):
    found = {name for tree in trees for name in variables_of(tree)}
    for name in sorted(found - SAME - OTHERWISE - NO_VARIABLES):
        yield f"{name} is not in a table of this test"
    for name in sorted(OTHERWISE):
        if f"`{name}" not in PAGE:
            yield f"differences.md does not have {name}"


def settings_problems(trees, program):
    keys = sorted({key for tree in trees for key in settings_of(tree)})
    if len(keys) < 10:
        yield f"torchrun's source has the keys {keys} only: the test does not find the others"
    for key in keys:
        words = ["--dry-run", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost", "--rdzv-id", "a", "--rdzv-conf",
                 f"{key}={SETTINGS.get(key, '1')}", *PROGRAM]
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if done.returncode != 0 or "unknown setting" in done.stderr:
            yield f"--rdzv-conf {key}: {done.stderr.strip()}"


def main():
    program = sys.argv[1]
    helped = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    actions = [action for action in get_args_parser()._actions if action.option_strings]
    trees = list(syntax_trees())
    problems = [problem for action in actions for problem in problems_of(action, program, helped)]
    problems += [*environment_problems(trees), *settings_problems(trees, program)]
    if problems:
        sys.exit(f"torchrun {torch.__version__} has options that ddprun does not accept:\n  " + "\n  ".join(problems))
    print(f"torch {torch.__version__}: {len(actions)} options are accepted")


main()
