"""Pods of an Indexed Job on one machine, and a controller that starts them again.

What is real: a pod has PID, mount, UTS, and network namespaces, with ddprun as process 1, an address of its own, an /etc/hosts with only
its own name, an /etc/resolv.conf as a cluster writes it, and a control group for its memory. Signals are those of a kubelet: SIGTERM,
the grace period, SIGKILL. What is a mock: the DNS server (dns_server.py), the probes (kubelet.py), and the controller, which applies the podFailurePolicy, the
backoffLimit, and the grace period of a manifest. It starts a pod again at once, under the same name and at a new address; a real one
waits longer. No image is pulled, no volume mounted.
"""
import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from dns_server import DnsServer
from facilities import lacks_namespaces, lacks_network_namespaces
from harness import DDPRUN, DEADLINE_S, Job, kill_all
from kubelet import Kubelet
from places import ip

DOMAIN = "default.svc.cluster.local"
WIRE_ADDRESS, WIRE_MAC = "10.79.0.1", "02:00:00:00:00:01"  # a bridge without an address of its own takes that of one of its ports
TOKEN = "0123456789abcdef" * 4
LOOK_S = 0.01
SPACES = ("--fork", "--pid", "--mount", "--uts", "--mount-proc", "--kill-child")
MEMORY = "/sys/fs/cgroup/memory"  # of version 1
# The last line of unshare, with status 1, when process 1 was killed: it then cannot reset SIGKILL to end in the same way.
UNSHARE_FAILS = re.compile(r"unshare: (?:sigprocmask unblock|child exit) failed: [^\n]*\n\Z")
DISRUPTED, KILLED = "DisruptionTarget", 128 + signal.SIGKILL
# a host name, names, and a /dev/shm of its own; then the pod's command as process 1
ENTER = ('hostname "$1" && mount --bind "$2/hosts" /etc/hosts && mount --bind "$2/resolv.conf" /etc/resolv.conf && '
         'mount -t tmpfs tmpfs /dev/shm && shift 2 && exec "$@"')
_number = itertools.count()


def lacks_pods():
    """None, or why a test is skipped."""
    return lacks_network_namespaces() or lacks_namespaces(*SPACES)


# --- memory ---


def own_memory_group():
    """The directory of the control group that this process is in, of either version."""
    with open("/proc/self/cgroup", encoding="utf-8") as f:
        lines = [line.rstrip("\n").split(":", 2) for line in f]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return MEMORY + path, 1
    return "/sys/fs/cgroup", 2  # only the top has both processes and groups that are limited


class MemoryGroup:
    """A control group with a limit. OSError: it cannot be made."""

    def __init__(self, limit_bytes):
        parent, self.version = own_memory_group()
        self.path = os.path.join(parent, f"ddp-pod-{os.getpid()}-{next(_number)}")
        os.mkdir(self.path)
        try:
            for name in ("memory.max", "memory.swap.max") if self.version == 2 else \
                    ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
                if os.path.exists(os.path.join(self.path, name)):
                    self.write(name, "0" if name == "memory.swap.max" else str(limit_bytes))
        except OSError:
            os.rmdir(self.path)
            raise

    def write(self, name, text):
        with open(os.path.join(self.path, name), "w", encoding="ascii") as f:
            f.write(text)

    def enter(self):
        """Called in the process that is to be a pod."""
        self.write("cgroup.procs", "0")

    def n_kills(self):
        with open(os.path.join(self.path, "memory.events" if self.version == 2 else "memory.oom_control"), encoding="ascii") as f:
            return int(re.search(r"^oom_kill (\d+)$", f.read(), re.MULTILINE).group(1))

    def kill_all(self):
        """As the kernel does where memory.oom.group is set, which version 1 lacks."""
        with open(os.path.join(self.path, "cgroup.procs"), encoding="ascii") as f:
            kill_all([int(pid) for pid in f.read().split()])

    def remove(self):
        end = time.monotonic() + DEADLINE_S
        while os.path.exists(self.path):
            try:
                os.rmdir(self.path)
            except OSError:  # a process that has just ended is still counted
                if time.monotonic() > end:
                    raise
                time.sleep(LOOK_S)


# --- the network ---


