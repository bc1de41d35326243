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

from cloakwork.api.settings import PREFIX, Settings, load_settings
from tests.deploy_files import CHART, Documents, read, run, tool

IMAGE = {"image": {"repository": "registry.example/cloakwork"}}
SHARED = {
    "database": {"existingSecret": "database"},
    "storage": {"url": "s3://cloakwork", "existingSecret": "storage"},
    "auditKey": {"existingSecret": "audit"},
    "settings": {"zoo": False, "memory_key_bytes": 25769803776, "synchronous_seconds": 2.5},
}
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
    for each in (values, read(CHART / "values-gpu.yaml"), EVERYTHING):
        jsonschema.validate(each, schema)
    assert set(values) == set(schema["properties"]) - {"global"}
    named = set(schema["properties"]["settings"]["propertyNames"]["enum"])
    by_the_chart = {
        name.lower()
        for name in re.findall(
            rf"{PREFIX}([A-Z][A-Z_]*)", (CHART / "templates" / "statefulset.yaml").read_text(encoding="utf-8")
        )
    }
    assert named == set(Settings.model_fields) - by_the_chart - {"insecure_local"}


@pytest.mark.parametrize("file", ["values.yaml", "values-gpu.yaml"])
def test_settings_of_values_are_taken(file: str, monkeypatch: pytest.MonkeyPatch):
    for name, value in read(CHART / file)["settings"].items():
        monkeypatch.setenv(PREFIX + name.upper(), str(value))
    load_settings()


def test_templates_ask_for_values_that_exist():
    values = read(CHART / "values.yaml")
    for path in sorted((CHART / "templates").iterdir()):
        for name in re.findall(r"\.Values\.([\w.]+)", path.read_text(encoding="utf-8")):
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
    if helm is None and importlib.util.find_spec("helm_python") is None:
        pytest.skip("neither helm nor the wheel helm-python-sdk is installed here")

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


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "image.repository"),
        ({**IMAGE, "replicas": 2}, "audit key"),
        ({**IMAGE, **SHARED, "replicas": 2, "settings": {}}, "settings.zoo"),
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
