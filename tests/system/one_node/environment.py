"""What a rank finds in its environment, end to end.

Covers: launcher/start, launcher/job, launcher/generation, launcher
"""
import os
import socket
import tempfile
import unittest

from harness import DDPRUN, RANK, Job, main, run
from ports import free_port


def environments(*args, env=None):
    code, out, err = run(*args, "sh", "-c", 'env -0; printf "\\0"', env=env)
    assert code == 0, err
    ranks = [dict(line.split("=", 1) for line in part.split("\0") if line) for part in out.split("\0\0") if part]
    return sorted(ranks, key=lambda e: int(e["RANK"]))


class Environment(unittest.TestCase):
    def test_ranks_are_numbered_and_share_a_store(self):
        ranks = environments("-n", "1")
        self.assertEqual(ranks[0]["TORCHELASTIC_USE_AGENT_STORE"], "False")
        code, out, _ = run("-n", "3", "sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
                           "$MASTER_ADDR $MASTER_PORT $TORCHELASTIC_USE_AGENT_STORE $DDP_NODE_FD")
        self.assertEqual(code, 0)
        lines = sorted(out.splitlines())
        port = lines[0].split()[6]
        self.assertEqual(lines, [f"{r} {r} 3 3 0 127.0.0.1 {port} True 3" for r in range(3)])

    def test_the_store_listens_before_a_rank_runs(self):
        code, _, err = run("-n", "2", "python3", "-c",
                           "import os, socket; socket.create_connection((os.environ['MASTER_ADDR'], "
                           "int(os.environ['MASTER_PORT'])), 10).close()")
        self.assertEqual(code, 0, err)

    def test_a_world_of_one_gets_a_free_port(self):
        ranks = environments("-n", "1")
        with socket.socket() as s:
            s.bind(("127.0.0.1", int(ranks[0]["MASTER_PORT"])))

    def test_a_port_can_be_requested(self):
        port = free_port()
        code, out, _ = run("-n", "2", "--master-port", str(port), "sh", "-c", "echo $MASTER_PORT")
        self.assertEqual((code, out), (0, f"{port}\n" * 2))

    def test_a_taken_port_is_named(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            code, _, err = run("-n", "2", "--master-port", str(port), RANK)
        self.assertEqual(code, 69)
        self.assertIn(str(port), err)

    def test_garbage_on_the_store_port_does_no_harm(self):
        with Job("-n", "2", "sh", "-c", 'trap "exit 0" USR1; echo "$RANK $MASTER_PORT" >"$TEST_FIFO"; '
                 'while :; do sleep 0.01; done') as job:
            port = int(job.hear(2)[0].split()[1])
            for garbage in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 70_000, os.urandom(4096), b"\0" * 9):
                with socket.create_connection(("127.0.0.1", port), 10) as s:
                    try:
                        s.sendall(garbage)
                        s.shutdown(socket.SHUT_WR)
                        s.settimeout(10)
                        while s.recv(4096):
                            pass
                    except OSError:
                        pass  # cut off, as it should be
            job.signal(10)
            self.assertEqual(job.end()[0], 0)

    def test_a_path_in_a_virtual_environment_selects_its_python(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "venv", "bin")
            os.makedirs(path)
            os.mkdir(os.path.join(folder, "data"))
            os.symlink(os.path.abspath(DDPRUN), os.path.join(path, "ddprun"))
            os.symlink("/bin/echo", os.path.join(path, "python3"))  # a test double: it prints what it would run
            with open(os.path.join(folder, "venv", "pyvenv.cfg"), "w"):
                pass
            for words in (), ("-C", "data"):
                with self.subTest(words=words):
                    code, out, err = run(*words, "-m", "train", launcher="venv/bin/ddprun", cwd=folder)
                    self.assertEqual((code, out), (0, "-u -m train\n"), err)

    def test_the_error_file_is_in_a_private_directory(self):
        code, out, _ = run("-n", "1", "sh", "-c", 'stat -c "%a %u" "$(dirname "$TORCHELASTIC_ERROR_FILE")"')
        self.assertEqual((code, out), (0, f"700 {os.geteuid()}\n"))

    def test_a_misspelled_variable_causes_a_warning_and_is_passed_on(self):
        code, out, err = run("-n", "1", "sh", "-c", "echo $DDP_TIMOUT", env={**os.environ, "DDP_TIMOUT": "5"})
        self.assertEqual((code, out), (0, "5\n"))
        self.assertIn("ddprun: warning: unknown environment variable DDP_TIMOUT: did you mean DDP_TIMEOUT?\n", err)
        code, _, err = run("-n", "1", "true", env={**os.environ, "DDP_TIMEOUT": "5", "DDP_EXPERIMENT": "a"})
        self.assertEqual((code, err), (0, ""))


main()
