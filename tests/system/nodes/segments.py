"""--segment: only whole groups of nodes of one domain take part, with consecutive ranks, and --domain: which domain a node is in.

Covers: rendezvous/membership, launcher/membership, launcher/platform, launcher/health, launcher/options, launcher/node
"""
import os
import tempfile
import unittest

from ctl import await_socket, status
from harness import RANK, await_true, is_gone, main
from node import SHOW, UP, Node, await_endpoint, c10d, end, finish
from ports import free_port
from recovery_job import N_SAMPLES, Checked, Nodes
from ssh_hosts import stand_in

# A test double of ssh: the command runs here.
LOCAL_SSH = "SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$2\"\n"
MOCK_NVML = os.environ["MOCK_NVML_LIBRARY"]


def waits_for(job, text):
    await_socket(job)
    await_true(lambda: text in (status(job)[0]["waiting"] or ""))


class Segments(unittest.TestCase):
    def setUp(self):
        self.port = free_port()

    def node(self, i, domain, *program, nodes="2:4", more=(), env=None):
        """Node 127.0.0.i."""
        words = c10d(self.port, "--local-addr", f"127.0.0.{i}", "--join-window", "600s", "--segment", "2", *more, nodes=nodes)
        return Node(*words, "--domain", domain, *program, env=env)

    def group_ranks(self, nodes):
        """-> GROUP_RANK of each, and their number."""
        places = [node.hear(1)[0].split()[2].split("/") for node in nodes]
        self.assertEqual(len({n for _, n in places}), 1, places)
        return [int(i) for i, _ in places], int(places[0][1])

    def test_ranks_of_a_domain_are_consecutive(self):
        with self.node(1, "env:RACK", *SHOW, env={"RACK": "r1"}) as a:
            await_endpoint(self.port)
            with self.node(2, "r2", *SHOW) as b, self.node(3, "r1", *SHOW) as c, self.node(4, r"name:0\.0\.4", *SHOW) as d:
                waits_for(d, "2 nodes joined")
                self.assertTrue(a.hear_nothing())  # nodes 2 and 4 are alone in their domains, and the window is open
                with self.node(5, "r2", *SHOW) as e:
                    self.assertEqual(self.group_ranks([a, c, b, e]), ([0, 1, 2, 3], 4))
                    for node in a, b, c, e:
                        self.assertEqual(node.finish()[0], 0)

    def run_with_loss(self, lost):
        """Domains of nodes 1 and 2, and of 3 and 4. One of them is lost, the other one of its domain becomes a spare, and takes part again
        when a node of its domain has joined."""
        words = (RANK, *UP)
        with self.node(1, "x", *words) as a:
            await_endpoint(self.port)
            with self.node(2, "x", *words) as b, self.node(3, "y", *words) as c, self.node(4, "y", *words) as d:
                nodes = {1: a, 2: b, 3: c, 4: d}
                self.assertEqual([n.hear(1)[0] for n in nodes.values()], ["0 up", "1 up", "2 up", "3 up"])
                rest, others = {2: (1, (3, 4)), 4: (3, (1, 2))}[lost]
                nodes[lost].process.kill()
                self.assertEqual(sorted(nodes[i].hear(1)[0] for i in others), ["0 up", "1 up"])
                waits_for(nodes[rest], "this node is a spare")
                self.assertTrue(nodes[rest].hear_nothing())
                with self.node(lost, "xy"[lost // 4], *words) as returned:
                    ranks = [n.hear(1)[0] for n in (nodes[others[0]], nodes[others[1]])]
                    self.assertEqual(ranks, ["0 up", "1 up"])
                    self.assertEqual(sorted([nodes[rest].hear(1)[0], returned.hear(1)[0]]), ["2 up", "3 up"])
                    end(self, returned, *(nodes[i] for i in (4, 3, 2, 1) if i != lost))

    def test_the_rest_of_a_broken_segment_waits_for_a_node_of_its_domain(self):
        self.run_with_loss(4)

    def test_the_rest_of_a_broken_segment_may_coordinate(self):
        self.run_with_loss(2)

    def test_a_spare_steps_in_for_its_own_domain(self):
        words = {"more": ("--spares", "2", "--max-restarts", "1"), "nodes": "4"}
        with self.node(1, "x", RANK, *UP, **words) as a:
            await_endpoint(self.port)
            with self.node(2, "x", RANK, *UP, **words) as b, self.node(3, "y", RANK, *UP, **words) as c, self.node(4, "y", RANK, *UP, **words) as d:
                self.assertEqual([n.hear(1)[0] for n in (a, b, c, d)], ["0 up", "1 up", "2 up", "3 up"])
                with self.node(5, "x", RANK, *UP, **words) as of_x, self.node(6, "y", RANK, *UP, **words) as of_y:
                    for spare in of_x, of_y:
                        waits_for(spare, "this node is a spare")
                    c.process.kill()
                    self.assertEqual([n.hear(1)[0] for n in (a, b, of_y, d)], ["0 up", "1 up", "2 up", "3 up"])
                    self.assertTrue(of_x.hear_nothing())
                    end(self, of_x, of_y, d, b, a)

    def test_hosts_of_a_list_have_domains_by_their_names(self):
        with tempfile.TemporaryDirectory() as folder:
            ssh = stand_in(folder, LOCAL_SSH)
            show = ("sh", "-c", "echo node $GROUP_RANK of $GROUP_WORLD_SIZE")
            with Node("-H", "r1n1,r2n1,r1n2,r2n2", "--segment", "2", "--domain", "name:^r[0-9]+", "--ssh-command", ssh, *show) as job:
                code, out, err = job.finish()
                self.assertEqual(code, 0, err)
                self.assertEqual(sorted(line.split("node ")[1] for line in out.splitlines()), [f"{i} of 4" for i in range(4)])

    def test_nodes_with_other_segments_are_refused(self):
        with self.node(1, "x", RANK, *UP) as a:
            await_endpoint(self.port)
            code, _, err = finish(*c10d(self.port, "--local-addr", "127.0.0.2", nodes="2:4"), "true")
            self.assertEqual(code, 78)
            self.assertIn("127.0.0.2 was started with --segment=0, 127.0.0.1 with --segment=2 (0: without): use the same --segment on all nodes", err)
            end(self, a)

    def test_a_job_that_is_too_small_names_the_domains(self):
        more = {"more": ("--start-timeout", "3s"), "nodes": "2"}
        with self.node(1, "x", "true", **more) as a:
            await_endpoint(self.port)
            with self.node(2, "y", "true", **more) as b:
                for node in a, b:
                    code, _, err = node.finish()
                    self.assertEqual(code, 69)
                    self.assertIn("0 of at least 2 have joined", err)
                    self.assertIn("domain x has 1 of 2 nodes of a segment, domain y has 1 of 2 nodes of a segment", err)


class Domains(unittest.TestCase):
    def fails(self, *words, env=None):
        code, _, err = finish(*c10d(1, "--segment", "2", *words), "true", env=env)
        return code, err

    def test_a_node_without_a_domain_ends_with_an_error(self):
        code, err = self.fails("--domain", "env:NOT_SET_ANYWHERE")
        self.assertEqual(code, 78)
        self.assertIn("ddprun: error: --domain env:NOT_SET_ANYWHERE: this variable is not set on this node\n", err)
        code, err = self.fails("--local-addr", "n1", "--domain", "name:^rack")
        self.assertEqual(code, 78)
        self.assertIn("does not match the name of this node, 'n1'", err)

    def test_without_an_nvlink_domain_the_default_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(MOCK_NVML, os.path.join(folder, "libnvidia-ml.so.1"))
            mock = os.path.join(folder, "mock")
            with open(mock, "w") as f:
                f.write("count 1\n")
            code, err = self.fails(env={"LD_LIBRARY_PATH": folder, "MOCK_NVML": mock})
        self.assertEqual(code, 78)
        self.assertIn("cannot find the NVLink domain of this node (--domain gpu): GPU 0 is in no NVLink domain; use --domain name:REGEX", err)

    def test_the_default_is_the_nvlink_domain_by_nvml(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(MOCK_NVML, os.path.join(folder, "libnvidia-ml.so.1"))

            def node(i, domain):
                mock = os.path.join(folder, f"mock{i}")
                with open(mock, "w") as f:
                    f.write(f"count 2\nfabric {domain}\nclique 0 1\nclique 1 1\n")
                words = c10d(port, "--local-addr", f"127.0.0.{i}", "--segment", "2", "-p", "1", "--start-timeout", "120s", nodes="4")
                return Node(*words, *SHOW, env={"LD_LIBRARY_PATH": folder, "MOCK_NVML": mock})

            with node(1, 5) as a:
                await_endpoint(port)
                with node(2, 6) as b, node(3, 5) as c, node(4, 6) as d:
                    places = [n.hear(1)[0].split()[2] for n in (a, c, b, d)]
                    self.assertEqual(places, ["0/4", "1/4", "2/4", "3/4"])
                    for n in a, b, c, d:
                        self.assertEqual(n.finish()[0], 0)
                        self.assertEqual(n.named("ddp-health"), [])


class Placed(Nodes):
    """Two nodes of each domain: 0 and 1, 2 and 3; 4 is in that of 3."""

    def words_of(self, name):
        return "--local-addr", f"127.0.0.{name + 1}", "--domain", f"d{min(name, 3) // 2}"


class InPlace(Checked):
    def test_ranks_that_are_left_out_end_and_those_of_whole_segments_live_on(self):
        with Placed(self.daemon, "2:4", 1, "--segment", "2", "--join-window", "600s", samples=N_SAMPLES) as nodes:
            for i in range(4):
                nodes.start(i)
            before = nodes.await_world(4)
            nodes.jobs[3].process.kill()
            after = nodes.await_world(2, nodes.generation + 1)
            self.assertEqual(after, {i: before[i] for i in (0, 1)})
            await_true(lambda: all(is_gone(pid) for pid in before[2]))
            nodes.start(4)
            again = nodes.await_world(4)
            self.assertEqual({i: again[i] for i in (0, 1)}, after)
            self.assertEqual(set(again), {0, 1, 2, 4})
            self.assertEqual(nodes.finish([0, 1, 2, 4]), [0, 0, 0, 0])
            self.check_steps(nodes)


if __name__ == "__main__":
    main()
