"""ddpctl for a job of the tests."""
import json
import os
import subprocess

from harness import DEADLINE_S, await_true

DDPCTL = os.environ["DDPCTL"]
TIMEOUT = ("-t", str(DEADLINE_S))


def ctl(job, *words):
    """ddpctl with the directory of a job: (exit status, stdout, stderr). The machine may run other jobs, so the pid
    always names the job."""
    env = {**os.environ, "XDG_RUNTIME_DIR": job.runtime}
    name = () if words[0] == "ps" else (str(job.process.pid),)
    done = subprocess.run([DDPCTL, *words, *name], env=env, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=3 * DEADLINE_S)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def socket_of(job):
    found = [os.path.join(job.runtime, d, "socket") for d in os.listdir(job.runtime) if d.startswith("ddprun-")]
    return next((path for path in found if os.path.exists(path)), None)


def await_socket(job):
    await_true(lambda: socket_of(job) is not None)


def status(job):
    code, out, err = ctl(job, "status", "--json", *TIMEOUT)
    if code != 0:
        raise AssertionError(err)
    return json.loads(out)["jobs"]


def await_running(job):
    """Wait until ddprun knows that all ranks have started: a rank may report to the test earlier."""
    await_socket(job)
    await_true(lambda: all(r["state"] == "running" for r in status(job)[0]["ranks"]))
