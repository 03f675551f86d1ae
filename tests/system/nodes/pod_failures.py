"""Pods of an Indexed Job that are lost, deleted, late in the DNS, or out of memory: the job still ends with status 0. Pods, and what of
them is a mock, are described in pod_cluster.py. The manifest is examples/kubernetes/job.yaml (once trainjob.yaml): its command, its
podFailurePolicy, its backoffLimit, and its grace period; only train.py is replaced, by ranks that train with libddp and report each step.

POD_RUNS=N in the environment: each scenario N times. POD_DNS_S: how late the DNS is.

Covers: launcher/hosts, launcher/membership, launcher/node, rendezvous/ballots, rendezvous/quorum, rendezvous/membership
"""
import itertools
import os
import random
import re
import signal
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

from harness import DEADLINE_S, RANK, main
from pod_cluster import DISRUPTED, KILLED, Cluster, IndexedJob, MemoryGroup, lacks_pods

MANIFESTS = os.path.join(os.environ["SOURCE_ROOT"], "examples/kubernetes")
RECOVERY_RANK = os.environ["RECOVERY_RANK"]
RUNS = int(os.environ.get("POD_RUNS", "1"))
DNS_S = float(os.environ.get("POD_DNS_S", "3"))
TRAINS = (RECOVERY_RANK, "1000000", "5", "50", "0")  # without end, until the file RECOVERY_UNTIL exists; a step of 50 ms
STEP = re.compile(r"\bstep \d+ \S+ \S+ generation (\d+) pid \d+ rank (\d+) world (\d+) took")
MIB = 1 << 20
LIMIT_MIB, USED_MIB = 256, "800"
# once, the rank of a pod uses more memory than the pod may
EATS = ("sh", "-c", f'if [ "$JOB_COMPLETION_INDEX" = "$EATER" ] && [ ! -e "$EATEN" ]; then : > "$EATEN"; exec {RANK} use {USED_MIB} wait; fi; '
        'exec "$@"', "sh", *TRAINS)
SIGTERM_STATUS = 143
PROBES = 0.05  # the factor of the periods of probes
LEADS = "this node is the coordinator now"
TAKES_OVER = "another node replaces the coordinator if this node is lost or leaves"  # what ddprun prints at the endpoint


def documents(name):
    with open(os.path.join(MANIFESTS, name), encoding="utf-8") as f:
        return {document["kind"]: document for document in yaml.safe_load_all(f)}


def indexed_job():
    return documents("job.yaml")["Job"]


def train_job():
    """A mock of the controller of Kubeflow Trainer: the Job that it makes of trainjob.yaml, and the variables of its pods, which have
    one rank each here."""
    parts = documents("trainjob.yaml")
    part, = parts["ClusterTrainingRuntime"]["spec"]["template"]["spec"]["replicatedJobs"]
    trains, name = parts["TrainJob"]["spec"]["trainer"], parts["TrainJob"]["metadata"]["name"]
    job = part["template"]["spec"]
    pod = job["template"]["spec"]
    pod["subdomain"] = name
    pod["containers"][0]["command"] = trains["command"]
    job["completions"] = job["parallelism"] = trains["numNodes"]
    env = {"PET_NNODES": str(trains["numNodes"]), "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
           "PET_MASTER_PORT": "29500"}
    return {"metadata": {"name": f"{name}-node-0"}, "spec": job}, lambda index: {**env, "PET_NODE_RANK": str(index)}


