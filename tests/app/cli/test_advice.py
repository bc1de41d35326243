"""What messages tell people to type is there: commands, and options of some command. And what prints a table writes JSON too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cloakwork.app.cli.main import application

ROOT = Path(__file__).resolve().parents[3]
OF_MODULES = {  # options of programs that are modules: what they are and the options that are theirs
    "fhe_core/tools": {
        "--all",
        "--check",
        "--docs",
        "--estimate",
        "--explain",
        "--point",
        "--problem",
        "--table",
        "--write",
    },
    "models/repository.py": {"--file", "--zoo"},
    "api/service/models": {"--file", "--zoo"},
}
# What prints a line, a page or nothing: verbs, and servers that stay.
WITHOUT_JSON = {
    *("serve", "page", "demo web"),
    *("models load", "models unload", "models remove", "keys delete", "jobs cancel"),
    *("tenants set", "tenants suspend", "tenants resume", "tenants remove", "tenants revoke"),
}


def commands(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), found
    for name, inner in getattr(found, "commands", {}).items():
        yield from commands(inner, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(application())))
GROUPS = {name for name, each in COMMANDS.items() if getattr(each, "commands", None)}


def options(command: Any) -> set[str]:
    return {name for each in command.params for name in [*each.opts, *each.secondary_opts]}


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """Every text of the sources with its file."""
    paths = [
        path
        for folder in ("fhe_core", "models", "training", "api", "app")
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]
    return [
        (str(path.relative_to(ROOT)), node.value)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_options_that_messages_name_exist(texts):
    known = {"--help"}.union(*map(options, COMMANDS.values()))
    named = [(path, name) for path, text in texts for name in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*\b", text)]
    assert len(named) > 200
    theirs = [names for place, names in OF_MODULES.items()]
    unknown = [(path, name) for path, name in named if name not in known]
    assert [
        (path, name)
        for path, name in unknown
        if not any(path.startswith(place) and name in OF_MODULES[place] for place in OF_MODULES)
    ] == []
    assert {name for _, name in unknown} == set().union(*theirs), "a module's option is gone"


def test_commands_that_messages_name_exist(texts):
    named = [
        (path, words.split())
        for path, text in texts
        for words in re.findall(r"[`']cloakwork ([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)?)", text)
    ]
    assert len(named) > 50
    wrong = [
        (path, words)
        for path, words in named
        if words[0] not in COMMANDS or (words[0] in GROUPS and len(words) > 1 and " ".join(words) not in COMMANDS)
    ]
    assert wrong == []


def test_whatever_prints_a_table_writes_json():
    silent = {name for name, each in COMMANDS.items() if name and name not in GROUPS and "--json" not in options(each)}
    assert silent == WITHOUT_JSON
