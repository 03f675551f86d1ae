"""ddprun -H and --hostfile: a job on several hosts, each with a real sshd, a host name and an address of its own.

Covers: launcher/remote, launcher/hosts, launcher/membership, launcher/node
"""
import os
import re
import shutil
import signal
import tempfile
import unittest

from harness import DDPRUN, RANK, Job, describe, kill_all, main
from node import TOKEN, leaks
from ssh_hosts import SshHosts, SshJob, stand_in

HYDRA = shutil.which("mpiexec.hydra")
MNIST = os.environ.get("MNIST")
UP = ("tell", "up", "wait")
SHOW = ("sh", "-c", "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $(hostname) "
        "$(test -n \"$MASTER_PORT\" && echo $MASTER_ADDR) > $TEST_FIFO")
ON_TERM = ("--on-term", "600s", "--shutdown-timeout", "600s", RANK, "on", str(int(signal.SIGTERM)), "7", "tell", "up")
hosts = None


def setUpModule():
    global hosts
    hosts = SshHosts(3)


def tearDownModule():
    hosts.close()


class Remote(SshJob):
    def __init__(self, *args, **kw):
        super().__init__(hosts, os.path.abspath(DDPRUN), *args, **kw)

    def find(self, *words):
        """The pids whose command line holds all these words."""
        found = []
        for pid in self.processes():
            line = str(describe(pid)[1])
            if all(word in line for word in words):
                found.append(pid)
        return found


def finish(*args, **kw):
    with Remote(*args, **kw) as job:
        return job.finish()


class Hosts(unittest.TestCase):
    def test_ranks_run_on_each_host_in_its_order(self):
        with Remote("-H", "n2:1,n[1,3]:2", *SHOW) as job:
            self.assertEqual(job.finish(), (0, "", ""))
            self.assertEqual(job.hear(5), [
                "0/5 0/1 0/3 n2 10.121.0.2", "1/5 0/2 1/3 n1 10.121.0.2", "2/5 1/2 1/3 n1 10.121.0.2",
                "3/5 0/2 2/3 n3 10.121.0.2", "4/5 1/2 2/3 n3 10.121.0.2"])

    def test_a_host_file_places_the_ranks(self):
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as f:
            f.write("# three hosts\nn3 slots=2\nroot@n1 slots=2 port=22\n\nn2 slots=2 max-slots=4\n")
            f.flush()
            with Remote("--hostfile", f.name, "-n", "5", *SHOW) as job:
                self.assertEqual(job.finish(), (0, "", ""))
                self.assertEqual([line.split()[3] for line in job.hear(5)], ["n3", "n3", "n1", "n1", "n2"])
            f.write("n4 slots=two\n")
            f.flush()
            code, _, err = finish("--hostfile", f.name, "true")
            self.assertEqual((code, err), (2, f"ddprun: error: {f.name}:6: invalid value 'two' for slots: expected a number\n"))

    @unittest.skipIf(MNIST is None, "the examples are not built")
    def test_mnist_on_six_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = finish("-H", "n1:2,n2:2,n3:2", "-x", "OMP_NUM_THREADS=1", MNIST, "--data", folder, "--draw", "600",
                                    "--epochs", "1", "--batch", "60", "--model", "linear")
            self.assertEqual((code, err), (0, ""))
            self.assertIn("epoch 1", out)

    def test_the_root_cause_is_reported_once(self):
        code, out, err = finish("-H", "n1:2,n2:2,n3:2", RANK, "only", "3", "err", "oh dear", "exit", "7", "end", "wait")
        self.assertEqual((code, out), (7, ""))
        self.assertEqual(err.count("failed"), 1, err)
        self.assertIn("oh dear\n", err)
        self.assertRegex(err, r"ddprun: error: rank 3 failed: exit status 7, .*\n  host n2, local rank 1, ")

    def test_output_of_short_lived_ranks_is_not_lost(self):
        code, out, err = finish("-H", "n1:2,n2:2,n3:2", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((code, out, err), (0, "out\n" * 6, "err\n" * 6))

    def test_variables_and_the_directory_reach_the_hosts(self):
        script = "echo $A $B $C $(pwd) ${DDP_TOKEN-none} > $TEST_FIFO"
        with tempfile.TemporaryDirectory() as folder:
            with Remote("-H", "n1,n2", "-x", "A=1 'x'", "-x", "C", "-C", folder, "sh", "-c", script,
                        env={"B": "$two", "C": "three", "DDP_TOKEN": "0123456789abcdef0123"}) as job:
                self.assertEqual(job.finish(), (0, "", ""))
                self.assertEqual(job.hear(2), [f"1 'x' $two three {folder} none"] * 2)

    def test_the_longest_variable_reaches_the_hosts(self):
        longest = "A=" + "a" * (131071 - len("A="))
        self.assertEqual(finish("-H", "n1,n2", "-x", longest, "sh", "-c", "test ${#A} = 131069"), (0, "", ""))

    def test_the_token_of_the_user_is_in_no_process(self):
        with Remote("-H", "n1,n2", RANK, *UP, env={"DDP_TOKEN": TOKEN}) as job:
            job.hear(2)
            self.assertEqual(leaks(job.processes(), TOKEN), [])
            job.signal(signal.SIGTERM)
            job.finish()

    def test_no_command_line_shows_a_secret(self):
        with Remote("-H", "n1,n2", RANK, *UP) as job:
            job.hear(2)
            lines = [str(describe(pid)[1]) for pid in job.processes()]
            for line in lines:
                self.assertFalse(any(len(word) >= 64 and set(word) <= set("0123456789abcdef") for word in line.split()), line)
            self.assertEqual(len([line for line in lines if "--launch-channel" in line and "ssh" in line]), 2, lines)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.finish()[0], -signal.SIGTERM)

    def test_missing_programs_are_reported(self):
        code, out, err = finish("-H", "n1", "no-such-program")
        self.assertEqual((code, out, err), (127, "", "ddprun: error: n1: no program 'no-such-program' in PATH; give its path, or add its directory to PATH\n"))
        code, out, err = finish("-H", "n1", "-C", "/no/such/folder", "true")
        self.assertEqual((code, out), (70, ""))
        self.assertRegex(err, r"^ddprun: error: n1: cannot change to directory '/no/such/folder': No such file.*\n$")

    def test_a_dry_run_shows_how_each_host_is_reached(self):
        code, out, err = finish("--dry-run", "-H", "n1:4,bob@n2", "-C", "/", "true")
        self.assertEqual((code, err), (0, ""))
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^n1: 4 ranks in /, by \S+ .* n1 '\S+ --launch-channel'$")
        self.assertRegex(lines[1], r"^n2: in /, by \S+ .* bob@n2 '\S+ --launch-channel'$")


