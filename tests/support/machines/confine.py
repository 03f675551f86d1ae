"""Enter a root directory with restricted resources and run a command in it. Used by tests/machines.py, as root, in
mount and PID namespaces of its own: `unshare --mount --pid --fork --kill-child python3 confine.py OPTIONS ROOT COMMAND...`.

For programs, the filter of system calls has the effect of the default filter of container engines: it refuses the calls that
they refuse, and allows the calls that they do not know.
"""
import argparse
import ctypes
import os
import platform
import pwd
import resource
import struct

CAPABILITIES = {name: number for number, name in enumerate(
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service net_broadcast "
    "net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice "
    "sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog "
    "wake_alarm block_suspend audit_read perfmon bpf checkpoint_restore".split())}
# what a container's root has by default
OF_CONTAINERS = ("chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw sys_chroot mknod "
                 "audit_write setfcap").split()

# name: number on x86-64, on arm64
REFUSED = {"ptrace": (101, 117), "pivot_root": (155, 41), "mount": (165, 40), "umount2": (166, 39), "unshare": (272, 97),
           "setns": (308, 268), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "mbind": (237, 235),
           "set_mempolicy": (238, 237), "get_mempolicy": (239, 236), "migrate_pages": (256, 238), "move_pages": (279, 239),
           "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "perf_event_open": (298, 241),
           "open_by_handle_at": (304, 265), "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
           "io_uring_enter": (426, 426), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
           "pidfd_getfd": (438, 438), "process_madvise": (440, 440)}
CLONE, CLONE3, PERSONALITY = (56, 220), (435, 435), (135, 92)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
NEW_NAMESPACES = 0x7E020000
PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
EPERM, ENOSYS = 1, 38
LOAD, EQUALS, HAS_BITS, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
PR_CAPBSET_DROP, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 24, 22, 2
MS_RDONLY, MS_BIND, MS_REC, MS_REMOUNT, MS_PRIVATE, MNT_DETACH = 1, 4096, 16384, 32, 1 << 18, 2

libc = ctypes.CDLL(None, use_errno=True)


def check(rc, what):
    if rc != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def filter_program(column):
    """(code, if true, if false, value) each."""
    architecture = dict(ARCHITECTURES.values())[column]
    fail = (RETURN, 0, 0, FAIL | EPERM)
    program = [(LOAD, 0, 0, 4), (EQUALS, 1, 0, architecture), fail, (LOAD, 0, 0, 0)]
    for numbers in REFUSED.values():
        program += [(EQUALS, 0, 1, numbers[column]), fail]
    program += [(EQUALS, 0, 1, CLONE3[column]), (RETURN, 0, 0, FAIL | ENOSYS)]  # its flags are in memory
    program += [(EQUALS, 0, 3, CLONE[column]), (LOAD, 0, 0, 16), (HAS_BITS, 0, 1, NEW_NAMESPACES), fail]
    program += [(LOAD, 0, 0, 0), (EQUALS, 0, len(PERSONALITIES) + 2, PERSONALITY[column]), (LOAD, 0, 0, 16)]
    program += [(EQUALS, len(PERSONALITIES) - i, 0, value) for i, value in enumerate(PERSONALITIES)]
    return [*program, fail, (RETURN, 0, 0, ALLOW)]


def filter_system_calls():
    program = b"".join(struct.pack("=HBBI", *line) for line in filter_program(ARCHITECTURES[platform.machine()][0]))
    memory = ctypes.create_string_buffer(program)
    header = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(memory))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.create_string_buffer(header), 0, 0), "seccomp")


def mount(source, target, kind=None, flags=0, data=None):
    words = [None if word is None else word.encode() for word in (source, target, kind, data)]
    check(libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def make_read_only(path):
    mount(None, path, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def furnish(root, args):
    """Mount what a root needs."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    if not args.chroot:
        mount(root, root, None, MS_BIND)
    mount("proc", root + "/proc", "proc")
    mount("/dev", root + "/dev", None, MS_BIND)
    mount("devpts", root + "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("shm", root + "/dev/shm", "tmpfs", 0, f"size={args.shm},mode=1777")
    for pair in args.bind:
        source, _, target = pair.partition(":")
        os.makedirs(root + target, exist_ok=True)
        mount(source, root + target, None, MS_BIND)
    if args.container:
        mount("/sys", root + "/sys", None, MS_BIND)  # without the control groups below it
        make_read_only(root + "/sys")
        mount(root + "/proc/sys", root + "/proc/sys", None, MS_BIND)
        make_read_only(root + "/proc/sys")
    else:
        mount("/sys", root + "/sys", None, MS_BIND | MS_REC)
    if args.read_only:
        mount("tmpfs", root + "/tmp", "tmpfs", 0, "mode=1777")
        for path in args.writable:
            mount(root + path, root + path, None, MS_BIND)
        make_read_only(root)


def enter(root, args):
    if args.chroot:
        os.chroot(root)
    else:
        os.chdir(root)
        check(libc.syscall(REFUSED["pivot_root"][ARCHITECTURES[platform.machine()][0]], b".", b"."), "pivot_root")
        check(libc.umount2(b".", MNT_DETACH), "umount2")
    os.chdir("/")


def drop_capabilities(kept):
    """Drop root's capabilities: the next exec gives root those in the bounding set."""
    with open("/proc/sys/kernel/cap_last_cap", "rb") as f:  # this Python's modules are in another root: no codecs
        last = int(f.read())
    for number in set(range(last + 1)) - {CAPABILITIES[name] for name in kept}:
        check(libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), "prctl(PR_CAPBSET_DROP)")


def become(name):
    user = pwd.getpwnam(name)
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ.update(HOME=user.pw_dir, USER=name, LOGNAME=name, SHELL="/bin/bash")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--user", default="root")
    parser.add_argument("--without", action="append", default=[], metavar="CAPABILITY", choices=CAPABILITIES)
    parser.add_argument("--container", action="store_true", help="capabilities, system calls and /sys as in a container")
    parser.add_argument("--chroot", action="store_true", help="the root is no mount point")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--writable", action="append", default=[], metavar="PATH", help="all the same")
    parser.add_argument("--shm", default="50%", metavar="SIZE", help="of /dev/shm")
    parser.add_argument("--address-space", type=int, metavar="BYTES", help="of each process")
    parser.add_argument("--processes", type=int, metavar="N", help="of the user")
    parser.add_argument("--bind", action="append", default=[], metavar="SOURCE:TARGET")
    parser.add_argument("--cwd", default="/")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("root")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()

    furnish(os.path.realpath(args.root), args)
    enter(os.path.realpath(args.root), args)
    for limit, value in ((resource.RLIMIT_AS, args.address_space), (resource.RLIMIT_NPROC, args.processes)):
        if value is not None:
            resource.setrlimit(limit, (value, value))
    if args.container:
        filter_system_calls()
    drop_capabilities(set(OF_CONTAINERS if args.container else CAPABILITIES) - set(args.without))
    os.environ.clear()
    os.environ.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", HOME="/root", LANG="C.UTF-8")
    become(args.user)
    os.environ.update(pair.split("=", 1) for pair in args.env)
    os.chdir(args.cwd)
    os.execvp(args.command[0], args.command)


if __name__ == "__main__":
    main()
