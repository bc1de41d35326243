"""What a test needs beside this package: without it a contributor's run skips the test, and a run of continuous integration fails."""

from __future__ import annotations

import os

import pytest


def needs(condition: object, reason: str) -> None:
    """Skips the running test unless the condition holds; fails it if CLOAKWORK_CI=1. The reason says what would run the test."""
    if condition:
        return
    if os.environ.get("CLOAKWORK_CI") == "1":
        pytest.fail(f"{reason} (CLOAKWORK_CI=1 allows no skip)", pytrace=False)
    pytest.skip(reason)
