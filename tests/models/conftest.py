"""Keys that the tests of a module share."""

from __future__ import annotations

import pytest
from sessions import Sessions


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    return Sessions()
