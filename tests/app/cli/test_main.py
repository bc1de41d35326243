"""Exit statuses and error lines of the command."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import typer

from cloakwork.app.cli.main import app
from cloakwork.app.cli.shared.console import report_error


def test_version(run):
    result = run("--version")
    assert result.returncode == 0
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert result.stdout.strip() == project["project"]["version"]


def test_without_a_command_it_prints_help(run):
    result = run()
    assert result.returncode == 0
    assert "keygen" in result.stdout


def test_wrong_calls_have_status_2_and_one_line(run, error_line):
    for arguments in (
        ["nonsense"],
        ["keygen", "--nonsense"],
        ["params", "no_such_set"],
        ["bench", "pbs", "--set", "no_such_set"],
    ):
        result = run(*arguments)
        assert result.returncode == 2, arguments
        assert result.stdout == ""
        error_line(result.stderr)


def test_an_unknown_set_names_those_like_it(run, error_line):
    message = error_line(run("params", "gate-64").stderr)
    assert "'gate-64'" in message and "nearest: gate_64" in message and "cloakwork params" in message


def test_params_table_and_json_agree(run):
    record = json.loads(run("params", "--json", "-").stdout)
    names = [each["name"] for each in record["sets"]]
    assert "gate_64" in names
    table = run("params", environment={"COLUMNS": "250"}).stdout
    for name in names:
        assert name in table


def test_the_table_of_secure_sets_fits_80_columns(run):
    table = run("params", environment={"COLUMNS": "80", "CLOAKWORK_ALLOW_TOY": "0"}).stdout
    assert "nn05_wide_raised" in table and "…" not in table


def test_params_marks_structured_secrets(run):
    record = json.loads(run("params", "--json", "-").stdout)
    structured = {each["name"] for each in record["sets"] if each["structured_secret"]}
    assert "gate_64_block" in structured and "gate_64" not in structured
    lines = run("params", environment={"COLUMNS": "250"}).stdout.splitlines()
    marked = {line.split()[0] for line in lines if line.split() and any(cell.endswith("*") for cell in line.split())}
    assert structured <= marked
    assert any("structured secret" in line for line in lines)


def test_params_of_one_set_has_the_bench_names(run):
    record = json.loads(run("params", "gate_64", "--json", "-").stdout)
    assert record["name"] == "gate_64"
    for key in ("p_fail_log2", "security_bits", "upload_bytes", "bootstrap_key_bytes", "keyswitch_key_bytes"):
        assert isinstance(record[key], int | float)


def test_toy_sets_are_refused_without_permission(run, error_line):
    result = run("params", "toy", environment={"CLOAKWORK_ALLOW_TOY": "0"})
    assert result.returncode == 2
    assert "insecure" in error_line(result.stderr)
    listed = json.loads(run("params", "--json", "-", environment={"CLOAKWORK_ALLOW_TOY": "0"}).stdout)
    assert "toy" not in [each["name"] for each in listed["sets"]]


def test_devices_lists_the_cpu(run):
    record = json.loads(run("devices", "--json", "-").stdout)
    cpu = record["devices"][0]
    assert cpu["device"] == "cpu"
    assert cpu["usable"] is True


def test_a_forced_instruction_set_that_does_not_exist_is_reported(run):
    record = json.loads(run("devices", "--json", "-", environment={"CLOAKWORK_CPU": "no_such_thing"}).stdout)
    assert record["devices"][0]["usable"] is False
    assert "no_such_thing" in record["devices"][0]["details"]


def command_names(group: typer.Typer, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command by its words."""
    own = [
        (*prefix, command.name or command.callback.__name__)
        for command in group.registered_commands
        if command.callback
    ]
    groups = [(each.typer_instance, (*prefix, str(each.name))) for each in group.registered_groups]
    return own + [name for inner, words in groups if inner is not None for name in command_names(inner, words)]


@pytest.mark.parametrize("name", command_names(app), ids=" ".join)
def test_every_command_has_help_and_is_documented(call, name):
    result = call(*name, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout
    page = (Path(__file__).resolve().parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(.*?)` \|", page, flags=re.MULTILINE)
    documented = {tuple(words.split()) for line in table for words in alternatives(line.replace("\\|", "|"))}
    assert any(words[: len(name)] == name for words in documented), f"docs/command-line.md lacks '{' '.join(name)}'"


def alternatives(line: str) -> list[str]:
    """`bench pbs|gate --set SET` stands for two."""
    first, _, rest = line.partition(" ")
    second, _, options = rest.partition(" ")
    return [f"{first} {word} {options}" for word in second.split("|")]


# What the extras bring: `pip install .` alone has none of it.
OF_EXTRAS = (
    "aiosqlite", "alembic", "anyio", "fastapi", "httpx", "lightgbm", "onnxmltools", "onnxruntime", "opentelemetry", "pandas", "PIL",
    "prometheus_client", "pydantic_settings", "scipy", "skl2onnx", "sklearn", "sqlalchemy", "starlette", "torch", "uvicorn", "xgboost",
)  # fmt: skip


def test_commands_work_without_the_extras_or_name_them(run, tmp_path, error_line):
    (tmp_path / "hidden").mkdir()
    hide = f"import sys\nsys.modules.update(dict.fromkeys({OF_EXTRAS}))\n"
    (tmp_path / "hidden" / "sitecustomize.py").write_text(hide)
    paths = os.pathsep.join([str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    environment = {"PYTHONPATH": paths, "CLOAKWORK_PASSPHRASE": "x"}
    for arguments in (
        ["--help"],
        ["zoo"],
        ["inspect", "iris-tree"],
        ["demo", "iris", "--samples", "2"],
        ["demo", "mnist", "--images", "1", "--data", "drawn"],
    ):
        result = run(*arguments, environment=environment)
        assert result.returncode == 0, (arguments, result.stderr)
        assert result.stderr == ""
    for arguments, extra in (
        (["models", "list", "--url", "http://127.0.0.1:1"], "pip install '.[client]'"),
        (["serve", "--insecure-local", "--data", "data"], "pip install '.[service]'"),
    ):
        result = run(*arguments, environment=environment)
        assert result.returncode == 1, (arguments, result.stderr)
        assert extra in error_line(result.stderr)


def test_an_error_has_no_commands_for_the_terminal(capsys):
    report_error("model '\x1b[2J\x07evil\x9b31m' is \u202ebad\nand long")
    assert capsys.readouterr().err == "cloakwork: model '?[2J?evil?31m' is ?bad and long\n"
