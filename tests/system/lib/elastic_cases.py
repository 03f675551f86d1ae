"""What may happen to the nodes of a job: one function for each case, the same for every launcher, kind of workers and place.
elastic.py and tests/interop/elastic_gloo.py check ddprun with them, bench/elastic.py shows them for ddprun and torchrun.

Each checks the rank of each process and the world size, a sum over all ranks in each generation, exit statuses, and what still runs
at the end. Hosts are numbers. Unless a function states otherwise, the nodes rendezvous at node a, which is on host 2.
"""
import dataclasses
import os
import signal
import time

from elastic_job import Ends, Failed, Plan, Trial
from places import Namespaces

ENDPOINT = 2
# for ddprun, for torchrun:
WINDOW_S = (30, 5)  # all nodes of the first generation have joined before it is over; torchrun waits for it again
SOON_S = (0, 1)  # torchrun's least
NONE_FAILS = (0, 3)  # restarts: torchrun needs one where a node is lost


@dataclasses.dataclass
class Times:
    """Milliseconds from what happened; None: there is no such thing in this case."""
    started: float = None  # to main() of the last worker of the new generation
    stepped: float = None  # to its last worker's first step
    ended: float = None  # to the last launcher's, or process's, end
    ranks_dead: float = None  # to the end of a cut-off node's last rank


def since(begin_ns, end_ns):
    return (end_ns - begin_ns) / 1e6


def of_generation(begin_ns, generation, **more):
    return Times(since(begin_ns, generation.began_ns), since(begin_ns, generation.summed_ns), **more)


def expect_told(trial, names, host):
    """ddprun reports the loss of the node of that host on these nodes' terminals and in their events."""
    text = f"lost {trial.place.address(host)}: "
    for name in names if trial.launcher.is_ours else ():
        why, told = trial.stops(name)[-1]
        if text not in trial.nodes[name].output() or why != "lost" or not told.startswith(text):
            raise Failed(f"{name} did not say everywhere: {text}; its last event: {why}, {told}")


def two_running(trial):
    """Nodes a and b, ranks in this order."""
    begin_ns = time.monotonic_ns()
    trial.start_endpoint("a")
    trial.start("b", 3)
    return trial.await_generation(["a", "b"], begin_ns)


def expect_end_of(trial, node, ours):
    """A node has ended by itself, with this if it is a ddprun, and nothing of it is left."""
    code = node.process.returncode
    if trial.launcher.is_ours and code != ours:
        raise Failed(f"{node.name}'s launcher ended with {code} instead of {ours}")
    trial.check_left([node])


def nodes_start_together(trial):
    begin_ns = time.monotonic_ns()
    trial.start("a", ENDPOINT)
    trial.start("b", 3)
    times = of_generation(begin_ns, trial.await_generation(["a", "b"], begin_ns))
    trial.finish()
    return times


def rank_is_killed(trial):
    old = two_running(trial)
    begin_ns = time.monotonic_ns()
    os.kill(old.of("b")[0].pid, signal.SIGKILL)
    times = of_generation(begin_ns, trial.await_generation(["a", "b"], begin_ns))
    trial.finish()
    return times


def node_joins(trial, host=3):
    begin_ns = time.monotonic_ns()
    trial.start_endpoint("a")
    trial.await_generation(["a"], begin_ns)
    begin_ns = time.monotonic_ns()
    trial.start("b", host)
    times = of_generation(begin_ns, trial.await_generation(["a", "b"], begin_ns))
    trial.finish()
    return times


def node_joins_that_sorts_first(trial):
    """What runs keeps its ranks: the newcomer is last."""
    return node_joins(trial, host=1)


def node_leaves(trial):
    two_running(trial)
    b = trial.nodes["b"]
    begin_ns = time.monotonic_ns()
    b.signal(signal.SIGTERM)
    times = of_generation(begin_ns, trial.await_generation(["a"], begin_ns))
    trial.await_ends([b])
    expect_end_of(trial, b, -signal.SIGTERM)
    trial.finish()
    return times


def node_is_killed(trial):
    two_running(trial)
    begin_ns = trial.nodes["b"].kill_all()
    times = of_generation(begin_ns, trial.await_generation(["a"], begin_ns))
    trial.await_nothing_left(trial.nodes["b"])
    expect_told(trial, "a", 3)
    trial.finish()
    return times


def node_is_replaced(trial):
    """--nnodes 2: the job waits for another one."""
    two_running(trial)
    trial.nodes["b"].kill_all()
    begin_ns = time.monotonic_ns()
    trial.start("c", 3)
    times = of_generation(begin_ns, trial.await_generation(["a", "c"], begin_ns))
    trial.finish()
    return times


def node_of_rank_0_is_killed(trial):
    begin_ns = time.monotonic_ns()
    trial.start_endpoint("a")
    trial.start("b", 1)
    trial.start("c", 3)
    trial.await_generation(["b", "a", "c"], begin_ns)
    begin_ns = trial.nodes["b"].kill_all()
    times = of_generation(begin_ns, trial.await_generation(["a", "c"], begin_ns))
    expect_told(trial, "ac", 1)
    trial.finish()
    return times


