"""Keys that the tests of a module share; PyTorch on one thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
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
