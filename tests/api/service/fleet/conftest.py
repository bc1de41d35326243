"""A database for the tests of several processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgresql import postgresql, reason_without


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    if reason_without() is not None:
        pytest.skip(str(reason_without()))
    with postgresql() as url:
        yield url
