"""Objects of another class than a call takes: each is refused with the class that came and what to do, as a user of `cloakwork.engine` meets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cloakwork import engine
from cloakwork.engine import (
    ClientKey,
    EvaluationKeys,
    LevelledClientKey,
    LevelledEvaluator,
    LevelledParameters,
    ModularIntegers,
    Party,
    Session,
    Slots,
)
from cloakwork.errors import ShapeError

PLAIN: Any = np.zeros(4, dtype=np.int64)
KEY: Any = ClientKey._from_entropy("toy", bytes(32))
PARAMETERS = LevelledParameters.of("toy_bgv12")
LEVELLED: Any = LevelledClientKey._from_entropy(PARAMETERS, bytes(32))
SLOTS = Slots(PARAMETERS)


@pytest.fixture(scope="module")
def session(keys: EvaluationKeys) -> Session:
    return Session(keys)


def integers() -> ModularIntegers:
    return KEY.encrypt_integers([1], 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ClientKey.generate(4), "parameters: expected ParameterSet, got int; pass the name of a set"),  # type: ignore[arg-type]
        (lambda: Session(KEY), r"expected EvaluationKeys, got ClientKey; .* ClientKey.evaluation_keys\(\)"),
        (lambda: KEY.decrypt(PLAIN), "decryption: expected Ciphertexts, got ndarray"),
        (lambda: KEY.decrypt(integers()), "got ModularIntegers; .* decrypt_integers"),
        (lambda: KEY.decrypt_integers(integers().ciphertexts), "expected ModularIntegers, got Ciphertexts"),
        (lambda: LevelledClientKey.generate("bgv12"), "got str; make them with LevelledParameters.of"),  # type: ignore[arg-type]
        (lambda: LevelledParameters.of("bgv12", 8.0), "plaintext_modulus: expected an integer, got float"),  # type: ignore[arg-type]
        (lambda: LevelledEvaluator(PARAMETERS, LEVELLED), "expected LevelledEvaluationKeys, got LevelledClientKey"),
        (lambda: LEVELLED.decrypt(PLAIN), "expected LevelledCiphertexts, got ndarray"),
        (lambda: LEVELLED.decrypt(LEVELLED.encrypt_seeded(np.zeros(4096, int))), "expand seeded ones"),
        (lambda: SLOTS.decode(PLAIN), r"coefficients: expected integers of shape \[.., 4096\]"),
        (lambda: SLOTS.rotation(0.5), "steps: expected an integer, got float"),  # type: ignore[arg-type]
        (lambda: engine.to_lookups_key(KEY, LEVELLED), "expected LevelledClientKey, got ClientKey; the levelled key comes"),
        (lambda: engine.from_lookups_keys(LEVELLED, LEVELLED), "expected ClientKey, got LevelledClientKey"),
        (lambda: engine.ToLookups(LEVELLED), "got LevelledClientKey; .* to_lookups_key"),
        (lambda: engine.FromLookups(LEVELLED, KEY.parameters), "got LevelledClientKey; .* from_lookups_keys"),
    ],
)  # fmt: skip
def test_of_keys_and_values(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.bootstrap(PLAIN, [0, 1, 2, 3]),
        lambda session: session.bootstrap_negacyclic(PLAIN, [0, 1]),
        lambda session: session.bootstrap_full_domain(PLAIN, [0, 1, 2, 3]),
        lambda session: session.activation(PLAIN, np.tanh),
        lambda session: session.linear([[1, 1, 1, 1]], PLAIN),
        lambda session: session.rerandomise(PLAIN),
        lambda session: session.gate("AND", PLAIN, PLAIN),
        lambda session: ModularIntegers(PLAIN, 4),
    ],
)
def test_of_what_a_session_computes_with(session: Session, call: Callable[[Session], object]) -> None:
    with pytest.raises(ShapeError, match="expected Ciphertexts, got ndarray; encrypt values"):
        call(session)


def test_of_what_a_levelled_evaluator_computes_with() -> None:
    evaluator, x = LevelledEvaluator(PARAMETERS), LEVELLED.encrypt(np.arange(4096))
    calls: list[Callable[[], object]] = [
        lambda: evaluator.add(x, PLAIN),
        lambda: evaluator.multiply(x, PLAIN),
        lambda: evaluator.scale(PLAIN, 2),
    ]
    for call in calls:
        with pytest.raises(ShapeError, match="expected LevelledCiphertexts, got ndarray"):
            call()
    with pytest.raises(ShapeError, match="factor: expected an integer, got float; round it first"):
        evaluator.scale(x, 1.5)  # type: ignore[arg-type]
    np.testing.assert_array_equal(LEVELLED.decrypt(evaluator.scale(x, np.int64(3)))[0], 3 * np.arange(4096))


def test_of_what_a_party_decrypts() -> None:
    with pytest.raises(ShapeError, match="partial decryption: expected Ciphertexts, got ndarray"):
        Party.generate("lut3_2p", 0).partial_decrypt(PLAIN)
