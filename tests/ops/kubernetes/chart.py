# SPDX-License-Identifier: Apache-2.0
"""The chart as Helm renders it, and checks of objects."""
import json
import pathlib

import helm_python
import jsonschema
import kubernetes_validate
import yaml

TOP = pathlib.Path(__file__).parents[3]
KUBERNETES = TOP / "deploy" / "kubernetes"
CHART = KUBERNETES / "tierckpt"
EXAMPLES = KUBERNETES / "examples"
SCHEMAS = pathlib.Path(__file__).parent / "schemas"
VERSION = "1.37.0"

DAEMONSET = {"checkpoints": {"claim": "checkpoints"}}
SIDECAR = {**DAEMONSET, "mode": "sidecar", "training": {"image": "train:1", "program": ["/app/train.py"]}}
MONITORED = {"metrics": {"podMonitor": {"enabled": True}, "rules": {"enabled": True}}}
VALUE_SETS = {
    "daemonset": DAEMONSET,
    "daemonset on the host's network": {**DAEMONSET, "daemonset": {"hostNetwork": True, "hostPID": True}},
    "daemonset, prepared nodes": {**DAEMONSET, "daemonset": {"prepareHostPath": False}},
    "daemonset, percent of the node": {**DAEMONSET, "memory": {"size": "50%"}},
    "daemonset, monitored": {**DAEMONSET, **MONITORED},
    "sidecar": SIDECAR,
    "sidecar, percent of the limit": {**SIDECAR, "memory": {"size": "85%", "limit": "128Gi"}},
    "sidecar, monitored": {**SIDECAR, **MONITORED, "networkPolicy": {"enabled": False}},
    "sidecar, with data": {**SIDECAR, "priorityClassName": "training", "training": {
        **SIDECAR["training"], "jobLabels": {"kueue.x-k8s.io/queue-name": "gpus"}, "env": [{"name": "A", "value": "b"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}], "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "resources": {"limits": {"nvidia.com/gpu": 8}}}},
    "sidecar, other pods": {**SIDECAR, "training": {**SIDECAR["training"], "kind": "none"}},
}


def render(values, name="gpt"):
    """The rendered objects."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name=name, namespace="training")
    return [o for path, text in files.items() if path.endswith(".yaml") for o in yaml.safe_load_all(text) if o]


def only(objects, kind):
    found = [o for o in objects if o["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def pod_of(o):
    return o["spec"]["template"]["spec"]


def agent_of(objects):
    """The agent's container, and its pod."""
    for o in objects:
        if o["kind"] in ("DaemonSet", "Job"):
            pod = pod_of(o)
            for container in pod.get("initContainers", []) + pod["containers"]:
                if container["name"] == "tierckpt-agent":
                    return container, pod
    raise AssertionError("no container is called tierckpt-agent")


def config_of(objects):
    return json.loads(only(objects, "ConfigMap")["data"]["config.json"])


def check(o):
    """Raises if the object is not valid: with the schemas of Kubernetes, or with the one in this folder."""
    schema = SCHEMAS / f"{o['kind'].lower()}.json"
    if not schema.exists():
        kubernetes_validate.validate(o, VERSION, strict=True)
        return
    jsonschema.Draft202012Validator(json.loads(schema.read_text())).validate(o)
    spec = o["spec"].get("template", {}).get("spec", o["spec"])
    for job in spec.get("replicatedJobs", []):
        kubernetes_validate.validate({"apiVersion": "batch/v1", "kind": "Job", **job["template"]}, VERSION, strict=True)
