"""The probes of a pod, as a kubelet makes them: from another network namespace, to the address of the pod.

What is real: the requests, their time limit, what counts as success, the order (no other probe before the startup probe has succeeded),
and what follows from so many failures. What is a mock: periods and the grace period are shortened by a factor, and times are not
spread at random.
"""
import contextlib
import http.client
import threading
import time

from dns_server import enter_namespace

TIMEOUT_S = 1.0  # timeoutSeconds, as it is by default
KINDS = "startup", "liveness", "readiness"
LOOK_S = 0.01


class Probe:
    def __init__(self, fields, scale):
        self.path, self.port = fields["httpGet"]["path"], fields["httpGet"]["port"]
        self.period_s, self.threshold = fields.get("periodSeconds", 10) * scale, fields.get("failureThreshold", 3)
        self.due = 0.0
        self.n_asked, self.n_failures = 0, 0  # failures: one after the other
        self.answers = set()  # statuses; None: no answer

    def ask(self, address):
        """-> whether it succeeded"""
        status = None
        connection = http.client.HTTPConnection(address, self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", self.path, headers={"User-Agent": "kube-probe/1.37"})
            status = connection.getresponse().status
        self.n_asked += 1
        self.answers.add(status)
        well = status is not None and 200 <= status < 400
        self.n_failures = 0 if well else self.n_failures + 1
        return well


class Kubelet:
    """Watches one pod in a thread, until stop().

    container   of the manifest
    kill        called once, from the thread, when the startup or liveness probe has failed too often
    """

    def __init__(self, namespace, address, container, scale, kill):
        self.namespace, self.address, self.kill = namespace, address, kill
        self.probes = {kind: Probe(container[kind + "Probe"], scale) for kind in KINDS if kind + "Probe" in container}
        self.is_started, self.is_ready = "startup" not in self.probes, False
        self.killed_by = None  # the probe
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def stop(self):
        self.ends.set()
        self.thread.join()

    def run(self):
        enter_namespace(self.namespace)
        while not self.ends.wait(LOOK_S) and self.killed_by is None:
            for kind, probe in self.probes.items():
                if (kind == "startup") != self.is_started and time.monotonic() >= probe.due:
                    self.take(kind, probe, probe.ask(self.address))
                    probe.due = time.monotonic() + probe.period_s

    def take(self, kind, probe, well):
        if kind == "startup" and well:
            self.is_started = True
        elif kind == "readiness" and (well or probe.n_failures >= probe.threshold):
            self.is_ready = well
        elif probe.n_failures >= probe.threshold:
            self.is_ready, self.killed_by = False, kind
            self.kill()
