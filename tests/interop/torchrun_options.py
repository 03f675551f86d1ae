"""Compare the options of torch's torchrun with ddprun's: a new release of torch that adds an option, a choice or a variable fails here.

usage: torchrun_options.py DDPRUN

Each spelling of torchrun's options is given to ddprun with a value that torchrun accepts. docs/reference/differences.md has the reasons
for what is in REFUSED.
"""
import subprocess
import sys

import torch

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
    variable = "PET_" + action.dest.upper()
    if names[0] not in NO_VARIABLE and f"[{variable}]" not in helped.replace("\n", " "):
        yield f"{variable} sets no option"


def main():
    program = sys.argv[1]
    helped = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    actions = [action for action in get_args_parser()._actions if action.option_strings]
    problems = [problem for action in actions for problem in problems_of(action, program, helped)]
    if problems:
        sys.exit(f"torchrun {torch.__version__} has options that ddprun does not accept:\n  " + "\n  ".join(problems))
    print(f"torch {torch.__version__}: {len(actions)} options are accepted")


main()
