"""Keys of the insecure sets that most tests of the engine run on; a module may have keys of its own."""

from __future__ import annotations

import pytest

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys

SETS = ["toy", "toy_two_limb", "toy_ternary"]  # two bits each: one limb, two limbs, ternary small key


@pytest.fixture(scope="module", params=SETS)
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey.generate(request.param)


@pytest.fixture(scope="module")
def keys(key: ClientKey) -> EvaluationKeys:
    return key.evaluation_keys()
