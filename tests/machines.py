#!/usr/bin/env python3
"""README's two commands on machines that have nothing: bare Debian roots, and in them settings that forbid what containers forbid.

usage: tests/machines.py [--roots DIR] [--mirror URL] [--ccache DIR] [--patience N] [--table FILE] [SETTING]...

In each setting: scripts/quickstart; scripts/check; a job of 2 ranks of mnist one of which is killed with SIGKILL. Prints a table in
Markdown, which grows with each setting, and writes it to FILE. Ends with 1 if anything failed.

  --roots DIR     where the roots are made, and stay: a root that exists is used again (default: /var/tmp/ddprun-machines)
  --mirror URL    of Debian (default: http://deb.debian.org/debian)
  --ccache DIR    share compiled objects between the roots; the table then has no times, which would be too short
  --patience N    multiply all deadlines of tests, for a machine that does other things (default: 1)
  --table FILE    also write the table there
  --list          print the settings

Root only; by hand or at night. Needs debootstrap, git and unshare. Each root takes 2 GB; a setting takes 5 to 10 minutes on 2 cores.
"""
import argparse
import dataclasses
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFINE = os.path.join(ROOT, "tests/support/machines/confine.py")
KILL_A_RANK = os.path.join(ROOT, "tests/support/machines/kill_a_rank.py")
CLONE = "/src/ddprun"
BUILDS = [f"{CLONE}/build", f"{CLONE}/build-check"]
FROM_THIS_MACHINE = ["/etc/resolv.conf", "/etc/hosts", *glob.glob("/etc/apt/apt.conf.d/99*")]


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    title: str
    release: str = "bookworm"
    root: str = ""  # a root of its own: nothing is installed in it but git; else the one of `release`
    user: str = "root"
    sudo: bool = False
    words: tuple = ()  # to confine.py
    memory: int = 0
    pids: int = 0


SETTINGS = [
    Setting("bookworm", "Debian 12, root"),
    Setting("trixie", "Debian 13, root", release="trixie"),
    Setting("bookworm-sudo", "Debian 12, an ordinary user with sudo", root="bookworm-sudo", user="user", sudo=True),
    Setting("trixie-sudo", "Debian 13, an ordinary user with sudo", release="trixie", root="trixie-sudo", user="user", sudo=True),
    Setting("chroot", "a chroot", words=("--chroot",)),
    Setting("capabilities", "root without CAP_SYS_ADMIN and CAP_NET_ADMIN", words=("--without=sys_admin", "--without=net_admin")),
    Setting("user", "an ordinary user, all installed, no sudo", user="user"),
    Setting("container", "a container's capabilities, system calls and /sys", words=("--container",)),
    Setting("read-only", "a read-only root, tmpfs on /tmp",
            words=("--read-only", *(f"--writable={path}" for path in BUILDS))),
    Setting("shm", "64 MiB of /dev/shm", words=("--shm=64m",)),
    Setting("limits", "at most 512 processes and 4 GiB of memory", memory=4 << 30, pids=512),
]


def say(text):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr, flush=True)


def run(*words, log=None, **kw):
    """The exit status; output to the log."""
    with open(log or os.devnull, "ab") as out:
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, **kw).returncode


