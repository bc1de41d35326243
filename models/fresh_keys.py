"""Makes the engine's secret keys that a model of any kind needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cloakwork.fhe_core.levelled.parameters import LevelledParameters


def fresh_keys(parameters: Iterable[Any]) -> tuple[Any, ...]:
    """Generate a key for each set of look-ups, or levelled set with its plaintext modulus."""
    from cloakwork.fhe_core.client import ClientKey  # the secret side, only where it is asked for
    from cloakwork.fhe_core.levelled.client import LevelledClientKey

    return tuple(
        LevelledClientKey.generate(each) if isinstance(each, LevelledParameters) else ClientKey.generate(each)
        for each in parameters
    )
