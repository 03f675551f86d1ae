"""What a test needs of its machine and a container may forbid. Each function tries the facility in the way in which tests use it, and
returns None, or the text of a skip: the name of the facility, and why it is missing."""
import functools
import os
import shutil
import subprocess

UNSHARED = {"--mount": "mount", "--net": "network", "--pid": "PID", "--user": "user", "--uts": "UTS"}


def first_error(done):
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[0] if lines else f"exit status {done.returncode}"


def attempt(*words):
    """Run a command: None, or why it failed."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else first_error(done)


@functools.cache
def lacks_namespaces(*options):
    """unshare(1) with these options. It also fails as root of a chroot: the root is not a mount point, and propagation cannot change."""
    why = attempt("unshare", *options, "true")
    kinds = " and ".join(UNSHARED[option] for option in options if option in UNSHARED)
    return why and f"no {kinds} namespaces: {why}"


@functools.cache
def lacks_network_namespaces():
    """Named ones, in which programs can be started, joined by veth and a bridge: tests make their networks of these."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "no network namespaces: they need root and ip(8), of iproute2"
    name = f"ddp-try-{os.getpid()}"
    try:
        why = (attempt("ip", "netns", "add", name) or attempt("ip", "netns", "exec", name, "true") or
               attempt("ip", "-n", name, "link", "add", "bridge", "type", "bridge") or
               attempt("ip", "-n", name, "link", "add", "veth1", "type", "veth", "peer", "name", "veth2"))
    finally:
        attempt("ip", "netns", "delete", name)
    return why and f"no network namespaces: {why}"
