"""A database for the tests of several processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgresql import needs_postgresql, postgresql


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    needs_postgresql()
    with postgresql() as url:
        yield url
