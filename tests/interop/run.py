#!/usr/bin/env python3
"""Run one interop case: a real PyTorch program under ddprun. Standard library only.

usage: run.py --program DDPRUN --torch VERSION CASE

VERSION is 1.13, 2.1, 2.4, 2.11, or that of scripts/torch-version.txt.

The program is ddprun; cases about another part of ours take that, or the test program around it.

Exit status 77, with the reason as the last line, if that PyTorch is not here. It is looked for in
$TORCH_1_13_PYTHON (default /usr/bin/python3) and its like, the newest in $TORCH_PYTHON (default: the virtual environments that
scripts/install-deps makes, with --interop for the newest and with --interop-old for the others).
"""
import argparse
import contextlib
import difflib
import glob
import inspect
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "system/lib"))
from ports import free_port  # noqa: E402 (found by the path above)

with open(os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts/torch-version.txt"), encoding="ascii") as pin:
    NEWEST = ".".join(pin.read().split(".")[:2])  # the newest PyTorch that is tested: the one of scripts/install-deps --interop
VERSIONS = ["1.13", "2.1", "2.4", "2.11", NEWEST]
PATIENCE = float(os.environ.get("TEST_PATIENCE", "1"))  # as scripts/check has it
DEADLINE_S = 240 * PATIENCE  # meson has 300
HANG_S = 20 * PATIENCE  # three ranks import torch within it, unless the machine is busy
SKIPPED = 77
WHY_IT_HANGS = "(?:sleeps where no other rank does|has not called a collective of torch that others wait in)"  # older torch, newer


def cache_dir():
    base = os.environ.get("XDG_CACHE_HOME", "")
    return base if os.path.isabs(base) else os.path.expanduser("~/.cache")


def find_python(version):
    """The Python whose torch has this version, and the environment it needs; exits 77 if none."""
    default = "/usr/bin/python3"
    if version != "1.13":
        default = os.path.join(cache_dir(), f"ddprun/torch-{version}/bin/python")
    python = os.environ.get("TORCH_PYTHON" if version == NEWEST else f"TORCH_{version.replace('.', '_')}_PYTHON") or default
    find = (
        "import importlib.util, os.path, runpy; spec = importlib.util.find_spec('torch');"
        "print(runpy.run_path(os.path.dirname(spec.origin) + '/version.py')['__version__'] if spec else '')"
    )
    try:
        found = subprocess.run([python, "-c", find], stdout=subprocess.PIPE, text=True, timeout=60).stdout
    except OSError as error:
        skip(f"no torch {version}: {error}")
    if not found.startswith(version + "."):
        skip(f"{python} has {'torch ' + found.strip() if found.strip() else 'no torch'}, not {version}")

    env = dict(os.environ, PYTHON_EXEC=python, PYTHONUNBUFFERED="1")
    env.pop("OMP_NUM_THREADS", None)
    cuda = "/usr/local/cuda/lib64"  # where the virtual environment leans on the machine's CUDA
    if version in ("2.11", NEWEST) and os.path.exists(cuda + "/libcudart.so.13"):
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [cuda, env.get("LD_LIBRARY_PATH")]))
    return python, env


def skip(reason):
    print(reason)
    sys.exit(SKIPPED)


def fail(message):
    print("FAILED:", message)
    sys.exit(1)


def run(command, env, expect=(0,), more_s=0):
    """Run to its end; returns (stdout, stderr). Another exit status, or none in time, fails the test."""
    deadline_s = DEADLINE_S + more_s
    print("+", shlex.join(command), flush=True)
    child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, errors="replace",
                             start_new_session=True)
    late = False
    try:
        out, err = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        late = True
        os.killpg(child.pid, signal.SIGTERM)
        try:
            out, err = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            try:
                out, err = child.communicate(timeout=10)
            except subprocess.TimeoutExpired as error:  # a process of another session holds its output open
                out, err = ((text or b"").decode(errors="replace") for text in (error.stdout, error.stderr))
    print(out, err, sep="\n--- stderr:\n", flush=True)
    if late:
        fail(f"it was still running after {deadline_s} s")
    if child.returncode not in expect:
        fail(f"exit status {child.returncode}, expected {' or '.join(map(str, expect))}")
    return out, err


def require(text, pattern, where):
    found = re.search(pattern, text)
    if found is None:
        fail(f"{where} has nothing like: {pattern}")
    return found


def script(name):
    return os.path.join(HERE, name)