class Unreachable(unittest.TestCase):
    def test_each_host_that_cannot_be_reached_is_named_before_anything_runs(self):
        with Remote("-H", "n1,nowhere,no-such-name", "--connect-timeout", "60", RANK, *UP) as job:
            code, out, err = job.finish()
            self.assertEqual((code, out), (69, ""))
            self.assertEqual(sorted(line.split(":")[2].strip() for line in err.splitlines()), ["no-such-name", "not enough hosts", "nowhere"])
            self.assertRegex(err, r"ddprun: error: nowhere: ssh: .*(No route to host|timed out)")

    def test_a_host_that_never_answers_times_out(self):
        for before, time, said in (("", "0.3", "timed out after 0.30 s waiting for ssh and ddprun to answer (--connect-timeout)"),
                                   ("echo one >&2; echo srun: job 7 queued >&2; ", "2",
                                    "timed out after 2.00 s waiting for ssh and ddprun to answer (--connect-timeout); last output: srun: job 7 queued")):
            with self.subTest(before), tempfile.TemporaryDirectory() as folder:
                ssh = stand_in(folder, f"{before}exec sleep 1000\n")
                code, out, err = finish("--ssh-command", ssh, "--connect-timeout", time, "-H", "n1", RANK, *UP)
                self.assertEqual((code, out), (69, ""))
                self.assertEqual(err, f"ddprun: error: n1: {said}\nddprun: error: not enough hosts: 1 node required, but 1 of 1 hosts failed to start; fix them or lower --nnodes MIN:MAX\n")

    def test_endless_output_of_a_host_is_an_error(self):
        for before in "", "echo ddprun-launch 1 127.0.0.1; ":
            with self.subTest(before), tempfile.TemporaryDirectory() as folder:
                ssh = stand_in(folder, f"{before}head -c 1000000 /dev/zero | tr '\\0' x\nexec sleep 1000\n")
                code, out, err = finish("--ssh-command", ssh, "-H", "n1", RANK, *UP)
                self.assertEqual((code, out), (75 if before else 69, ""))
                self.assertRegex(err, r"^ddprun: error: n1: unexpected output from the remote shell; make sure that login scripts print nothing in non-interactive shells\n")

    def test_the_others_start_without_it_if_allowed(self):
        with Remote("-H", "n1,no-such-name,n3", "--nnodes", "1:3", "--join-window", "0", *SHOW) as job:
            code, _, err = job.finish()
            self.assertEqual(code, 0, err)
            joins = r"(ddprun: note: n[13] joins; generation \d: .*\n)?"  # where it had no CPU in time
            self.assertRegex(err, rf"^{joins}ddprun: warning: no-such-name: .*\n{joins}$")
            self.assertRegex(job.hear(1)[0], r"^[01]/[12] ")


