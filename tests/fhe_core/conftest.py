"""Keys of the insecure sets that most tests of the engine run on; a module may have keys of its own."""

from __future__ import annotations

import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

# Two bits each: one limb, blocks of the small key with two limbs, raised bootstrap keys, keys that digits select. One of each family of kernels.
FAMILIES = ("toy", "toy_block_two_limb", "toy_raised", "toy_ap")
# Two limbs, ternary small key, blocks of the small key, with raised keys, several accumulators as one table, an NTRU accumulator.
OTHER_SETS = (
    "toy_two_limb",
    "toy_ternary",
    "toy_block",
    "toy_raised_block",
    "toy_extended",
    "toy_extended_two_limb",
    "toy_ntru_lut",
)
SETS = [*FAMILIES, *(pytest.param(name, marks=pytest.mark.tier("all")) for name in OTHER_SETS)]


@pytest.fixture(scope="module", params=SETS)
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey.generate(request.param)


@pytest.fixture(scope="module")
def keys(key: ClientKey) -> EvaluationKeys:
    return key.evaluation_keys()
