"""docs/how-to/troubleshooting.md quotes real messages: each message with a star is provoked, and compared.

Covers: launcher/reporting, launcher/diagnosis, worker-runtime/core, worker-runtime/join
"""
import os
import re
import socket
import subprocess
import tempfile
import unittest

from ports import free_port

DDPRUN = os.environ["DDPRUN"]
MISFIT = os.environ["MISFIT"]
PAGE = os.path.join(os.environ["SOURCE_ROOT"], "docs/how-to/troubleshooting.md")

STARTERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "DDP_JOB_ID", "DDP_TIMEOUT", "CUDA_VISIBLE_DEVICES")


def run(*words, cwd=None, **env):
    """-> standard error"""
    env = {k: v for k, v in os.environ.items() if k not in STARTERS} | env
    return subprocess.run(words, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120).stderr


def with_port_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        return run(DDPRUN, "-n", "2", "--master-port", str(taken.getsockname()[1]), MISFIT, "none")


def by_hand(how):
    """The output of rank 0 of two, where no launcher stops it when the other one fails."""
    env = {k: v for k, v in os.environ.items() if k not in STARTERS} | {"WORLD_SIZE": "2", "DDP_JOB_ID": f"misfit {os.getpid()} {how}"}
    with subprocess.Popen([MISFIT, how], env=env | {"RANK": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        return subprocess.run([MISFIT, how], env=env | {"RANK": "0"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              timeout=120, check=False).stderr


def with_crlf():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "train.sh")
        with open(path, "w", newline="", encoding="utf-8") as f:
            f.write("#!/bin/sh\r\nexit 0\r\n")
        os.chmod(path, 0o700)
        return run(DDPRUN, "-n", "2", "./train.sh", cwd=folder)


# what provokes the message that has these words in it
CASES = {
    "timed out after 2 s waiting for rank": lambda: run(DDPRUN, "-n", "2", MISFIT, "late", DDP_TIMEOUT="2"),
    "as call #1 where": lambda: run(DDPRUN, "-n", "2", MISFIT, "count"),
    "to join": lambda: run(MISFIT, "absent", RANK="0", WORLD_SIZE="2", DDP_JOB_ID=f"misfit {os.getpid()}"),
    "set both, or neither": lambda: run(MISFIT, "none", RANK="0"),
    "already in use": with_port_taken,
    "waiting for nodes": lambda: run(
        DDPRUN, "--nnodes", "2", "-p", "1", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--rdzv-id", "misfit",
        "--start-timeout", "2", MISFIT, "none"),
    "no GPU found": lambda: run(DDPRUN, "-p", "gpu", MISFIT, "none"),
    "is missing in all_reduce": lambda: run(DDPRUN, "-n", "2", "--hang-timeout", "2", MISFIT, "late"),
    "CR LF": with_crlf,
    "waiting for the rendezvous endpoint": lambda: run(
        DDPRUN, "--nnodes", "2", "-p", "1", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", str(free_port()),
        "--start-timeout", "1", MISFIT, "none"),
    "killed by SIGSEGV": lambda: run(DDPRUN, "-n", "2", MISFIT, "fault"),
    "killed by SIGKILL": lambda: run(DDPRUN, "-n", "2", MISFIT, "die"),
    "rank 1 died": lambda: by_hand("die"),
    "set DDP_SEGMENT_BYTES": lambda: run(DDPRUN, "-n", "2", MISFIT, "segment", DDP_SEGMENT_BYTES="256M"),
}


def quoted():
    with open(PAGE, encoding="utf-8") as page:
        return re.findall(r"^\| \* `([^`]*)`", page.read(), re.MULTILINE)


def as_pattern(message):
    """Numbers of ports and processes differ each time, and times may be longer than the page has them."""
    pattern = re.sub(r"(port|process|pid) \d+", r"\1 \\d+", re.escape(message).replace("\\ ", " "))
    pattern = pattern.replace("by python3", r"by python[\d.]*")
    pattern = re.sub(r"127\\\.0\\\.0\\\.1:\d+", r"127\\.0\\.0\\.1:\\d+", pattern)
    return re.sub(r"waited in it for [\d\\.]+ s", r"waited in it for [\\d.]+ s", pattern)


class Troubleshooting(unittest.TestCase):
    def test_each_starred_message_is_the_real_message(self):
        messages = quoted()
        self.assertEqual(len(messages), len(CASES))
        for message in messages:
            with self.subTest(message):
                which = [words for words in CASES if words in message]
                self.assertEqual(len(which), 1)
                if which == ["no GPU found"] and os.path.exists("/dev/nvidia0"):
                    continue
                self.assertRegex(CASES[which[0]](), as_pattern(message))


if __name__ == "__main__":
    unittest.main()
