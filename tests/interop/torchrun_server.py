"""Real torchrun, again and again, without importing torch each time: a fork for each line of standard
input, {"module": "run" or "launch", "words": [...], "env": {...}, "cwd": ..., "stdout": FILE, "stderr": FILE}.
Answers with its exit status."""
import json
import os
import sys
import tempfile
import traceback

import torch.distributed.launch
import torch.distributed.run

MAINS = {"run": torch.distributed.run.main, "launch": torch.distributed.launch.main}


def become(task):
    os.setsid()
    new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for target, path, flags in (0, "/dev/null", os.O_RDONLY), (1, task["stdout"], new), (2, task["stderr"], new):
        os.dup2(os.open(path, flags), target)
    os.chdir(task["cwd"])
    os.environ.clear()
    os.environ.update(task["env"])
    tempfile.tempdir = None  # importing torch has looked at the parent's TMPDIR
    sys.argv = ["torchrun", *task["words"]]
    code = 0
    try:
        MAINS[task["module"]]()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


for line in sys.stdin:
    task = json.loads(line)
    pid = os.fork()
    if pid == 0:
        become(task)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
