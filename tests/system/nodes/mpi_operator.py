"""ddprun in the launcher's pod of an MPIJob starts itself over ssh in the workers' pods. Pods, and what of them is a mock, are described in
pod_cluster.py. As MPI Operator has it are the names of pods and hosts, the host file and its variables, the keys (ECDSA, mounted read-only
in a directory that all users could write to, with mode 0600), the commands of launcher and workers (examples/kubernetes/mpijob.yaml; only
./train is replaced), the real sshd as process 1 of a worker, and the ssh settings of its base image, except for PAM, which is off. The
controller is a mock: it starts a lost worker again, with the same name, and a failed launcher up to backoffLimit times.

Covers: launcher/hosts, launcher/remote
"""
import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
import unittest

try:
    import yaml
except ImportError:
    yaml = None

from harness import DDPRUN, DEADLINE_S, NAME_MAX, await_true, main, name_of
from pod_cluster import LOOK_S, Cluster, Pod, lacks_pods
from ssh_hosts import KEYGEN, SSH, SSHD, run

MANIFEST = os.path.join(os.environ["SOURCE_ROOT"], "examples/kubernetes/mpijob.yaml")
TRAINS = (os.environ["RECOVERY_RANK"], "1000000", "5", "50", "0")  # without end, until the file RECOVERY_UNTIL exists; a step of 50 ms
STEP = re.compile(r"\bstep (\d+) \S+ \S+ generation (\d+) pid \d+ rank (\d+) world (\d+) took")
PORT = 2222
SSHD_CONFIG = f"Port {PORT}\nStrictModes no\nUsePAM no\n"
SSH_CONFIG = f"Host *\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n    Port {PORT}\n"
UNREACHABLE, NODES_GONE = 69, 75
# Before the container's command: the image's /etc, with the pod's own names, and the Secret. AFTER is a file that the start waits for.
ENTER = ('hostname "$1" && mount --bind "$IMAGE/etc" /etc && mount --bind "$2/hosts" /etc/hosts && '
         'mount --bind "$2/resolv.conf" /etc/resolv.conf && mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && '
         'mkdir /run/sshd && mount --bind "$IMAGE/secret" "$IMAGE/root/.ssh" && mount -o remount,bind,ro "$IMAGE/root/.ssh" && '
         'until [ -z "$AFTER" ] || [ -e "$AFTER" ]; do sleep 0.1; done && shift 2 && exec "$@"')


