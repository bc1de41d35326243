"""What a test needs beside this package: without it a contributor's run skips the test, and a run of continuous integration fails."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def needs(condition: object, reason: str) -> None:
    """Skips the running test unless the condition holds; fails it if CLOAKWORK_CI=1. The reason says what would run the test."""
    if condition:
        return
    if _in_ci():
        pytest.fail(f"{reason} (CLOAKWORK_CI=1 allows no skip)", pytrace=False)
    pytest.skip(reason)


def pytest_configure() -> None:
    """`pytest.importorskip` skips nothing in continuous integration."""
    if _in_ci():
        setattr(pytest, "importorskip", _imported)  # noqa: B010 - for mypy it is constant


def _in_ci() -> bool:
    return os.environ.get("CLOAKWORK_CI") == "1"


def _imported(name: str, *, reason: str | None = None) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        pytest.fail(f"{reason or error} (CLOAKWORK_CI=1 allows no skip)", pytrace=False)
