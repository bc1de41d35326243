"""Exit statuses and error lines of the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from cloakwork.app.cli.main import COMMANDS, application
from cloakwork.app.cli.shared.console import report_error
from cloakwork.models import zoo


def test_version(call):
    result = call("--version")
    assert result.returncode == 0
    project = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    assert result.stdout.strip() == project["project"]["version"]


def test_without_a_command_it_prints_help(call):
    result = call()
    assert result.returncode == 0
    assert "keygen" in result.stdout


def test_help_has_a_line_for_each_command_that_begins_its_own(call):
    """Within 80 columns; groups alone show the same help."""
    page = call(environment={"COLUMNS": "80"})
    assert page.stdout == call("-h", environment={"COLUMNS": "80"}).stdout
    program = typer.main.get_command(application())
    for name, (_, line) in COMMANDS.items():
        assert f"\n  {name:<17}  {line}\n" in page.stdout
        assert (program.commands[name].help or "").partition("\n\n")[0] == line
    assert max(map(len, page.stdout.splitlines())) <= 80
    for group in ("demo", "bench", "tenants", "batch", "index", "models", "keys", "jobs"):
        alone = call(group)
        assert alone.returncode == 0 and alone.stdout == call(group, "--help").stdout


def test_compile_shows_eight_options_first(call):
    def shown(*words: str) -> set[str]:
        return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", call(*words).stdout, re.MULTILINE))

    few, every = shown("compile", "--help"), shown("compile", "--help-all")
    assert len(few - {"--help", "--help-all"}) == 8 and "--help-all" in few
    assert few - {"--help-all"} < every and len(every) > 20
    assert "bool" not in call("compile", "--help-all").stdout


def test_what_a_typo_meant_is_said(call, error_line):
    assert "did you mean 'compile'?" in error_line(call("compil").stderr)
    line = error_line(call("compile", "--precison", "x").stderr)
    assert "did you mean '--precision'" in line and line.endswith("See 'cloakwork compile --help'.")


@pytest.mark.os_entropy
def test_the_shell_is_told_commands_and_options(run):
    def completed(words: str) -> list[str]:
        count = str(words.count(" "))
        environment = {"_CLOAKWORK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
        return run(environment=environment).stdout.split()

    assert completed("cloakwork comp") == ["compile"]
    assert "--help-all" in completed("cloakwork serve --h")


@pytest.mark.os_entropy
def test_the_version_is_told_before_anything_is_imported():
    code = "import sys; from cloakwork.app.cli.main import run; run(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"typer", "rich", "numpy", "onnx"}.intersection(done.stdout.split())


def test_wrong_calls_have_status_2_and_one_line(call, error_line):
    for arguments in (
        ["nonsense"],
        ["keygen", "--nonsense"],
        ["params", "no_such_set"],
        ["bench", "pbs", "--set", "no_such_set"],
    ):
        result = call(*arguments)
        assert result.returncode == 2, arguments
        assert result.stdout == ""
        error_line(result.stderr)


def test_an_unknown_set_names_those_like_it(call, error_line):
    message = error_line(call("params", "gate-64").stderr)
    assert "'gate-64'" in message and "nearest: gate_64" in message and "cloakwork params" in message


def test_params_table_and_json_agree(call):
    record = json.loads(call("params", "--json", "-").stdout)
    names = [each["name"] for each in record["sets"]]
    assert "gate_64" in names
    table = call("params", environment={"COLUMNS": "250"}).stdout
    for name in names:
        assert name in table


def test_the_table_of_secure_sets_fits_80_columns(call):
    table = call("params", environment={"COLUMNS": "80", "CLOAKWORK_ALLOW_TOY": "0"}).stdout
    assert "nn05_wide_raised" in table and "…" not in table


def test_params_marks_structured_secrets(call):
    record = json.loads(call("params", "--json", "-").stdout)
    structured = {each["name"] for each in record["sets"] if each["structured_secret"]}
    assert "gate_64_block" in structured and "gate_64" not in structured
    lines = call("params", environment={"COLUMNS": "250"}).stdout.splitlines()
    marked = {line.split()[0] for line in lines if line.split() and any(cell.endswith("*") for cell in line.split())}
    assert structured <= marked
    assert any("structured secret" in line for line in lines)


def test_params_of_one_set_has_the_bench_names(call):
    record = json.loads(call("params", "gate_64", "--json", "-").stdout)
    assert record["name"] == "gate_64"
    for key in ("p_fail_log2", "security_bits", "upload_bytes", "bootstrap_key_bytes", "keyswitch_key_bytes"):
        assert isinstance(record[key], int | float)


def test_params_of_one_set_say_what_each_number_is(call):
    lines = call("params", "gate_64", environment={"COLUMNS": "120"}).stdout.splitlines()
    (sigma,) = [line for line in lines if line.split()[:1] == ["glwe_sigma"]]
    assert sigma.endswith("units of 1/Q")
    record = json.loads(call("params", "gate_64", "--json", "-").stdout)
    assert {line.split()[0] for line in lines if line.split()[:1]} >= {
        key for key, each in record.items() if each is not None
    }


def test_toy_sets_are_refused_without_permission(call, error_line):
    result = call("params", "toy", environment={"CLOAKWORK_ALLOW_TOY": "0"})
    assert result.returncode == 2
    assert "insecure" in error_line(result.stderr)
    listed = json.loads(call("params", "--json", "-", environment={"CLOAKWORK_ALLOW_TOY": "0"}).stdout)
    assert "toy" not in [each["name"] for each in listed["sets"]]


def test_devices_lists_the_cpu(call):
    record = json.loads(call("devices", "--json", "-").stdout)
    cpu = record["devices"][0]
    assert cpu["device"] == "cpu"
    assert cpu["usable"] is True


@pytest.mark.os_entropy
@pytest.mark.tier("all")
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


@pytest.mark.parametrize("name", command_names(application()), ids=" ".join)
def test_every_command_has_help_and_is_documented(call, name):
    result = call(*name, "--help")
    assert result.returncode == 0
    assert "Usage" in result.stdout
    page = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(.*?)` \|", page, flags=re.MULTILINE)
    documented = {tuple(words.split()) for line in table for words in alternatives(line.replace("\\|", "|"))}
    assert any(words[: len(name)] == name for words in documented), (
        f"docs/reference/command-line.md lacks '{' '.join(name)}'"
    )


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


# Runs each command of a list in one process that has no extra; prints status, output and errors of each as JSON.
WITHOUT_EXTRAS = """
import contextlib, io, json, sys
extras, commands = json.load(sys.stdin)
sys.modules.update(dict.fromkeys(extras))
from cloakwork.app.cli.main import run
for arguments in commands:
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()) as errors:
        status = run(arguments)
    print(json.dumps([status, output.getvalue(), errors.getvalue()]))