class Wrapper(unittest.TestCase):
    """A command that reaches hosts and does not pass on from where, as kubectl exec and docker exec."""

    def run_by(self, script, *words, **kw):
        with tempfile.TemporaryDirectory() as folder:
            return finish("--ssh-command", stand_in(folder, script), *words, **kw)

    def test_hosts_without_an_ssh_address_find_the_launching_host(self):
        self.assertEqual(self.run_by('exec sh -c "$2"\n', "-H", "n1,n2", "sh", "-c", "exit 0"), (0, "", ""))
        self.assertEqual(self.run_by('exec sh -c "$2"\n', "-H", "n1,n2", "--local-addr", "127.0.0.1", "sh", "-c",
                                     "test $MASTER_ADDR = 127.0.0.1"), (0, "", ""))

    def test_the_ssh_session_of_ddprun_itself_is_ignored(self):
        env = {"SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22"}
        self.assertEqual(self.run_by('exec sh -c "$2"\n', "-H", "n1,localhost", "sh", "-c", "exit 0", env=env), (0, "", ""))
        self.assertEqual(finish("-H", "localhost", "sh", "-c", "exit 0", env=env), (0, "", ""))

    def test_an_unreachable_launching_ddprun_is_reported_with_the_option(self):
        code, _, err = self.run_by('exec unshare -n sh -c "$2"\n', "-H", "n1,n2", "--start-timeout", "1s", "sh", "-c", "exit 0")
        self.assertEqual(code, 69, err)
        self.assertRegex(err, r"(?m)^ddprun: note: the hosts cannot determine the address of this host and used [^ ]+; "
                              r"use --local-addr to pass another one$")

    def test_a_shared_reason_is_printed_for_the_first_host_and_the_rest(self):
        code, _, err = self.run_by('exec sh -c "$2"\n', "-H", "n[1-300]", "--wdir", "/nowhere", "sh", "-c", "exit 0")
        self.assertEqual(code, 70, err)
        lines = err.splitlines()
        self.assertEqual(len(lines), 2, err)
        why = r": cannot change to directory '/nowhere': No such file or directory; use --wdir to start in another one$"
        self.assertRegex(lines[0], r"^ddprun: error: n\d+" + why)
        found = re.search(r"^ddprun: error: ((?:n\d+, )+n\d+) and (\d+) more" + why, lines[1])
        self.assertEqual(found[1].count(",") + 1 + int(found[2]), 299)


