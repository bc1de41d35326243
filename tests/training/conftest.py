"""Keys that the tests of a module share; draws that depend on no other test; PyTorch on one thread."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from fresh_generators import begin_anew
from sessions import Sessions


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices: threads that wait for each other cost more than they bring."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: Any) -> Generator[None, object, object]:
    begin_anew(request)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Generator[None, object, object]:
    begin_anew(item)
    return (yield)
