# SPDX-License-Identifier: Apache-2.0
"""The examples beside the chart."""
import ast

import pytest
import yaml

import chart

MANIFESTS = sorted(p for p in chart.EXAMPLES.glob("*.yaml") if not p.name.endswith(".values.yaml"))
INDEXED_JOB = yaml.safe_load((chart.EXAMPLES / "indexed-job.values.yaml").read_text())


def objects_of(path):
    return [o for o in yaml.safe_load_all(path.read_text()) if o]


def replicated_jobs(o):
    return (o["spec"] if o["kind"] == "JobSet" else o["spec"]["template"]["spec"])["replicatedJobs"]


def trainers_pod(path):
    for o in objects_of(path):
        for job in replicated_jobs(o) if o["kind"] in ("JobSet", "ClusterTrainingRuntime") else []:
            if job["name"] in ("trainers", "node"):
                return job["template"]["spec"]["template"]["spec"]
    raise AssertionError(f"{path.name} has no trainers")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_an_example_is_valid(path):
    for o in objects_of(path):
        chart.check(o)


def test_a_misspelt_field_would_be_found():
    (jobset,) = objects_of(chart.EXAMPLES / "jobset-recreate.yaml")
    jobset["spec"]["failurePolicy"]["restartStrategie"] = "Recreate"
    with pytest.raises(Exception, match="restartStrategie"):
        chart.check(jobset)


def test_the_values_for_an_indexed_job_are_valid():
    objects = chart.render(INDEXED_JOB)
    for o in objects:
        chart.check(o)
    assert chart.only(objects, "Job")["spec"]["completionMode"] == "Indexed"


def by_name(things):
    return {thing["name"]: {k: v for k, v in thing.items() if k != "name"} for thing in things}


def test_the_sidecar_of_the_jobset_is_the_chart_s():
    agent, pod = chart.agent_of(chart.render(INDEXED_JOB))
    ours = trainers_pod(chart.EXAMPLES / "jobset-in-place.yaml")
    (sidecar,) = ours["initContainers"]
    assert by_name(sidecar.pop("env")) == by_name(agent.pop("env"))
    assert sidecar == agent
    for key in ("terminationGracePeriodSeconds", "shareProcessNamespace", "securityContext", "tolerations", "affinity"):
        assert ours[key] == pod[key]
    rendered = chart.render({**INDEXED_JOB, "training": {**INDEXED_JOB["training"], "kind": "none"}})
    assert {o["kind"] for o in rendered} == {"ConfigMap", "Service", "Deployment", "NetworkPolicy"}


def test_nothing_in_the_jobset_restarts_the_agent():
    # The action RestartAllContainers would: the memory is the agent's.
    text = (chart.EXAMPLES / "jobset-in-place.yaml").read_text()
    assert "action: RestartAllContainers" not in text
    (sidecar,) = trainers_pod(chart.EXAMPLES / "jobset-in-place.yaml")["initContainers"]
    assert "restartPolicyRules" not in sidecar


@pytest.mark.parametrize("name", ["jobset-recreate.yaml", "kubeflow.yaml"])
def test_trainers_find_the_agents_of_the_daemonset(name):
    agent, pod = chart.agent_of(chart.render({**chart.DAEMONSET, "memory": {"size": "8Gi"}}))
    ours = trainers_pod(chart.EXAMPLES / name)
    (train,) = ours["containers"]
    assert ours["securityContext"] == pod["securityContext"]
    for variable in ("TIERCKPT_CONFIG", "TIERCKPT_RUNTIME_DIR", "TIERCKPT_NODE"):
        assert by_name(train["env"])[variable] == by_name(agent["env"])[variable]
    assert all(mount in train["volumeMounts"] for mount in agent["volumeMounts"])
    (wait,) = ours["initContainers"]
    assert {"TIERCKPT_CONFIG", "TIERCKPT_RUNTIME_DIR", "TIERCKPT_NODE"} <= by_name(wait["env"]).keys()
    assert by_name(wait["env"]).items() <= by_name(agent["env"]).items()
    assert wait["command"] == ["tierckpt", "status", "--wait"]
    assert all(mount in agent["volumeMounts"] for mount in wait["volumeMounts"])
    theirs = by_name(pod["volumes"])
    theirs["tierckpt-runtime"]["hostPath"]["type"] = "Directory"  # only the agent's pod may make it
    assert theirs.items() <= by_name(ours["volumes"]).items()


def test_the_program_is_python():
    ast.parse((chart.EXAMPLES / "train.py").read_text())
