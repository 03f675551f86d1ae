"""Rendezvous of nodes at a real etcd: docs/design/etcd.md. The coordinator is killed, leaves, is suspended; etcd is killed, suspended,
restarted, has users and certificates. All nodes are on this host.

Covers: rendezvous/etcd, launcher/membership, launcher/node
"""
import os
import random
import signal
import subprocess
import unittest

from etcd_server import INSTALLED, WHY_NOT, Etcd, HeldRecord, SlowLogin
from elastic_job import LISTENS, own_sockets, sockets_seen_by
from harness import DDPRUN, DEADLINE_S, await_true, main
from node import Node
from party import SHOW, Party as PartyBase
from recovery_job import Nodes

PLUGINS = os.environ["DDP_PLUGIN_DIR"]
SEED = os.environ.get("TEST_SEED")
N_TAKEOVERS = int(os.environ.get("TEST_TAKEOVERS", "2"))


def listens(pid, port):
    """Does this process listen at this port?"""
    own = own_sockets(pid)
    return any((local, state) == (port, LISTENS) and inode in own for local, _, state, inode in sockets_seen_by(pid))


class Party(PartyBase):
    """The nodes of a job, which use this etcd."""

    def __init__(self, etcd, nodes, *more, conf=(), port=None):
        super().__init__(etcd.file("end"))
        self.etcd, self.more, self.names = etcd, more, nodes
        self.port = port or etcd.port
        self.conf = ",".join(("keep_alive_interval=1s", *conf))

    def words(self, *more):
        return ("--nnodes", self.names, "--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id",
                "job", "--rdzv-conf", self.conf, "--join-window", "0", *self.more, *more, *SHOW)

    def start(self, n=1, *more, env=None):
        names = self.name(n)
        for name in names:
            self.nodes[name] = Node(*self.words(*more), env={"DDP_PLUGIN_DIR": PLUGINS, "TEST_END": self.end_file, **(env or {})})
        return names

    def leader(self):
        """The name of the node that has the roster; None: no node has it now."""
        address = self.etcd.get("/ddprun/job/leader")
        for name, node in self.nodes.items():
            if address is not None and node.process.poll() is None and listens(node.process.pid, address["port"]):
                return name
        return None

    def await_leader(self, but=None):
        found = []

        def is_found():
            found[:] = [self.leader()]
            return found[0] not in (None, but)

        await_true(is_found, lambda: "no node leads", 2 * DEADLINE_S)
        return found[0]

    def finish(self, code=0):
        """All exit with 0, and leave nothing at etcd."""
        self.end(code)
        for name, node in self.nodes.items():
            found, _, err = node.finish()
            assert found == code, f"{name} ended with {found}: {err}"
        await_true(lambda: self.etcd.all_keys() == [], lambda: f"left at etcd: {self.etcd.all_keys()}")


class LastingNodes(Nodes):
    """Of one rank each, which outlives the end of a generation."""

    def __init__(self, port):
        super().__init__(None, "1:3", 1, "--rdzv-backend", "etcd", "--rdzv-id", "job", "--max-restarts", "3",
                         endpoint=f"127.0.0.1:{port}")

    def make_job(self, name, words, env=None, **kw):
        return super().make_job(name, words, env={"DDP_PLUGIN_DIR": PLUGINS, **env}, **kw)

    def leader(self, etcd):
        port = etcd.get("/ddprun/job/leader")["port"]
        return next(name for name, job in self.jobs.items() if listens(job.process.pid, port))


