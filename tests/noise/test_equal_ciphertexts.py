"""Sums of equal look-ups: measured noise and failures against the weight norm that they claim, from both sides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.arrays.encoding import Encoding, decode, phase_error
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.server import Session

SAMPLES, TERMS = 1500, 9
STANDARD_DEVIATIONS = 4.0  # that a count or a deviation may be off


class Bench:
    """A key, and look-ups of encrypted zeros: of TERMS inputs, any of them computed anew any number of times."""

    def __init__(self, name: str) -> None:
        self.key = ClientKey._from_entropy(name, bytes(range(32)))
        self.session = Session(self.key.evaluation_keys())
        self.inputs = [self.key.encrypt(np.zeros(SAMPLES, int)) for _ in range(TERMS)]
        self.outputs: dict[tuple[int, int], Ciphertexts] = {}

    def look_up(self, number: int, time: int) -> Ciphertexts:
        """The look-up of input `number` for the `time`-th time, kept for the tests that come after."""
        if (number, time) not in self.outputs:
            self.outputs[number, time] = self.session.bootstrap(self.inputs[number], [0, 1, 2, 3])
        return self.outputs[number, time]


@pytest.fixture(scope="module", params=["toy", pytest.param("toy_two_limb", marks=pytest.mark.tier("all"))])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def errors(key: ClientKey, x: Ciphertexts) -> np.ndarray:
    return phase_error(key.parameters, key.phases(x), np.zeros(x.shape, int), Encoding.MESSAGE)


IN_ALL = pytest.mark.tier("all")


@pytest.mark.parametrize("distinct", [1, 3, pytest.param(2, marks=IN_ALL), pytest.param(TERMS, marks=IN_ALL)])
def test_failures_are_as_frequent_as_the_claimed_norm_says(bench: Bench, distinct: int) -> None:
    """The sum is scaled until its margin is 1.5 of the claimed standard deviations, so that one in seven decodes wrongly.

    Before equal words were found the claim for 9 equal look-ups was a third of their noise: 2^-17 for what fails once in seven times.
    """
    key = bench.key
    parts = [bench.look_up(i % distinct, i // distinct) for i in range(TERMS)]
    single = math.sqrt(float(np.mean([np.square(errors(key, part)).mean() for part in parts])))
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    multiplicities = [len(range(i, TERMS, distinct)) for i in range(distinct)]
    assert total.weight_norm == pytest.approx(float(np.linalg.norm(multiplicities)))

    measured = math.sqrt(float(np.square(errors(key, total)).mean())) / single
    spread = STANDARD_DEVIATIONS / math.sqrt(2 * SAMPLES)
    assert 1 - 2 * spread < measured / total.weight_norm < 1 + 2 * spread

    margin = noise.lookup_margin(key.parameters)
    scaled = total * round(margin / (1.5 * total.weight_norm * single))
    z = margin / (scaled.weight_norm * single)
    wrong = int((decode(key.parameters, key.phases(scaled), Encoding.MESSAGE) != 0).sum())
    expected = math.erfc(z / math.sqrt(2))
    assert wrong / SAMPLES == pytest.approx(expected, abs=2 * STANDARD_DEVIATIONS * math.sqrt(expected / SAMPLES))


def test_a_gate_computed_twice_is_one_ciphertext() -> None:
    """AND(g, g') sees the noise of g twice; it is refused as AND(g, g) is, and gates that differ go on."""
    key = ClientKey.generate("toy_gate")
    session = Session(key.evaluation_keys())
    a, b = key.encrypt([True, False]), key.encrypt([True, True])
    g, twin = session.gate("AND", a, b), session.gate("AND", a, b)
    loaded = Ciphertexts.from_bytes(twin.to_bytes())
    for second in (g, twin, loaded, twin.copy()):
        for gate in ("AND", "OR", "XOR", "NAND", "NOR", "XNOR"):
            with pytest.raises(ParameterError, match="the same ciphertext twice"):
                session.gate(gate, g, second)
        with pytest.raises(ParameterError, match="the same ciphertext twice"):
            session.gate(["AND", "XOR"], g, second)
        with pytest.raises(ParameterError, match="the same ciphertext twice"):
            session.gate("MAJORITY", g, second, a)
    with pytest.raises(ParameterError, match="the same ciphertext twice"):
        session.gate("MUX", a, b, -a)  # NOT a, against a
    np.testing.assert_array_equal(key.decrypt(session.gate("XOR", g, session.gate("OR", a, b))), [False, True])
    np.testing.assert_array_equal(key.decrypt(session.gate("AND", g, -twin)), [False, False])


def test_de_morgan_gives_the_same_gate() -> None:
    key = ClientKey.generate("toy_gate")
    session = Session(key.evaluation_keys())
    a, b = key.encrypt([True, False, False]), key.encrypt([True, True, False])
    with pytest.raises(ParameterError, match="the same ciphertext twice"):
        session.gate("OR", session.gate("NOR", a, b), session.gate("AND", -a, -b))
