"""Nodes of a job, each with a rank that reports its place and exits on request."""
import os
import select

from harness import DEADLINE_S, is_gone

SHOW = ("sh", "-c", "echo $TORCHELASTIC_RESTART_COUNT $RANK/$WORLD_SIZE $$ > $TEST_FIFO; "
        "test -n \"$TEST_BAD\" && exit 7; until [ -e $TEST_END ]; do sleep 0.05; done; read code < $TEST_END; exit $code")


class Rank:
    def __init__(self, line):
        generation, place, pid = line.split()
        self.generation, self.pid = int(generation), int(pid)
        self.rank, self.world = map(int, place.split("/"))

    def lives(self):
        return not is_gone(self.pid)

    def is_suspended(self):
        try:
            with open(f"/proc/{self.pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] == "T"
        except FileNotFoundError:
            return False


class Party:
    """end_file: the ranks exit with the status that is in it. A subclass starts the nodes."""

    def __init__(self, end_file):
        self.end_file = end_file
        self.nodes = {}
        self.n_names = 0
        self.told = {}  # name -> Rank, the last that was reported

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes.values():
            node.__exit__()
        if os.path.exists(self.end_file):
            os.unlink(self.end_file)

    def name(self, n):
        names = [chr(ord("a") + self.n_names + i) for i in range(n)]
        self.n_names += n
        return names

    def hear(self, generation, names):
        """Where all ranks of a generation are: name -> Rank. Reports of older generations may arrive in between."""
        found = self.hear_some(generation, names)
        ranks = {name: rank.rank for name, rank in found.items()}
        assert sorted(ranks.values()) == list(range(len(names))), f"ranks {ranks}"
        return found

    def hear_some(self, generation, names):
        found = {}
        for name in names:
            rank = Rank(self.nodes[name].hear(1, 2 * DEADLINE_S)[0])
            while rank.generation < generation:
                rank = Rank(self.nodes[name].hear(1, 2 * DEADLINE_S)[0])
            found[name] = self.told[name] = rank
        newest = {rank.generation for rank in found.values()}
        if len(newest) > 1:  # another one followed it
            return self.hear_some(max(newest), [n for n in names if found[n].generation < max(newest)]) | \
                {n: r for n, r in found.items() if r.generation == max(newest)}
        return found

    def newest(self):
        """Where the ranks of the last unread report are: name -> Rank."""
        for name, node in self.nodes.items():
            while b"\n" in node.heard or select.select([node.fifo_fd], [], [], 0)[0]:
                self.told[name] = Rank(node.hear(1)[0])
        return self.told

    def kill(self, name):
        node = self.nodes.pop(name)
        node.process.kill()
        node.process.wait()
        node.await_gone()
        node.__exit__()

    def end(self, code=0):
        with open(self.end_file + ".new", "w") as f:
            f.write(f"{code}\n")
        os.rename(self.end_file + ".new", self.end_file)
