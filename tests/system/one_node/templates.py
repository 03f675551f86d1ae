"""Arguments in braces: programs that take their rank as an option do not need a wrapper.

Covers: launcher/job
"""
import os
import unittest

from harness import main, run

LLMC = os.environ.get("TRAIN_GPT2CU")  # tests/support/programs/train_gpt2cu.c


class Templates(unittest.TestCase):
    def test_the_command_line_of_llmc_starts_eight_ranks(self):
        code, out, err = run("-n", "8", LLMC, "-i", "dev/data/train_*.bin", "-j", "dev/data/val_*.bin", "-o", "log124M",
                             "-e", "d12", "-b", "64", "-t", "1024", "-d", "524288", "-r", "1", "-z", "1", "-c", "0.1",
                             "-l", "0.0006", "-q", "0.0", "-u", "700", "-n", "5000", "-v", "250", "-s", "20000", "-h", "1",
                             "-pn", "{world_size}", "-pr", "{rank}", "-pg", "{local_world_size}", "-pi", "tcp",
                             "-ps", "{master_ip}")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(out.splitlines()), [f"rank {r} of 8, 8 per node, 127.0.0.1" for r in range(8)])

    def test_a_master_name_is_resolved_to_an_address(self):
        code, out, err = run("-n", "2", "--rdzv-backend", "static", "--master-addr", "localhost", "echo", "{master_addr}",
                             "{master_ip}")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.splitlines(), ["localhost 127.0.0.1"] * 2)

    def test_templates_have_the_values_of_the_variables(self):
        names = {"{rank}": "RANK", "{local_rank}": "LOCAL_RANK", "{world_size}": "WORLD_SIZE",
                 "{local_world_size}": "LOCAL_WORLD_SIZE", "{node_rank}": "GROUP_RANK", "{nnodes}": "GROUP_WORLD_SIZE",
                 "{master_addr}": "MASTER_ADDR", "{master_port}": "MASTER_PORT", "{run_id}": "TORCHELASTIC_RUN_ID",
                 "{generation}": "DDP_GENERATION"}
        script = "[ \"$*\" = \"" + " ".join(f"${v}" for v in names.values()) + "\" ] || echo \"$*\""
        self.assertEqual(run("-n", "3", "sh", "-c", script, "sh", *names), (0, "", ""))

    def test_a_restart_increments_the_generation(self):
        code, out, _ = run("-n", "1", "--max-restarts", "1", "--on-failure", "restart", "sh", "-c",
                           'echo "$1"; exit $((1 - $1))', "sh", "{generation}")
        self.assertEqual((code, out), (0, "0\n1\n"))

    def test_scripts_keep_their_braces_by_default(self):
        code = "import sys; print(sys.argv[1:])"
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"ddprun-templates-{os.getpid()}.py")
        with open(path, "w") as f:
            f.write(code)
        try:
            for words, expected in ([], ["{rank}", "x={rank}"]), (["--templates", "yes"], ["0", "x={rank}"]):
                self.assertEqual(run("-n", "1", *words, path, "{rank}", "x={rank}"), (0, f"{expected}\n", ""))
        finally:
            os.unlink(path)
        self.assertEqual(run("-n", "1", "--templates", "no", "echo", "{rank}"), (0, "{rank}\n", ""))
        self.assertEqual(run("-n", "1", "--no-python", "echo", "{rank}", name="torchrun"), (0, "{rank}\n", ""))

    def test_a_command_in_front_of_some_ranks(self):
        code, out, err = run("-n", "3", "--wrap", "1-2:env 'WRAPPED=by {rank} of {world_size}'", "sh", "-c",
                             'echo "$RANK $WRAPPED"')
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(out.splitlines()), ["0 ", "1 by 1 of 3", "2 by 2 of 3"])
        code, out, err = run("--dry-run", "-n", "2", "--wrap", "0:env A=b", "--local-rank-arg=--r", "sh", "-c", "true")
        self.assertEqual([line for line in out.splitlines() if not line.startswith("    ")],
                         ["rank 0: /usr/bin/env A=b /usr/bin/sh --r=0 -c true", "rank 1: /usr/bin/sh --r=1 -c true"])
        self.assertEqual(run("--wrap", "no-such-debugger", "true"),
                         (127, "", "ddprun: error: --wrap: no program 'no-such-debugger' in PATH\n"))
        self.assertEqual(run("--wrap", "0:", "true")[::2], (2, "ddprun: error: --wrap requires a command\n"))

    def test_a_dry_run_shows_what_is_known(self):
        code, out, err = run("--dry-run", "-n", "2", "echo", "{rank}", "{master_port}", "{master_ip}")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line for line in out.splitlines() if not line.startswith("    ")],
                         [f"rank {r}: /usr/bin/echo {r} '<free port>' 127.0.0.1" for r in range(2)])


if __name__ == "__main__":
    main()
