# SPDX-License-Identifier: Apache-2.0
"""The Helm chart."""
import os
import pathlib
import re
import subprocess

import helm_python
import pytest
import yaml

import chart

each_value_set = pytest.mark.parametrize("values", chart.VALUE_SETS.values(), ids=list(chart.VALUE_SETS))


@each_value_set
def test_helm_finds_nothing_wrong(values):
    found = helm_python.lint(chart.CHART, values, strict=True)
    assert not found["errors"]
    assert [m["error"] for m in found["messages"]] == ["icon is recommended"]


@each_value_set
def test_every_object_is_valid(values):
    objects = chart.render(values)
    assert objects
    for o in objects:
        chart.check(o)


@each_value_set
def test_names_and_labels_agree(values):
    objects = chart.render(values)
    for o in objects:
        selector = o["spec"].get("selector", {}).get("matchLabels") if "spec" in o else None
        if selector is not None and "template" in o["spec"]:
            assert selector.items() <= o["spec"]["template"]["metadata"]["labels"].items()
    names = {(o["kind"], o["metadata"]["name"]) for o in objects}
    assert len(names) == len(objects)


def test_the_store_is_found_by_its_service():
    objects = chart.render(chart.SIDECAR)
    service, store = chart.only(objects, "Service"), chart.only(objects, "Deployment")
    assert service["spec"]["selector"].items() <= store["spec"]["template"]["metadata"]["labels"].items()
    command = chart.pod_of(chart.only(objects, "Job"))["containers"][0]["command"]
    assert f"--rdzv-endpoint={service['metadata']['name']}:{service['spec']['ports'][0]['port']}" in command


@each_value_set
def test_containers_have_no_privileges(values):
    for o in chart.render(values):
        if o["kind"] not in ("DaemonSet", "Job", "Deployment"):
            continue
        pod = chart.pod_of(o)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod.get("initContainers", []) + pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"]["drop"] == ["ALL"]
            assert security["capabilities"].get("add", []) == (
                ["CHOWN"] if container["name"] == "own-runtime-directory" else [])
            assert security.get("readOnlyRootFilesystem") is True or container["name"] == "train"


def test_a_sidecar_may_run_in_a_restricted_namespace():
    pod = chart.pod_of(chart.only(chart.render(chart.SIDECAR), "Job"))
    assert not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    assert all({"emptyDir", "configMap", "persistentVolumeClaim"} & v.keys() for v in pod["volumes"])
    assert all("runAsUser" not in c["securityContext"] for c in pod["initContainers"] + pod["containers"])


def test_a_sidecar_starts_first_and_stays():
    agent, pod = chart.agent_of(chart.render(chart.SIDECAR))
    assert agent in pod["initContainers"]
    assert agent["restartPolicy"] == "Always"
    assert "startupProbe" in agent


def test_the_runtime_directory_of_a_sidecar_is_in_memory():
    # Only there it is sticky; the agent refuses a directory in which other users can replace files.
    _, pod = chart.agent_of(chart.render(chart.SIDECAR))
    volume = next(v for v in pod["volumes"] if v["name"] == "tierckpt-runtime")
    assert volume["emptyDir"]["medium"] == "Memory"