class Ends(unittest.TestCase):
    def stopped(self, sig):
        with Remote("-H", "n1:2,n2:2,n3:2", RANK, *UP) as job:
            self.assertEqual(job.hear(6), [f"{rank} up" for rank in range(6)])
            job.signal(sig)
            code, out, err = job.finish()  # which looks for what is left, on all hosts
            self.assertEqual((code, out), (-sig, ""))
            self.assertRegex(err, rf"^ddprun: note: stopped by {signal.Signals(sig).name} after \S+ s\n$")

    def test_ctrl_c_ends_everything_everywhere(self):
        self.stopped(signal.SIGINT)

    def test_a_signal_while_hosts_are_being_reached_ends_all(self):
        with tempfile.NamedTemporaryFile("w") as script:
            script.write("#!/bin/sh\necho 0 up > $TEST_FIFO\nexec sleep 1000\n")
            script.flush()
            with Remote("--ssh-command", f"sh {script.name}", "-H", "n1", "true") as job:
                job.hear(1)
                job.signal(signal.SIGTERM)
                self.assertEqual(job.finish()[0], -signal.SIGTERM)

    def test_ranks_receive_user_signals(self):
        usr1 = str(int(signal.SIGUSR1))
        with Remote("-H", "n1,n2", RANK, "await", usr1, "tell", "heard") as job:
            job.hear(2)
            job.signal(signal.SIGUSR1)
            self.assertEqual(job.hear(2), ["0 heard", "1 heard"])
            self.assertEqual(job.finish(), (0, "", ""))

    def test_a_signal_reaches_ranks_of_a_host_whose_answer_is_late(self):
        usr1 = str(int(signal.SIGUSR1))
        with tempfile.TemporaryDirectory() as folder:
            go = os.path.join(folder, "go")
            ssh = stand_in(folder, "SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' sh -c \"$2\" |\n"
                           f"{{ read -r up; echo \"$up\"; until [ -e {go} ]; do sleep 0.1; done; cat; }}\n")
            with Remote("--ssh-command", ssh, "-H", "n1", RANK, "await", usr1, "tell", "heard") as job:
                job.hear(1)
                job.signal(signal.SIGUSR1)
                self.assertEqual(job.hear(1), ["0 heard"])
                open(go, "w").close()
                self.assertEqual(job.finish(), (0, "", ""))

    def test_ranks_save_before_they_receive_a_signal_that_ends_them(self):
        with Remote("-H", "n1:2", *ON_TERM, "asked", "saved", "wait") as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(4), ["0 asked", "0 got 15", "1 asked", "1 got 15"])
            code, _, err = job.finish()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertIn("ddprun: note: SIGTERM: asking the ranks to save their state within 600 s\n", err)

    def save_one_by_one(self, job):
        """Both are asked; rank 0 has saved, and its node has had the time to act on that; rank 1 waits to be let."""
        usr2 = int(signal.SIGUSR2)
        self.assertEqual(job.hear(2), ["0 up", "1 up"])
        job.signal(signal.SIGTERM)
        self.assertEqual(job.hear(4), ["0 asked", "0 has saved", "1 asked", f"1 awaits {int(signal.SIGUSR1)}"])
        for _ in range(2):  # round trips by the node's loop, which already has rank 0's report
            job.signal(usr2)
            self.assertEqual(job.hear(2), [f"0 got {usr2}", f"1 got {usr2}"])

    def saver(self, on_term, *hosts_words):
        usr1, usr2, term = (str(int(s)) for s in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM))
        return Remote(*hosts_words, "--on-term", on_term, "--shutdown-timeout", "600s",
                      RANK, "only", "0", "note", usr1, "end", "note", usr2, "on", term, "7", "tell", "up",
                      "asked", "only", "1", "await", usr1, "end", "tell", "has saved", "saved", "wait")

    def test_no_node_ends_the_job_while_other_nodes_save(self):
        with self.saver("600s", "-H", "n1,n2") as job:
            self.save_one_by_one(job)
            job.signal(signal.SIGUSR1)
            heard = []  # one by one, as they came; rank 0 may also report SIGUSR1
            while not {"0 got 15", "1 got 15"} <= set(heard):
                heard += job.hear(1)
            self.assertEqual(set(heard) - {f"0 got {int(signal.SIGUSR1)}"}, {"0 got 15", "1 got 15", "1 has saved"})
            self.assertLess(heard.index("1 has saved"), min(heard.index("0 got 15"), heard.index("1 got 15")))
            code, _, err = job.finish()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertNotIn("is over", err)

    def test_nodes_that_have_saved_wait_for_others_until_the_timeout(self):
        with self.saver("1s", "-H", "n1,n2") as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(6), ["0 asked", "0 got 15", "0 has saved", "1 asked", "1 awaits 10", "1 got 15"])
            code, _, err = job.finish()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertIn("ddprun: warning: timed out after 1 s waiting for all ranks to save their state (--on-term)\n", err)

    def test_a_second_signal_does_not_wait_for_others_to_save(self):
        with self.saver("600s", "-H", "n1,n2") as job:
            self.save_one_by_one(job)
            job.signal(signal.SIGTERM)
            self.assertEqual(job.finish()[0], -signal.SIGTERM)

    def test_a_node_that_is_lost_while_it_saves_is_not_waited_for(self):
        with self.saver("600s", "-H", "n1,n2", "--nnodes", "1:2") as job:
            self.save_one_by_one(job)
            kill_all([hosts.ddprun(1)])
            self.assertEqual(job.finish()[0], -signal.SIGTERM)

    def test_the_job_succeeds_if_ranks_exit_with_0_when_asked_to_save(self):
        with Remote("-H", "n1,n2", *ON_TERM, "asked", "exit", "0") as job:
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            job.signal(signal.SIGTERM)
            self.assertEqual(job.hear(2), ["0 asked", "1 asked"])
            code, _, err = job.finish()
            self.assertEqual(code, 0, err)

    def test_nothing_is_left_when_the_launching_ddprun_is_killed(self):
        with Remote("-H", "n1:2,n2:2", RANK, *UP) as job:
            job.hear(4)
            job.signal(signal.SIGKILL)
            job.end()
            job.await_gone()
            hosts.await_empty()

    def test_a_host_whose_ssh_dies_leaves_the_job(self):
        with Remote("-H", "n1,n2,n3", "--nnodes", "2:3", RANK, *UP) as job:
            job.hear(3)
            kill_all(job.find("ssh", "n2", "--launch-channel")[:1])
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            job.signal(signal.SIGTERM)
            code, _, err = job.finish()
            self.assertEqual(code, -signal.SIGTERM)
            self.assertIn("generation 1: 2 nodes, 2 ranks\n", err)


