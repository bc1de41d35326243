"""`cloakwork tenants` and the start of `cloakwork serve`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

pytestmark = pytest.mark.os_entropy  # a new database is set up by a process
Run = Callable[..., CompletedProcess[str]]


def one_object(result: CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()


@pytest.mark.parametrize(
    "arguments",
    [
        ("tenants", "add", "alice"),
        ("tenants", "set", "alice", "--max-queue", "3"),
        ("tenants", "suspend", "alice"),
        ("tenants", "usage"),
        ("tenants", "list"),
        ("tenants", "key", "alice"),
        ("tenants", "remove", "alice", "--yes"),
    ],
    ids=" ".join,
)
def test_a_mistyped_folder_makes_nothing(call: Run, tmp_path: Path, arguments: tuple[str, ...]):
    before = sorted(tmp_path.rglob("*"))
    for folder, says in (("dd/data", "there is no folder 'dd/data'"), ("d", "tenants add NAME")):
        if arguments[1] == "add" and folder == "d":
            continue
        result = call(*arguments, "--data", folder)
        assert result.returncode == 1 and says in result.stderr and result.stderr.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before


def test_a_tenant_gets_api_keys_that_are_shown_once(call: Run):
    first = one_object(call("tenants", "add", "alice", "--max-bytes", "1000", "--data", "d", "--json", "-"))
    identity = first["api_key"].split("_")[1]
    second = one_object(call("tenants", "rotate", identity, "--data", "d", "--json", "-"))
    assert second["api_key"] != first["api_key"]
    listed = call("tenants", "list", "--data", "d", "--json", "-")
    (tenant,) = one_object(listed)["tenants"]
    assert (tenant["tenant"], tenant["max_bytes"], len(tenant["api_keys"])) == ("alice", 1000, 2)
    assert first["api_key"] not in listed.stdout and second["api_key"] not in listed.stdout
    assert call("tenants", "revoke", identity, "--data", "d").returncode == 0
    shown = call("tenants", "list", "--data", "d").stdout
    assert [line.split()[2] for line in shown.splitlines() if line.startswith("alice ")] == ["revoked", "yes"]
    secret = first["api_key"]
    for token in (secret, secret[:-1]):  # revoked already, and mistyped
        refused = call("tenants", "rotate", token, "--data", "d")
        assert refused.returncode == 2 and "'cloakwork tenants list' shows it" in refused.stderr
        assert secret[20:-1] not in refused.stderr + refused.stdout


@pytest.mark.tier("all")
def test_scopes_are_those_that_were_asked_for(call: Run):
    for name, asked, expected in (("plain", (), ["score"]), ("owner", ("--scope", "admin"), ["admin"])):
        assert call("tenants", "add", name, *asked, "--data", "d").returncode == 0
        found = {
            each["tenant"]: each
            for each in one_object(call("tenants", "list", "--data", "d", "--json", "-"))["tenants"]
        }
        assert [key["scopes"] for key in found[name]["api_keys"]] == [expected]


def test_wrong_calls_are_one_line(call: Run, error_line: Callable[[str], str]):
    for arguments, says in [
        (("tenants", "add", "No Good", "--data", "d"), "a-z"),
        (("tenants", "key", "nobody", "--data", "d"), "'tenants add' adds one"),
        (("tenants", "add", "half", "--scope", "nope", "--data", "d"), "got nope"),
        (
            ("tenants", "key", "half", "--data", "d"),
            "'tenants add' adds one",
        ),  # the line before made no tenant without an API key
        (("tenants", "add", "a", "--database", "postgresql://u:hunter2@127.0.0.1:1/x"), "database: its server"),
    ]:
        result = call(*arguments)
        assert result.returncode != 0 and says in error_line(result.stderr)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_service_that_must_not_start_says_so_in_a_line(run: Run, error_line: Callable[[str], str]):
    for arguments, says in [
        (("serve", "--insecure-local", "--host", "0.0.0.0", "--data", "d"), "loopback"),
        (("serve", "--data", "d", "--devices", "cpu", "--port", "0"), "no API key"),
    ]:
        result = run(*arguments)
        assert result.returncode != 0
        lines = [line for line in result.stderr.splitlines() if not line.startswith("{")]
        assert says in (error_line("\n".join(lines)) if lines else result.stderr), (arguments, result.stderr)
