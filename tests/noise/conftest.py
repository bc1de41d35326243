"""What the tests of noise share: the stored numbers of a set, the laboratory of a toy for one module, and the way to the modules beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # measurements and records, which measure.py imports too

from measurements import laboratory_script
from records import STAGE_SETS, Stored, stored_set
from toys import TOYS, by_tier


@pytest.fixture(params=STAGE_SETS)
def stored(request: pytest.FixtureRequest) -> Stored:
    """The stored numbers of each set whose stages have a test."""
    return stored_set(request.param)


@pytest.fixture(scope="module", params=by_tier(TOYS))
def toy(request: pytest.FixtureRequest) -> Any:
    """The laboratory of a toy."""
    return laboratory_script().Laboratory(request.param)