@unittest.skipUnless(INSTALLED, WHY_NOT)
class Takeover(unittest.TestCase):
    def test_nodes_rendezvous_and_leave_nothing(self):
        with Etcd() as etcd, Party(etcd, "3") as party:
            names = party.start(3)
            ranks = party.hear(0, names)
            leader = party.await_leader()
            host = {"node": ranks[leader].rank, **{k: v for k, v in etcd.get("/ddprun/job/leader").items() if k != "v"}}
            self.assertEqual(etcd.get("/ddprun/job/record"),
                             {"v": 1, "generation": 0, "nodes": 3, "ranks": 3, "restarts": 0, "gone": -1, "over": False,
                              "exit_code": 0, "excluded": [], "before": None, "host": host})
            self.assertTrue(all(r.lives() for r in ranks.values()))
            party.finish()

    def test_the_job_survives_a_killed_coordinator_a_join_and_a_failure(self):
        with Etcd() as etcd, Party(etcd, "2:3", "--max-restarts", "1") as party:
            names = party.start(3)
            party.hear(0, names)
            old = party.await_leader()
            party.kill(old)
            names.remove(old)
            self.assertIn(party.await_leader(but=old), names)
            names += party.start(1)
            ranks = party.hear(1, names)  # the lost one's place is taken
            os.kill(ranks[names[0]].pid, signal.SIGKILL)
            ranks = party.hear(ranks[names[0]].generation + 1, names)
            self.assertEqual(ranks[names[0]].world, 3)
            self.assertEqual(etcd.get("/ddprun/job/record")["restarts"], 1)
            party.finish()

    def test_a_killed_coordinator_is_lost_as_soon_as_another_one_has_replaced_it(self):
        with Etcd() as etcd, Party(etcd, "2:3") as party:
            names = party.start(3)
            party.hear(0, names)
            for _ in range(2):  # the second one has written down which node it is on when it took over
                old = party.await_leader()
                ranks = dict(party.told)
                party.kill(old)
                names.remove(old)
                new = party.await_leader(but=old)
                self.assertIn(new, names)
                party.nodes[new].read_until("its ddprun, which hosted the coordinator, has ended")
                names += party.start(1)
                party.hear(ranks[names[0]].generation + 1, names)
            party.finish()

    def test_ranks_live_on_when_the_coordinator_dies_before_it_announces_a_generation(self):
        with Etcd() as etcd, HeldRecord(etcd.port, 1) as front, LastingNodes(front.server_port) as nodes:
            for i in range(3):
                nodes.start(i)
            before = nodes.await_world(3)
            leader = nodes.leader(etcd)
            victim = next(rank for rank, (node, _) in nodes.ranks.items() if node != leader)
            node, pid = nodes.ranks[victim]
            nodes.kill_rank(victim)  # generation 1 follows; it is written, and no node receives it
            self.assertTrue(front.is_held.wait(2 * DEADLINE_S), "generation 1 was not written")
            nodes.jobs[leader].process.kill()
            front.release()
            after = nodes.await_world(2, 2)
            last = ({0, 1, 2} - {leader, node}).pop()
            self.assertEqual(after[last], before[last])  # the same process
            self.assertEqual(nodes.n_starts, {leader: 1, node: 2, last: 1})
            self.assertEqual(nodes.finish([node, last]), [0, 0])

    def test_no_node_waits_for_a_coordinator_that_leaves(self):
        with Etcd() as etcd, Party(etcd, "2:3") as party:
            names = party.start(3)
            party.hear(0, names)
            old = party.await_leader()
            party.nodes[old].signal(signal.SIGTERM)
            self.assertEqual(party.nodes[old].finish()[0], -signal.SIGTERM)
            party.nodes.pop(old).__exit__()
            names.remove(old)
            self.assertEqual(party.hear(1, names)[names[0]].world, 2)
            party.finish()

    def test_a_stopped_coordinator_is_replaced_and_its_node_rejoins(self):
        with Etcd() as etcd, Party(etcd, "2:3") as party:
            names = party.start(3)
            party.hear(0, names)
            old = party.await_leader()
            stopped = party.nodes[old]
            stopped.signal(signal.SIGSTOP)
            others = [n for n in names if n != old]
            self.assertIn(party.await_leader(but=old), others)
            ranks = party.hear(1, others)
            self.assertEqual(ranks[others[0]].world, 2)
            stopped.signal(signal.SIGCONT)
            ranks = party.hear(ranks[others[0]].generation + 1, names)
            self.assertEqual(ranks[old].world, 3)
            party.finish()

    def test_an_excluded_node_stays_excluded_after_a_failover(self):
        excluded = "excluded: 1 rank failures (--exclude-node-after); continuing without it\n"
        with Etcd() as etcd, Party(etcd, "1:3", "--max-restarts", "9", "--exclude-node-after", "1") as party:
            names = [party.start(1, "--local-addr", f"127.0.0.{i}")[0] for i in (2, 3)]
            old = party.await_leader()
            for env in {"TEST_BAD": "1"}, {}:
                bad, = party.start(1, "--local-addr", "127.0.0.9", env=env)
                code, _, err = party.nodes[bad].finish()
                party.nodes.pop(bad).__exit__()
                self.assertEqual(code, 7, err)
                self.assertIn(f"127.0.0.9 {excluded}", err)
                if not env:
                    break
                await_true(lambda: etcd.get("/ddprun/job/record")["excluded"] == [{"name": "127.0.0.9", "exit_code": 7}],
                           deadline_s=2 * DEADLINE_S)
                party.kill(old)
                names.remove(old)
                self.assertEqual(party.await_leader(but=old), names[0])
            party.finish()

    def test_a_failure_ends_all_nodes_with_its_exit_status(self):
        with Etcd() as etcd, Party(etcd, "2") as party:
            party.hear(0, party.start(2))
            party.finish(7)

    def test_takeovers(self):
        """TEST_TAKEOVERS jobs, with seeds from TEST_SEED on: how many nodes there are, which one ends, how, and when."""
        first = int(SEED) if SEED else random.randrange(1 << 32)
        for seed in range(first, first + N_TAKEOVERS):
            with self.subTest(seed=seed):
                self.take_over(random.Random(seed))

    def take_over(self, draw):
        with Etcd() as etcd, Party(etcd, "1:3") as party:
            names = party.start(draw.randint(2, 3))
            if draw.randrange(3):
                party.hear(0, names)
            old = party.await_leader()
            how = draw.choice(("kill", "term", "stop"))
            node = party.nodes[old]
            if how == "kill":
                party.kill(old)
            elif how == "term":
                node.signal(signal.SIGTERM)
                node.finish()
                party.nodes.pop(old).__exit__()
            else:
                node.signal(signal.SIGSTOP)
            names.remove(old)
            party.await_leader(but=old)
            if how == "stop":
                node.signal(signal.SIGCONT)
                names.append(old)
            if len(names) < 3 and draw.randrange(2):
                names += party.start(1)
            # in the end all that live are in one generation
            self.await_whole(party, names)
            party.finish()

    def await_whole(self, party, names):
        newest = {}

        def is_whole():
            record = party.etcd.get("/ddprun/job/record")
            newest.update(party.newest())
            return record is not None and record["nodes"] == len(names) and all(
                name in newest and newest[name].generation == record["generation"] and newest[name].lives() for name in names)
        await_true(is_whole, lambda: f"{party.etcd.get('/ddprun/job/record')}; {names}: "
                   f"{ {n: (r.generation, r.rank, r.lives()) for n, r in newest.items()} }", 3 * DEADLINE_S)


