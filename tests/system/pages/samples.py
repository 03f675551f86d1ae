"""examples/managers and examples/kubernetes: what is there to be copied is what ddprun, Slurm's shell and a cluster take. Under a real
Slurm the batch scripts run in slurm_forms.py; pod_failures.py runs job.yaml on pods of namespaces. No cluster was at hand.

Covers: launcher/options, launcher/job, rendezvous/daemon
"""
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

from facilities import lacks_namespaces
from manifest_fields import find_faults_of

DDPRUN = os.path.abspath(os.environ["DDPRUN"])
DDP_RENDEZVOUS = os.environ["DDP_RENDEZVOUS"]
ROOT = os.environ["SOURCE_ROOT"]
SAMPLES = os.path.join(ROOT, "examples/managers")
MANIFESTS = os.path.join(ROOT, "examples/kubernetes")
RANKS_GRACE_S = 30  # of ddprun, after a signal
UNIT = os.path.join(os.environ["BUILD_ROOT"], "packaging/ddp-rendezvous.service")
PORT = 29400  # docs/reference/scheduler-detection.md

# Test doubles of Slurm's programs for one node, and a ddprun that shows what it would start.
DOUBLES = {
    "srun": 'for word; do case $word in -*) shift ;; *) break ;; esac; done; exec "$@"',
    "scontrol": "printf 'n1\\nn2\\nn3\\nn4\\n'",
    "ddprun": f'exec {DDPRUN} --dry-run "$@"',
}

# A pod's host name, and how it is looked up.
ENTER = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


def sample(name):
    return os.path.join(SAMPLES, name)


