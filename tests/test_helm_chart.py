"""The Helm chart (deploy/helm): its values follow their schema and name what exists; it renders, and refuses what would not work."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from requirements import needs

from cloakwork.api.settings import PREFIX, Settings, load_settings
from tests.deploy_files import CHART, DEPLOY, Documents, read, run, tool

IMAGE = {"image": {"repository": "registry.example/cloakwork"}}
SHARED = {
    "database": {"existingSecret": "database"},
    "storage": {"url": "s3://cloakwork", "existingSecret": "storage"},
    "auditKey": {"existingSecret": "audit"},
    "settings": {"zoo": False, "memory_key_bytes": 25769803776, "synchronous_seconds": 2.5},
}
FLEET = ("values-fleet.yaml", "values-fleet-gpu.yaml")
VALUES = ("values.yaml", "values-gpu.yaml", *FLEET)
EVERYTHING = {
    **IMAGE,
    **SHARED,
    "replicas": 2,
    "tls": {"existingSecret": "tls"},
    "ingress": {"enabled": True, "host": "fhe.example", "tlsSecret": "public", "className": "nginx"},
    "networkPolicy": {"enabled": True, "from": [{"podSelector": {}}], "egress": [{"to": [{"podSelector": {}}]}]},
    "serviceMonitor": {"enabled": True, "existingSecret": "metrics"},
    "autoscaling": {"enabled": True, "prometheusAddress": "http://prometheus:9090"},
}


def test_values_follow_their_schema_which_has_every_setting():
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = read(CHART / "values.yaml")
    for each in (*(read(CHART / file) for file in VALUES), EVERYTHING):
        jsonschema.validate(each, schema)
    assert set(values) == set(schema["properties"]) - {"global"}
    named = set(schema["properties"]["settings"]["propertyNames"]["enum"])
    pod = (CHART / "templates" / "_pod.tpl").read_text(encoding="utf-8")
    by_the_chart = {name.lower() for name in re.findall(rf"{PREFIX}([A-Z][A-Z_]*)", pod)}
    assert named == set(Settings.model_fields) - by_the_chart - {"insecure_local"}


@pytest.mark.parametrize("file", VALUES)
def test_settings_of_values_are_taken(file: str, monkeypatch: pytest.MonkeyPatch):
    values = read(CHART / file)
    for settings in (each.get("settings", {}) for each in (values, values.get("web", {}), values.get("worker", {}))):
        for name, value in settings.items():
            monkeypatch.setenv(PREFIX + name.upper(), str(value))
    load_settings()


def test_a_pod_has_the_time_to_drain():
    """The grace of every other way to run it, too; the chart computes its own least."""
    drain = Settings.model_fields["drain_seconds"].default
    values = read(CHART / "values.yaml")
    assert values["settings"]["drain_seconds"] == drain and values["terminationGracePeriodSeconds"] == drain + 25
    assert read(DEPLOY / "compose" / "compose.yaml")["x-cloakwork"]["stop_grace_period"] == f"{drain + 25:g}s"
    unit = (DEPLOY / "systemd" / "cloakwork.service").read_text(encoding="utf-8")
    assert f"TimeoutStopSec={drain + 25:g}\n" in unit


def test_templates_ask_for_values_that_exist():
    values = read(CHART / "values.yaml")
    for path in sorted((CHART / "templates").iterdir()):
        for name in re.findall(r"(?:\.Values|\.own|\$own)\.([\w.]+)", path.read_text(encoding="utf-8")):
            found = values
            for part in name.split("."):
                if name == "settings." + part and part in Settings.model_fields:
                    break
                assert part in found, f"{path.name}: {name}"
                found = found[part]


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, Any]], Documents]:
    """The chart's objects with these values: by `helm`, or by its library in the wheel helm-python-sdk."""
    helm, values_file = shutil.which("helm"), tmp_path_factory.mktemp("helm") / "values.json"
    library = importlib.util.find_spec("helm_python")
    needs(helm or library, "neither helm nor its library is installed: 'make deploy-tools' installs that")

    def by_helm(values: dict[str, Any]) -> Documents:
        values_file.write_text(json.dumps(values))
        return [each for each in yaml.safe_load_all(run(helm, "template", "x", CHART, "-f", values_file)) if each]

    def by_library(values: dict[str, Any]) -> Documents:
        import helm_python

        with helm_python.Chart.load(CHART) as chart:
            try:
                files = chart.render(values=values, name="x")
            except helm_python.HelmError as error:
                raise AssertionError(str(error)) from None
        texts = [text for name, text in files.items() if name.endswith(".yaml")]
        return [each for text in texts for each in yaml.safe_load_all(text) if each]

    return by_library if helm is None else by_helm