class Group:
    """A control group with limits; of version 2 or 1."""

    def __init__(self, setting):
        self.paths = []
        base = "/sys/fs/cgroup"
        limits = {"memory": ("memory.max", "memory.limit_in_bytes", setting.memory), "pids": ("pids.max", "pids.max", setting.pids)}
        for controller, (new, old, value) in limits.items():
            if value == 0:
                continue
            is_new = os.path.exists(f"{base}/cgroup.controllers")
            path = os.path.join(base, "" if is_new else controller, f"ddprun-machines-{os.getpid()}")
            os.makedirs(path, exist_ok=True)
            with open(os.path.join(path, new if is_new else old), "w", encoding="ascii") as f:
                f.write(str(value))
            self.paths.append(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for path in set(self.paths):
            os.rmdir(path)

    def join(self):
        for path in self.paths:
            with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write(str(os.getpid()))


def make_root(setting, args):
    """A bare Debian with git and a clone of what is committed here; made once."""
    root = os.path.join(args.roots, setting.root or setting.release)
    base = os.path.join(args.roots, f"base-{setting.release}")
    if not os.path.exists(base + ".made"):
        say(f"making a bare {setting.release} in {base}")
        log = base + ".log"
        shutil.rmtree(base, ignore_errors=True)
        if run("debootstrap", "--variant=minbase", setting.release, base, args.mirror, log=log) != 0:
            sys.exit(f"debootstrap failed; see {log}")
        open(base + ".made", "w", encoding="ascii").close()
    if not os.path.exists(root + ".made"):
        say(f"making {root}")
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["cp", "-a", base, root], check=True)
        for path in filter(os.path.exists, FROM_THIS_MACHINE):
            shutil.copy(path, root + path)
        git = ["git", "ca-certificates", *(["sudo"] if setting.sudo else []), *(["ccache"] if args.ccache else [])]
        install = "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install " + " ".join(git)
        if confined(setting, args, root, "sh", "-c", f"{install} && useradd --create-home --shell /bin/bash user", log=root + ".log",
                    plain=True) != 0:
            sys.exit(f"cannot install {' '.join(git)} in {root}; see {root}.log")
        if setting.sudo:
            with open(root + "/etc/sudoers.d/user", "w", encoding="ascii") as f:
                f.write("user ALL=(ALL) NOPASSWD: ALL\n")
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, root + CLONE], check=True)
        open(root + ".made", "w", encoding="ascii").close()
    return root


def confined(setting, args, root, *command, log, plain=False, env=()):
    """Run a command in the setting, or in the bare root: its exit status."""
    words = ["--bind", f"{args.roots}/packages-{setting.release}:/var/cache/apt/archives"]
    if args.ccache:
        words += ["--bind", f"{args.ccache}:/var/cache/ccache"]
    if not plain:
        words += [*setting.words, "--user", setting.user, "--cwd", CLONE, *(f"--env={pair}" for pair in env)]
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", sys.executable, CONFINE, *words, root, *command]
    with Group(setting) as group:
        return run(*unshare, log=log, preexec_fn=group.join)


def skips_in(path):
    """Why tests were skipped, by meson's log: {reason: [tests]}, programs as a whole and parts of them."""
    reasons = {}
    with open(path, encoding="utf-8", errors="replace") as log:
        for test in map(json.loads, filter(str.strip, log)):
            text = test.get("stdout", "") + test.get("stderr", "")
            whys = re.findall(r"skipped '(.*)'$|skipped \"(.*)\"$|^(?:\S+: )?skipped[:,] (.*)$", text, re.M)
            if test["result"] == "SKIP" and not whys:
                whys = [((text.strip().splitlines() or ["no reason given"])[-1],)]
            for why in whys:
                reasons.setdefault("".join(why), []).append(test["name"].split(" / ")[-1].split(":")[-1])
    return reasons


