"""A ddprun that is one node of a job of several."""
import contextlib
import os
import select
import signal
import socket

from harness import Job, await_true

TOKEN = "0123456789abcdef0123456789abcdef"
SHOW = ("sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE "
        "$MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT > $TEST_FIFO")
UP = ("tell", "up", "wait")


class Node(Job):
    """A ddprun of several. A token of the environment around must not decide what is tested."""

    def __init__(self, *args, env=None, **kw):
        super().__init__(*args, env={"HOME": "/nonexistent", "DDP_TOKEN": "", **(env or {})}, **kw)

    def hear_nothing(self):
        """Whether no rank has reported. A rank that ran would have reported by now."""
        return select.select([self.fifo_fd], [], [], 0)[0] == []

    def finish(self):
        code, out, err = self.end()
        return code, out.decode(), (self.said + err).decode()


def leaks(pids, secret):
    """Where these processes have it: "PID environ", cmdline, or memory, if we may read that. A sanitizer's runtime keeps a copy
    of the environment, so that memory is not searched."""
    found = []
    for pid in pids:
        for name in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{name}", "rb") as f:
                found += [f"{pid} {name}"] if secret.encode() in f.read() else []
        if "SANITIZED" in os.environ:
            continue
        with contextlib.suppress(PermissionError), open(f"/proc/{pid}/mem", "rb", 0) as memory:
            with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
                areas = [line.split() for line in maps]
            for area in areas:
                start, stop = (int(at, 16) for at in area[0].split("-"))
                if not area[1].startswith("rw") or stop - start > 256 << 20:
                    continue
                with contextlib.suppress(OSError):
                    memory.seek(start)
                    if secret.encode() in memory.read(stop - start):
                        found.append(f"{pid} memory {' '.join(area)}")
    return found


def finish(*args, **kw):
    with Node(*args, **kw) as node:
        return node.finish()


def end(test, *nodes):
    """One after the other: the last one has the roster."""
    for node in nodes:
        node.signal(signal.SIGTERM)
        test.assertEqual(node.finish()[0], -signal.SIGTERM)


def await_endpoint(port):
    """The node that was started meanwhile has the roster, and no other one."""
    def is_there():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0
    await_true(is_there)


def c10d(port, *more, nodes="2", host="127.0.0.1"):
    return ("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:{port}", "--rdzv-id", "job7", *more)


def static(port, rank, *more, nodes="2", host="127.0.0.1"):
    return ("--nnodes", nodes, "--node-rank", str(rank), "--master-addr", host, "--master-port", str(port), *more)