class Losses(unittest.TestCase):
    def test_the_job_continues_without_a_killed_node(self):
        with Remote("-H", "n1,n2,n3", "--nnodes", "2:3", RANK, *UP) as job:
            job.hear(3)
            kill_all([hosts.ddprun(0)])
            self.assertEqual(job.hear(2), ["0 up", "1 up"])
            job.signal(signal.SIGTERM)
            code, _, err = job.finish()
            self.assertEqual(code, -signal.SIGTERM)
            self.assertRegex(err, r"ddprun: note: .*lost n1.*; generation 1: 2 nodes, 2 ranks\n")

    def test_the_job_continues_without_a_host_whose_ranks_keep_failing(self):
        script = "echo $(hostname) $TORCHELASTIC_RESTART_COUNT > $TEST_FIFO; test $(hostname) = n2 && exit 7; exec sleep 1000"
        with Remote("-H", "n1,n2,n3", "--nnodes", "2:3", "--max-restarts", "9", "--exclude-node-after", "2", "sh", "-c",
                    script) as job:
            generations = {"n1": [], "n2": [], "n3": []}
            while len(generations["n2"]) < 2 or generations["n1"][-1:] != generations["n3"][-1:] or \
                    generations["n1"][-1:] <= generations["n2"][-1:]:
                name, generation = job.hear(1)[0].split()
                generations[name].append(int(generation))
            job.signal(signal.SIGTERM)
            code, _, err = job.finish()
            self.assertEqual(code, -signal.SIGTERM, err)
            self.assertRegex(err, r"ddprun: note: rank \d on n2: .*; n2 is excluded; generation \d: 2 nodes, 2 ranks\n")
            self.assertEqual(len(generations["n2"]), 2)

    def test_too_few_remaining_nodes_end_the_job(self):
        with Remote("-H", "n1,n2,n3", RANK, *UP) as job:
            job.hear(3)
            kill_all([hosts.ddprun(1)])
            code, _, err = job.finish()
            self.assertEqual(code, 75, err)
            self.assertRegex(err, r"^ddprun: error: .*lost n2.*\n$")


@unittest.skipIf(HYDRA is None, "there is no mpiexec.hydra")
class Hydra(unittest.TestCase):
    def test_ddpruns_started_on_hosts_are_one_job(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = os.path.join(folder, "ssh")
            with open(ssh, "w", encoding="utf-8") as f:
                f.write(f'#!/bin/sh\nexec {hosts.ssh} "$@"\n')
            os.chmod(ssh, 0o755)
            with Job("netns", "exec", hosts.netns, HYDRA, "-launcher", "ssh", "-launcher-exec", ssh, "-localhost", hosts.address(253),
                     "-hosts", "n1,n2", "-ppn", "1", "-n", "2", os.path.abspath(DDPRUN), "-p", "2", *SHOW, launcher="/bin/ip") as job:
                code, out, err = job.end()
                self.assertEqual((code, out, err), (0, b"", b""))
                self.assertEqual(job.hear(4), [f"{rank}/4 {rank % 2}/2 {rank // 2}/2 n{rank // 2 + 1} {hosts.address(0)}"
                                               for rank in range(4)])
                hosts.await_empty()


class Cut(unittest.TestCase):
    def test_the_job_continues_without_a_host_whose_network_fails(self):
        with Remote("-H", "n1,n2,n3", "--nnodes", "2:3", RANK, *UP) as job:
            job.hear(3)
            hosts.cut(1)
            try:
                self.assertEqual(job.hear(2), ["0 up", "1 up"])
                job.signal(signal.SIGTERM)
                self.assertEqual(job.end()[0], -signal.SIGTERM)
            finally:
                hosts.rejoin(1)
            job.await_gone()


if __name__ == "__main__":
    main()
