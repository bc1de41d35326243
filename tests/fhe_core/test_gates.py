"""Every gate on every input, batched, mixed, chained; and one shipped set end to end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from emulation import some_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core import gates
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.server import Session

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]

CLEAR: dict[str, Callable[..., np.ndarray]] = {
    "NOT": lambda a: ~a,
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "NAND": lambda a, b: ~(a & b),
    "NOR": lambda a, b: ~(a | b),
    "XOR": lambda a, b: a ^ b,
    "XNOR": lambda a, b: ~(a ^ b),
    "ANDNY": lambda a, b: ~a & b,
    "ANDYN": lambda a, b: a & ~b,
    "ORNY": lambda a, b: ~a | b,
    "ORYN": lambda a, b: a | ~b,
    "MUX": lambda select, a, b: np.where(select, a, b),
    "MAJORITY": lambda a, b, c: a.astype(int) + b + c >= 2,
    "AND3": lambda a, b, c: a & b & c,
    "OR3": lambda a, b, c: a | b | c,
}


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey.generate("toy")


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, key: ClientKey) -> Iterator[Session]:
    yield Session(key.evaluation_keys(), device=request.param)


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.tier("all")])])
def fast_session(request: pytest.FixtureRequest, key: ClientKey) -> Iterator[Session]:
    """Of a device that is not emulated."""
    yield Session(key.evaluation_keys(), device=request.param)


def test_all_gates_are_here() -> None:
    assert set(gates.INPUT_COUNTS) == set(CLEAR)


@pytest.mark.parametrize("gate", CLEAR)
def test_truth_table(key: ClientKey, session: Session, gate: str) -> None:
    """All inputs, several times over in one batch."""
    rows = np.array(list(itertools.product([False, True], repeat=gates.INPUT_COUNTS[gate])))
    inputs = list(some_of(session, np.tile(rows, (5, 1)), len(rows)).T)
    outputs = session.gate(gate, *(key.encrypt_bits(bits) for bits in inputs))
    np.testing.assert_array_equal(key.decrypt(outputs), CLEAR[gate](*inputs))
    assert outputs.weight_norm == 1


def test_not_is_free(key: ClientKey, session: Session) -> None:
    a = key.encrypt_bits([True, False])
    np.testing.assert_array_equal(session.gate("NOT", a).words, (-a).words)


def test_outputs_are_fresh_bits(key: ClientKey, session: Session) -> None:
    a = key.encrypt_bits([True, False])
    _, noise = key.decrypt(session.gate("XOR", a, a), return_noise=True)
    assert float(np.abs(noise).max()) < 1 / 32


def test_mixed_gates_in_one_batch(key: ClientKey, session: Session) -> None:
    names = np.array(list(gates.TWO_INPUT_GATES))
    bits = np.array(list(itertools.product([False, True], repeat=2)))
    a, b = bits[:, 0], bits[:, 1]
    outputs = session.gate(names[:, None], key.encrypt_bits(a), key.encrypt_bits(b))
    assert outputs.shape == (10, 4)
    np.testing.assert_array_equal(key.decrypt(outputs), [CLEAR[name](a, b) for name in names])


def test_mixed_gates_give_the_words_of_single_ones(key: ClientKey, session: Session) -> None:
    a, b = key.encrypt_bits([True, False, True]), key.encrypt_bits([True, True, False])
    mixed = session.gate(["XOR", "NAND", "OR"], a, b)
    for i, name in enumerate(["XOR", "NAND", "OR"]):
        np.testing.assert_array_equal(mixed.words[i], session.gate(name, a[i], b[i]).words)


def test_broadcasting(key: ClientKey, session: Session) -> None:
    a, b, select = np.array([[False], [True]]), np.array([False, True, True]), np.array(True)
    outputs = session.gate("MUX", *(key.encrypt_bits(bits) for bits in (select, a, b)))
    np.testing.assert_array_equal(key.decrypt(outputs), np.broadcast_to(a, (2, 3)))


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(CLEAR)), st.lists(st.integers(0, 100), min_size=3, max_size=3)), max_size=6
    )
)
def test_random_circuits(key: ClientKey, fast_session: Session, circuit: list[tuple[str, list[int]]]) -> None:
    clear = [np.array([False, False, True, True]), np.array([False, True, False, True])]
    wires = [key.encrypt_bits(bits) for bits in clear]
    for gate, sources in circuit:
        chosen = [source % len(wires) for source in sources[: gates.INPUT_COUNTS[gate]]]
        wires.append(fast_session.gate(gate, *(wires[i] for i in chosen)))
        clear.append(CLEAR[gate](*(clear[i] for i in chosen)))
    for wire, bits in zip(wires, clear, strict=True):
        np.testing.assert_array_equal(key.decrypt(wire), bits)


def test_a_ripple_carry_adder(key: ClientKey, session: Session) -> None:
    x, y = np.array([3, 9, 15, 200, 255]), np.array([5, 7, 1, 100, 255])
    planes = 2 ** np.arange(9)[:, None]
    a, b = (key.encrypt_bits((values & planes) > 0) for values in (x, y))
    carry = key.encrypt_bits(np.zeros(5, dtype=bool))
    total = np.zeros(5, dtype=int)
    for i in range(9):
        half = session.gate("XOR", a[i], b[i])
        total += key.decrypt(session.gate("XOR", half, carry)) * planes[i]
        carry = session.gate("MAJORITY", a[i], b[i], carry)
    np.testing.assert_array_equal(total, x + y)


# --- refusals --------------------------------------------------------------------------------------------------------------------


def test_unknown_gates(key: ClientKey, session: Session) -> None:
    a = key.encrypt_bits([True])
    with pytest.raises(ParameterError, match="expected one of AND, .*got 'nand'"):
        session.gate("nand", a, a)
    for names in (["AND", "NOT"], ["MUX"], [], [1]):
        with pytest.raises(ParameterError, match="array of names"):
            session.gate(names, a, a)
    with pytest.raises(ShapeError, match="do not fit"):
        session.gate(["AND", "OR", "AND"], key.encrypt_bits([True, False]), a[0])


@pytest.mark.parametrize(("gate", "count"), [("NOT", 2), ("AND", 1), ("AND", 3), ("MUX", 2), ("AND3", 2)])
def test_wrong_number_of_inputs(key: ClientKey, session: Session, gate: str, count: int) -> None:
    with pytest.raises(ParameterError, match=f"{gate}: expected .* got {count}"):
        session.gate(gate, *[key.encrypt_bits([True])] * count)


def test_inputs_that_are_not_bits(key: ClientKey, session: Session) -> None:
    with pytest.raises(ParameterError, match="expected bits, got encoding message"):
        session.gate("AND", key.encrypt([1]), key.encrypt([1]))
    with pytest.raises(ShapeError, match="expand seeded ones"):
        session.gate("NOT", key.encrypt_bits([True], seeded=True))  # type: ignore[arg-type]


def test_inputs_that_do_not_fit_together(key: ClientKey, session: Session) -> None:
    with pytest.raises(ShapeError, match="do not broadcast"):
        session.gate("AND", key.encrypt_bits([True, False]), key.encrypt_bits([True, False, True]))
    with pytest.raises(ShapeError, match="do not broadcast"):
        session.gate("MUX", *(key.encrypt_bits([True] * count) for count in (1, 2, 3)))


# --- a shipped set, end to end ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gate_key() -> ClientKey:
    return ClientKey.generate("gate_64")


@pytest.fixture(scope="module")
def gate_session(gate_key: ClientKey) -> Session:
    return Session(gate_key.evaluation_keys(), threads=2)


@pytest.mark.parametrize("gate", CLEAR)
def test_gate_64_end_to_end(gate_key: ClientKey, gate_session: Session, gate: str) -> None:
    rows = np.array(list(itertools.product([False, True], repeat=gates.INPUT_COUNTS[gate])))
    inputs = list(np.tile(rows, (4, 1)).T)
    outputs = gate_session.gate(gate, *(gate_key.encrypt(bits) for bits in inputs))
    np.testing.assert_array_equal(gate_key.decrypt(outputs), CLEAR[gate](*inputs))


def test_gates_refuse_sums(gate_key: ClientKey, gate_session: Session) -> None:
    a = gate_key.encrypt([True, False])
    noisy = a * 3
    with pytest.raises(ParameterError, match="total weight norm"):
        gate_session.gate("AND", a, noisy)


@pytest.mark.parametrize(
    ("gate", "order"), [("AND", "aa"), ("XOR", "aa"), ("MAJORITY", "aab"), ("MUX", "aab"), ("MUX", "bab")]
)
def test_gates_refuse_the_same_ciphertext_twice(
    gate_key: ClientKey, gate_session: Session, gate: str, order: str
) -> None:
    """Its noise adds up instead of averaging out (and the result needs no bootstrap)."""
    wires = {name: gate_key.encrypt([True, False]) for name in "ab"}
    with pytest.raises(ParameterError, match="the same ciphertext twice"):
        gate_session.gate(gate, *(wires[name] for name in order))


@pytest.mark.parametrize("sum_of_three", [False, True])
def test_majority_both_ways(
    key: ClientKey, session: Session, sum_of_three: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bootstrap where the set allows a sum of three, two where it does not."""
    monkeypatch.setattr(gates, "_norm_limit", lambda params: 1.8 if sum_of_three else 1.5)
    bootstraps: list[int] = []
    rotate = session._rotate

    def counting(*arguments: object) -> object:
        bootstraps.append(1)
        return rotate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "_rotate", counting)
    inputs = list(np.tile(np.array(list(itertools.product([False, True], repeat=3))), (5, 1)).T)
    outputs = session.gate("MAJORITY", *(key.encrypt_bits(bits) for bits in inputs))
    np.testing.assert_array_equal(key.decrypt(outputs), CLEAR["MAJORITY"](*inputs))
    assert len(bootstraps) == (1 if sum_of_three else 2)


def test_parts_of_one_array_are_different_ciphertexts(gate_key: ClientKey, gate_session: Session) -> None:
    bits = np.array([True, False, True, True])
    a = gate_key.encrypt(bits)
    for left, right in ((slice(None, -1), slice(1, None)), (slice(0, None, 2), slice(1, None, 2))):
        np.testing.assert_array_equal(
            gate_key.decrypt(gate_session.gate("XOR", a[left], a[right])), bits[left] ^ bits[right]
        )
    with pytest.raises(ParameterError, match="the same ciphertext twice"):
        gate_session.gate("XOR", a[:, None], a[None, :])  # the diagonal