class Cluster:
    """In a `with`: a wire, its DNS server, and a namespace for each pod that is started."""

    def __init__(self):
        self.wire = f"ddpk{os.getpid()}w{next(_number)}"
        self.n_addresses = 0
        self.names = set()  # of namespaces
        self.dns = DnsServer(self.wire, WIRE_ADDRESS)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self.remove, self.wire)
            ip("netns", "add", self.wire)
            for words in (("set", "lo", "up"), ("add", "bridge", "address", WIRE_MAC, "type", "bridge"), ("set", "bridge", "up")):
                ip("-n", self.wire, "link", *words)
            ip("-n", self.wire, "address", "add", WIRE_ADDRESS + "/16", "dev", "bridge")
            stack.enter_context(self.dns)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        for name in list(self.names):
            self.remove(name)
        self.stack.close()

    def add(self):
        """-> (the name of a new namespace, its address)"""
        self.n_addresses += 1
        address = f"10.79.{1 + self.n_addresses // 250}.{1 + self.n_addresses % 250}"
        name = f"{self.wire}n{self.n_addresses}"
        self.names.add(name)
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"pod{self.n_addresses}", "netns", self.wire)
        ip("-n", self.wire, "link", "set", f"pod{self.n_addresses}", "master", "bridge", "up")
        ip("-n", name, "address", "add", address + "/16", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        return name, address

    def cut(self, name):
        """Nothing arrives there or leaves it any more."""
        ip("-n", name, "link", "set", "eth0", "down")

    def remove(self, name):
        self.names.discard(name)
        subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


# --- a pod ---


class Pod(Job):
    """One run of a pod. `env` is that of its container."""

    enter = ENTER

    def __init__(self, cluster, name, service, words, env, folder, limit_bytes=None):
        self.cluster, self.name = cluster, name
        self.full_name = f"{name}.{service}.{DOMAIN}"
        self.namespace, self.address = cluster.add()
        self.files = tempfile.mkdtemp(dir=folder)
        self.group = MemoryGroup(limit_bytes) if limit_bytes is not None else None
        self.reason = None  # a condition of the pod, when it was not its own end
        self.ended_by_kill = False  # the grace period was over
        self.kill_at = None
        self.write("hosts", f"127.0.0.1 localhost\n{self.address} {self.full_name} {name}\n")
        self.write("resolv.conf", f"nameserver {WIRE_ADDRESS}\nsearch {DOMAIN} svc.cluster.local cluster.local\noptions ndots:5\n")
        self.log_path = os.path.join(self.files, "log")
        with open(self.log_path, "wb") as log:
            super().__init__("--net=/run/netns/" + self.namespace, shutil.which("unshare"), *SPACES, "sh", "-c", self.enter, "sh",
                             name, self.files, *words, launcher=shutil.which("nsenter"), stdout=log, stderr=log,
                             env={"HOME": "/nonexistent", "HOSTNAME": name, "KUBERNETES_SERVICE_HOST": "10.96.0.1",
                                  "KUBERNETES_SERVICE_PORT": "443", **env},
                             preexec_fn=self.group.enter if self.group is not None else None)

    def __exit__(self, *args):
        super().__exit__(*args)
        self.cluster.remove(self.namespace)
        if self.group is not None:
            self.group.remove()

    def write(self, name, text):
        with open(os.path.join(self.files, name), "w", encoding="ascii") as f:
            f.write(text)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def first_process(self):
        """The pid, here, of the pod's process 1. None: it has not begun, or has ended."""
        for pid in self.processes():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8") as f:
                if next(line for line in f if line.startswith("NSpid:")).split()[-1] == "1":
                    return pid
        return None

    def signal_first(self, sig):
        pid = self.first_process()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sig)

    def lose(self, cuts):
        """Its machine is gone: with its network first, so that no connection is closed, or its processes."""
        self.reason = DISRUPTED
        if cuts:
            self.cluster.cut(self.namespace)
        self.signal_first(signal.SIGKILL)

    def delete(self, grace_s, reason=DISRUPTED):
        """As a kubelet does it: SIGTERM to process 1, and SIGKILL when the grace period is over."""
        self.reason = reason
        self.kill_at = time.monotonic() + grace_s
        self.signal_first(signal.SIGTERM)

    def poll(self):
        """The exit status, as a kubelet reports it; None: it runs."""
        if self.kill_at is not None and time.monotonic() > self.kill_at and self.process.poll() is None:
            self.ended_by_kill = True
            self.signal_first(signal.SIGKILL)
        code = self.process.poll()
        if code == 1 and UNSHARE_FAILS.search(self.log()):
            return KILLED
        return code if code is None or code >= 0 else 128 - code


# --- the controller ---


