#!/usr/bin/env python3
"""Real torchrun and ddprun with --event-log-handler console: the same records, key by key, in the same
order? Standard library only.

usage: event_log_same.py --launcher DDPRUN
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from run import NEWEST, VERSIONS, fail, find_python

DEADLINE_S = 60 * float(os.environ.get("TEST_PATIENCE", "1"))

# What a rank does. Each writes its pid first; a rank that ends on purpose waits for the others' files.
WORKER = """
here=$EVENTS_DIR/$TORCHELASTIC_RESTART_COUNT
echo $$ >$here.$RANK
await() { until [ -s $here.$1 ]; do sleep 0.01; done; }
"""
CASES = {
    "all_end_well": ("", "exit 0"),
    "ranks_are_started_again": ("--max-restarts 1", "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; "
                                "[ $RANK = 0 ] && exec sleep 1000; await 0; exit 3"),
    "a_rank_fails_with_an_error_file": ("", """
        [ $RANK = 0 ] && exit 0
        await 0
        while kill -0 $(cat $here.0) 2>/dev/null; do sleep 0.01; done
        echo '{"message": {"message": "E: \\u00fc \\\\"x\\\\"", "extraInfo": {"timestamp": "1", "py_callstack": "a\\\\nb"}}}' \\
            >$TORCHELASTIC_ERROR_FILE
        exit 7"""),
    "ranks_fail_without_a_word": ("--role r", "await 0; await 1; [ $RANK = 0 ] && exec sleep 1000; kill -9 $$"),
    "it_is_stopped": ("", "exec sleep 1000"),
}


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def await_starts(path):
    """Until the launcher has recorded that both ranks have started: they may be faster."""
    end = time.monotonic() + DEADLINE_S
    while read(path).count('"state": "START"') < 2:
        if time.monotonic() > end:
            fail("the ranks did not come up")
        time.sleep(0.01)


def run(launcher, env, name, folder):
    """-> the lines of its records"""
    options, script = CASES[name]
    os.mkdir(folder)
    # torchrun makes one $ of two in an argument, ddprun does not
    command = launcher + (f"--nnodes 1 --nproc-per-node 2 --rdzv-id events {options} --event-log-handler console "
                          "--no-python sh -c").split() + [(WORKER + script).replace("$$", "$(exec sh -c 'echo $PPID')")]
    output = folder + ".stderr"
    with open(output, "wb") as stderr:
        process = subprocess.Popen(command, env=dict(env, EVENTS_DIR=folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        if name == "it_is_stopped":
            await_starts(output)
            process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()
    return [line for line in read(output).splitlines() if line.startswith('{"name"')]


def simplify(line):
    """Key by key, with what need not be equal replaced by its form."""
    record = json.loads(line)
    if json.dumps(record) != line:
        fail(f"not written as Python would: {line}")
    about = record["metadata"]
    inner = about["metadata"] = json.loads(about["metadata"])
    about["hostname"] = type(about["hostname"]).__name__
    about["worker_id"] = about["worker_id"] and about["worker_id"].isdigit()
    about["duration_ms"] = type(about["duration_ms"]).__name__
    about["total_run_time"] = type(about["total_run_time"]).__name__
    if "worker_pid" in inner:
        inner["worker_pid"] = [type(pid).__name__ for pid in inner["worker_pid"]]
    if record["source"] == "AGENT":
        about["raw_error"] = type(about["raw_error"]).__name__  # a traceback of Python's
    elif about["raw_error"] is not None:
        error = about["raw_error"] = json.loads(about["raw_error"])
        error.pop("errorTraits", None)  # torchrun's spread from one rank to another by a shared object
    return json.dumps(record)  # keeps the order of the keys


def compare(name, torchrun, ddprun, env, folder):
    theirs = [simplify(line) for line in run(torchrun, env, name, os.path.join(folder, name + ".torchrun"))]
    ours = [simplify(line) for line in run(ddprun, env, name, os.path.join(folder, name + ".ddprun"))]
    if not theirs:
        fail(f"{name}: torchrun has written no records")
    print("same:" if ours == theirs else "not the same:", name, f"({len(theirs)} records)")
    if ours != theirs:
        print(*("    torchrun  " + line for line in theirs), *("    ddprun    " + line for line in ours), sep="\n")
    return ours == theirs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True, help="ddprun")
    parser.add_argument("--torch", default=NEWEST, choices=VERSIONS)
    args = parser.parse_args()
    python, env = find_python(args.torch)
    env["OMP_NUM_THREADS"] = "1"
    for name in "RANK", "WORLD_SIZE", "TORCHELASTIC_ERROR_FILE", "LOGLEVEL":
        env.pop(name, None)
    folder = tempfile.mkdtemp(prefix="ddprun-events-")
    env["TMPDIR"] = folder
    torchrun = [python, "-m", "torch.distributed.run", "--master-port", "0"]
    try:
        same = [compare(name, torchrun, [os.path.abspath(args.launcher)], env, folder) for name in CASES]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not all(same):
        fail(f"{same.count(False)} of {len(same)} jobs")
    print(f"passed: {len(same)} jobs")


if __name__ == "__main__":
    sys.exit(main())
