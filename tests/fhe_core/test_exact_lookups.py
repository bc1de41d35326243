"""Every message of every shipped exact set (of the dearest ones on a CPU every eleventh), through functions that tell all messages apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.server import Session

DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.tier("all")])]

OWNED = [
    name for name in _engine.parameter_set_names() if _engine.parameter_set(name).party_count == 1
]  # test_threshold.py has the others
EXACT = [name for name in OWNED if _engine.parameter_set(name).kind == "exact"]
SHIPPED = [name for name in EXACT if not name.startswith("toy")]
# One set of each way to rotate, of those that take seconds. The others are large for a CPU.
TIERS = {"lut2": "test"} | dict.fromkeys(
    ("lut2_cm2", "lut3_block", "lut3_raised", "lut4", "lut4_fft", "lut4_ntru"), "all"
)


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.tier(TIERS.get(name, "release"))) for name in SHIPPED]
)
def key(request: pytest.FixtureRequest) -> ClientKey:
    return ClientKey.generate(request.param)


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, key: ClientKey) -> Iterator[Session]:
    yield Session(key.evaluation_keys(), device=request.param, threads=4)


def every(params: ParameterSet, device: str) -> int:
    """Which messages are looked up: all; of more than eight parts, whose rotations take 0.1 to 0.5 s of a CPU, every eleventh."""
    return 11 if device == "cpu" and params.extension_factor > 8 else 1


def in_lanes(params: ParameterSet, messages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Themselves; with r lanes [.., r], in lane j the message j further on."""
    size = 1 << params.message_bits
    return messages if params.lane_count == 1 else (messages[..., None] + np.arange(params.lane_count)) % size


def test_every_message(key: ClientKey, session: Session) -> None:
    """Permutations in turn: whatever message stands at an edge of its slot, its neighbours give something else."""
    size = 1 << key.parameters.message_bits
    messages = np.arange(0, size, every(key.parameters, session.device))
    permutations = [
        np.arange(size)[::-1],
        (5 * np.arange(size) + 3) % size,
        np.random.default_rng(size).permutation(size),
    ]
    index = messages % len(permutations)
    values = in_lanes(key.parameters, messages)
    outputs = key.decrypt(session.bootstrap(key.encrypt(values), np.array(permutations), table_index=index))
    np.testing.assert_array_equal(outputs.T, np.array(permutations)[index, values.T])


def test_sums_of_outputs_and_shifts(key: ClientKey, session: Session) -> None:
    """A sum of outputs at the largest norm that is a whole number, looked up once more, and entries further on of the same rotation."""
    size, count = 1 << key.parameters.message_bits, int(key.parameters.max_weight_norm) ** 2
    sums = 8 if key.parameters.extension_factor == 1 else 2
    bits = np.random.default_rng(1).integers(0, 2, (sums, count)) if count < size else np.ones((sums, 1), dtype=int)
    bits = np.minimum(in_lanes(key.parameters, bits), 1)
    fresh = session.bootstrap(key.encrypt(bits), np.minimum(np.arange(size), 1))
    total = session.linear(np.ones((1, bits.shape[1]), dtype=int), fresh)[:, 0]
    table = (3 * np.arange(size) + 1) % size
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(total, table)), table[bits.sum(axis=1)])
    shifts = np.array([0, 1, size - 1])
    zeros = np.zeros((1, *lane_axis(key.parameters)), dtype=int)
    outputs = session.bootstrap(key.encrypt(zeros).with_message_bound(0, 0), table, shifts=shifts)
    for entries in np.moveaxis(key.decrypt(outputs), 1, 0).reshape(len(shifts), -1).T:
        np.testing.assert_array_equal(entries, table[shifts])