class Training(IndexedJob):
    """The ranks of all pods, as their last lines have them."""

    def __init__(self, cluster, program=TRAINS, env_of=lambda index: {}, manifest=None, **kw):
        super().__init__(cluster, manifest or indexed_job(), program,
                         env_of=lambda index: {"RECOVERY_UNTIL": self.until, **env_of(index)}, **kw)
        self.until = os.path.join(self.folder.name, "until")
        self.read_to, self.steps = {}, {}  # of a pod: how far its log was read; (generation, rank, world) of its last step

    def look(self):
        for pod in self.pods.values():
            with open(pod.log_path, "rb") as f:
                f.seek(self.read_to.get(pod, 0))
                text = f.read()
            whole = text[:text.rfind(b"\n") + 1]
            self.read_to[pod] = self.read_to.get(pod, 0) + len(whole)
            for found in STEP.finditer(whole.decode(errors="replace")):
                self.steps[pod] = tuple(map(int, found.groups()))

    def trains(self):
        """Do all pods make steps of one generation, which has all of them?"""
        self.look()
        last = [self.steps.get(pod) for pod in self.pods.values()]
        return None not in last and len({(generation, world) for generation, _, world in last}) == 1 and \
            {rank for _, rank, _ in last} == set(range(self.n)) and last[0][2] == self.n

    def await_training(self, deadline_s=DEADLINE_S):
        self.run_until(self.trains, f"steps of {self.n} ranks in one generation", deadline_s)

    def await_voters(self):
        """Where another pod can take over, and pod 0 is the coordinator."""
        if TAKES_OVER in self.pods[0].log():
            self.run_until(lambda: f"{self.n} nodes vote on the coordinator" in self.pods[0].log(), "all votes")

    def await_other(self, pods):
        """Until these have ended, and others have their places."""
        self.run_until(lambda: not set(pods) & set(self.pods.values()), "the end of pods")

    def finish(self):
        with open(self.until, "w", encoding="ascii"):
            pass
        self.run_until(self.is_complete, "the end of the job")