def failures_in(log):
    """The totals and what failed, as scripts/check prints them at its end."""
    with open(log, encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    totals = next((line for line in reversed(lines) if re.fullmatch(r"\d+ passed, \d+ failed, \d+ skipped", line)), "no totals")
    return totals, [line.removeprefix("failed: ") for line in lines if line.startswith("failed: ")]


def timed(text, seconds, args):
    return text if args.ccache else f"{text}, {seconds:.0f} s"


def try_setting(setting, args):
    """(is it green?, a row of the table)"""
    root = make_root(setting, args)
    logs = os.path.join(args.roots, "logs")
    os.makedirs(logs, exist_ok=True)
    log = os.path.join(logs, setting.name)
    for path in glob.glob(log + ".*"):
        os.remove(path)
    run("git", "-c", "safe.directory=*", "-C", root + CLONE, "fetch", "-q", ROOT, "HEAD", log=log + ".git")
    run("git", "-c", "safe.directory=*", "-C", root + CLONE, "reset", "-q", "--hard", "FETCH_HEAD", log=log + ".git")
    for path in BUILDS:
        os.makedirs(root + path, exist_ok=True)
    subprocess.run(["chroot", root, "chown", "-R", f"{setting.user}:", CLONE], check=True)
    yes = ["--yes"] if setting.sudo else []

    env = [f"TEST_PATIENCE={args.patience}"] if args.patience != 1 else []
    if args.ccache:
        env += ["CC=ccache cc", "CCACHE_DIR=/var/cache/ccache", f"CCACHE_BASEDIR={CLONE}", "CCACHE_NOHASHDIR=1", "CCACHE_UMASK=000"]

    say(f"{setting.title}: scripts/quickstart")
    began = time.monotonic()
    quick = confined(setting, args, root, "scripts/quickstart", *yes, log=log + ".quickstart", env=env)
    took = time.monotonic() - began
    with open(log + ".quickstart", encoding="utf-8", errors="replace") as f:
        n_lines = len(f.readlines())

    say(f"{setting.title}: scripts/check")
    began = time.monotonic()
    checked = confined(setting, args, root, "scripts/check", *yes, log=log + ".check", env=env)
    check_s = time.monotonic() - began
    totals, failures = failures_in(log + ".check")

    say(f"{setting.title}: kill -9 of a rank")
    shutil.copy(KILL_A_RANK, root + CLONE + "/build/kill_a_rank.py")
    killed = confined(setting, args, root, "python3", "build/kill_a_rank.py", log=log + ".kill")
    test_log = root + CLONE + "/build-check/meson-logs/testlog-quick.json"
    skips = skips_in(test_log) if os.path.exists(test_log) else {}
    shown = "; ".join(f"{why} ({', '.join(sorted(set(names)))})" for why, names in sorted(skips.items()))
    row = [setting.title, timed(f"{n_lines} lines", took, args) if quick == 0 else f"failed: {quick}",
           timed(totals + (f" (exit status {checked})" if checked else ""), check_s, args), "; ".join(failures) or "-",
           "recovered" if killed == 0 else f"failed: {killed}", shown or "-"]
    return quick == 0 and checked == 0 and killed == 0, row


def table(rows):
    head = ["setting", "quickstart", "check", "failed", "mnist, kill -9 of a rank", "skipped: reason (tests)"]
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2].partition("\n")[0])
    parser.add_argument("--roots", default="/var/tmp/ddprun-machines", type=os.path.abspath)
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--ccache", type=os.path.abspath)
    parser.add_argument("--patience", type=int, default=1)
    parser.add_argument("--table")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("settings", nargs="*", metavar="SETTING")
    args = parser.parse_args()
    if args.list:
        print("".join(f"{s.name:15} {s.title}\n" for s in SETTINGS), end="")
        return 0
    names = {s.name: s for s in SETTINGS}
    for name in args.settings:
        if name not in names:
            parser.error(f"unknown setting '{name}': expected one of {', '.join(names)}")
    if os.geteuid() != 0:
        sys.exit("tests/machines.py: only root can make roots")
    for release in {setting.release for setting in SETTINGS}:
        os.makedirs(f"{args.roots}/packages-{release}/partial", exist_ok=True)
    if args.ccache:
        os.makedirs(args.ccache, exist_ok=True)
        os.chmod(args.ccache, 0o1777)

    rows, is_green = [], True
    for setting in [names[name] for name in args.settings] or SETTINGS:
        good, row = try_setting(setting, args)
        is_green = is_green and good
        rows.append(row)
        if args.table:
            with open(args.table, "w", encoding="utf-8") as f:
                f.write(table(rows))
    print(table(rows), end="")
    return 0 if is_green else 1


if __name__ == "__main__":
    sys.exit(main())
