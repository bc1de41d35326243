"""The secret side of bridges: keys between a levelled key and a key of look-ups, of one owner. Nothing on the evaluating side imports this."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import require_kind
from cloakwork.fhe_core.levelled.bridges.keys import (
    FromLookupsKeys,
    ToLookupsKey,
    bridge_purpose,
    component,
    gadget_of,
    packing_automorphisms,
    require_bridge,
)
from cloakwork.fhe_core.levelled.ciphertexts import SeededSwitchKey
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.parameters import parameter_digest


def to_lookups_key(levelled: LevelledClientKey, lookups: ClientKey) -> ToLookupsKey:
    """Makes the key with which a server takes ciphertexts of one key to look-ups under the other. New seeds and noise every time.

    It is as secure as the less secure of the two sets, if keys may be encrypted under one another in a circle, as those of every bootstrap are.

    Raises:
        ParameterError: a set of look-ups with several values to a ciphertext, or of several parties.
    """
    _require_keys(levelled, lookups)
    parameters, params = levelled.parameters, lookups.parameters
    ratio = require_bridge(parameters, params)
    gadget = gadget_of(parameters.polynomial_size, params)
    secret = np.frombuffer(levelled._secret.export(), dtype=np.int8).astype(np.int64)
    weighted = np.array(gadget.weights(params), dtype=np.int64)[:, None] * secret % params.modulus
    values = weighted.reshape(gadget.level_count, -1, ratio).transpose(0, 2, 1).astype(np.uint64)
    seed, bodies = lookups._secret_key.encrypt_glwe_seeded(
        np.ascontiguousarray(values).reshape(-1, params.polynomial_size)
    )
    encrypted = SeededPackedCiphertexts(
        params, seed, bodies, values.shape, encoding=Encoding.TORUS, key_id=lookups.key_id,
        purpose=bridge_purpose(parameters, levelled.key_id),
    )  # fmt: skip
    return ToLookupsKey(parameters, levelled.key_id, encrypted)


def from_lookups_keys(levelled: LevelledClientKey, lookups: ClientKey) -> FromLookupsKeys:
    """Makes the keys with which a server packs ciphertexts of look-ups into levelled ones; security and errors as of `to_lookups_key`."""
    _require_keys(levelled, lookups)
    parameters, params = levelled.parameters, lookups.parameters
    ratio = require_bridge(parameters, params)
    keys = dict(levelled.evaluation_keys(packing_automorphisms(parameters), products=False).keys)
    for i, coefficients in enumerate(_components(lookups)):
        spread = np.zeros((len(coefficients), ratio), dtype=np.int8)
        spread[:, 0] = coefficients
        keys[component(i)] = SeededSwitchKey(*levelled._secret.switch_key_of(spread.tobytes()))
    return FromLookupsKeys(parameters, levelled.key_id, keys, parameter_digest(params), lookups.key_id)


def _require_keys(levelled: LevelledClientKey, lookups: ClientKey) -> None:
    advice = "the levelled key comes first, then that of the look-ups"
    require_kind(levelled, LevelledClientKey, "levelled", advice)
    require_kind(lookups, ClientKey, "lookups", advice)


def _components(lookups: ClientKey) -> NDArray[np.int8]:
    """The ring key [k, N]: what follows the small key."""
    params = lookups.parameters
    coefficients = np.frombuffer(lookups._secret_key.export(), dtype=np.int8)
    return coefficients[params.lwe_dimension :].reshape(params.glwe_dimension, params.polynomial_size)