def test_trainers_have_what_the_values_add():
    job = chart.only(chart.render(chart.VALUE_SETS["sidecar, with data"]), "Job")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    pod = chart.pod_of(job)
    train = pod["containers"][0]
    assert {"name": "data", "mountPath": "/data"} in train["volumeMounts"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data"}} in pod["volumes"]
    assert {"name": "A", "value": "b"} in train["env"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]
    assert train["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert pod["priorityClassName"] == "training"


def test_trainers_have_what_the_agent_has():
    objects = chart.render(chart.SIDECAR)
    agent, pod = chart.agent_of(objects)
    train = pod["containers"][0]
    assert all(mount in train["volumeMounts"] for mount in agent["volumeMounts"])
    for name in ("TIERCKPT_CONFIG", "TIERCKPT_RUNTIME_DIR", "TIERCKPT_NODE"):
        assert next(e for e in agent["env"] if e["name"] == name) in train["env"]


def memory_of(values):
    objects = chart.render(values)
    agent, _ = chart.agent_of(objects)
    return chart.config_of(objects).get("memory_cap_bytes"), agent["resources"], {e["name"]: e for e in agent["env"]}


def test_memory_as_an_amount_has_a_limit_with_room():
    cap, resources, env = memory_of({**chart.DAEMONSET, "memory": {"size": "64Gi", "overhead": "1Gi"}})
    assert cap == "64GiB"
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == f"{65536 + 3277 + 1024}Mi"
    assert "TIERCKPT_MEMORY_PERCENT" not in env


@pytest.mark.parametrize("limit", ["128Gi", ""])
def test_memory_as_a_percentage_is_of_the_limit_or_of_the_node(limit):
    cap, resources, env = memory_of({**chart.DAEMONSET, "memory": {"size": "85%", "limit": limit}})
    assert cap is None
    assert env["TIERCKPT_MEMORY_PERCENT"]["value"] == "85"
    # Kubernetes puts in what the node has for pods if the container has no limit.
    assert env["TIERCKPT_MEMORY_LIMIT"]["valueFrom"]["resourceFieldRef"]["resource"] == "limits.memory"
    assert resources.get("limits", {}).get("memory", "") == limit


@pytest.mark.parametrize("values, seconds", [(chart.DAEMONSET, 60 + 5), (chart.SIDECAR, 60 + 5 + 35)])
def test_the_system_grants_the_time_of_a_drain(values, seconds):
    objects = chart.render(values)
    assert chart.config_of(objects)["grace_s"] == 60
    assert chart.agent_of(objects)[1]["terminationGracePeriodSeconds"] == seconds
    longer = chart.render({**values, "terminationGracePeriodSeconds": 600})
    assert chart.agent_of(longer)[1]["terminationGracePeriodSeconds"] == 600


def test_the_memory_is_not_freed_by_a_probe_before_the_supervisor_frees_it():
    for linger_s in (10, 600, 86400):
        agent, _ = chart.agent_of(chart.render({**chart.DAEMONSET, "config": {"linger_s": linger_s}}))
        probe = agent["livenessProbe"]
        assert probe["periodSeconds"] * (probe["failureThreshold"] - 1) > linger_s


def test_the_alerts_are_those_of_prometheus():
    rules = yaml.safe_load((chart.TOP / "deploy/prometheus/tierckpt.rules.yml").read_text())
    assert chart.only(chart.render({**chart.DAEMONSET, **chart.MONITORED}), "PrometheusRule")["spec"] == rules


def test_metrics_are_scraped_under_the_name_that_the_alerts_expect():
    for values in (chart.DAEMONSET, chart.SIDECAR):
        objects = chart.render({**values, **chart.MONITORED})
        monitor = chart.only(objects, "PodMonitor")["spec"]
        agent, _ = chart.agent_of(objects)
        port = next(p for p in agent["ports"] if p["name"] == monitor["podMetricsEndpoints"][0]["port"])
        assert chart.config_of(objects)["metrics_listen"] == f"0.0.0.0:{port['containerPort']}"
        assert {"targetLabel": "job", "replacement": "tierckpt"} in monitor["podMetricsEndpoints"][0]["relabelings"]
        workload = next(o for o in objects if o["kind"] in ("DaemonSet", "Job"))
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
        assert labels["app.kubernetes.io/component"] in monitor["selector"]["matchExpressions"][0]["values"]


@each_value_set
def test_tierckpt_accepts_the_configuration(values, tmp_path):
    command = pathlib.Path(os.environ["TCK_BUILD"]) / "runtime/cli/tierckpt"
    if not command.exists():
        pytest.skip("the command tierckpt is not built")
    file = tmp_path / "config.json"
    file.write_text(chart.only(chart.render(values), "ConfigMap")["data"]["config.json"])
    done = subprocess.run([command, "--config", file, "config"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


WRONG = {
    "no claim": ({}, "/checkpoints/claim"),
    "unknown mode": ({"mode": "deployment"}, "'/mode': value must be one of 'daemonset', 'sidecar'"),
    "misspelt value": ({"graceSecond": 5}, "'graceSecond' not allowed"),
    "misspelt value inside": ({"memory": {"sise": "1Gi"}}, "'sise' not allowed"),
    "decimal unit": ({"memory": {"size": "64GB"}}, "'/memory/size': '64GB' does not match"),
    "more than everything": ({"memory": {"size": "101%"}}, "'/memory/size': '101%' does not match"),
    "limit beside an amount": ({"memory": {"size": "8Gi", "limit": "9Gi"}}, "memory.limit is only for a"),
    "root": ({"user": 0}, "'/user': minimum: got 0, want 1"),
    "no program": ({"mode": "sidecar", "training": {"image": "train:1"}}, "'/training/program'"),
    "no image": ({"mode": "sidecar", "training": {"program": ["/app/train.py"]}}, "'/training/image'"),
    "too little time": ({"terminationGracePeriodSeconds": 30}, "has to be at least 65: graceSeconds (60)"),
    "a key of the chart's": ({"config": {"save_dir": "/x"}}, "from the value checkpoints: remove it"),
    "unseen trainers": ({"config": {"on_node_loss": "end_trainers"}}, "set daemonset.hostPID to true"),
    "unseen trainers in the pod": ({**chart.SIDECAR, "config": {"on_node_loss": "end_trainers"},
                                    "training": {**chart.SIDECAR["training"], "shareProcessNamespace": False}},
                                   "set training.shareProcessNamespace to true"),
}


@pytest.mark.parametrize("values, said", WRONG.values(), ids=list(WRONG))
def test_wrong_values_are_refused(values, said):
    if said != "/checkpoints/claim":
        values = {**chart.DAEMONSET, **values}
    with pytest.raises(helm_python.HelmError, match=re.escape(said)):
        chart.render(values)


def leaves(values, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict) and value and prefix + key != "config":
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def test_the_readme_has_each_value():
    values = set(leaves(yaml.safe_load((chart.CHART / "values.yaml").read_text())))
    documented = re.findall(r"^\| `([a-zA-Z.]+)` \|", (chart.CHART / "README.md").read_text(), re.MULTILINE)
    assert sorted(documented) == sorted(values)