def ddp_tutorial_trains_on_2_workers(program, version, python, env, folder):
    out, _ = run([program, "-n", "2", script("ddp_tutorial.py"),
                             "--checkpoint", folder + "/checkpoint.pt"], env)
    for rank in 0, 1:
        require(out, f"rank {rank} of 2, local rank {rank}", "stdout")
    accuracy = require(out, rf"torch {version}\S*: 2 ranks agree, accuracy (\S+)", "stdout")
    if float(accuracy[1]) < 0.9:
        fail(f"it learned too little: accuracy {accuracy[1]}")


def ddp_tutorial_trains_alone(program, version, python, env, folder):
    out, _ = run([program, script("ddp_tutorial.py"), "--checkpoint", folder + "/checkpoint.pt"], env)
    require(out, rf"torch {version}\S*: 1 ranks agree", "stdout")


def ddp_tutorial_trains_through_a_relay(program, version, python, env, folder):
    """Two nodes of this machine; the rank of the second one uses the store of the first one by its ddprun."""
    words = [program, "--nnodes", "2", "-p", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}",
             "--rdzv-id", "job", "--store-relay", "on", "bash", "-c",
             'test "$DDP_MASTER_HOST" = 127.0.0.1 && exec "$@"', "-", python, script("ddp_tutorial.py"),
             "--checkpoint", folder + "/checkpoint.pt"]
    env = dict(env, DDP_TOKEN="0123456789abcdef0123456789abcdef")
    with subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as other:
        try:
            out, _ = run(words, env)
            there, _ = other.communicate(timeout=DEADLINE_S)
        finally:
            other.kill()
    print(there, flush=True)
    if other.returncode != 0:
        fail(f"the other node ended with exit status {other.returncode}")
    for rank in range(2):
        require(out + there, f"rank {rank} of 2, local rank 0", "stdout")
    require(out + there, rf"torch {version}\S*: 2 ranks agree, accuracy ", "stdout")


def mp_spawn_tutorial_chooses_its_own_port(program, version, python, env, folder):
    out, _ = run([program, script("mp_spawn_tutorial.py"), "-n", "1", "-g", "2", "-nr", "0",
                             "--port", str(free_port())], env)
    require(out, rf"torch {version}\S*: 2 spawned ranks learned it", "stdout")


def exception_reaches_the_report(program, version, python, env, folder):
    _, err = run([program, "-n", "2", script("crash.py"), "plain"], env, expect=(1,))
    report = require(err, r"(?sm)^ddprun: error: rank 1 failed: exit status 1\b.*", "stderr")[0]
    require(report, r"(?m)^ +\| .*ValueError: batch 17 has 3 labels for 4 images$", "the report")


def error_that_caused_a_lost_peer_is_named(program, version, python, env, folder):
    """Rank 0 fails of the end of rank 1, and may end before it."""
    for way in "raises", "cleans_up":
        for place in (), ("-r", "3", "--log-dir", os.path.join(folder, way)):
            # 134: PyTorch's threads may end the process by std::terminate() after the traceback
            _, err = run([program, "-n", "2", *place, script("cause.py"), way], env, expect=(1, 134))
            report = require(err, r"(?sm)^ddprun: error: rank 1 failed: .*", "stderr")[0]
            require(report, r"(?m)^ +\| .*RuntimeError: the real cause$", "the report")


def hang(program, env, name, *words):
    """The stderr of a job of three ranks that hang once they are connected. If they were not when the timeout ended, it was too short
    for this machine and its load: the next is twice as long."""
    for limit_s in HANG_S, 2 * HANG_S, 4 * HANG_S:
        out, err = run([program, "-n", "3", "--hang-timeout", f"{limit_s:.0f}s", *words, script(name)], env, expect=(134,), more_s=limit_s)
        if out.count("connected\n") == 3:
            return err
    fail("the ranks did not connect")


def rank_that_hangs_is_named(program, version, python, env, folder):
    err = hang(program, env, "hang.py")
    require(err, rf"(?m)^ddprun: warning: rank 1 hangs: no rank made progress for \d+ s; rank 1 {WHY_IT_HANGS}$", "stderr")
    require(err, r"(?m)^  rank 1: pid \d+, sleeps in \S*nanosleep\S*, uses [0-3]% of a CPU$", "stderr")
    report = require(err, r"(?sm)^ddprun: error: rank 1 failed: killed by SIGABRT\b.*", "stderr")[0]
    require(report, r"(?m)^ +\| .*read_a_batch_from_a_dead_disk$", "the report")