class MpiPod(Pod):
    enter = ENTER

    def first_process(self):
        """sshd overwrites its environment, in which Pod looks for the job's mark."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
                if int(f.read().rpartition(")")[2].split()[1]) == self.process.pid:
                    return int(pid)
        return None


def ranks_in(pod):
    """The pids of the ranks of this pod."""
    first, found = pod.first_process(), []
    space = os.readlink(f"/proc/{first}/ns/pid")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{pid}/ns/pid") == space and name_of(pid) == os.path.basename(TRAINS[0])[:NAME_MAX]:
                found.append(pid)
    return found


def write(folder, name, text, mode=0o644):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)


def make_image(folder, key_mode):
    """What all pods have: /etc, the home directory of root with a place for the keys, and the Secret, in the form in which a kubelet
    mounts it."""
    etc, secret, data = (os.path.join(folder, name) for name in ("etc", "secret", "secret/..2026_01_01"))
    shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True)
    for name in "hosts", "resolv.conf":
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(etc, name))
        write(etc, name, "")
    with open("/etc/passwd", encoding="utf-8") as f:
        users = [line for line in f if not line.startswith("root:")]
    write(etc, "passwd", f"root:x:0:0:root:{folder}/root:/bin/sh\n" + "".join(users))
    write(etc, "ssh/sshd_config", SSHD_CONFIG)
    write(etc, "ssh/ssh_config", SSH_CONFIG)
    run(KEYGEN, "-A", "-f", folder)
    os.makedirs(os.path.join(folder, "root/.ssh"))
    os.makedirs(os.path.join(etc, "mpi"))
    os.makedirs(data)
    os.chmod(secret, 0o1777)
    run(KEYGEN, "-q", "-t", "ecdsa", "-b", "521", "-m", "PEM", "-N", "", "-C", "", "-f", os.path.join(data, "id_rsa"))
    shutil.copy(os.path.join(data, "id_rsa.pub"), os.path.join(data, "authorized_keys"))
    os.symlink("..2026_01_01", os.path.join(secret, "..data"))
    for name in "id_rsa", "id_rsa.pub", "authorized_keys":
        os.chmod(os.path.join(data, name), key_mode)
        os.symlink(f"..data/{name}", os.path.join(secret, name))


class MpiJob:
    """In a `with`: the pods of the MPIJob of the manifest, with N_WORKERS workers of one slot each.

    options     of ddprun, after those of the manifest
    key_mode    of the files of the Secret; the operator sets 0600 if root's directory is the place, and 0644 is Kubernetes' own value
    as_worker   runLauncherAsWorker
    """
    N_WORKERS = 2

    def __init__(self, cluster, options=(), program=TRAINS, key_mode=0o600, as_worker=False):
        with open(MANIFEST, encoding="utf-8") as f:
            manifest = yaml.safe_load(f)
        parts = manifest["spec"]["mpiReplicaSpecs"]
        self.cluster, self.name = cluster, manifest["metadata"]["name"]
        self.backoff_limit = manifest["spec"]["runPolicy"]["backoffLimit"]
        launches, = parts["Launcher"]["template"]["spec"]["containers"]
        serves, = parts["Worker"]["template"]["spec"]["containers"]
        self.words = [DDPRUN, *launches["command"][1:-1], *options, *program]
        self.serves = [SSHD, *serves["command"][1:]]
        self.folder = tempfile.TemporaryDirectory()
        self.image, self.until = (os.path.join(self.folder.name, name) for name in ("image", "until"))
        make_image(self.image, key_mode)
        hosts = [f"{self.name}-launcher"] * as_worker + [self.worker(index) for index in range(self.N_WORKERS)]
        write(os.path.join(self.image, "etc/mpi"), "hostfile", "".join(f"{self.host(name)} slots=1\n" for name in hosts), 0o444)
        self.env = {"IMAGE": self.image, "HOME": f"{self.image}/root", "AFTER": ""}
        self.pods, self.launcher = {}, None  # of workers by index
        self.is_replaced = True  # a lost worker
        self.ended = []  # (exit status, log) of each launcher
        self.read_to, self.steps = 0, {}  # rank -> (generation, world) of its last step

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pod in [*self.pods.values(), self.launcher]:
            if pod is not None:
                pod.__exit__()
        self.folder.cleanup()

    def worker(self, index):
        return f"{self.name}-worker-{index}"

    def host(self, name):
        return f"{name}.{self.name}.default.svc"

    def start(self, name, words, env, has_name):
        pod = MpiPod(self.cluster, name, self.name, words, {**self.env, **env}, self.folder.name)
        if has_name:
            self.show(pod)
        return pod

    def show(self, pod):
        self.cluster.dns.set(pod.full_name, pod.address)

    def start_worker(self, index, has_name=True, after=""):
        self.pods[index] = self.start(self.worker(index), self.serves, {"K_MPI_JOB_ROLE": "worker", "AFTER": after}, has_name)

    def forget(self):
        """Steps that were made before do not count."""
        self.steps = {}
        self.trains(0)
        self.steps = {}

    def start_launcher(self):
        self.read_to, self.steps = 0, {}
        self.launcher = self.start(f"{self.name}-launcher", self.words, {
            "K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": "1", "NVIDIA_VISIBLE_DEVICES": "",
            "NVIDIA_DRIVER_CAPABILITIES": "", "RECOVERY_UNTIL": self.until}, True)

    def start_all(self):
        for index in range(self.N_WORKERS):
            self.start_worker(index)
        self.start_launcher()

    def step(self):
        for index, pod in list(self.pods.items()):
            if pod.poll() is not None:
                pod.__exit__()
                del self.pods[index]
                self.cluster.dns.set(pod.full_name, None)
                if self.is_replaced:
                    self.start_worker(index)
        code = self.launcher.poll() if self.launcher is not None else None
        if code is not None:
            self.ended.append((code, self.launcher.log()))
            self.launcher.__exit__()
            self.launcher = None
            if code != 0 and len(self.ended) <= self.backoff_limit:
                self.start_launcher()

    def describe(self):
        texts = [f"--- launcher, exit status {code}:\n{log}" for code, log in self.ended]
        if self.launcher is not None:
            texts.append(f"--- launcher, which runs:\n{self.launcher.log()}")
        return "\n".join(texts + [f"--- worker {index}:\n{pod.log()}" for index, pod in self.pods.items()])

    def run_until(self, condition, what):
        end = time.monotonic() + 2 * DEADLINE_S
        while not condition():
            self.step()
            if time.monotonic() > end or self.launcher is None and not condition():
                raise AssertionError(f"waited up to {2 * DEADLINE_S:g} s for {what}\n{self.describe()}")
            time.sleep(LOOK_S)

    def has_said(self, text):
        return self.launcher is not None and text in self.launcher.log()

    def trains(self, n_ranks):
        """Do so many ranks make steps in one generation?"""
        if self.launcher is None:
            return False
        log = self.launcher.log()
        whole = log[self.read_to:log.rfind("\n") + 1]
        self.read_to += len(whole)
        for found in STEP.finditer(whole):
            _, generation, rank, world = map(int, found.groups())
            self.steps[rank] = generation, world
        newest = max(self.steps.values(), default=None)
        return newest is not None and newest[1] == n_ranks and all(self.steps.get(rank) == newest for rank in range(n_ranks))

    def await_training(self, n_ranks=N_WORKERS):
        self.run_until(lambda: self.trains(n_ranks), f"steps of {n_ranks} ranks in one generation")

    def await_end(self):
        self.run_until(lambda: self.launcher is None, "the end of the launcher")

    def finish(self):
        write(self.folder.name, "until", "")
        self.await_end()


@unittest.skipIf(yaml is None, "there is no Python module yaml")
class MpiOperator(unittest.TestCase):
    def setUp(self):
        missing = [name for name, path in (("ssh", SSH), ("sshd", SSHD), ("ssh-keygen", KEYGEN)) if path is None]
        why = f"not installed: {', '.join(missing)}" if missing else lacks_pods()
        if why:
            self.skipTest(why)
        self.cluster = self.enterContext(Cluster())

    def make(self, *options, **kw):
        return self.enterContext(MpiJob(self.cluster, options, **kw))

    def expect_statuses(self, job, *statuses):
        self.assertEqual([code for code, _ in job.ended], [*statuses], job.describe())

    def await_note(self, job, why):
        """It has waited for a worker, and has printed that once."""
        job.run_until(lambda: job.has_said(" ddprun waits up to "), "a note")
        hosts = "|".join(re.escape(job.host(job.worker(index))) for index in range(job.N_WORKERS))
        self.assertRegex(job.launcher.log(), rf"(?m)^ddprun: note: ({hosts}): ssh: {why}; ddprun waits up to .+ for hosts "
                         r"\(--start-timeout\)$")

    def test_workers_whose_names_appear_late_are_waited_for(self):
        job = self.make()
        for index in range(job.N_WORKERS):
            job.start_worker(index, has_name=False)
        job.start_launcher()
        self.await_note(job, r"Could not resolve hostname \S+: .*")
        self.assertGreater(self.cluster.dns.n_unknown, 0)
        for pod in job.pods.values():
            job.show(pod)
        job.await_training()
        job.finish()
        self.expect_statuses(job, 0)
        self.assertEqual(job.ended[0][1].count("ddprun waits"), 1, job.describe())

    def test_workers_whose_sshd_starts_late_are_waited_for(self):
        job = self.make()
        start = os.path.join(job.folder.name, "start")
        job.start_worker(0)
        job.start_worker(1, after=start)
        job.start_launcher()
        self.await_note(job, rf"connect to host \S+ port {PORT}: Connection refused")
        write(job.folder.name, "start", "")
        job.await_training()
        job.finish()
        self.expect_statuses(job, 0)

    def lose(self, job, index, cuts):
        lost = job.pods[index]
        lost.lose(cuts)
        job.run_until(lambda: job.pods[index] is not lost, "another worker")
        self.assertNotEqual(job.pods[index].address, lost.address)

    def test_a_lost_worker_is_replaced(self):
        """Its machine is gone without a word, or its processes. The next one has another address."""
        job = self.make()
        job.start_all()
        for index, cuts in (1, False), (0, True):
            job.await_training()
            self.lose(job, index, cuts)
            job.forget()
        job.await_training()
        job.finish()
        self.expect_statuses(job, 0)
        log = job.ended[0][1]
        for index in 1, 0:
            self.assertIn(f"lost {job.host(job.worker(index))}", log)
        for limit_s in re.findall(r"waiting for 1 of 2 nodes, \d+ s of (\d+) s", log):
            self.assertGreater(int(limit_s), 100, log)  # --start-timeout, and not a lease

    def test_the_job_continues_without_a_lost_worker_if_the_options_allow_it(self):
        job = self.make("--nnodes", "1:2")
        job.start_all()
        job.await_training()
        job.is_replaced = False
        job.pods[1].lose(False)
        job.await_training(1)
        job.finish()
        self.expect_statuses(job, 0)

    def test_without_restarts_a_lost_worker_ends_the_job_and_the_launcher_begins_it_again(self):
        job = self.make("--max-restarts", "0")
        job.start_all()
        job.await_training()
        self.lose(job, 1, False)
        job.run_until(lambda: job.ended, "the end of the first launcher")
        job.await_training()
        job.finish()
        self.expect_statuses(job, NODES_GONE, 0)
        self.assertRegex(job.ended[0][1], rf"(?m)^ddprun: error: .*lost {re.escape(job.host(job.worker(1)))}")

    def test_the_launcher_may_be_a_worker(self):
        job = self.make(as_worker=True)
        job.start_all()
        job.await_training(1 + job.N_WORKERS)
        job.finish()
        self.expect_statuses(job, 0)

    def test_a_deleted_launcher_ends_the_ranks_of_all_workers(self):
        job = self.make()
        job.start_all()
        job.await_training()
        job.launcher.delete(2 * DEADLINE_S)
        job.backoff_limit = 0
        job.await_end()
        self.expect_statuses(job, 128 + signal.SIGTERM)
        for pod in job.pods.values():
            await_true(lambda pod=pod: not ranks_in(pod), lambda pod=pod: ranks_in(pod))

    def test_a_key_that_others_can_read_is_an_error_at_once(self):
        """ssh ignores it if it is the user's own."""
        job = self.make(key_mode=0o644)
        job.backoff_limit = 0
        job.start_all()
        job.await_end()
        self.expect_statuses(job, UNREACHABLE)
        self.assertRegex(job.ended[0][1], rf"(?m)^ddprun: error: {job.host(job.worker(0))}: .*Permission denied")


if __name__ == "__main__":
    main()
