"""Commands that documents name are commands of `cloakwork`."""

from __future__ import annotations

import re

import typer.main

from cloakwork.app.cli.main import application
from tests.documents.test_links import DOCUMENTS, text_of

# Texts that are hashed: "cloakwork test vector", "cloakwork parameter set".
HASHED = {"test", "parameter", "threshold", "expansion"}


def test_commands_that_documents_name_exist() -> None:
    commands = set(typer.main.get_command(application()).commands)  # type: ignore[attr-defined]
    named = set()
    for document in DOCUMENTS:
        code = re.findall(r"```.*?```|`[^`\n]+`", text_of(document), flags=re.DOTALL)
        named |= set(re.findall(r"^`?cloakwork ([a-z][a-z-]*)", "\n".join(code), flags=re.MULTILINE)) - HASHED
    assert {"demo", "serve"} <= named <= commands