def missing_rank_of_an_unmodified_script_is_named(program, version, python, env, folder):
    """With the collective, and the stacks of all ranks, by torch's worker server: no debugger is in PATH."""
    bare = {**env, "PATH": "/nonexistent"}
    dumps = os.path.join(folder, "dumps")
    err = hang(program, bare, "hang.py", "--on-failure-dump", dumps)
    require(err, r"(?m)^ddprun: warning: rank 1 hangs: .*; rank 1 has not called a collective of torch that others wait in$", "stderr")
    require(err, r"(?m)^  rank 1 is missing in gloo:all_reduce #4 of process group \S+ \(default_pg\): ranks 0 and 2 wait in it$", "stderr")
    require(err, r"(?s)where rank 1 is:.*in read_a_batch_from_a_dead_disk.*where rank 0 is:.*in all_reduce.*where rank 2 is:.*in all_reduce", "stderr")
    if "Server listening" in err:
        fail("the worker server's message is shown")
    page = max(glob.glob(os.path.join(dumps, "*", "attempt_0", "index.html")), key=os.path.getmtime)
    with open(page, encoding="utf-8") as f:
        require(f.read(), r"rank 1 is missing in gloo:all_reduce #4 ", page)


def rank_that_hangs_at_a_step_is_named(program, version, python, env, folder):
    """With the stacks of all ranks, without debuggers."""
    bare = {**with_ddp_torch(env), "PATH": "/nonexistent"}
    err = hang(program, bare, "hang_at_step.py")
    require(err, rf"(?m)^ddprun: warning: rank 1 hangs: no rank made progress for \d+ s; rank 1 {WHY_IT_HANGS}; "
            r"the last completed step is 36$", "stderr")
    for rank in range(3):
        require(err, rf"(?m)^  rank {rank}: pid \d+, .*; 36 steps completed$", "stderr")
    require(err, r"(?s)where rank 1 is:.*in read_a_batch_from_a_dead_disk.*where rank 0 is:.*in all_reduce.*where rank 2 is:.*in all_reduce", "stderr")


def rank_whose_timer_expires_is_ended(program, version, python, env, folder):
    """By torch's own client; where the rank was, its worker server reports, or nothing does."""
    _, err = run([program, "-n", "2", script("timers.py")], {**env, "TORCHELASTIC_ENABLE_FILE_TIMER": "1"}, expect=(137,))
    require(err, r"(?m)^ddprun: warning: rank 1 hangs: a timer of rank 1 \('step 1'\) expired \d+\.\d s ago; it was set \d+\.\d s ago$", "stderr")
    require(err, r"(?m)^ddprun: error: rank 1 failed: killed by SIGKILL", "stderr")
    if version == NEWEST:
        require(err, r"(?s)where rank 1 is:.*in read_a_batch_from_a_dead_disk", "stderr")