def clean_env(**more):
    return {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PET_", "DDP_", "KUBERNETES_"))} | more


class Hosts(unittest.TestCase):
    def test_the_host_file_is_read(self):
        done = subprocess.run([DDPRUN, "--hostfile", sample("hosts"), "--dry-run", "-n", "20", "true"], env=clean_env(),
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(re.findall(r"^(\S+): (\d+) ranks", done.stdout, re.MULTILINE),
                         [("node1", "8"), ("node2", "4"), ("node3", "4"), ("node04", "2"), ("node05", "2")])


class Batch(unittest.TestCase):
    def test_ddprun_accepts_the_lines_of_the_batch_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in DOUBLES.items():
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(f"#!/bin/sh\n{text}\n")
                os.chmod(path, 0o700)
            scripts = [name for name in os.listdir(SAMPLES) if name.endswith(".sbatch")]
            self.assertEqual(len(scripts), 4)
            for name in scripts:
                with self.subTest(name), open(sample(name), encoding="utf-8") as f:
                    # with spares ddprun has to find the allocation, and shows how it starts itself on its hosts
                    finds = "--spares" in f.read()
                    more = {"SLURM_JOB_ID": "7", "SLURM_TASKS_PER_NODE": "1(x4)"} if finds else {}
                    done = subprocess.run(["bash", sample(name)], cwd=folder, capture_output=True, text=True, timeout=60,
                                          env=clean_env(PATH=folder + ":" + os.environ["PATH"], SLURM_JOB_NODELIST="n[1-4]", **more))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("\nn4: " if finds else "train.py", done.stdout)


@unittest.skipIf(yaml is None, "there is no Python module yaml")
class Manifests(unittest.TestCase):
    def documents(self, name):
        with open(os.path.join(MANIFESTS, name), encoding="utf-8") as f:
            documents = list(yaml.safe_load_all(f))
        return {document["kind"]: document for document in documents}

    def dry_run(self, words, host="train-1", also=(), **env):
        """As the command of pod 1 of four. -> what ddprun would do"""
        if lacks_namespaces("--mount", "--uts"):
            self.skipTest(lacks_namespaces("--mount", "--uts"))
        self.assertEqual(words[0], "ddprun")
        with tempfile.TemporaryDirectory() as folder:
            hosts = os.path.join(folder, "hosts")
            with open(hosts, "w", encoding="utf-8") as f:
                f.write(f"127.0.0.1 localhost\n127.0.0.1 {host}.train.default.svc.cluster.local {host}\n")
            shutil.copy(__file__, os.path.join(folder, "train.py"))
            shutil.copy("/bin/true", os.path.join(folder, "train"))
            for name, text in also:
                with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                    f.write(text)
            done = subprocess.run(["unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh", host, hosts, DDPRUN, "--dry-run", *words[1:]],
                                  cwd=folder, env=clean_env(HOME="/nonexistent", **env), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def check_policy(self, job, container):
        """The statuses are those of docs/reference/exit-status.md, and a real controller accepts the policy."""
        with open(os.path.join(ROOT, "docs/reference/exit-status.md"), encoding="utf-8") as f:
            page = f.read()
        self.assertEqual(job["podReplacementPolicy"], "Failed")  # required with a podFailurePolicy
        self.assertEqual(job["template"]["spec"]["restartPolicy"], "Never")  # too
        actions = {}
        for rule in job["podFailurePolicy"]["rules"]:
            self.assertEqual(len({"onExitCodes", "onPodConditions"} & set(rule)), 1)
            codes = rule.get("onExitCodes")
            if codes is None:
                self.assertEqual(rule["onPodConditions"], [{"type": "DisruptionTarget", "status": "True"}])
                continue
            self.assertEqual(codes["containerName"], container["name"])
            self.assertEqual(codes["values"], sorted(set(codes["values"]) - {0}))
            actions.update(dict.fromkeys(codes["values"], rule["action"]))
        self.assertEqual(actions, {**dict.fromkeys((2, 77, 78, 79, 126, 127), "FailJob"), 75: "Ignore", 143: "Ignore"})
        for code in set(actions) - {143}:
            self.assertIn(f"\n| {code} | ", page)

    def check_times(self, spec, command):
        """The grace period leaves time for --on-term and for the ranks after it; probes ask the port of --http."""
        option = {word: command[i + 1] for i, word in enumerate(command[:-1]) if word.startswith("--")}
        on_term_s = int(option.get("--on-term", "0s").removesuffix("s"))
        self.assertGreater(spec["terminationGracePeriodSeconds"], on_term_s + RANKS_GRACE_S)
        container, = spec["containers"]
        ports = {container[probe]["httpGet"]["port"] for probe in ("startupProbe", "livenessProbe", "readinessProbe") if probe in container}
        self.assertEqual(ports, {int(option["--http"].rpartition(":")[2])} if "--http" in option else set())

    def check_pod(self, template, names, token=True):
        """The parts of a pod name each other, and what they should. -> its command"""
        spec = template["spec"]
        container, = spec["containers"]
        volumes = [volume["name"] for volume in spec.get("volumes", [])]
        self.assertEqual([mount["name"] for mount in container.get("volumeMounts", [])], volumes)
        tokens = [v["valueFrom"]["secretKeyRef"] for v in container.get("env", []) if v["name"] == "DDP_TOKEN"]
        self.assertEqual(tokens, [{"name": "train", "key": "token"}] if token else [])
        if "subdomain" in spec:
            self.assertIn(spec["subdomain"], names)
        command = container.get("command")
        if command is not None and command[0] == "ddprun":
            self.check_times(spec, command)
        return command

    def test_each_field_is_known(self):
        for name in sorted(os.listdir(MANIFESTS)):
            with self.subTest(name), open(os.path.join(MANIFESTS, name), encoding="utf-8") as f:
                for document in yaml.safe_load_all(f):
                    self.assertEqual(find_faults_of(document), [])

    def test_a_wrong_field_is_found(self):
        job = self.documents("job.yaml")["Job"]
        self.assertEqual(find_faults_of({**job, "kind": "Jobs"}), ["unknown kind batch/v1 Jobs"])
        for name, value in ("completion", 4), ("completions", "4"), ("completions", True), ("completionMode", "indexed"), ("template", []):
            changed = {**job, "spec": {**job["spec"], name: value}}
            self.assertEqual(len(find_faults_of(changed)), 1, (name, value))

    def test_the_job_s_pods_find_each_other(self):
        parts = self.documents("job.yaml")
        service, job = parts["Service"], parts["Job"]
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})  # a label that each pod of a Job gets
        command = self.check_pod(job["spec"]["template"], [service["metadata"]["name"]])
        self.check_indexed(job["spec"], command)
        self.dry_run(command, JOB_COMPLETION_INDEX="1")

    def check_indexed(self, job, command):
        self.assertEqual(job["completionMode"], "Indexed")
        self.assertEqual(job["completions"], job["parallelism"])
        self.assertEqual(command[command.index("--nnodes") + 1], str(job["completions"]))
        self.check_policy(job, job["template"]["spec"]["containers"][0])

    def test_the_pods_of_a_job_set_find_each_other(self):
        spec = self.documents("jobset.yaml")["JobSet"]["spec"]
        self.assertEqual(spec["network"], {"enableDNSHostnames": True, "publishNotReadyAddresses": True})
        part, = spec["replicatedJobs"]
        self.assertEqual(part["replicas"], 1)
        job = part["template"]["spec"]
        command = self.check_pod(job["template"], [])
        self.check_indexed(job, command)
        container = job["template"]["spec"]["containers"][0]
        self.assertEqual(container["restartPolicy"], "Never")  # required with restartPolicyRules
        self.assertEqual(container["restartPolicyRules"], [{"action": "Restart", "exitCodes": {"operator": "In", "values": [75]}}])
        self.dry_run(command, host=f"train-{part['name']}-0-1", JOB_COMPLETION_INDEX="1", KUBERNETES_SERVICE_HOST="10.96.0.1")

    def test_the_pods_of_a_train_job_get_options(self):
        parts = self.documents("trainjob.yaml")
        runtime, trains = parts["ClusterTrainingRuntime"], parts["TrainJob"]["spec"]
        self.assertEqual(trains["runtimeRef"]["name"], runtime["metadata"]["name"])
        part, = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        self.assertEqual(part["template"]["metadata"]["labels"], {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"})
        job, command = part["template"]["spec"], trains["trainer"]["command"]
        self.check_pod(job["template"], [])
        container, = job["template"]["spec"]["containers"]
        self.assertEqual((part["name"], container["name"]), ("node", "node"))  # what the controller looks for
        self.check_policy(job, container)
        self.check_times(job["template"]["spec"], command)
        self.dry_run(command, host="train-node-0-1", JOB_COMPLETION_INDEX="1", KUBERNETES_SERVICE_HOST="10.96.0.1",
                     PET_NNODES=str(trains["trainer"]["numNodes"]), PET_NPROC_PER_NODE=str(trains["trainer"]["numProcPerNode"]),
                     PET_NODE_RANK="1", PET_MASTER_ADDR="train-node-0-0.train", PET_MASTER_PORT="29500")

    def test_the_launcher_of_an_mpi_job_starts_the_workers(self):
        spec = self.documents("mpijob.yaml")["MPIJob"]["spec"]
        launcher, worker = (spec["mpiReplicaSpecs"][name] for name in ("Launcher", "Worker"))
        command = self.check_pod(launcher["template"], [], token=False)
        self.assertEqual(self.check_pod(worker["template"], [], token=False)[0], "/usr/sbin/sshd")
        self.assertEqual(spec["launcherCreationPolicy"], "WaitForWorkersReady")
        slots, n = spec["slotsPerWorker"], worker["replicas"]
        lines = "".join(f"train-worker-{i}.train.default.svc slots={slots}\n" for i in range(n))
        said = self.dry_run(command, host="train-launcher", also=[("hostfile", lines)], KUBERNETES_SERVICE_HOST="10.96.0.1",
                            OMPI_MCA_orte_default_hostfile="hostfile", K_MPI_JOB_ROLE="launcher")
        self.assertEqual(re.findall(r"^(\S+): (\d+) ranks", said, re.MULTILINE),
                         [(f"train-worker-{i}.train.default.svc", str(slots)) for i in range(n)])

    def test_an_elastic_job_uses_the_endpoint_of_the_other_manifest(self):
        parts, place = self.documents("elastic.yaml"), self.documents("rendezvous.yaml")
        service, pods = parts["Service"], parts["StatefulSet"]
        self.assertEqual(pods["spec"]["serviceName"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"], pods["spec"]["template"]["metadata"]["labels"])
        self.assertEqual(pods["spec"]["selector"]["matchLabels"], pods["spec"]["template"]["metadata"]["labels"])
        command = self.check_pod(pods["spec"]["template"], [])
        self.assertEqual(command[command.index("--rdzv-endpoint") + 1], place["Service"]["metadata"]["name"])
        self.assertEqual(command[command.index("--nnodes") + 1].split(":")[1], str(pods["spec"]["replicas"]))
        self.dry_run(command, KUBERNETES_SERVICE_HOST="10.0.0.1")

    def test_the_rendezvous_listens_at_its_service_port(self):
        parts = self.documents("rendezvous.yaml")
        service, deployment = parts["Service"]["spec"], parts["Deployment"]["spec"]
        self.assertEqual(service["selector"], deployment["template"]["metadata"]["labels"])
        self.assertEqual(deployment["selector"]["matchLabels"], service["selector"])
        container, = deployment["template"]["spec"]["containers"]
        self.assertEqual([port["port"] for port in service["ports"]], [PORT])
        self.assertEqual([(port["name"], port["containerPort"]) for port in container["ports"]], [("rendezvous", PORT)])
        for probe in "readinessProbe", "livenessProbe":
            self.assertEqual(container[probe]["httpGet"], {"path": "/healthz", "port": "rendezvous"})
        program, *words = container["command"]
        self.assertEqual(program, "ddp-rendezvous")
        text = subprocess.run([DDP_RENDEZVOUS, "--help"], capture_output=True, text=True, timeout=60).stdout
        for word in words:
            if word.startswith("-"):
                self.assertRegex(text, rf"(?<![\w-]){re.escape(word)}(?![\w-])")

    def test_a_pytorchjob_s_variables_are_options(self):
        job = self.documents("pytorchjob.yaml")["PyTorchJob"]["spec"]
        replicas = job["pytorchReplicaSpecs"]
        n_nodes = sum(part["replicas"] for part in replicas.values())
        self.assertEqual(n_nodes, 4)
        for part in replicas.values():
            self.dry_run(self.check_pod(part["template"], []), PET_NNODES=str(n_nodes), PET_NODE_RANK="1",
                         PET_NPROC_PER_NODE=job["nprocPerNode"], PET_MASTER_ADDR="train-master-0", PET_MASTER_PORT="23456")

    def test_every_manifest_is_tested(self):
        self.assertEqual(set(os.listdir(MANIFESTS)),
                         {"job.yaml", "jobset.yaml", "elastic.yaml", "rendezvous.yaml", "pytorchjob.yaml", "trainjob.yaml", "mpijob.yaml"})


@unittest.skipIf(shutil.which("systemd-analyze") is None, "there is no systemd-analyze")
class Unit(unittest.TestCase):
    """packaging/ddp-rendezvous.service"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.unit = os.path.join(folder.name, "ddp-rendezvous.service")
        with open(UNIT, encoding="utf-8") as f:
            text = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=" + os.path.abspath(DDP_RENDEZVOUS), f.read())
        with open(self.unit, "w", encoding="utf-8") as f:
            f.write(text)

    def test_systemd_reads_it(self):
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", self.unit], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_unit_is_hardened(self):
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=25", self.unit],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)

    @unittest.skipIf(os.geteuid() != 0, "not root")
    def test_a_credential_is_read_by_the_user_that_its_access_control_list_names(self):
        """systemd 255 and later leave the file to root, and name the service's user in a list: the mode shows as 0440."""
        folder, uid = os.path.dirname(self.unit), 61234
        program, token = (os.path.join(folder, name) for name in ("ddp-rendezvous", "token"))
        os.chmod(folder, 0o711)
        shutil.copy(DDP_RENDEZVOUS, program)
        with open(token, "w", encoding="ascii") as f:
            f.write("0123456789abcdef" * 4)
        os.chmod(token, 0o400)
        command = [program, "-b", "127.0.0.1:0", "--token-file", token]
        for mask in (4, 0):  # ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER
            entries = ((1, 4, 2**32 - 1), (2, 4, uid), (4, 0, 2**32 - 1), (16, mask, 2**32 - 1), (32, 0, 2**32 - 1))
            try:
                os.setxattr(token, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries))
            except OSError as e:
                self.skipTest(f"{folder} has no access control lists: {e.strerror}")
            with subprocess.Popen(command, user=uid, group=uid, extra_groups=[], stderr=subprocess.PIPE, env={}) as daemon:
                line = daemon.stderr.readline().decode()
                self.assertIn("serving on 127.0.0.1" if mask else "Permission denied", line)
                daemon.terminate()


if __name__ == "__main__":
    unittest.main()
