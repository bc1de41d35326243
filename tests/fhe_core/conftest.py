"""Keys of the insecure sets that most tests of the engine run on; a module may have keys of its own."""

from __future__ import annotations

import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys

# Two bits each: one limb, two limbs, ternary small key, blocks of the small key, raised bootstrap keys, several accumulators as one table,
# keys that digits select, an NTRU accumulator.
SETS = [
    "toy",
    "toy_two_limb",
    "toy_ternary",
    "toy_block",
    "toy_block_two_limb",
    "toy_raised",
    "toy_raised_block",
    "toy_extended",
    "toy_extended_two_limb",
    "toy_ap",
    "toy_ntru_lut",
]


@pytest.fixture(scope="module", params=SETS)
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey.generate(request.param)


@pytest.fixture(scope="module")
def keys(key: ClientKey) -> EvaluationKeys:
    return key.evaluation_keys()
