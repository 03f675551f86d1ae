"""Run mnist on 2 ranks and kill one of them with SIGKILL after the first epoch: the job continues to its end. Run by
tests/machines.py in a clone whose directory `build` scripts/quickstart has made."""
import os
import signal
import subprocess
import sys

EPOCHS = 4


def ranks():
    """Pids of the ranks, by rank."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", "rb") as f:
                name = f.read().strip()
            with open(f"/proc/{pid}/environ", "rb") as f:
                variables = dict(pair.partition(b"=")[::2] for pair in f.read().split(b"\0"))
        except OSError:
            continue
        if name == b"mnist" and b"RANK" in variables:
            found[int(variables[b"RANK"])] = int(pid)
    return found


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    job = subprocess.Popen(["launcher/ddprun", "-n", "2", "--max-restarts", "3", "examples/mnist", "--data", "digits", "--epochs",
                            str(EPOCHS)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output, killed = "", None
    for line in job.stdout:
        output += line
        if killed is None and "epoch" in line:
            killed = ranks()[1]
            os.kill(killed, signal.SIGKILL)
    print(output, end="")
    status = job.wait()
    if killed is None or status != 0 or "SIGKILL" not in output:
        sys.exit(f"expected a rank killed with SIGKILL, a restart and exit status 0: got pid {killed}, exit status {status}")


if __name__ == "__main__":
    main()