"""


@pytest.mark.os_entropy
@pytest.mark.parametrize(
    "work",
    [
        [["--help"], ["zoo"], ["inspect", "iris-tree"]],
        pytest.param(
            [["demo", "iris", "--samples", "2"], ["demo", "mnist", "--images", "1", "--data", "drawn"]],
            marks=pytest.mark.tier("all"),
        ),
    ],
    ids=["alone", "encrypted"],
)
def test_commands_work_without_the_extras_or_name_them(tmp_path, error_line, work):
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    for file in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "data" / "mnist" / f"{file}-ubyte.gz").write_bytes(b"")
    need = {
        "client": ["models", "list", "--url", "http://127.0.0.1:1"],
        "service": ["serve", "--insecure-local", "--data", "data"],
        "train": ["train", "mnist-mlp-1x30"],
    }
    environment = {**os.environ, "CLOAKWORK_PASSPHRASE": "x", "CLOAKWORK_DATA": str(tmp_path / "data")}
    given = json.dumps([OF_EXTRAS, [*work, *need.values()]])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS],
        cwd=tmp_path,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    for arguments, (status, output, errors) in zip(work, ended, strict=False):
        assert (status, errors) == (0, "") and output, (arguments, errors)
    for extra, (status, _, errors) in zip(need, ended[len(work) :], strict=True):
        assert status == 1, (extra, errors)
        assert f"pip install '.[{extra}]'" in error_line(errors)


def test_an_interrupt_is_said_in_a_line_and_has_its_status(call, monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "names", interrupted)
    result = call("zoo")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "cloakwork: interrupted\n")


def test_an_error_has_no_commands_for_the_terminal(capsys):
    report_error("model '\x1b[2J\x07evil\x9b31m' is \u202ebad\nand long")
    assert capsys.readouterr().err == "cloakwork: model '?[2J?evil?31m' is ?bad and long\n"
