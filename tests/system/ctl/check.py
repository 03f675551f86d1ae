"""ddpctl check: on hosts with a real sshd, a host name and an address each; on nodes by test doubles of ssh, of
nvidia-smi and of NCCL; on this machine.

Covers: ctl/check, ctl, launcher/remote
"""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from harness import DDPRUN, DEADLINE_S, await_true, main
from ssh_hosts import NETWORK, SshHosts, run

DDPCTL = os.path.abspath(os.environ["DDPCTL"])
JUMPING_CLOCK = os.environ["JUMPING_CLOCK"]
STAND_IN_NCCL = os.environ["STAND_IN_NCCL"]
PATIENT = ("--timeout", str(DEADLINE_S))
# what depends on the machine that the tests run on
OF_THE_MACHINE = ("nofile", "memlock", "somaxconn", "shm", "gpus")
VERSION = subprocess.run([DDPRUN, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
hosts = None


def setUpModule():
    global hosts
    hosts = SshHosts(3, has_names=True)


def tearDownModule():
    hosts.close()


def environment(**more):
    """ddprun is found in PATH: in a build directory, ddpctl and ddprun are in different directories."""
    return {**os.environ, "PATH": os.path.dirname(os.path.abspath(DDPRUN)) + ":" + os.environ["PATH"], **more}


def check(*args, netns=True, **env):
    """(exit status, stdout, stderr)"""
    place = ["ip", "netns", "exec", hosts.netns] if netns else []
    done = subprocess.run([*place, DDPCTL, "check", *args], env=environment(**env), stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=6 * DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr


def look(*args, **kw):
    """(exit status, the output of --json)"""
    code, out, err = check("--json", *args, **kw)
    assert err == "" and out.count("\n") == 1, (code, out, err)
    return code, json.loads(out)


def look_by_ssh(*args, **kw):
    return look("--ssh-command", hosts.ssh, *PATIENT, *args, **kw)


def findings(report, *fields):
    """(node, what, level, text) of what does not depend on the machine, or of these fields."""
    return [(f["node"], f["what"], f["level"], f["text"]) for f in report["findings"]
            if (f["what"] in fields if fields else f["what"] not in OF_THE_MACHINE)]


class Hosts(unittest.TestCase):
    def test_healthy_nodes_reach_each_other(self):
        code, report = look_by_ssh("-H", "n1,n2,n3", "--net")
        self.assertEqual(findings(report, "reach", "version", "clock", "name", "ports", "token"), [])
        self.assertEqual(code, 69 if any(f["level"] == "failed" for f in report["findings"]) else 0)
        self.assertEqual([n["node"] for n in report["nodes"]], ["n1", "n2", "n3"])
        for i, node in enumerate(report["nodes"]):
            facts = node["facts"]
            self.assertEqual((facts["host"], facts["version"]), (node["node"], VERSION))
            self.assertEqual((facts["forward"], facts["forward_to"]), ("own", hosts.address(i)))
            self.assertEqual((facts["reverse"], facts["reverse_to"]), ("own", node["node"]))
            self.assertEqual(facts["addresses"], [{"interface": "eth0", "address": hosts.address(i)}])
            self.assertEqual(node["address"], hosts.address(i))
            # the agents share our clock: the reported offset must be within the reported error
            self.assertLessEqual(abs(node["clock"]["offset_ns"]), node["clock"]["error_ns"])
        self.assertEqual([(l["from"], l["to"], l["result"]) for l in report["links"]],
                         [(a, b, "ok") for a in ("n1", "n2", "n3") for b in ("n1", "n2", "n3") if a != b])
        self.assertEqual([(p["a"], p["b"]) for p in report["pairs"]], [("n1", "n2"), ("n1", "n3"), ("n2", "n3")])
        for pair in report["pairs"]:
            self.assertTrue(0 < pair["rtt_min_ns"] <= pair["rtt_median_ns"], pair)
            self.assertTrue(pair["bytes_per_s"] > 0 and pair["bytes_per_s_back"] > 0, pair)
        hosts.await_empty()

    def test_the_report_has_a_row_for_each_node_and_next_steps(self):
        with tempfile.NamedTemporaryFile("w", suffix=".hosts") as f:
            f.write("# hosts\nn1 slots=8\nnowhere\n")
            f.flush()
            code, out, err = check("--ssh-command", hosts.ssh, *PATIENT, "--hostfile", f.name)
        self.assertEqual((code, err), (69, ""))
        lines = out.splitlines()
        self.assertRegex(lines[0], r"^NODE +STATE +REACH +VERSION +CLOCK ")
        self.assertRegex(lines[1], rf"^n1 +\w+ +\d+\.\d\d s +{re.escape(VERSION)} +[+-]\d+\.\d+\+-\d+\.\d+ ms ")
        self.assertRegex(lines[2], r"^nowhere +failed +-! ")
        self.assertRegex(out, r"\nnowhere: failed: reach: cannot be reached: ssh: .*(No route to host|timed out)\n"
                              r"    try: log in as ddprun does \(`ssh -oBatchMode=yes HOST true`\), and check that ddpctl")
        self.assertRegex(lines[-1], r"^2 nodes, \d failed, \d with warnings$")

    def test_unreachable_hosts_do_not_stop_the_check_of_the_others(self):
        code, report = look_by_ssh("-H", "n1,no-such-name,n3")
        self.assertEqual(code, 69)
        self.assertEqual([n["up"] for n in report["nodes"]], [True, False, True])
        self.assertEqual([(f[0], f[1]) for f in findings(report)], [("no-such-name", "reach")])
        self.assertEqual([l["result"] for l in report["links"]], ["ok", "ok"])

    def test_a_name_that_resolves_to_another_host_is_found(self):
        hosts.set_names(1, f"{NETWORK}.250 n2\n{hosts.address(1)} printer\n{NETWORK}.251 printer\n")
        self.addCleanup(hosts.set_names, 1)
        code, report = look_by_ssh("-H", "n1,n2")
        self.assertEqual(code, 69)
        self.assertEqual(findings(report), [
            ("n2", "name", "failed", f"its own name, n2, resolves to another machine: {NETWORK}.250"),
            ("n2", "name", "failed", "its address resolves to printer, which is another machine")])

    def test_a_name_that_only_its_node_knows_is_a_warning(self):
        hosts.set_names(2, "127.0.1.1 n3\n")
        self.addCleanup(hosts.set_names, 2)
        report = look_by_ssh("-H", "n1,n3")[1]
        self.assertIn(("n3", "name", "warning", "its own name, n3, resolves to 127.0.1.1, which no other node can reach"), findings(report))
        self.assertEqual({(f[0], f[1]) for f in findings(report)}, {("n3", "name")})

    def block(self, name, priority, *rule):
        """From now on this host's kernel treats packets so, before it looks whether they are for itself."""
        space = ("ip", "-n", f"{hosts.netns}-{name}", "rule")
        run(*space, "add", "pref", "10", "lookup", "local")
        self.addCleanup(run, *space, "delete", "pref", "10")
        run(*space, "delete", "pref", "0")
        self.addCleanup(run, *space, "add", "pref", "0", "lookup", "local")
        run(*space, "add", "pref", priority, *rule)
        self.addCleanup(run, *space, "delete", "pref", priority, *rule)

    def test_dropped_ports_suggest_a_firewall_but_forbidden_routes_do_not(self):
        """n3 drops what comes for ports that are not well known, also what answers to it; n1 sends none of that to n2."""
        self.block("n3", "0", "iif", "eth0", "ipproto", "tcp", "dport", "1024-65534", "blackhole")
        self.block("n1", "1", "to", hosts.address(1), "ipproto", "tcp", "dport", "1024-65534", "prohibit")
        code, report = look_by_ssh("-H", "n1,n2,n3")
        self.assertEqual(code, 69)
        self.assertEqual({(l["from"], l["to"]): l["result"] for l in report["links"]},
                         {("n1", "n2"): "unreachable", ("n2", "n1"): "silent", ("n1", "n3"): "silent", ("n2", "n3"): "silent",
                          ("n3", "n1"): "silent", ("n3", "n2"): "silent"})
        (of_n3,) = [f for f in report["findings"] if f["node"] == "n3" and f["what"] == "ports"]
        self.assertRegex(of_n3["text"], r"^a connection to its port \d+ at 10\.121\.0\.3 gets no answer, from 2 nodes: n1, n2$")
        self.assertIn("firewall", of_n3["hint"])

    def test_an_interface_can_be_selected(self):
        report = look_by_ssh("-H", "n1,n2", "--interface", "eth0")[1]
        self.assertEqual(findings(report), [])
        code, report = look_by_ssh("-H", "n1,n2", "-i", "ib0")
        self.assertEqual(code, 69)
        self.assertEqual(findings(report), [
            (n, "ports", "failed", "it has no address that other nodes could reach on the interface ib0") for n in ("n1", "n2")])

    def test_nothing_is_left_when_it_is_killed(self):
        with subprocess.Popen(["ip", "netns", "exec", hosts.netns, DDPCTL, "check", "--ssh-command", hosts.ssh, "-H", "n[1-3]", "--net"],
                              env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            await_true(lambda: process.poll() is not None or hosts.inside(0))
            process.send_signal(signal.SIGKILL)
        hosts.await_empty()


# A test double of ssh: $1 is the host, $2 the command.
class StandIns(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text, mode=0o755):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def look(self, script, *args, **env):
        ssh = self.write("ssh", script)
        return look("--ssh-command", f"sh {ssh}", *args, netns=False, **env)

    def fails(self, script, why, *args):
        code, report = self.look(script, "-H", "a", *(args or PATIENT))
        self.assertEqual(code, 69)
        found = findings(report, "reach")
        self.assertEqual(len(found), 1, report)
        self.assertRegex(found[0][3], why)

    def test_a_host_that_never_answers_times_out(self):
        self.fails("exec sleep 1000\n", r"^cannot be reached: timed out after 0\.3 s waiting for a reply$", "-t", "0.3")
        self.fails("echo one >&2; echo srun: queued >&2; exec sleep 1000\n",
                   r"^cannot be reached: timed out after 2\.0 s waiting for a reply; last output: srun: queued$", "-t", "2")

    def test_the_last_output_of_the_remote_shell_is_reported(self):
        self.fails("echo one >&2; echo ': not \033[31mfound' >&2; exit 127\n", r"^cannot be reached: : not \?\[31mfound$")
        self.fails("exit 5\n", r"^cannot be reached: ssh exited with status 5$")

    def test_endless_output_of_a_host_is_an_error(self):
        too_long = "too long; make sure that login scripts print nothing in non-interactive shells$"
        self.fails("yes hello\n", too_long)
        self.fails("tr '\\0' x < /dev/zero\n", too_long)
        self.fails("sh -c \"$2\" & yes 'ddpctl-check {}'\n", r"has another version;|unexpected reply without a request$|invalid time$")

    def test_a_wrong_answer_of_a_node_is_an_error(self):
        hello = "echo 'ddpctl-check {\"v\":1}'; read x; "
        time = "for i in 1 2 3 4 5 6 7 8; do echo 'ddpctl-check {\"time_ns\":1}'; read x; done; "
        self.fails("echo 'ddpctl-check {\"v\":2}'; read x\n", "ddpctl there has another version; install the same one on all nodes$")
        self.fails("echo 'ddpctl-check []'; read x\n", "not a JSON object$")
        self.fails(hello + "echo 'ddpctl-check {\"time_ns\":\"now\"}'; read x\n", "invalid time$")
        self.fails(hello + f"echo 'ddpctl-check {{\"time_ns\":{-2 ** 63}}}'; read x\n", "invalid time$")
        self.fails(hello + time + "echo 'ddpctl-check {\"nofile\":-1}'; read x\n", "invalid 'nofile'; use the same ddpctl version on all nodes$")
        self.fails(hello + time + "echo bye >&2; exit 1\n", "bye")
        self.fails(hello + time + "exec sleep 1000\n", r"^timed out after 10\.0 s waiting for the rest of the reply$", "-t", "3")

    def test_a_false_list_of_reached_nodes_is_an_error(self):
        ssh = ("if [ $1 = b ]; then exec sh -c \"$2\"; fi\n"
               "sh -c \"$2\" | sed -u 's/\"reach\":\\[.*\\]/\"reach\":[\"ok\",\"ok\",\"ok\"]/'\n")
        code, report = self.look(ssh, *PATIENT, "-H", "a,b")
        self.assertEqual(code, 69)
        self.assertIn(("a", "reach", "failed", "unexpected reply: no list of reached nodes"), findings(report, "reach"))

    def test_a_report_that_cannot_be_written_is_an_error(self):
        """Of so many nodes that it is more than a buffer."""
        ssh = self.write("ssh", "exit 1\n")
        for form in ("--json",), ():
            with open("/dev/full", "w") as full:
                done = subprocess.run([DDPCTL, "check", "--ssh-command", f"sh {ssh}", *PATIENT, *form, "-H", "n[1-64]"],
                                      env=environment(), stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
                                      timeout=6 * DEADLINE_S, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (74, "ddpctl: error: cannot write to standard output: No space left on device\n"))

    @unittest.skipIf("SANITIZED" in os.environ, "a sanitizer wants to be loaded before the jumping clock")
    def test_a_clock_that_is_off_is_found(self):
        code, report = self.look(f"LD_PRELOAD={JUMPING_CLOCK} sh -c \"$2\"\n", *PATIENT, "-H", "a")
        self.assertEqual(code, 69)
        (found,) = findings(report, "clock")
        self.assertRegex(found[3], r"^its clock is 3(600|599)\.\d{3} s (later|earlier) than the clock of this node \(uncertainty ")

    def test_tokens_that_differ_are_found(self):
        self.write("a/.config/ddprun/token", "0123456789abcdef0123", 0o600)
        self.write("b/.config/ddprun/token", "0123456789abcdef0124", 0o600)
        self.write("c/empty", "")
        self.write("d/.config/ddprun/token", "0123456789abcdef0123", 0o644)
        self.write("e/.config/ddprun/token", "0123456789abcdef0123\n", 0o600)
        ssh = f"exec env -u XDG_CONFIG_HOME -u DDP_TOKEN HOME={self.folder}/$1 sh -c \"$2\"\n"
        code, report = self.look(ssh, *PATIENT, "-H", "a,b,c,d,e")
        self.assertEqual(code, 69)
        found = {f[0]: f[3] for f in findings(report, "token")}
        self.assertEqual(sorted(found), ["b", "c", "d"])
        self.assertEqual((found["b"], found["c"]), ("it has another token than a", "it has no token, but a has one"))
        self.assertRegex(found["d"], "^cannot use its token: ")
        self.assertNotIn("0123456789abcdef", json.dumps(report))

    def test_another_ddprun_is_found(self):
        self.write("bin/ddprun", "#!/bin/sh\necho ddprun 0.0.9\n")
        code, report = self.look("sh -c \"$2\"\n", *PATIENT, "-H", "a", PATH=f"{self.folder}/bin:{os.environ['PATH']}")
        self.assertEqual((code, findings(report, "version")),
                         (69, [("a", "version", "failed", f"its ddprun is 0.0.9, but this node's is {VERSION}")]))

    def test_no_ddprun_is_found(self):
        code, report = self.look("PATH=/usr/bin:/bin sh -c \"$2\"\n", *PATIENT, "-H", "a", PATH="/usr/bin:/bin")
        self.assertEqual((code, findings(report, "version")),
                         (69, [("a", "version", "failed", "no ddprun: ddprun: No such file or directory")]))

    def test_gpus_and_nccl_are_reported(self):
        """By test doubles of nvidia-smi and of NCCL."""
        gpu = "NVIDIA H100 80GB HBM3, 535.104.05, "
        self.write("bin/nvidia-smi", f"#!/bin/sh\necho '{gpu}0'; echo '{gpu}[N/A]'; echo '{gpu}4'\n")
        shutil.copy(STAND_IN_NCCL, os.path.join(self.folder, "libnccl.so.2"))
        env = {"PATH": f"{self.folder}/bin:{environment()['PATH']}", "LD_LIBRARY_PATH": self.folder}
        code, report = look(*PATIENT, netns=False, **env)
        self.assertEqual(code, 69)
        facts = report["nodes"][0]["facts"]
        self.assertGreaterEqual(facts["n_gpus"], 3)
        self.assertEqual((facts["driver"], facts["nccl"]), ("535.104.05", "2.18.5"))
        self.assertEqual([g["ecc_errors"] for g in facts["gpus"]], [0, None, 4])
        self.assertIn("GPU 2 has 4 uncorrectable memory errors", [f[3] for f in findings(report, "gpus")])
        self.assertRegex(check(*PATIENT, netns=False, **env)[1], r"3 535\.104\.05 nccl 2\.18\.5!\n")


class Here(unittest.TestCase):
    def test_without_hosts_it_checks_this_machine(self):
        code, report = look(*PATIENT, netns=False, SLURM_JOB_ID="", PBS_NODEFILE="", LSB_MCPU_HOSTS="", PE_HOSTFILE="")
        (node,) = report["nodes"]
        self.assertEqual(node["node"], os.uname().nodename)
        self.assertEqual(node["facts"]["version"], VERSION)
        self.assertEqual((report["links"], report["pairs"]), ([], []))
        self.assertEqual(code, 0 if report["ok"] else 69)

    def test_the_hosts_of_a_scheduler_are_found(self):
        code, report = look(*PATIENT, "--ssh-command", "false", netns=False, SLURM_JOB_ID="", LSB_MCPU_HOSTS="x1 4 x2 4")
        self.assertEqual((code, [n["node"] for n in report["nodes"]]), (69, ["x1", "x2"]))
        self.assertEqual({n["why"] for n in report["nodes"]}, {"ssh exited with status 1"})

    def test_invalid_arguments_are_refused(self):
        for args, error in ((("-H", "a:b"), "--hosts: "), (("--hostfile", "/no/such"), "--hostfile: cannot read '/no/such': No such file"),
                            (("-H", "a", "--ssh-command", " "), "--ssh-command requires a command"), (("x",), "check: too many arguments")):
            with self.subTest(args):
                code, out, err = check(*args, netns=False)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(error, err)


if __name__ == "__main__":
    main()