def node_fails_for_good(trial):
    """All launchers exit with the same status. If the ranks report why they fail, it is 3, whichever report is the first;
    otherwise it may be that of the ranks that failed in consequence."""
    two_running(trial)
    nodes = list(trial.nodes.values())
    begin_ns = time.monotonic_ns()
    trial.tell("fail-b")
    end_ns = trial.await_ends(nodes)
    codes = {node.process.returncode for node in nodes}
    is_known = trial.launcher.is_ours and trial.workers.name == "C"
    if len(codes) != 1 or 0 in codes or (is_known and codes != {3}):
        raise Failed(f"the launchers ended with {[node.process.returncode for node in nodes]}")
    trial.check_left(nodes)
    return Times(ended=since(begin_ns, end_ns))


def launcher_is_killed(trial):
    """Nothing of its node is left, including daemons; the other nodes continue."""
    two_running(trial)
    b = trial.nodes["b"]
    trial.await_daemons(b)
    begin_ns = b.kill_launcher()
    end_ns = trial.await_nothing_left(b)
    times = of_generation(begin_ns, trial.await_generation(["a"], begin_ns), ended=since(begin_ns, end_ns))
    trial.finish()
    return times


def nodes_that_wait_get_sigterm(trial):
    """First a node that joins, then the node of the rendezvous endpoint."""
    a = trial.start_endpoint("a")
    b = trial.start("b", 3)
    for node in a, b:
        trial.await_at_endpoint(node)
    took = []
    for node in b, a:
        begin_ns = time.monotonic_ns()
        node.signal(signal.SIGTERM)
        took.append(since(begin_ns, trial.await_ends([node])))
        if node.process.returncode not in (-signal.SIGTERM, 128 + signal.SIGTERM):
            raise Failed(f"{node.name}'s launcher ended with {node.process.returncode}")
        trial.check_left([node])
    return Times(ended=max(took))


def link_goes_down(trial):
    """The cut-off node's ranks are dead before the others restart. A ddprun joins again."""
    old = two_running(trial)
    b = trial.nodes["b"]
    dead = Ends([rank.pid for rank in old.of("b")])
    begin_ns = time.monotonic_ns()
    trial.place.cut(b.host)
    try:
        new = trial.await_generation(["a"], begin_ns)
        first_ns = min(rank.began_ns for rank in new.ranks)
        if dead.last_ns is None or dead.last_ns > first_ns:
            raise Failed("a rank of the cut-off node ran when the new generation began")
        expect_told(trial, "a", b.host)
        if not trial.launcher.is_ours:
            trial.await_ends([b])
            trial.check_left([b])
        back_ns = time.monotonic_ns()
    finally:
        trial.place.rejoin(b.host)
    if trial.launcher.is_ours:
        trial.await_generation(["a", "b"], back_ns)
    trial.finish()
    return of_generation(begin_ns, new, ranks_dead=since(begin_ns, dead.last_ns))


@dataclasses.dataclass(frozen=True)
class Case:
    title: str
    run: object
    nodes: str = "1:2"
    restarts: tuple = NONE_FAILS
    window_s: tuple = WINDOW_S
    has_child: bool = False
    needs_wire: bool = False  # that can be cut
    # for bench/elastic.py, tests don't look at times:
    within_ms: float = None  # the end; else it has not passed
    target_ms: float = None  # a ddprun's C workers are to be started in that time


CASES = [
    Case("two nodes start together", nodes_start_together, nodes="2", target_ms=50),
    Case("a rank is killed: restart", rank_is_killed, nodes="2", restarts=(1, 3)),
    Case("a node joins", node_joins, window_s=SOON_S),
    Case("a node joins that sorts first", node_joins_that_sorts_first, window_s=SOON_S),
    Case("a node leaves (SIGTERM)", node_leaves),
    Case("a node is killed", node_is_killed, target_ms=200),
    Case("a node is replaced, --nnodes 2", node_is_replaced, nodes="2", restarts=(1, 3)),
    Case("the node of rank 0 is killed", node_of_rank_0_is_killed, nodes="2:3"),
    Case("a node fails for good", node_fails_for_good, nodes="2", restarts=(0, 0), within_ms=1000),
    Case("kill -9 of a launcher: no orphan", launcher_is_killed, has_child=True),
    Case("SIGTERM to nodes that wait", nodes_that_wait_get_sigterm, nodes="3"),
    Case("link down", link_goes_down, needs_wire=True, target_ms=5000),
]


@dataclasses.dataclass
class Outcome:
    times: Times = None
    why: str = ""  # it has not passed
    logs: str = ""


def is_possible(case, place):
    return isinstance(place, Namespaces) or not case.needs_wire


def try_case(case, launcher, workers, place, limit_s):
    """limit_s: for each wait, for example until a generation has made its first step."""
    plan = Plan(case.nodes, workers.n_local, case.restarts, case.window_s, case.has_child)
    with Trial(launcher, workers, place, plan, ENDPOINT, limit_s) as trial:
        try:
            return Outcome(case.run(trial))
        except Failed as reason:
            return Outcome(why=str(reason), logs=trial.logs())