def one(documents: Documents, kind: str) -> dict[str, Any]:
    (found,) = [each for each in documents if each["kind"] == kind]
    return found


def validate(documents: Documents) -> None:
    """By kubernetes-validate, where it is installed, against its newest schemas."""
    if importlib.util.find_spec("kubernetes_validate") is not None:
        import kubernetes_validate

        for each in documents:
            if each["kind"] not in ("ScaledObject", "ServiceMonitor"):  # of KEDA and the Prometheus operator
                kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_the_chart_with_its_defaults(render: Callable[[dict[str, Any]], Documents]):
    documents = render(IMAGE)
    validate(documents)
    assert {each["kind"] for each in documents} == {"PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"}
    pod = one(documents, "StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": "http", "scheme": "HTTP"}
    assert not any("DATABASE" in each["name"] for each in container["env"])


def test_the_chart_with_everything(render: Callable[[dict[str, Any]], Documents]):
    documents = render(EVERYTHING)
    validate(documents)
    assert {"Ingress", "NetworkPolicy", "ScaledObject", "ServiceMonitor"} <= {each["kind"] for each in documents}
    workload = one(documents, "StatefulSet")["spec"]
    assert "replicas" not in workload  # the autoscaler's
    (container,) = workload["template"]["spec"]["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["CLOAKWORK_MEMORY_KEY_BYTES"] == "25769803776"
    assert environment["CLOAKWORK_SYNCHRONOUS_SECONDS"] == "2.5" and environment["CLOAKWORK_ZOO"] == "false"
    probes = [container[name]["httpGet"]["scheme"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert probes == ["HTTPS"] * 3


def test_the_chart_on_gpus_and_in_maintenance(render: Callable[[dict[str, Any]], Documents]):
    documents = render({**read(CHART / "values-gpu.yaml"), **IMAGE, "maintenance": True})
    validate(documents)
    (container,) = one(documents, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "sleep infinity" in container["command"][-1] and "readinessProbe" not in container


def merged(*maps: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges several files of values."""
    whole: dict[str, Any] = {}
    for each in maps:
        for name, value in each.items():
            both = isinstance(value, dict) and isinstance(whole.get(name), dict)
            whole[name] = merged(whole[name], value) if both else value
    return whole


def roles(documents: Documents) -> dict[str, dict[str, Any]]:
    """The workload of each role, by the setting that its pods have."""
    found = {}
    for each in documents:
        if each["kind"] in ("Deployment", "StatefulSet"):
            (container,) = each["spec"]["template"]["spec"]["containers"]
            (role,) = [one["value"] for one in container["env"] if one["name"] == "CLOAKWORK_ROLE"]
            found[role] = each
    return found


def test_web_processes_and_workers_apart(render: Callable[[dict[str, Any]], Documents]):
    more = {"autoscaling": EVERYTHING["autoscaling"], "serviceMonitor": EVERYTHING["serviceMonitor"]}
    documents = render(merged(read(CHART / "values-fleet.yaml"), IMAGE, more))
    validate(documents)
    workloads = roles(documents)
    assert set(workloads) == {"web", "worker"}
    web, worker = (workloads[role] for role in ("web", "worker"))
    assert (web["kind"], worker["kind"]) == ("Deployment", "StatefulSet")
    assert web["spec"]["replicas"] == 2 and "replicas" not in worker["spec"]  # the autoscaler's
    target = one(documents, "ScaledObject")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("StatefulSet", worker["metadata"]["name"])

    labels = {role: each["spec"]["template"]["metadata"]["labels"] for role, each in workloads.items()}
    front, nodes = [each["spec"]["selector"] for each in documents if each["kind"] == "Service"]
    assert [selects(front, labels[role]) for role in ("web", "worker")] == [True, False], "clients reach web processes"
    assert [selects(nodes, labels[role]) for role in ("web", "worker")] == [True, True], "both are scraped"
    budgets = [each["spec"]["selector"] for each in documents if each["kind"] == "PodDisruptionBudget"]
    assert [[selects(each["matchLabels"], labels[role]) for role in ("web", "worker")] for each in budgets] == [
        [True, False],
        [False, True],
    ]
    for role, each in workloads.items():
        assert selects(each["spec"]["selector"]["matchLabels"], labels[role])
        other = labels["web" if role == "worker" else "worker"]
        assert not selects(each["spec"]["selector"]["matchLabels"], other)
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_workers_on_gpus_beside_web_processes_without(render: Callable[[dict[str, Any]], Documents]):
    documents = render(merged(*(read(CHART / file) for file in FLEET), IMAGE, {"image": {"tag": "cpu"}}))
    validate(documents)
    pods = {role: each["spec"]["template"]["spec"] for role, each in roles(documents).items()}
    containers = {role: pod["containers"][0] for role, pod in pods.items()}
    assert containers["worker"]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" not in containers["web"]["resources"]["limits"]
    assert containers["web"]["image"].endswith(":cpu") and containers["worker"]["image"].endswith(":cuda")
    assert "nodeSelector" in pods["worker"] and "nodeSelector" not in pods["web"]
    settings = {role: {each["name"]: each.get("value") for each in one["env"]} for role, one in containers.items()}
    assert settings["worker"]["CLOAKWORK_DEVICES"] == "cuda:0" and settings["web"]["CLOAKWORK_DEVICES"] == "cpu"
    assert settings["worker"]["CLOAKWORK_DEVICE_KEY_BYTES"] == "25769803776"
    assert any("emptyDir" in each for each in pods["web"]["volumes"] if each["name"] == "data")


def test_maintenance_of_a_fleet_has_no_worker(render: Callable[[dict[str, Any]], Documents]):
    workloads = roles(render(merged(read(CHART / "values-fleet.yaml"), IMAGE, {"maintenance": True})))
    assert workloads["worker"]["spec"]["replicas"] == 0 and workloads["web"]["spec"]["replicas"] > 0


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "image.repository"),
        ({**IMAGE, "replicas": 2}, "audit key"),
        ({**IMAGE, "roles": {"enabled": True}}, "audit key"),
        ({**IMAGE, "settings": {"drain_seconds": 600}}, "at least 625"),
        (
            {**IMAGE, **SHARED, "roles": {"enabled": True}, "worker": {"settings": {"drain_seconds": 60.5}}},
            "at least 86",
        ),
        ({**IMAGE, "worker": {"replica": 2}}, "replica"),
        ({**IMAGE, "settings": {"role": "worker"}}, "role"),
        ({**IMAGE, "settings": {"port": 1}}, "port"),
        ({**IMAGE, "replica": 2}, "replica"),
        ({**IMAGE, "autoscaling": {"enabled": True}}, "prometheusAddress"),
    ],
)
def test_the_chart_refuses(values: dict[str, Any], says: str, render: Callable[[dict[str, Any]], Documents]):
    with pytest.raises(AssertionError, match=says):
        render(values)


def test_helm_lint(tmp_path: Path):
    values = tmp_path / "values.json"
    values.write_text(json.dumps(EVERYTHING))
    if shutil.which("helm") is None and importlib.util.find_spec("helm_python") is not None:
        import helm_python

        assert helm_python.lint(CHART, values=EVERYTHING)["errors"] == []
    else:
        run(tool("helm"), "lint", CHART, "--values", values)