@unittest.skipIf(yaml is None, "there is no Python module yaml")
class PodFailures(unittest.TestCase):
    def setUp(self):
        why = lacks_pods()
        if why:
            self.skipTest(why)

    def each_run(self, disturb, late_s=None, **kw):
        """disturb(number of the run, job) is called when all ranks train. They must do so again, and all pods end with status 0. It
        returns the indexes of the pods that may have ended before, or None: any. Every fifth run does not wait until all nodes vote on
        the coordinator, about a second after the start: then the job may begin again at pod 0."""
        for run in range(RUNS):
            draw = random.Random(run)
            with self.subTest(run=run), Cluster() as cluster, \
                    Training(cluster, late_s=late_s or draw.uniform(0, 1), stale_s=draw.uniform(0, 0.5), **kw) as job:
                job.await_training((late_s or 0) + DEADLINE_S)
                is_early = run % 5 == 4
                if not is_early:
                    job.await_voters()
                may_end = disturb(run, job)
                job.await_training(2 * DEADLINE_S)
                if may_end is not None and not is_early:
                    self.assertEqual([index for index, _, _, _ in job.ended], may_end, job.describe())
                job.finish()
                self.assertEqual(sorted(index for index, code, _, _ in job.ended if code == 0), list(range(job.n)))

    def statuses(self, job, index):
        return [(code, reason) for number, code, reason, _ in job.ended if number == index]

    def lose_one(self, run, job):
        """-> the index of the pod; 0 has the coordinator"""
        index = run % job.n
        lost = job.pods[index]
        lost.lose(cuts=run // job.n % 2 == 1)
        job.await_other([lost])
        self.assertEqual(self.statuses(job, index)[0], (KILLED, DISRUPTED))
        self.assertNotEqual(job.pods[index].address, lost.address)
        return index

    def test_a_pod_is_lost_and_started_again_at_another_address(self):
        def lose(run, job):
            index = self.lose_one(run, job)
            if index == 0 and run % 5 != 4:
                job.run_until(lambda: any(LEADS in pod.log() for pod in job.pods.values()), "another coordinator")
            return [index]
        self.each_run(lose)

    def test_a_pod_of_a_train_job_is_lost(self):
        """With --rdzv-backend static, which the controller's variables select, all pods begin again if pod 0 is lost."""
        manifest, env_of = train_job()

        def lose(run, job):
            index = self.lose_one(run, job)
            return [index] if index > 0 else None
        self.each_run(lose, manifest=manifest, env_of=env_of)

    def test_two_pods_are_lost_at_once(self):
        pairs = list(itertools.combinations(range(indexed_job()["spec"]["completions"]), 2))

        def lose(run, job):
            lost = [job.pods[index] for index in pairs[run % len(pairs)]]
            for pod in lost:
                pod.lose(cuts=run // len(pairs) % 2 == 1)
            job.await_other(lost)
        self.each_run(lose)

    def test_the_dns_is_late(self):
        def look(_, job):
            self.assertGreater(job.cluster.dns.n_unknown, 0)
            return []
        self.each_run(look, DNS_S)

    def test_a_pod_is_deleted(self):
        def delete(run, job):
            index = run % job.n
            deleted = job.pods[index]
            deleted.delete(job.grace_s)
            job.await_other([deleted])
            self.assertEqual(self.statuses(job, index), [(SIGTERM_STATUS, DISRUPTED)])
            self.assertFalse(deleted.ended_by_kill)
            return [index]
        self.each_run(delete)

    def test_pods_are_ready_once_all_pods_are_there(self):
        last = indexed_job()["spec"]["completions"] - 1
        with Cluster() as cluster, Training(cluster, probes=PROBES, held={last}) as job:
            def kubelets():
                return [job.kubelets[pod] for pod in job.pods.values()]
            job.run_until(lambda: all(503 in k.probes["startup"].answers for k in kubelets()), "answers to the startup probes")
            self.assertEqual({(k.is_started, k.is_ready, k.probes["liveness"].n_asked) for k in kubelets()}, {(False, False, 0)})
            job.start(last)
            job.run_until(lambda: all(k.is_ready for k in kubelets()), "pods that are ready")
            job.await_training()
            job.run_until(lambda: all(k.probes["liveness"].n_asked >= 2 for k in kubelets()), "liveness probes")
            self.assertEqual([k.probes["liveness"].answers for k in kubelets()], [{200}] * len(job.pods))
            self.assertEqual(job.ended, [])
            job.finish()

    def test_a_pod_whose_ddprun_hangs_is_killed_and_started_again(self):
        """The others wait for it, and are not killed."""
        def stop(run, job):
            index = 1 + run % (job.n - 1)
            stopped = job.pods[index]
            job.run_until(lambda: all(k.is_ready for k in job.kubelets.values()), "pods that are ready")
            stopped.signal_first(signal.SIGSTOP)
            job.await_other([stopped])
            self.assertEqual(self.statuses(job, index), [(KILLED, None)])
            self.assertEqual((job.kubelets[stopped].killed_by, stopped.ended_by_kill), ("liveness", True))
            return [index]
        self.each_run(stop, probes=PROBES)

    def test_a_pod_runs_out_of_memory(self):
        """The kernel kills a rank. Every second time the rest of the container follows it, as where memory.oom.group is set."""
        try:
            MemoryGroup(LIMIT_MIB * MIB).remove()
        except OSError as error:
            self.skipTest(f"cannot limit the memory of a control group: {error}")
        for run in range(RUNS):
            eater = str(run % indexed_job()["spec"]["completions"])
            with self.subTest(run=run), Cluster() as cluster, tempfile.TemporaryDirectory() as folder:
                env = {"EATER": eater, "EATEN": os.path.join(folder, "eaten")}
                with Training(cluster, EATS, lambda _, env=env: env, limits={int(eater): LIMIT_MIB * MIB}) as job:
                    pod = job.pods[int(eater)]
                    job.run_until(lambda pod=pod: pod.group.n_kills() > 0, "the kernel's OOM killer")
                    if run % 2 == 1:
                        pod.group.kill_all()
                        job.await_other([pod])
                        self.assertEqual(self.statuses(job, int(eater)), [(KILLED, None)])
                    job.await_training(2 * DEADLINE_S)
                    job.finish()


if __name__ == "__main__":
    main()
