"""--spares: nodes that wait for a place, and step in when a node is lost, unless that node returns.

Covers: rendezvous/membership, launcher/node, launcher/options, launcher/warm
"""
import tempfile
import unittest

from ctl import await_socket, status
from harness import RANK, Job, await_true, main, name_of
from node import UP, Node, await_endpoint, c10d, end
from ports import free_port
from recovery_job import N_SAMPLES, Checked, Nodes
from ssh_hosts import stand_in

# A test double of ssh: the command runs here.
LOCAL_SSH = "SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$2\"\n"


def await_spare(job):
    await_socket(job)
    await_true(lambda: "this node is a spare" in (status(job)[0]["waiting"] or ""))


class Spares(unittest.TestCase):
    def words(self, name, *more):
        return (*c10d(self.port, "--local-addr", name, "--spares", "1", *more), RANK, *UP)

    def setUp(self):
        self.port = free_port()

    def test_a_spare_takes_the_place_of_a_lost_node(self):
        with Node(*self.words("127.0.0.1", "--max-restarts", "1")) as a:
            await_endpoint(self.port)
            with Node(*self.words("127.0.0.2", "--max-restarts", "1")) as b, Node(*self.words("127.0.0.3", "--max-restarts", "1")) as c:
                # any two of them are active
                nodes = {a, b, c}
                for node in nodes:
                    await_socket(node)
                await_true(lambda: sum(status(n)[0]["nodes"] == 2 for n in nodes) == 2)
                spare = next(n for n in nodes if status(n)[0]["nodes"] != 2)
                victim = next(n for n in nodes - {spare, a})
                victim.hear(1)
                victim.process.kill()
                self.assertRegex(spare.hear(1)[0], "^[01] up$")
                end(self, *(nodes - {victim, a}), a)

    def test_a_node_that_returns_while_others_stop_is_preferred_to_a_spare(self):
        # the first ranks end when the file is there: their generation ends only after the node has returned
        with tempfile.TemporaryDirectory() as folder:
            script = f"test $TORCHELASTIC_RESTART_COUNT = 0 && trap '' TERM; echo $RANK $GROUP_RANK > $TEST_FIFO; " \
                f"test $TORCHELASTIC_RESTART_COUNT = 0 || exec sleep 1000; until test -e {folder}/go; do sleep 0.05; done"
            words = [(*c10d(self.port, "--local-addr", f"127.0.0.{i}", "--spares", "1", "--max-restarts", "1",
                            "--shutdown-timeout", "600s"), "sh", "-c", script) for i in (1, 2, 3)]
            with Node(*words[0]) as a:
                await_endpoint(self.port)
                with Node(*words[1]) as b:
                    self.assertEqual((a.hear(1), b.hear(1)), (["0 0"], ["1 1"]))
                    with Node(*words[2]) as spare:
                        await_spare(spare)
                        b.process.kill()
                        with Node(*words[1]) as returned:
                            # both wait for the ranks of node a
                            for node in spare, returned:
                                await_socket(node)
                                await_true(lambda node=node: "to stop" in (status(node)[0]["waiting"] or ""))
                            open(f"{folder}/go", "w").close()
                            self.assertEqual(returned.hear(1), ["1 1"])
                            self.assertEqual(a.hear(1), ["0 0"])
                            await_true(lambda: "this node is a spare" in (status(spare)[0]["waiting"] or ""))
                            self.assertTrue(spare.hear_nothing())
                            end(self, returned, spare, a)

    def test_a_spare_that_was_not_needed_succeeds(self):
        # ranks end when the spare is one
        with tempfile.TemporaryDirectory() as folder:
            program = ("sh", "-c", f"while test ! -e {folder}/go; do sleep 0.05; done")
            words = [(*c10d(self.port, "--local-addr", f"127.0.0.{i}", "--spares", "1"), *program) for i in (1, 2, 3)]
            with Node(*words[0]) as a:
                await_endpoint(self.port)
                with Node(*words[1]) as b:
                    await_socket(b)
                    await_true(lambda: status(a)[0]["nodes"] == 2 and status(b)[0]["nodes"] == 2)
                    with Node(*words[2]) as c:
                        await_spare(c)
                        with open(f"{folder}/go", "w"):
                            pass
                        self.assertEqual([n.finish()[0] for n in (a, b, c)], [0, 0, 0])

    def test_with_warm_a_spare_imports_while_it_waits(self):
        script = "import json, os, time\nopen(os.environ['TEST_FIFO'], 'w').write(os.environ['RANK'] + '\\n')\ntime.sleep(1000)\n"
        with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
            f.write(script)
            f.flush()
            words = [(*c10d(self.port, "--local-addr", f"127.0.0.{i}", "--spares", "1", "--max-restarts", "1", "--warm", "-v"), f.name)
                     for i in (1, 2, 3)]
            with Node(*words[0]) as a:
                await_endpoint(self.port)
                with Node(*words[1]) as b:
                    for node in a, b:
                        node.hear(1)
                    with Node(*words[2]) as c:
                        await_spare(c)
                        await_true(lambda: len([p for p in c.processes() if "python" in name_of(p)]) >= 2)
                        b.process.kill()
                        c.hear(1)
                        c.read_until("local rank 0 forked")
                        end(self, c, a)

    def test_of_listed_hosts_some_are_spares(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = stand_in(folder, LOCAL_SSH)
            with Node("-H", "n1,n2,n3", "--spares", "1", "--ssh-command", ssh, "sh", "-c", "echo $GROUP_WORLD_SIZE") as job:
                code, out, err = job.finish()
                self.assertEqual(code, 0, err)
                self.assertEqual(out.count("2\n"), 2, out)

    def test_values_that_make_no_sense_are_refused(self):
        for words in (("--spares", "-1"), ("--spares", "x"), ("-H", "n1,n2", "--spares", "2"), ("-H", "n1,n2", "--nnodes", "2", "--spares", "1")):
            with self.subTest(words), Job(*words, "true") as job:
                code, _, err = job.end()
                self.assertEqual(code, 2)
                self.assertIn(b"--spares", err)


class Named(Nodes):
    def words_of(self, name):
        return "--local-addr", f"127.0.0.{name + 1}"


class InPlace(Checked):
    def test_ranks_of_other_nodes_live_on_when_a_spare_steps_in(self):
        with Named(self.daemon, "2", 1, "--spares", "1", "--max-restarts", "3", samples=N_SAMPLES) as nodes:
            nodes.start(0)
            nodes.start(1)
            before = nodes.await_world(2)
            nodes.start(2)
            await_spare(nodes.jobs[2])
            nodes.jobs[1].process.kill()
            after = nodes.await_world(2, nodes.generation + 1)
            self.assertEqual(after[0], before[0])
            self.assertEqual(set(after), {0, 2})
            self.assertEqual(nodes.finish([0, 2]), [0, 0])
            self.check_steps(nodes)


if __name__ == "__main__":
    main()