class JobFailed(Exception):
    """Why the controller has given up."""


def matches(rule, code, reason):
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions", [])
    if codes is not None:
        return (code in codes["values"]) == (codes["operator"] == "In")
    return any(condition["type"] == reason and condition.get("status", "True") == "True" for condition in conditions)


class IndexedJob:
    """In a `with`: the pods of the Job of a manifest. Its script is replaced by `program`.

    late_s     how long it takes until a name leads to a new pod
    stale_s    how long it leads to an old one after its end
    env_of     more of the environment of a pod, by its index
    limits     index -> bytes of memory; the others have no limit
    probes     the factor by which periods of probes, and the grace period after them, are shortened; 0: no probes
    held       indexes that are not started at first
    """

    def __init__(self, cluster, manifest, program, late_s=0.0, stale_s=0.0, env_of=lambda index: {}, limits=None, probes=0.0, held=()):
        self.cluster, self.program = cluster, program
        self.late_s, self.stale_s, self.env_of, self.limits = late_s, stale_s, env_of, limits or {}
        spec = manifest["spec"]
        self.name, self.n = manifest["metadata"]["name"], spec["completions"]
        self.rules = spec["podFailurePolicy"]["rules"]
        self.backoff_limit = spec["backoffLimit"]
        pod = spec["template"]["spec"]
        self.service, self.grace_s = pod["subdomain"], pod["terminationGracePeriodSeconds"]
        container, = pod["containers"]
        self.container, self.probes, self.held = container, probes, held
        self.words = [*container["command"], *container.get("args", [])]
        self.kubelets = {}  # Pod -> Kubelet
        self.folder = tempfile.TemporaryDirectory()
        self.pods, self.done = {}, set()  # index -> Pod; the indexes that have succeeded
        self.ended = []  # (index, exit status, reason, log) of each run of a pod
        self.n_failures = 0

    def __enter__(self):
        for index in range(self.n):
            if index not in self.held:
                self.start(index)
        return self

    def __exit__(self, *_):
        for kubelet in self.kubelets.values():
            kubelet.stop()
        for pod in self.pods.values():
            pod.__exit__()
        self.folder.cleanup()

    def start(self, index):
        words = [DDPRUN, "-v", *self.words[1:-1]]
        env = {"JOB_COMPLETION_INDEX": str(index), "DDP_TOKEN": TOKEN, **self.env_of(index)}
        pod = self.pods[index] = Pod(self.cluster, f"{self.name}-{index}", self.service, [*words, *self.program], env,
                                     self.folder.name, self.limits.get(index))
        self.cluster.dns.set(pod.full_name, pod.address, self.late_s)
        if self.probes > 0:
            self.kubelets[pod] = Kubelet(self.cluster.wire, pod.address, self.container, self.probes,
                                         lambda: pod.delete(self.grace_s * self.probes, None))

    def step(self):
        """Look at each pod once, and do what a controller does."""
        for index, pod in list(self.pods.items()):
            code = pod.poll()
            if code is not None:
                self.end(index, pod, code)

    def end(self, index, pod, code):
        self.ended.append((index, code, pod.reason, pod.log()))
        del self.pods[index]
        if pod in self.kubelets:
            self.kubelets[pod].stop()
        pod.__exit__()
        self.cluster.dns.set(pod.full_name, None, self.stale_s)
        if code == 0:
            self.done.add(index)
            return
        rule = next((rule for rule in self.rules if matches(rule, code, pod.reason)), {"action": "Count"})
        if rule["action"] == "FailJob":
            raise JobFailed(f"pod {index} exited with {code}\n{self.describe()}")
        self.n_failures += rule["action"] == "Count"
        if self.n_failures > self.backoff_limit:
            raise JobFailed(f"more than {self.backoff_limit} pods have failed\n{self.describe()}")
        self.start(index)

    def describe(self):
        texts = [f"--- pod {index}, exit status {code}, {reason}:\n{text}" for index, code, reason, text in self.ended]
        return "\n".join(texts + [f"--- pod {index}, which runs:\n{pod.log()}" for index, pod in self.pods.items()])

    def run_until(self, condition, what, deadline_s=DEADLINE_S):
        end = time.monotonic() + deadline_s
        while not condition():
            self.step()
            if time.monotonic() > end:
                raise AssertionError(f"waited {deadline_s:g} s for {what}\n{self.describe()}")
            time.sleep(LOOK_S)

    def is_complete(self):
        return len(self.done) == self.n