@unittest.skipUnless(INSTALLED, WHY_NOT)
class Away(unittest.TestCase):
    """etcd is, and comes back: what ran runs on, and what is decided is decided then."""

    def while_away(self, go, come_back):
        with Etcd() as etcd, Party(etcd, "1:3") as party:
            names = party.start(2)
            await_true(lambda: (etcd.get("/ddprun/job/record") or {}).get("nodes") == 2, deadline_s=2 * DEADLINE_S)
            ranks = party.hear(etcd.get("/ddprun/job/record")["generation"], names)
            leader = party.await_leader()
            go(etcd)
            party.nodes[leader].read_until("lost contact with etcd: ")  # its lease is over, by its own clock
            come_back(etcd)
            party.nodes[leader].read_until("etcd is back")
            self.assertTrue(all(r.lives() for r in ranks.values()))
            names += party.start(1)
            self.assertEqual(party.hear(ranks[names[0]].generation + 1, names)[names[0]].world, 3)
            party.finish()

    def test_etcd_is_stopped(self):
        self.while_away(Etcd.stop, Etcd.go_on)

    def test_etcd_is_killed_and_restarted(self):
        self.while_away(Etcd.kill, Etcd.start)

    def test_etcd_restarts_without_its_data(self):
        def restart(etcd):
            etcd.forget()
            etcd.start()
        self.while_away(Etcd.kill, restart)

    def lose_a_node(self, etcd, party):
        """One that has not the roster. -> the name of the one that has, and of those that are left"""
        names = party.start(3)
        await_true(lambda: (etcd.get("/ddprun/job/record") or {}).get("nodes") == 3, deadline_s=2 * DEADLINE_S)
        party.hear(etcd.get("/ddprun/job/record")["generation"], names)
        leader = party.await_leader()
        etcd.stop()
        party.nodes[leader].read_until("lost contact with etcd: ")
        lost = next(name for name in names if name != leader)
        party.kill(lost)
        names.remove(lost)
        return leader, names

    def test_after_an_etcd_outage_the_others_continue_without_a_lost_node(self):
        with Etcd() as etcd, Party(etcd, "1:3") as party:
            _, names = self.lose_a_node(etcd, party)
            etcd.go_on()
            ranks = party.hear(party.told[names[0]].generation + 1, names)
            self.assertEqual(ranks[names[0]].world, 2)
            party.finish()

    def test_a_node_is_lost_and_etcd_does_not_return(self):
        with Etcd() as etcd, Party(etcd, "1:3", "--rejoin-timeout", "10s") as party:
            leader, names = self.lose_a_node(etcd, party)
            self.assertEqual({name: party.nodes[name].finish()[0] for name in names}, {name: 75 for name in names}, leader)

    def test_ranks_that_succeed_during_an_etcd_outage_end_the_job(self):
        with Etcd() as etcd, Party(etcd, "2") as party:
            party.hear(0, party.start(2))
            leader = party.await_leader()
            etcd.kill()
            party.nodes[leader].read_until("lost contact with etcd: ")
            party.end()
            self.assertEqual([node.finish()[0] for node in party.nodes.values()], [0, 0])


