"""Keys that the tests of a module share; draws that depend on no other test."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from fresh_generators import begin_anew
from sessions import Sessions


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    return Sessions()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: Any) -> Generator[None, object, object]:
    begin_anew(request)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, object, object]:
    begin_anew(item)
    return (yield)
