"""examples/managers: what is there to be copied is what ddprun, Slurm's shell and a cluster take. Under a real Slurm the batch scripts
run in slurm_forms.py; no cluster was at hand for the manifests.

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

DDPRUN = os.path.abspath(os.environ["DDPRUN"])
DDP_RENDEZVOUS = os.environ["DDP_RENDEZVOUS"]
ROOT = os.environ["SOURCE_ROOT"]
SAMPLES = os.path.join(ROOT, "examples/managers")
UNIT = os.path.join(os.environ["BUILD_ROOT"], "packaging/ddp-rendezvous.service")
PORT = 29400  # docs/reference/scheduler-detection.md

# Doubles of Slurm's programs: each does what one node's part of it comes to. And ddprun shows what it would start.
DOUBLES = {
    "srun": 'for word; do case $word in -*) shift ;; *) break ;; esac; done; exec "$@"',
    "scontrol": "printf 'n1\\nn2\\nn3\\nn4\\n'",
    "ddprun": f'exec {DDPRUN} --dry-run "$@"',
}

# A pod's host name, and how it is looked up.
ENTER = 'hostname train-1 && mount --bind "$1" /etc/hosts && shift && exec "$@"'


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
            self.assertEqual(len(scripts), 3)
            for name in scripts:
                with self.subTest(name):
                    done = subprocess.run(["bash", sample(name)], cwd=folder, capture_output=True, text=True, timeout=60,
                                          env=clean_env(PATH=folder + ":" + os.environ["PATH"], SLURM_JOB_NODELIST="n[1-4]"))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("train.py", done.stdout)


@unittest.skipIf(yaml is None, "there is no Python module yaml")
class Manifests(unittest.TestCase):
    def documents(self, name):
        with open(sample(name), encoding="utf-8") as f:
            documents = list(yaml.safe_load_all(f))
        for document in documents:
            self.assertEqual({"apiVersion", "kind", "metadata", "spec"}, set(document))
        return {document["kind"]: document for document in documents}

    def dry_run(self, words, **env):
        """As the command of pod 1 of four."""
        if lacks_namespaces("--mount", "--uts"):
            self.skipTest(lacks_namespaces("--mount", "--uts"))
        self.assertEqual(words[0], "ddprun")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "hosts"), "w", encoding="utf-8") as f:
                f.write("127.0.0.1 localhost\n127.0.0.1 train-1.train.default.svc.cluster.local train-1\n")
            shutil.copy(__file__, os.path.join(folder, "train.py"))
            done = subprocess.run(["unshare", "--mount", "--uts", "sh", "-c", ENTER, "sh", os.path.join(folder, "hosts"), DDPRUN,
                                   "--dry-run", *words[1:]], cwd=folder, env=clean_env(HOME="/nonexistent", **env),
                                  capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_pod(self, template, names):
        """The parts of a pod name each other, and what they should."""
        spec = template["spec"]
        self.assertGreater(spec["terminationGracePeriodSeconds"], 30)
        container, = spec["containers"]
        volumes = [volume["name"] for volume in spec.get("volumes", [])]
        self.assertEqual([mount["name"] for mount in container.get("volumeMounts", [])], volumes)
        token, = [v["valueFrom"]["secretKeyRef"] for v in container["env"] if v["name"] == "DDP_TOKEN"]
        self.assertEqual(token, {"name": "train", "key": "token"})
        if "subdomain" in spec:
            self.assertIn(spec["subdomain"], names)
        return container["command"]

    def test_the_job_s_pods_find_each_other(self):
        parts = self.documents("job.yaml")
        service, job = parts["Service"], parts["Job"]
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})  # a label that each pod of a Job gets
        command = self.check_pod(job["spec"]["template"], [service["metadata"]["name"]])
        self.assertEqual(job["spec"]["completionMode"], "Indexed")
        self.assertEqual(job["spec"]["completions"], job["spec"]["parallelism"])
        self.assertEqual(command[command.index("--nnodes") + 1], str(job["spec"]["completions"]))
        self.dry_run(command, JOB_COMPLETION_INDEX="1")

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
        self.assertEqual({name for name in os.listdir(SAMPLES) if name.endswith(".yaml")},
                         {"job.yaml", "elastic.yaml", "rendezvous.yaml", "pytorchjob.yaml"})


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