@unittest.skipUnless(INSTALLED, WHY_NOT)
class ComingIn(unittest.TestCase):
    def test_with_a_certificate(self):
        with Etcd(tls=True) as etcd:
            conf = ("protocol=https", f"cacert={etcd.file('ca.pem')}", f"cert={etcd.file('client.pem')}",
                    f"key={etcd.file('client.key')}")
            with Party(etcd, "2", conf=conf) as party:
                party.hear(0, party.start(2))
                party.finish()

    def test_with_an_authority_that_has_not_signed_it(self):
        with Etcd(tls=True) as etcd:
            conf = ("protocol=https", f"ca_cert={etcd.file('other.pem')}", f"ssl_cert={etcd.file('client.pem')}",
                    f"ssl_cert_key={etcd.file('client.key')}")
            self.refused(etcd, conf, "certificate")

    def test_as_a_user(self):
        with Etcd() as etcd:
            etcd.require_users("secret")
            with open(os.open(etcd.file("password"), os.O_WRONLY | os.O_CREAT, 0o644), "w") as f:
                f.write("secret\n")
            with Party(etcd, "2", conf=("user=root", f"password_file={etcd.file('password')}")) as party:
                party.start(1)
                code, _, err = party.nodes["a"].finish()
                self.assertEqual(code, 70)
                self.assertIn("is accessible to other users (mode 0644): use chmod 600", err)
            os.chmod(etcd.file("password"), 0o600)
            with Party(etcd, "2", conf=("user=root", f"password_file={etcd.file('password')}")) as party:
                party.hear(0, party.start(2))
                party.finish()

    def test_as_a_user_where_a_login_takes_long(self):
        with Etcd() as etcd:
            etcd.require_users("secret")
            with SlowLogin(etcd.port) as slow, Party(etcd, "2", conf=("user=root", "password=secret"), port=slow.server_port) as party:
                party.hear(0, party.start(2))
                party.finish()

    def test_with_a_wrong_password(self):
        with Etcd() as etcd:
            etcd.require_users("secret")
            self.refused(etcd, ("user=root", "password=guess"), "etcd denies access: ")

    def test_without_a_user(self):
        with Etcd() as etcd:
            etcd.require_users("secret")
            self.refused(etcd, (), "etcd: ")

    def refused(self, etcd, conf, text):
        with Party(etcd, "2", conf=conf) as party:
            node = party.nodes[party.start(1)[0]]
            node.read_until(f"ddprun: note: waiting for the rendezvous endpoint 127.0.0.1:{etcd.port}, ")
            node.read_until(text)
            node.signal(signal.SIGTERM)
            self.assertEqual(node.finish()[0], -signal.SIGTERM)

    def test_the_keys_are_below_the_prefix(self):
        with Etcd() as etcd, Party(etcd, "1:2", conf=("etcd_prefix=/a/b",)) as party:
            party.hear(0, party.start(1))
            self.assertEqual(sorted(etcd.all_keys()), ["/a/b/job/leader", "/a/b/job/record"])
            party.finish()


class Without(unittest.TestCase):
    def test_a_missing_etcd_is_reported(self):
        with Node(
                "--nnodes", "2", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "127.0.0.1:9", "--rdzv-id", "a",
                "--start-timeout", "1", "true", env={"DDP_PLUGIN_DIR": PLUGINS}) as node:
            code, _, err = node.finish()
            self.assertEqual(code, 69)
            self.assertIn("timed out after 1 s waiting for the rendezvous endpoint 127.0.0.1:9: ", err)

    def test_a_missing_plug_in_is_reported_with_how_to_build_it(self):
        with Node("--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-endpoint", "127.0.0.1:9", "--rdzv-id", "a", "true",
                  env={"DDP_PLUGIN_DIR": "/nonexistent"}) as node:
            code, _, err = node.finish()
            self.assertEqual(code, 69)
            self.assertIn("/nonexistent/ddprun-etcd.so", err)
            self.assertIn("-Detcd=enabled", err)

    def test_ddprun_itself_needs_no_more_libraries(self):
        needed = subprocess.run(["ldd", DDPRUN], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("curl", needed)


if __name__ == "__main__":
    main()
