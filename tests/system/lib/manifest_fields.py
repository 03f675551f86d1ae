"""The fields of Kubernetes objects that examples/kubernetes uses: their names and types, written by hand. It is not a schema: a field
that no manifest uses is missing. Compared with the published definitions of Kubernetes 1.37, JobSet, Kubeflow Trainer v2, Kubeflow
Training Operator v1, and MPI Operator v2beta1 (November 2026).

A type is a Python type, a set of words, a list of one type, a dictionary of fields, or Map: keys that are names.
"""


class Map:
    def __init__(self, values):
        self.values = values


QUANTITY = (str, int)
LABELS = Map(str)
META = {"name": str, "labels": LABELS}
HTTP_GET = {"path": str, "port": (int, str)}
PROBE = {"httpGet": HTTP_GET, "tcpSocket": {"port": (int, str)}, "periodSeconds": int, "failureThreshold": int}
EXIT_CODES = {"operator": {"In", "NotIn"}, "values": [int]}
CONTAINER = {
    "name": str, "image": str, "command": [str], "args": [str],
    "env": [{"name": str, "value": str, "valueFrom": {"secretKeyRef": {"name": str, "key": str}}}],
    "ports": [{"name": str, "containerPort": int}],
    "startupProbe": PROBE, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "resources": {"limits": Map(QUANTITY)},
    "restartPolicy": {"Never", "OnFailure", "Always"},
    "restartPolicyRules": [{"action": {"Restart"}, "exitCodes": EXIT_CODES}],
    "volumeMounts": [{"name": str, "mountPath": str}],
}
POD = {
    "subdomain": str, "restartPolicy": {"Never", "OnFailure", "Always"}, "terminationGracePeriodSeconds": int,
    "containers": [CONTAINER], "volumes": [{"name": str, "emptyDir": {"medium": {"Memory", ""}, "sizeLimit": QUANTITY}}],
}
POD_TEMPLATE = {"metadata": META, "spec": POD}
JOB = {
    "completionMode": {"Indexed", "NonIndexed"}, "completions": int, "parallelism": int, "backoffLimit": int,
    "podReplacementPolicy": {"Failed", "TerminatingOrFailed"},
    "podFailurePolicy": {"rules": [{"action": {"FailJob", "FailIndex", "Ignore", "Count"},
                                    "onExitCodes": {"containerName": str, **EXIT_CODES},
                                    "onPodConditions": [{"type": str, "status": {"True", "False", "Unknown"}}]}]},
    "template": POD_TEMPLATE,
}
JOB_SET = {
    "network": {"enableDNSHostnames": bool, "publishNotReadyAddresses": bool, "subdomain": str},
    "failurePolicy": {"maxRestarts": int, "restartStrategy": {"Recreate", "BlockingRecreate", "InPlaceRestart"},
                      "rules": [{"name": str, "action": {"FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob",
                                                         "RestartJobAndIgnoreMaxRestarts"},
                                 "onJobFailureReasons": [str]}]},
    "replicatedJobs": [{"name": str, "replicas": int, "template": {"metadata": META, "spec": JOB}}],
}
REPLICA = {"replicas": int, "restartPolicy": {"Never", "OnFailure", "Always", "ExitCode"}, "template": POD_TEMPLATE}
KINDS = {  # (apiVersion, kind) -> the fields of spec
    ("v1", "Service"): {"clusterIP": str, "publishNotReadyAddresses": bool, "selector": LABELS, "ports": [{"name": str, "port": int}]},
    ("batch/v1", "Job"): JOB,
    ("apps/v1", "StatefulSet"): {"serviceName": str, "replicas": int, "podManagementPolicy": {"Parallel", "OrderedReady"},
                                 "selector": {"matchLabels": LABELS}, "template": POD_TEMPLATE},
    ("apps/v1", "Deployment"): {"replicas": int, "strategy": {"type": {"Recreate", "RollingUpdate"}},
                                "selector": {"matchLabels": LABELS}, "template": POD_TEMPLATE},
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOB_SET,
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): {
        "mlPolicy": {"numNodes": int, "torch": {}}, "template": {"spec": JOB_SET}},
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): {
        "runtimeRef": {"name": str},
        "trainer": {"numNodes": int, "numProcPerNode": int, "command": [str], "resourcesPerNode": {"limits": Map(QUANTITY)}}},
    ("kubeflow.org/v1", "PyTorchJob"): {"nprocPerNode": str, "pytorchReplicaSpecs": {"Master": REPLICA, "Worker": REPLICA}},
    ("kubeflow.org/v2beta1", "MPIJob"): {
        "slotsPerWorker": int, "sshAuthMountPath": str, "mpiImplementation": {"OpenMPI", "Intel", "MPICH"},
        "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
        "runPolicy": {"cleanPodPolicy": {"None", "Running", "All"}, "backoffLimit": int},
        "mpiReplicaSpecs": {"Launcher": REPLICA, "Worker": REPLICA}},
}


def find_faults(value, fields, path):
    """What of a value is not of its type: a list of texts."""
    if isinstance(fields, Map):
        return [] if not isinstance(value, dict) else sum((find_faults(v, fields.values, f"{path}.{k}") for k, v in value.items()), [])
    if isinstance(fields, dict):
        if not isinstance(value, dict):
            return [f"{path}: expected fields"]
        unknown = [f"{path}.{key}: an unknown field" for key in value if key not in fields]
        return sum((find_faults(v, fields[k], f"{path}.{k}") for k, v in value.items() if k in fields), unknown)
    if isinstance(fields, list):
        if not isinstance(value, list):
            return [f"{path}: expected a list"]
        return sum((find_faults(v, fields[0], f"{path}[{i}]") for i, v in enumerate(value)), [])
    is_right = value in fields if isinstance(fields, set) else isinstance(value, fields) and not (
        isinstance(value, bool) and fields is not bool)
    return [] if is_right else [f"{path}: {value!r}, expected {fields}"]


def find_faults_of(document):
    """Of a whole object."""
    fields = KINDS.get((document.get("apiVersion"), document.get("kind")))
    if fields is None:
        return [f"unknown kind {document.get('apiVersion')} {document.get('kind')}"]
    whole = {"apiVersion": str, "kind": str, "metadata": META, "spec": fields}
    return [f"{path}: missing" for path in whole if path not in document] + find_faults(document, whole, document["kind"])
