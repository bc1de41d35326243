"""This release's number."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release() -> str:
    try:
        return version("cloakwork")
    except PackageNotFoundError:
        return "0"
