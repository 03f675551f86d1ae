"""The arguments and variables that a rank receives, and the errors of ddprun when it does not start any.

Covers: launcher/options, launcher/job
"""
import os
import signal
import unittest

from harness import RANK, Job, main, run


class Options(unittest.TestCase):
    def test_a_dry_run_shows_everything_and_starts_nothing(self):
        code, out, err = run("--dry-run", "-n", "2", "--timeout", "1", "touch", "never it's ${local_rank}")
        self.assertEqual((code, err), (0, ""))
        self.assertFalse(os.path.exists("never it's 0"))
        lines = out.splitlines()
        self.assertEqual([line for line in lines if not line.startswith("    ")],
                         [f"rank {r}: /usr/bin/touch 'never it'\\''s {r}'" for r in range(2)])
        self.assertEqual(lines.count("    WORLD_SIZE=2"), 2)
        self.assertEqual(lines.count("    MASTER_PORT=<free port>"), 2)

    def test_the_local_rank_is_an_argument_on_request(self):
        for words in (["--local-rank-arg=--local_rank"], ["--local-rank-arg=--local_rank", "--no-python"]):
            code, out, err = run("-n", "2", *words, "echo", "$local_rank", "$$", "$HOME")
            self.assertEqual((code, sorted(out.splitlines())),
                             (0, [f"--local_rank={r} {r} $$ $HOME" for r in range(2)]), err)

    def test_the_help_is_short_complete_or_about_a_topic(self):
        short, whole, topic = (run(*words)[1] for words in (["-h"], ["--help"], ["--help", "hosts"]))
        self.assertLessEqual(len(short.splitlines()), 60)
        self.assertIn("\nExamples:\n", short)
        for text in short, whole, topic:
            self.assertIn("--hostfile", text)
        for text in short, topic:
            self.assertNotIn("--monitor-interval", text)
        self.assertIn("--monitor-interval", whole)
        code, out, err = run("--help", "host")
        self.assertEqual((code, out), (2, ""))
        self.assertRegex(err, r"\Addprun: (error: )?invalid value 'host' for --help: expected one of launch, hosts, ")

    def test_the_process_id_of_a_shell_is_not_a_template(self):
        code, out, err = run("-n", "2", "sh", "-c", "echo $$ $${local_rank}", env={"local_rank": "kept"})
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"\A([0-9]+ kept\n){2}\Z")

    def test_several_programs_are_one_job(self):
        words = ["-n", "2", "--label={rank} ", "sh", "-c", 'echo "a $RANK of $WORLD_SIZE"', ":", "-n", "3", "sh", "-c",
                 'echo "b $1"', "sh", "{rank}", ":", "sh", "-c", "echo c"]
        code, out, err = run(*words)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(out.splitlines()), ["0 a 0 of 6", "1 a 1 of 6", "2 b 2", "3 b 3", "4 b 4", "5 c"])
        code, out, err = run("--dry-run", *words)
        self.assertEqual([line for line in out.splitlines() if not line.startswith("    ")],
                         [f"rank {r}: /usr/bin/sh -c 'echo \"a $RANK of $WORLD_SIZE\"'" for r in (0, 1)] +
                         [f"rank {r}: /usr/bin/sh -c 'echo \"b $1\"' sh {r}" for r in (2, 3, 4)] +
                         ["rank 5: /usr/bin/sh -c 'echo c'"])

    def test_the_program_that_failed_is_named(self):
        code, _, err = run("-n", "2", "sleep", "60", ":", "sh", "-c", "exit 7", ":", "sleep", "61")
        self.assertEqual(code, 7)
        self.assertRegex(err, r"^ddprun: error: rank 2 failed: exit status 7, .*\n  host .*, sh\n")
        code, _, err = run("sh", "-c", "exit $((1 - TORCHELASTIC_RESTART_COUNT))", ":", "--no-python", "sh", "-c", "exit 0")
        self.assertEqual(code, 1)
        code, _, err = run("--max-restarts", "1", "sh", "-c", "exit $((1 - TORCHELASTIC_RESTART_COUNT))", ":", "true")
        self.assertEqual(code, 0, err)

    def test_a_script_started_by_run_path_is_main(self):
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"ddprun-run-path-{os.getpid()}.py")
        with open(path, "w") as f:
            f.write("import sys\nprint(__name__, sys.argv)\n")
        try:
            code, out, err = run("-n", "1", "--run-path", path, "a", "--b")
        finally:
            os.unlink(path)
        self.assertEqual((code, out), (0, f"__main__ {[path, 'a', '--b']}\n"), err)

    def test_each_rank_sees_its_device_as_number_0(self):
        code, out, _ = run("-n", "2", "--virtual-local-rank", "sh", "-c",
                           "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES", env={"CUDA_VISIBLE_DEVICES": "5, 3"})
        self.assertEqual((code, sorted(out.splitlines())), (0, ["0 0 5", "1 0 3"]))

    def test_an_unknown_signal_is_an_error_and_for_torchrun_a_warning(self):
        words = ("--signals-to-handle", "SIGTERM,SIGNONE", "--no-python", "sh", "-c", "echo $TORCHELASTIC_SIGNALS_TO_HANDLE")
        code, _, err = run(*words)
        self.assertEqual((code, err.splitlines()[0]),
                         (2, "ddprun: error: invalid value 'SIGNONE' for --signals-to-handle: expected the name of a signal, such as "
                             "SIGUSR1 or USR1"))
        code, out, err = run(*words, name="torchrun")
        self.assertEqual((code, out), (0, "SIGTERM,SIGNONE\n"))
        self.assertRegex(err, r"--signals-to-handle: unknown signal 'SIGNONE' ignored\n$")
        self.assertEqual(run("--signals-to-handle", "usr1,SIGUSR2", *words[2:])[:2], (0, "SIGUSR1,SIGUSR2\n"))

    def test_a_signal_can_be_made_to_end_the_job(self):
        for words, end in (["--signals-to-handle", "SIGUSR1"], -signal.SIGUSR1), ([], 128 + signal.SIGUSR1):
            with Job("-n", "2", *words, "sh", "-c", 'echo up >"$TEST_FIFO"; exec sleep 60') as job:
                job.hear(2)
                job.signal(signal.SIGUSR1)
                self.assertEqual(job.end()[0], end)

    def test_signals_reach_a_process_or_its_group(self):
        code = ("import os, signal\n"
                "fifo = os.open(os.environ['TEST_FIFO'], os.O_WRONLY)\n"
                "name = 'main' if os.fork() else 'child'\n"
                "for sig in signal.SIGUSR1, signal.SIGUSR2:\n"
                "    signal.signal(sig, lambda n, _: os.write(fifo, f'{name} {n}\\n'.encode()))\n"
                "os.write(fifo, b'up\\n')\n"
                "while True: signal.pause()\n")
        one, two = int(signal.SIGUSR1), int(signal.SIGUSR2)
        for scope, heard in ("group", [f"child {one}", f"main {one}"]), ("process", [f"main {one}", f"main {two}"]):
            with Job("-n", "1", "--signal-scope", scope, "python3", "-c", code) as job:
                job.hear(2)
                job.signal(signal.SIGUSR1)
                if scope == "process":
                    first = job.hear(1)
                    job.signal(signal.SIGUSR2)
                    self.assertEqual(first + job.hear(1), heard)
                else:
                    self.assertEqual(job.hear(2), heard)
                job.signal(signal.SIGTERM)
                self.assertEqual(job.end()[0], -signal.SIGTERM)

    def test_impossible_options_are_refused_by_name(self):
        for words in (["--rdzv-backend", "zookeeper"], ["--logs-specs", "mine"], ["--node-rank", "1"]):
            for name in (None, "torchrun"):
                code, out, err = run(*words, RANK, name=name)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(words[0], err)
                self.assertEqual(err.count("\n"), 1)

    def test_torchrun_exits_with_1_or_2(self):
        self.assertEqual(run("--no-python", "/nowhere", name="torchrun")[0], 1)
        self.assertEqual(run("--no-python", "/nowhere")[0], 127)
        self.assertEqual(run("--nonsense", name="torchrun")[0], 2)
        self.assertEqual(run("--no-python", "sh", "-c", "exit 7", name="torchrun")[0], 1)


main()
