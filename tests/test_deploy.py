"""The operations kit (deploy/): it names metrics, settings, routes and states that exist, and tools that are here find its files in order."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client.metrics import MetricWrapperBase
from self_signed import certificate

from cloakwork.api import errors
from cloakwork.api.metrics import Metrics
from cloakwork.api.routes import health
from cloakwork.api.service.jobs.store import STATES
from cloakwork.api.settings import FILE_VARIABLE, PREFIX, Settings, load_settings
from cloakwork.fhe_core.parameters import (
    expanded_bootstrap_key_bytes,
    expanded_keyswitch_key_bytes,
    parameter_set,
    upload_bytes,
)
from tests.deploy_files import CHART, DEPLOY, ROOT, read, run, tool

COMPOSE = DEPLOY / "compose"
MONITORING = DEPLOY / "monitoring"
FILES = sorted(
    path for path in DEPLOY.rglob("*") if path.is_file() and path.name != ".env" and path.parent.name != "secrets"
)
PLAIN_YAML = [path for path in FILES if path.suffix == ".yaml" and "templates" not in path.parts]


# --- names of this code ---


@pytest.mark.parametrize("path", PLAIN_YAML, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_yaml_parses(path: Path):
    assert isinstance(read(path), dict)


PROCESS_METRICS = (
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_open_fds",
)  # of prometheus_client, of those here used


def samples() -> dict[str, set[str]]:
    """Every series of the service with its labels, as Prometheus has them."""
    found: dict[str, set[str]] = {name: set() for name in ("up", *PROCESS_METRICS)}
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            labels = set(metric._labelnames)
            match family.type:
                case "counter":
                    found[f"{family.name}_total"] = labels
                case "gauge":
                    found[family.name] = labels
                case "histogram":
                    found |= {f"{family.name}_{part}": labels for part in ("sum", "count")}
                    found[f"{family.name}_bucket"] = labels | {"le"}
    return found


def panels() -> dict[str, str]:
    dashboard = json.loads((MONITORING / "grafana" / "cloakwork.json").read_text(encoding="utf-8"))
    return {
        f"{panel['title']}, {each['refId']}": each["expr"] for panel in dashboard["panels"] for each in panel["targets"]
    }


def expressions() -> dict[str, str]:
    rules = read(MONITORING / "alerts.yaml")["groups"][0]["rules"]
    found = {rule["alert"]: rule["expr"] for rule in rules} | panels()
    assert len(found) == len(rules) + len(panels())
    dashboard = json.loads((MONITORING / "grafana" / "cloakwork.json").read_text(encoding="utf-8"))
    found |= {each["label"]: each["query"]["query"] for each in dashboard["templating"]["list"]}
    return found | {"autoscaling": read(CHART / "values.yaml")["autoscaling"]["query"]}


TARGET_LABELS = {"instance", "job"}
VALUES = {
    "state": set(STATES),
    "reason": {each.code for each in vars(errors).values() if isinstance(each, type) and hasattr(each, "code")},
    "job": {"cloakwork"},
    "role": set(get_args(Settings.model_fields["role"].annotation)),
}


@pytest.mark.parametrize(("name", "expression"), expressions().items())
def test_metrics_labels_and_their_values_exist(name: str, expression: str):
    known = samples()
    series = re.findall(r"\b(fhe_\w+|process_\w+|up)\b(?:\{([^}]*)\})?", expression)
    assert series
    for metric, matchers in series:
        assert metric in known
        for label, values in re.findall(r'(\w+)\s*[=!]~?\s*"([^"]*)"', matchers):
            assert label in known[metric] | TARGET_LABELS
            assert set(values.split("|")) <= VALUES.get(label, set(values.split("|")))
    grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
    assert grouped <= set().union(*(known[metric] for metric, _ in series)) | TARGET_LABELS


def test_jobs_of_a_shared_database_are_never_added_up():
    for expression in expressions().values():
        assert not re.search(r"sum[^(]*\(\s*(?:rate\()?fhe_(jobs|requests_waiting)", expression)


def test_every_metric_is_on_the_dashboard():
    """In a panel: an alert is not to be seen."""
    shown = set(re.findall(r"fhe_\w+", " ".join(panels().values())))
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples() if name.startswith("fhe_")} <= {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in shown
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_settings_and_routes_exist(path: Path):
    text = path.read_text(encoding="utf-8")
    known = {PREFIX + name.upper() for name in Settings.model_fields} | {FILE_VARIABLE}
    assert set(re.findall(rf"{PREFIX}[A-Z][A-Z_]*", text)) <= known
    routes = {route.path for route in health.router.routes}  # type: ignore[attr-defined]
    assert set(re.findall(r"/v2/health/\w+", text)) <= routes and "/metrics" in routes


def test_the_example_of_settings_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(FILE_VARIABLE, str(DEPLOY / "systemd" / "cloakwork.toml"))
    assert load_settings().max_address_connections == 0


def test_grafana_finds_its_data_source():
    dashboard = json.loads((MONITORING / "grafana" / "cloakwork.json").read_text(encoding="utf-8"))
    source = read(MONITORING / "grafana" / "datasource.yaml")["datasources"][0]["uid"]
    assert {each["datasource"]["uid"] for panel in dashboard["panels"] for each in panel["targets"]} == {source}


def test_the_pages_name_every_alert_every_metric_and_every_file():
    operations = (ROOT / "docs" / "howto" / "operations.md").read_text(encoding="utf-8")
    rules = read(MONITORING / "alerts.yaml")["groups"][0]["rules"]
    assert set(re.findall(r"`(Cloakwork\w+)`", operations)) == {rule["alert"] for rule in rules}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples() if name != "up"}
    metrics = operations.split("\n## Metrics\n")[1].split("\n## ")[0]
    assert {name for name in families if not re.search(rf"`{name}\b", metrics)} == set()
    assert set(re.findall(r"\bfhe_\w+", metrics)) <= families
    page = (ROOT / "docs" / "howto" / "deployment.md").read_text(encoding="utf-8")
    templates = CHART / "templates"
    assert [path.name for path in FILES if templates not in path.parents and path.name not in page] == []


def test_the_table_of_sizes_is_that_of_the_sets():
    page = (ROOT / "docs" / "howto" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) MiB \| (\d+) MiB \| (\d+) \| (\d+) \|$", page, flags=re.MULTILINE)
    assert len(rows) > 5
    memory, device = (Settings.model_fields[name].default for name in ("memory_key_bytes", "device_key_bytes"))
    for name, *found in rows:
        chosen = parameter_set(name)
        upload = upload_bytes(chosen)
        expanded = expanded_bootstrap_key_bytes(chosen) + expanded_keyswitch_key_bytes(chosen)
        wanted = (upload / 2**20, expanded / 2**20, memory // upload, device // expanded)
        assert [float(each) for each in found] == pytest.approx(wanted, rel=0.01), name


# --- Docker Compose ---


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(COMPOSE / "compose.yaml")["services"]
    return found


def test_compose_has_no_passwords_and_asks_for_each():
    text = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
    example = dict(re.findall(r"^#?([A-Z_0-9]+)=(.*)$", (COMPOSE / ".env.example").read_text(encoding="utf-8"), re.M))
    variables = re.findall(r"\$\{([A-Z_0-9]+)(:[-?])([^}]*)\}", text)
    assert len(variables) == text.count("${")
    assert {name for name, _, _ in variables} <= set(example) and set(example) - {name for name, _, _ in variables} == {
        "COMPOSE_PROFILES"
    }
    secret = {name for name in example if re.search("PASSWORD|KEY", name)}
    assert secret == {name for name, kind, _ in variables if kind == ":?"}
    assert all(example[name] == "" for name in secret)
    assert all(f"set {name} in" in message for name, kind, message in variables if kind == ":?")


@pytest.mark.parametrize("name", services())
def test_containers_are_confined(name: str):
    service = services()[name]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"cpus", "memory", "pids"} == set(service["deploy"]["resources"]["limits"])
    assert re.search(r":[\w.-]*\w$", service["image"]) and not service["image"].endswith(":latest")
    runs_on = service["restart"] == "unless-stopped"
    assert runs_on == ("healthcheck" in service)
    assert name == "volume-owner" or re.match(r"[1-9]\d*:", service["user"])


@pytest.mark.parametrize("file", ["compose.yaml", "compose.tls.yaml"])
def test_what_compose_refers_to_is_there(file: str):
    whole = {**read(COMPOSE / "compose.yaml")}
    declared = read(COMPOSE / file)
    secrets = {**whole["secrets"], **declared.get("secrets", {})}
    for name, service in declared["services"].items():
        assert name in whole["services"]
        assert set(service.get("networks", [])) <= set(whole["networks"])
        assert set(service.get("depends_on", [])) <= set(whole["services"])
        assert set(service.get("secrets", [])) <= set(secrets)
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("/"):  # a volume without a name
                continue
            assert (COMPOSE / source).is_file() if source.startswith(".") else source in whole["volumes"]


def test_a_fleet_of_compose_shares_no_data_folder_and_shows_clients_web_processes_alone():
    found = {name: each for name, each in services().items() if each.get("profiles", [""])[0].startswith("fleet")}
    roles = {name: each["environment"]["CLOAKWORK_ROLE"] for name, each in found.items()}
    assert set(roles.values()) == {"web", "worker"}
    for name, each in found.items():
        assert each["volumes"] == ["/data"], "a new volume for each container"
        assert each["environment"]["CLOAKWORK_AUDIT_KEY"] == "/run/secrets/audit_key"
        alone = services()["cloakwork-cpu"]["environment"]
        differs = (
            {"CLOAKWORK_ZOO"} if roles[name] == "web" else set()
        )  # workers compile it, web processes get it from the storage
        assert {key for key in alone if each["environment"][key] != alone[key]} == differs
        aliases = each["networks"]["inside"]["aliases"]
        assert ("cloakwork" in aliases) == (roles[name] == "web") and "cloakwork-nodes" in aliases
        assert roles[name] == "web" or not each["ports"]
    listening = [name for name, each in found.items() if each["ports"]]
    assert len(listening) == 1, "one address of this machine"
    scraped = read(MONITORING / "prometheus.yaml")["scrape_configs"][0]["dns_sd_configs"][0]["names"]
    assert scraped == ["cloakwork-nodes"]


def test_docker_compose_reads_the_files(tmp_path: Path):
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, timeout=60).returncode:
        pytest.skip("Docker with its plugin compose would run this")
    names = ("POSTGRES_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY", "GRAFANA_PASSWORD")
    environment = tmp_path / "environment"
    environment.write_text("".join(f"{name}=x\n" for name in names))
    profiles = [f"--profile={name}" for name in ("cpu", "gpu", "fleet", "fleet-gpu", "proxy", "monitoring")]
    files = ["-f", COMPOSE / "compose.yaml"]
    run(docker, "compose", *files, "-f", COMPOSE / "compose.tls.yaml", "--env-file", environment, *profiles, "config")
    environment.write_text("")
    refused = subprocess.run(
        [docker, "compose", *files, "--env-file", environment, "config"], capture_output=True, timeout=60, check=False
    )
    assert refused.returncode != 0 and b"deploy/compose/.env" in refused.stderr


# --- proxies, Prometheus, systemd ---


def test_promtool_reads_the_rules_and_the_configuration(tmp_path: Path):
    promtool = tool("promtool")
    run(promtool, "check", "rules", MONITORING / "alerts.yaml")
    text = (MONITORING / "prometheus.yaml").read_text(encoding="utf-8")
    key = tmp_path / "key"
    key.write_text("x")
    text = text.replace("/etc/prometheus/alerts.yaml", str(MONITORING / "alerts.yaml"))
    (tmp_path / "prometheus.yaml").write_text(text.replace("/run/secrets/metrics_api_key", str(key)))
    run(promtool, "check", "config", tmp_path / "prometheus.yaml")


@pytest.mark.os_entropy
def test_caddy_reads_its_file(tmp_path: Path):
    environment = {
        "HOME": str(tmp_path),
        "SITE": "fhe.example",
        "UPSTREAMS": "http://10.0.0.5:8123 http://10.0.0.6:8123",
    }
    caddyfile = DEPLOY / "proxy" / "Caddyfile"
    run(tool("caddy"), "validate", "--adapter", "caddyfile", "--config", caddyfile, env=environment)


@pytest.mark.os_entropy
def test_nginx_reads_its_file(tmp_path: Path):
    nginx = tool("nginx")
    text = (DEPLOY / "proxy" / "nginx.conf").read_text(encoding="utf-8")
    text = re.sub(r"/etc/ssl/fhe.example/\w+\.pem", str(certificate(tmp_path / "service.pem")), text)
    paths = "".join(
        f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = tmp_path / "nginx.conf"
    whole.write_text(f"pid {tmp_path}/pid; events {{}} http {{ access_log off; {paths} {text} }}")
    run(nginx, "-t", "-e", "stderr", "-c", whole)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("cloakwork", ()),
        ("cloakwork", ("tls.conf",)),
        ("cloakwork", ("gpu.conf",)),
        ("cloakwork-worker@0", ("gpu.conf", "workers.conf")),
    ],
)
def test_systemd_reads_the_unit(name: str, files: tuple[str, ...], tmp_path: Path):
    analyze = tool("systemd-analyze")
    unit = (DEPLOY / "systemd" / "cloakwork.service").read_text(encoding="utf-8")
    program = "/opt/cloakwork/bin/cloakwork"
    assert unit.count(program) == 1
    template = tmp_path / f"{name.replace('@0', '@')}.service"
    template.write_text(unit.replace(program, "/bin/true"))
    folder = tmp_path / f"{template.name}.d"
    folder.mkdir()
    for each in files:
        shutil.copy(DEPLOY / "systemd" / each, folder)
    environment = {"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"}
    assert run(analyze, "verify", "--man=no", f"{name}.service", env=environment) == ""
