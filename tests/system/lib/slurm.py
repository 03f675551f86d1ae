#!/usr/bin/env python3
"""A private Slurm on this machine: munged, slurmctld, and a slurmd for each node, all of them as the user who
starts it, in a directory of their own, on free loopback ports. Standard library only.

usage: slurm.py [--nodes N] COMMAND [ARGUMENT]...

Runs COMMAND with SLURM_CONF set: `slurm.py srun -n 2 hostname`. Nodes are called n1, n2, ... and claim 64 CPUs
each. Exits with COMMAND's status, or with 77 and the reason if Slurm is not installed or does not start.

It is for tests and measurements, not for work: no accounting, no cgroups, no limits. Jobs of the partition "low" are preempted by those of "urgent".
"""
import argparse
import ctypes
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from ports import free_port

DEADLINE_S = 30
SKIPPED = 77
PROGRAMS = "munged", "slurmctld", "slurmd", "srun", "sinfo"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool/%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmctldParameters=preempt_send_user_signal
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:64 PreemptMode=OFF
PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=120
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 State=UNKNOWN\n"


class NoSlurm(Exception):
    """Why Slurm cannot be used."""


def path_of(program):
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


class Slurm:
    """In a `with`: a running Slurm. `env` is what its programs need in their environment."""

    def __init__(self, nodes=1):
        missing = [name for name in PROGRAMS if path_of(name) is None]
        if missing:
            raise NoSlurm(f"not installed: {', '.join(missing)}")
        self.nodes = nodes

    def __enter__(self):
        self.server = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", "--nodes", str(self.nodes)],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answer = self.server.stdout.readline().strip()
        if not answer.startswith("ready "):
            self.__exit__()
            raise NoSlurm(answer or "its server ended without a word")
        self.env = {"SLURM_CONF": answer.partition(" ")[2]}
        return self

    def __exit__(self, *_):
        self.server.stdin.close()
        self.server.wait(DEADLINE_S)
        self.server.stdout.close()


def prctl(what, value):
    if ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def write_conf(folder, nodes):
    host = socket.gethostname().split(".")[0]
    ctld_port, *node_ports = [free_port() for _ in range(1 + nodes)]
    path = os.path.join(folder, "slurm.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONF.format(dir=folder, host=host, ctld_port=ctld_port, user=pwd.getpwuid(os.geteuid()).pw_name))
        for i, port in enumerate(node_ports):
            f.write(NODE.format(name=f"n{i + 1}", host=host, port=port))
    for name in "state", "spool":
        os.mkdir(os.path.join(folder, name))
    return path


def start(folder, *command, env=None):
    """A daemon in the foreground, which dies with us."""
    with open(os.path.join(folder, os.path.basename(command[0]) + ".out"), "ab") as out:
        return subprocess.Popen([path_of(command[0]), *command[1:]], env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                stdout=out, stderr=out, preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL))


def start_munged(folder):
    key = os.path.join(folder, "munge.key")
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as f:
        f.write(os.urandom(1024))
    names = {"socket": "munge.sock", "key-file": "munge.key", "log-file": "munge.log", "pid-file": "munge.pid",
             "seed-file": "munge.seed"}
    return start(folder, "munged", "--foreground", "--force", *(f"--{k}={folder}/{v}" for k, v in names.items()))


def await_true(condition, daemons, what):
    """Looks again and again; a daemon that has ended will never be ready."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        dead = [os.path.basename(d.args[0]) for d in daemons if d.poll() is not None]
        if dead or time.monotonic() > end:
            raise NoSlurm(f"{what}: {', '.join(dead) + ' ended' if dead else f'not within {DEADLINE_S} s'}")
        time.sleep(0.05)


def count_idle(env):
    seen = subprocess.run([path_of("sinfo"), "-h", "-p", "all", "-N", "-o", "%t"], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, timeout=DEADLINE_S, check=False).stdout
    return seen.split().count("idle")


def serve(nodes, folder):
    """Start all, report it, and wait until the parent closes the pipe."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # a job's step daemon detaches itself
    conf = write_conf(folder, nodes)
    env = {**os.environ, "SLURM_CONF": conf}
    daemons = [start_munged(folder)]
    await_true(lambda: os.path.exists(folder + "/munge.sock"), daemons, "munged's socket")
    daemons.append(start(folder, "slurmctld", "-D", "-f", conf, env=env))
    daemons += [start(folder, "slurmd", "-D", "-N", f"n{i + 1}", "-f", conf, env=env) for i in range(nodes)]
    await_true(lambda: count_idle(env) == nodes, daemons, f"{nodes} idle nodes")
    print("ready", conf, flush=True)
    select.select([sys.stdin], [], [])


def children():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                if int(f.read().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(pid))
        except OSError:
            pass
    return found


def end_all():
    """Kill our children, and what becomes our child by that, until none is left."""
    while True:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    try:
        if args.serve:
            # every user must be able to enter it: munge refuses a socket below a directory of mode 0700
            with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
                os.chmod(folder, 0o755)
                try:
                    serve(args.nodes, folder)
                finally:
                    end_all()
            return 0
        with Slurm(args.nodes) as slurm:
            return subprocess.run(args.command, env={**os.environ, **slurm.env}, check=False).returncode
    except NoSlurm as reason:
        print(f"no Slurm: {reason}", flush=True)
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
