"""The failures of the job, drawn from a seed. At least one rank always survives: the state of a job is lost with the last rank that has it."""
import collections
import signal

SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]


class Chaos:
    """Each act needs a job with all its ranks, and returns a description of what it did."""

    def __init__(self, training, draw):
        self.training, self.draw = training, draw
        self.bag = []
        self.joined_last = False

    def act(self):
        return self.next_act()()

    # --- the next act ---

    def next_act(self):
        down = self.down()
        up = self.training.nodes
        # not twice in a row, lest nodes that are down stay a rarity
        if down and (len(up) == 1 or not self.joined_last and self.draw.random() < 0.6):
            self.joined_last = True
            return self.join
        self.joined_last = False
        if not self.bag:
            self.bag = [self.kill_rank, self.kill_rank, self.kill_two, self.kill_launcher, self.switch_off, self.leave]
            self.draw.shuffle(self.bag)
        return self.take_possible()

    def take_possible(self):
        """The next in the bag that leaves a rank alive. With all hosts up that is any of them."""
        needs_node = (self.kill_launcher, self.switch_off, self.leave)
        for i, act in enumerate(self.bag):
            n_killed = self.training.n_local if act in needs_node else 2 if act == self.kill_two else 1
            if n_killed < self.training.n_ranks() and (act not in needs_node or len(self.training.nodes) > self.training.n_needed()):
                return self.bag.pop(i)
        return self.join

    def down(self):
        return [host for host in range(1, self.training.n_hosts + 1) if host not in self.training.nodes]

    def some_host(self):
        return self.draw.choice(sorted(self.training.nodes))

    # --- acts ---

    def kill(self, n):
        victims = self.draw.sample(self.training.ranks(), n)
        sig = self.draw.choice(SIGNALS)
        for _, pid in victims:
            self.training.kill_process(pid, sig)
        where = [f"{n} ranks of node {host}" if n > 1 else f"a rank of node {host}"
                 for host, n in sorted(collections.Counter(host for host, _ in victims).items())]
        return " and ".join(where) + f": {sig.name}"

    def kill_rank(self):
        return self.kill(1)

    def kill_two(self):
        return self.kill(2)

    def kill_launcher(self):
        host = self.some_host()
        self.training.kill_launcher(host)
        return f"node {host}: kill -9 of its ddprun"

    def switch_off(self):
        host = self.some_host()
        self.training.switch_off(host)
        return f"node {host}: power off" if self.training.place.has_power else f"node {host}: kill -9 of all its processes"

    def leave(self):
        host = self.some_host()
        self.training.leave(host)
        return f"node {host}: SIGTERM, it leaves the job"

    def join(self):
        host = self.draw.choice(self.down())
        self.training.switch_on(host)
        return f"node {host} joins"