@contextlib.contextmanager
def job_that_hangs(program, env, folder, name, *words):
    """ddprun on two ranks that report when they have connected. Yields its run id."""
    run_id = f"interop-{name[:-3]}-" + folder.strip("/").replace("/", "-")
    with subprocess.Popen([program, "--rdzv-id", run_id, "-n", "2", *words, script(name)], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as job:
        try:
            for _ in range(2):
                if job.stdout.readline() != "met\n":
                    fail("the ranks did not meet")
            yield run_id
        finally:
            job.terminate()


def ctl_until(wanted, words, env):
    """Run ddpctl, whose path $DDPCTL has, until it prints this: rank 0 may not have made the call yet."""
    end = time.monotonic() + DEADLINE_S
    while True:
        out = subprocess.run([os.environ["DDPCTL"], *words], env=env, text=True, stdout=subprocess.PIPE, check=True).stdout
        if re.search(wanted, out) or time.monotonic() > end:
            return require(out, wanted, "ddpctl's output")


def py_spy_names_the_line_of_each_rank(program, version, python, env, folder):
    """Of a gloo job that hangs, whose script has prepared nothing."""
    bin_dir = os.path.dirname(os.path.abspath(python))
    if not os.path.exists(bin_dir + "/py-spy"):
        skip(f"no py-spy beside {python}: scripts/install-deps, --interop-old for 2.11, else --interop")
    with job_that_hangs(program, {**env, "PATH": bin_dir + ":" + env["PATH"]}, folder, "stack.py") as run_id:
        try_it = subprocess.run([bin_dir + "/py-spy", "dump", "--pid", str(os.getpid())], capture_output=True, text=True, timeout=60)
        if "Permission denied" in try_it.stderr:
            skip("processes cannot be looked at by others here: " + try_it.stderr.strip().splitlines()[-1])
        ctl_until(r"(?s)^rank 0 .*\n +all_reduce \(.*\nrank 1 .*\n +read_a_batch_from_a_dead_disk \(.*stack\.py:\d+\)",
                  ["stack", "all", run_id], env)


def flight_recorder_dumps_are_collected(program, version, python, env, folder):
    """And torch's own fr_trace finds and loads them. (That of 2.11 then does not know gloo's group, which has no name in its
    records.)"""
    more = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": folder + "/pipe_", "TORCH_FR_DUMP_TEMP_FILE": folder + "/dump_"}
    with job_that_hangs(program, {**env, **more}, folder, "flight_recorder.py", "--log-dir", folder + "/logs") as run_id:
        found = ctl_until(r"(?m)^  dumps of 2 ranks; .*\n    python -m (torch\S+) (\S+)$", ["stack", "all", "-n", run_id], env)
    read = f"import argparse; from {found[1].rpartition('.')[0]}.components.loader import read_dir\n" \
        f"for dump in read_dir(argparse.Namespace(prefix=None, trace_dir={found[2]!r}))[0].values():\n" \
        "    print('rank', dump['rank'], [(e['profiling_name'], e['retired']) for e in dump['entries']])\n"
    out, _ = run([python, "-c", read], env)
    require(out, r"(?m)^rank 0 \[\('gloo:all_reduce', True\), \('gloo:all_reduce', False\)\]$", "rank 0's dump")
    require(out, r"(?m)^rank 1 \[\('gloo:all_reduce', True\)\]$", "rank 1's dump")


def start_names_the_late_rank(program, version, python, env, folder):
    """ddpctl, whose path $DDPCTL has: torch's first connection to the store is seen."""
    with job_that_hangs(program, env, folder, "stack.py") as run_id:
        ctl_until(r"(?m)^     0 +[0-9.]+ s +[0-9.]+ s +([0-9.]+ s) +-.*\n     1 +[0-9.]+ s +[0-9.]+ s +\1 ", ["status", "--start", run_id], env)


def stack_names_the_line_of_each_rank(program, version, python, env, folder):
    """Of a gloo job that hangs, without debuggers."""
    with job_that_hangs(program, env, folder, "stack.py") as run_id:
        ctl_until(r"(?s)^rank 0 \(pid \d+, \S+\): .*line \d+ in all_reduce\b.*"
                  r"\nrank 1 \(pid \d+, \S+\): sleeps in \S*nanosleep.*line \d+ in read_a_batch_from_a_dead_disk\b",
                  ["stack", "all", "--no-tools", "--signal", "USR2", run_id], env)


def error_file_reaches_the_report(program, version, python, env, folder):
    _, err = run([program, "-n", "2", script("crash.py"), "recorded"], env, expect=(1,))
    report = require(err, r"(?sm)^ddprun: error: rank 1 failed: exit status 1\b.*", "stderr")[0]
    require(report, r"(?m)^ +error: ValueError: batch 17 has 3 labels for 4 images$", "the report")


def killed_rank_is_restarted(program, version, python, env, folder):
    """Every generation reaches its first step: none finds keys of the previous one."""
    out, err = run([program, "--max-restarts", "3", "-n", "2", script("restart.py"), "4"], env)
    for generation in range(4):
        for rank in 0, 1:
            require(out, rf"(?m)^rank {rank}: first step of generation {generation}$", "stdout")
    if len(re.findall(r"(?m)^ddprun: note: rank 1 failed: killed by SIGKILL .*; restart \d of 3", err)) != 3:
        fail(f"not three restarts because of rank 1: {err}")


def forked_ranks_train_again(program, version, python, env, folder):
    """Both generations are forked from a parent that has imported torch, and make their steps."""
    events = folder + "/events"
    out, err = run([program, "-v", "--warm=start", "--events", events, "--max-restarts", "1", "-n", "2",
                    script("warm_restart.py")], env)
    for generation in range(2):
        for rank in 0, 1:
            require(out, rf"(?m)^rank {rank}: first step of generation {generation}, seeds differ$", "stdout")
    with open(events, encoding="utf-8") as f:
        starts = [event for event in map(json.loads, f) if event["ev"] == "rank_start"]
    if [event["forked"] for event in starts] != [True] * 4:
        fail(f"not all ranks were forked: {starts}")


def read_env(path):
    with open(path, encoding="utf-8") as f:
        return dict(entry.split("=", 1) for entry in f.read().split("\0") if entry)


def environment_equals_torchruns(program, version, python, env, folder):
    """Both launchers pass the same to their workers, under the same names and in the same form."""
    # Values that are random or a matter of taste: both must have this form, and need not be equal.
    forms = {
        "MASTER_ADDR": r"localhost|127\.0\.0\.1",
        "MASTER_PORT": r"[1-9][0-9]{0,4}",
        "OMP_NUM_THREADS": r"[1-9][0-9]*",  # torchrun: 1; ddprun: a rank's share of the cores
        "TORCHELASTIC_RUN_ID": r"[-0-9A-Za-z]+",
        "TORCHELASTIC_ERROR_FILE": r"/.*/[^/]+\.json",
    }
    seen = {}
    torchrun = [python, "-m", "torch.distributed.run"]
    for name, start in ("torchrun", torchrun), ("ddprun", [program]):
        seen[name] = f"{folder}/{name}"
        os.mkdir(seen[name])
        run(start + ["--standalone", "--nproc-per-node", "2", "--no-python", script("print_env.sh")],
            dict(env, ENV_DIR=seen[name]))

    problems = []
    for rank in "0", "1":
        theirs = read_env(f"{seen['torchrun']}/{rank}")
        ours = read_env(f"{seen['ddprun']}/{rank}")
        for key in sorted(theirs.keys() | ours.keys()):
            if key.startswith("DDP_") or key == "ENV_DIR":
                continue
            a, b = theirs.get(key), ours.get(key)
            if a is None or b is None:
                same = False
            elif key in forms:
                same = all(re.fullmatch(forms[key], value) for value in (a, b))
            else:
                same = a == b
            if not same:
                problems.append(f"rank {rank}, {key}: torchrun has {a!r}, ddprun {b!r}")
    if problems:
        fail("the environments differ\n  " + "\n  ".join(problems))


def sampler_draws_as_torch_does(program, version, python, env, folder):
    out, _ = run([python, script("sampler_vs_torch.py"), program], env)
    require(out, "all the same", "stdout")


def scaler_equals_torchs(program, version, python, env, folder):
    out, _ = run([python, script("scaler_vs_torch.py"), program], env)
    require(out, "all the same", "stdout")


def syncbn_equals_torchs_over_the_whole_batch(program, version, python, env, folder):
    out, _ = run([python, script("syncbn_vs_torch.py"), program], env)
    require(out, "all within the bounds", "stdout")


def tensors_are_exchanged_both_ways(program, version, python, env, folder):
    if subprocess.run([python, "-c", "import safetensors"], env=env, stderr=subprocess.DEVNULL).returncode != 0:
        skip(f"{python} has no safetensors")
    out, _ = run([python, script("safetensors_both_ways.py"), program], env)
    require(out, r"\d+ tensors went both ways", "stdout")


def buckets_equal_torchs_after_its_rebuild(program, version, python, env, folder):
    out, _ = run([python, script("buckets_vs_torch.py"), program], env)
    require(out, rf"torch {version}\S*: all 10 plans are the same", "stdout")


def store_answers_like_torchs_store(program, version, python, env, folder):
    """Each operation of torch's own client on the store of the same torch, on the store alone, and, if $RELAYED_STORE has the program, through
    its relay."""
    out, _ = run([python, script("store_ops.py"), program, *filter(None, [os.environ.get("RELAYED_STORE")])], env, more_s=120)
    theirs, *all_of_ours = (part.splitlines() for part in re.split("(?m)^=== ", out)[1:])
    for ours in all_of_ours:
        if ours[1:] != theirs[1:] or ours[-1] != "all right":
            differences = difflib.unified_diff(theirs[1:], ours[1:], "torch", ours[0], lineterm="")
            fail("the answers differ\n  " + "\n  ".join(differences))
    if len(all_of_ours) != 1 + ("RELAYED_STORE" in os.environ):
        fail(f"answers of {len(all_of_ours)} stores")


def ddpctl_works_on_torchs_store(program, version, python, env, folder):
    run([python, script("ctl_store.py"), program], env)


def with_ddp_torch(env):
    """ddp_torch from the source, and the libddp that the build names in $DDP_LIBRARY."""
    source = os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")
    return dict(env, PYTHONPATH=":".join(filter(None, [source, env.get("PYTHONPATH")])), PYTHONDONTWRITEBYTECODE="1")


def ddp_torch_equals_gloo(program, version, python, env, folder):
    for n in 3, 4:  # --warm: the ranks of a job import torch once
        out, _ = run([program, "--warm=start", "-n", str(n), script("torch_backend/ddp_torch_collectives.py")], with_ddp_torch(env))
        for rank in range(n):
            require(out, rf"torch {version}\S*: rank {rank}: \d+ results are the same", "stdout")


def options_of_torchrun_are_accepted(program, version, python, env, folder):
    out, _ = run([python, script("torchrun_options.py"), program], env)
    require(out, rf"torch {version}\S*: \d+ options are accepted", "stdout")


def ddp_torch_knows_the_names_of_torch(program, version, python, env, folder):
    out, _ = run([python, script("torch_backend/ddp_torch_names.py")], with_ddp_torch(env))
    require(out, rf"torch {version}\S*: all names are known", "stdout")


def ddp_torch_trains_like_gloo(program, version, python, env, folder):
    ways = ["ddp", "zero"]
    if version != "2.1":
        ways += ["fsdp", "checkpoint", "dtensor"]
    if version not in ("2.1", "2.4"):
        ways += ["fsdp2", "hsdp", "checkpoint_of_shards"]
    for n in 2, 4:
        out, _ = run([program, "-n", str(n), script("torch_backend/ddp_torch_trains.py"), *ways], with_ddp_torch(env))
        for way in ways:
            require(out, rf"torch {version}\S*: {way}: losses", "stdout")


def ddp_torch_names_the_failed_rank(program, version, python, env, folder):
    # the survivors have time to detect everything: they ignore the SIGTERM that ddprun sends at once
    command = [program, "-n", "3", "--shutdown-timeout", "60s", script("torch_backend/ddp_torch_fails.py")]
    out, _ = run(command, with_ddp_torch(env), expect=(128 + signal.SIGKILL,))
    for rank in 0, 1:
        require(out, f"rank {rank} has heard of all", "stdout")


def recovers(program, env, python, folder, *cases):
    out, _ = run([python, script("torch_backend/ddp_torch_recovers.py"), program, folder, *cases], with_ddp_torch(env), expect=(0, SKIPPED))
    if " has no " in out:
        skip(out.splitlines()[-1])
    for case in cases:
        require(out, f"(?m)^passed: {case}$", "stdout")


def ddp_torch_saves_what_a_step_changes(program, version, python, env, folder):
    out, _ = run([python, script("torch_backend/ddp_torch_saves.py"), folder], with_ddp_torch(env))
    require(out, rf"torch {version}\S*: all comes back", "stdout")


def remembers(program, env, words, backend, kills):
    """The final states, and the steps with which each rank began."""
    out, err = run([program, *words, "--max-restarts", "2", script("torch_backend/ddp_torch_remembers.py"), "train", backend, str(kills)],
                   with_ddp_torch(env))
    return sorted(re.findall(r"(?m)^.*?(rank \d+ ends with .*)$", out)), re.findall(r"rank (\d+) of generation (\d+) begins with step (\d+)", out), out + err


def await_listener(port, process):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    fail(f"no process listens on port {port}")


def remembers_a_lost_node(program, env, backend):
    """Two nodes on this machine. The second one is killed, and a third one gets its state."""
    port = free_port()
    words = [program, "--nnodes", "2", "-p", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job",
             "--max-restarts", "2", "--memory-checkpoints", "1M"]
    last = [script("torch_backend/ddp_torch_remembers.py"), "train", backend, "0"]
    env = dict(with_ddp_torch(env), DDP_TOKEN="0123456789abcdef0123456789abcdef")
    with contextlib.ExitStack() as stack:
        def start(number, **more):
            node = stack.enter_context(subprocess.Popen([*words, "--local-addr", f"127.0.0.{number}", *last], env=dict(env, **more),
                                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            stack.callback(node.kill)
            return node

        first = start(1)
        await_listener(port, first)  # it is the coordinator
        victim = start(2, TEST_VICTIM="1")
        lost, _ = victim.communicate(timeout=DEADLINE_S)
        third = start(3)
        out = "".join(node.communicate(timeout=DEADLINE_S)[0] for node in (third, first))
    print(lost, out, sep="\n--- the others:\n", flush=True)
    if victim.returncode != -signal.SIGKILL or first.returncode != 0 or third.returncode != 0:
        fail(f"exit statuses {victim.returncode}, {first.returncode}, {third.returncode}")
    return sorted(re.findall(r"(?m)^.*?(rank \d+ ends with .*)$", out)), re.findall(r"rank (\d+) of generation (\d+) begins with step (\d+)", out)


def ddp_torch_remembers_states(program, version, python, env, folder):
    one = [program, "-n", "1", "--memory-checkpoints", "16M", script("torch_backend/ddp_torch_remembers.py"), "kinds"]
    out, _ = run(one, with_ddp_torch(env))
    require(out, rf"torch {version}\S*: all comes back", "stdout")
    plain, _, text = remembers(program, env, ["-n", "2"], "gloo", 0)
    require(text, "no memory", "stdout")
    require(text, "start the job with ddprun --memory-checkpoints SIZE", "stderr")
    ends, begun, _ = remembers(program, env, ["-n", "2", "--memory-checkpoints", "1M", "--warm"], "gloo", 2)
    if len(plain) != 2 or ends != plain:
        fail(f"the ranks end with {ends}, without deaths with {plain}")
    if {(int(g), int(s)) for _, g, s in begun} != {(0, 0), (1, 3), (2, 6)}:
        fail(f"the ranks began with {begun}")


def ddp_torch_remembers_states_of_a_lost_node(program, version, python, env, folder):
    plain, _, _ = remembers(program, env, ["-n", "2"], "ddp", 0)
    ends, begun = remembers_a_lost_node(program, env, "ddp")
    if len(plain) != 2 or ends != plain:
        fail(f"with a lost node the ranks end with {ends}, without with {plain}")
    if {int(s) for _, g, s in begun if g != "0"} not in ({2}, {3}):  # its copies may not have been complete
        fail(f"after the loss of a node the ranks began with {begun}")


def ddp_torch_recovers_with_the_same_bits(program, version, python, env, folder):
    recovers(program, env, python, folder, "replaced_with_the_same_bits")


def ddp_torch_recovers_with_gloo(program, version, python, env, folder):
    recovers(program, env, python, folder, "replaced_with_gloo")


def ddp_torch_continues_with_fewer_ranks(program, version, python, env, folder):
    recovers(program, env, python, folder, "shrunk", "shrunk_to_one_and_no_sample_is_lost")


def ddp_torch_recovers_shards_from_a_replica(program, version, python, env, folder):
    recovers(program, env, python, folder, "sharded", "sharded_without_a_replica")


def ddp_torch_raises_what_is_not_a_loss(program, version, python, env, folder):
    recovers(program, env, python, folder, "own_exceptions", "a_rank_that_torch_keeps_ends_itself", "other_launchers")


def ddp_torch_lets_a_standby_take_over(program, version, python, env, folder):
    recovers(program, env, python, folder, "a_standby_takes_over", "at_random")


def ddp_torch_recovers_with_accelerate(program, version, python, env, folder):
    recovers(program, env, python, folder, "accelerate")


def ddp_torch_recovers_with_lightning(program, version, python, env, folder):
    recovers(program, env, python, folder, "lightning")


def ddp_torch_recovers_with_transformers(program, version, python, env, folder):
    recovers(program, env, python, folder, "transformers")


def ddp_torch_recovers_on_several_nodes(program, version, python, env, folder):
    out, _ = run([python, script("torch_backend/ddp_torch_nodes.py"), program, os.environ["DDP_RENDEZVOUS"], folder, "gloo", "ddp"],
                 with_ddp_torch(env), expect=(0, SKIPPED))
    if out.startswith("no network namespaces"):
        skip(out.strip())
    for backend in "gloo", "ddp":
        for events in "losses_and_a_join", "alone_until_a_join":
            require(out, f"(?m)^passed: {backend}, {events}, ", "stdout")


def ddp_torch_demo_loses_no_step(program, version, python, env, folder):
    """Ranks and nodes that are killed, leave and join, one each."""
    root, build = os.path.dirname(os.path.dirname(HERE)), os.path.dirname(os.path.dirname(os.path.abspath(program)))
    out, _ = run([os.path.join(root, "examples/demo/run"), "--torch", python, "--build", build, "--seed", "1", "--ranks", "1", "--quiet", "0",
                  "--disturbances", "6", "--deadline", str(DEADLINE_S)], env)
    for kind in "a rank of node .: SIG", "its ddprun", "joins":
        require(out, rf"(?m)^ *[\d.]+ s +\d+ +[\d.]+ +[\d.]+ m?s  .*({kind})", "stdout")
    require(out, r"(?m)^\d+ steps in [\d.]+ s, none of them made twice; 6 disturbances$", "stdout")
    require(out, r"(?m)^the loss fell: .*\nnothing is left running$", "stdout")


def ddp_torch_tutorial_recovers(program, version, python, env, folder):
    recovers(program, env, python, folder, "tutorial")


def ddp_torch_lets_ddprun_name_a_hung_rank(program, version, python, env, folder):
    err = hang(program, with_ddp_torch(env), "torch_backend/ddp_torch_hangs.py")
    require(err, r"(?m)^ddprun: warning: rank 1 hangs: rank 1 is missing in all_reduce #6 \(.*\); ranks 0 and 2 have waited in it", "stderr")


def ddp_torch_joins_through_any_store(program, version, python, env, folder):
    out, _ = run([python, script("torch_backend/ddp_torch_meets.py"), folder], with_ddp_torch(env))
    for how in ["file, on 1", "tcp, on 1"] + (["tcp, on 2"] if version != "2.1" else []):
        require(out, f"4 ranks met by {how} nodes", "stdout")


def start(command, env, output):
    """In a session of its own, its output to a file."""
    print("+", shlex.join(command), flush=True)
    with open(output, "w") as out:
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                start_new_session=True)


def kill_group(child):
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass  # it ended, and all of its group
    child.wait()


@contextlib.contextmanager
def daemon(program, folder):
    """ddp-rendezvous on a free port, which is yielded; it must exit with 0 when stopped."""
    port_file = os.path.join(folder, "ports")
    child = subprocess.Popen([program, "-v", "--bind", "127.0.0.1:0", "--port-file", port_file])
    try:
        end = time.monotonic() + DEADLINE_S
        while not os.path.exists(port_file):
            if child.poll() is not None or time.monotonic() > end:
                fail("the daemon does not serve")
            time.sleep(0.01)
        with open(port_file, encoding="utf-8") as f:
            yield f.read().strip()
        child.terminate()
        if child.wait(DEADLINE_S) != 0:
            fail(f"the daemon ended with {child.returncode}")
    finally:
        child.kill()
        child.wait()


def torchruns_agents_rendezvous_at_the_daemon(program, version, python, env, folder):
    """Two agents, two workers each; a worker is killed, and all start again and exit with 0.

    torchrun 2.11 leaves the addresses of the first attempt in the store that it makes for its workers,
    and a second attempt that reads them fails or hangs with any server of the endpoint. The variable makes
    rank 0 host a new store each time."""
    env = dict(env, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    with daemon(program, folder) as port:
        agent = [python, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2",
                 "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                 "--rdzv-id", "job", script("join.py"), folder]
        logs = [os.path.join(folder, f"agent{i}") for i in range(2)]
        agents = [start(agent, env, log) for log in logs]
        try:
            end = time.monotonic() + DEADLINE_S
            codes = [child.wait(max(0, end - time.monotonic())) for child in agents]
        except subprocess.TimeoutExpired:
            codes = "none in time"
        finally:
            for child in agents:
                kill_group(child)
        out = ""
        for log in logs:
            with open(log, encoding="utf-8", errors="replace") as f:
                out += f.read()
        print(out)
        if codes != [0, 0]:
            fail(f"the agents' exit statuses: {codes}")
        require(out, r"exitcode: -9", "what the agents said")
        for rank in range(4):
            require(out, rf"(?m)^rank {rank} of 4 ended well$", "what the agents said")


PARAMETERS = ["program", "version", "python", "env", "folder"]
CASES = {name: case for name, case in list(globals().items())
         if inspect.isfunction(case) and list(inspect.signature(case).parameters) == PARAMETERS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--torch", required=True, choices=VERSIONS)
    parser.add_argument("case", choices=sorted(CASES))
    args = parser.parse_args()
    python, env = find_python(args.torch)
    with tempfile.TemporaryDirectory(prefix="ddprun-interop-") as folder:
        CASES[args.case](os.path.abspath(args.program), args.torch, python, env, folder)
    print("passed")


if __name__ == "__main__":
    main()
