"""Boolean gates on batches of ciphertexts at -1/8 (false) and +1/8 (true): a linear combination, then one sign bootstrap.

    AND  a + b - 1/8      NAND  1/8 - a - b        XOR   2 (a + b) + 1/4        MAJORITY  a + b + c
    OR   a + b + 1/8      NOR  -1/8 - a - b        XNOR -2 (a + b) - 1/4        NOT      -a, without a bootstrap
    ANDNY, ORNY: AND and OR of NOT a and b         ANDYN, ORYN: of a and NOT b

MAJORITY is two bootstraps, one after the other, where the set does not allow a sum of three; so are AND3 and OR3 always; MUX(select, a, b)
is three, the first two in one batch.
The closest phase to a sign change is 1/8 away (1/4 for XOR and XNOR, whose noise doubles too).

Source: [DM15], [CGGI20]; ours bootstraps a batch of several gates at once, each with its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding, torus_constant
from cloakwork.fhe_core.ciphertexts import Ciphertexts, check_compatible, concatenate, require_ciphertexts, total_norm
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.session.lookup_tables import LookupTables, slot_polynomials
from cloakwork.fhe_core.words import Progress, Small

# Two-input gates: factors of a and b, and the constant in eighths of the torus.
TWO_INPUT_GATES = {
    "AND": (1, 1, -1),
    "OR": (1, 1, 1),
    "NAND": (-1, -1, 1),
    "NOR": (-1, -1, -1),
    "XOR": (2, 2, 2),
    "XNOR": (-2, -2, -2),
    "ANDNY": (-1, 1, -1),
    "ANDYN": (1, -1, -1),
    "ORNY": (-1, 1, 1),
    "ORYN": (1, -1, 1),
}
INPUT_COUNTS = dict.fromkeys(TWO_INPUT_GATES, 2) | {"NOT": 1, "MUX": 3, "MAJORITY": 3, "AND3": 3, "OR3": 3}


class Bootstraps(Protocol):
    """The protocol of a session for gates."""

    @property
    def parameters(self) -> ParameterSet:
        """Returns the parameter set of the keys."""

    def _rotate(
        self,
        ciphertexts: Ciphertexts,
        tables: LookupTables,
        table_index: ArrayLike | None,
        coefficients: Small | None,
        progress: Progress,
    ) -> Ciphertexts: ...


def evaluate(
    session: Bootstraps, gate: str | ArrayLike, *inputs: Ciphertexts, progress: Progress = None
) -> Ciphertexts:
    """Evaluates one gate for all, or an array of names of two-input gates that broadcasts with the inputs.

    Raises:
        ParameterError: an unknown gate, a wrong number of inputs, or inputs too noisy for the set.
    """
    if not isinstance(gate, str):
        return _mixed(session, np.asarray(gate), *_checked("mixed gates", 2, inputs), progress=progress)
    if gate not in INPUT_COUNTS:
        raise ParameterError(f"gate: expected one of {', '.join(sorted(INPUT_COUNTS))}; got '{gate}'")
    operands = _checked(gate, INPUT_COUNTS[gate], inputs)
    match gate:
        case "NOT":
            return -operands[0]
        case "MAJORITY":
            a, b, c = operands
            return _majority(session, a, b, c, progress)
        case "AND3" | "OR3":
            a, b, c = operands
            two = gate[:-1]
            return _two_input(session, two, _two_input(session, two, a, b, progress), c, progress)
        case "MUX":
            return _mux(session, *operands, progress=progress)
        case _:
            a, b = operands
            return _two_input(session, gate, a, b, progress)


def _two_input(session: Bootstraps, gate: str, a: Ciphertexts, b: Ciphertexts, progress: Progress) -> Ciphertexts:
    factor, factor_b, eighths = TWO_INPUT_GATES[gate]
    total = a + b if factor == factor_b else a - b
    scaled = total if factor == 1 else -total if factor == -1 else factor * total
    return _sign(session, scaled.add_torus_constant(eighths, 8), lambda: total.weight_norm, progress)


def _mixed(
    session: Bootstraps, gates: np.ndarray, a: Ciphertexts, b: Ciphertexts, *, progress: Progress
) -> Ciphertexts:
    unknown = ~np.isin(gates, list(TWO_INPUT_GATES))
    if gates.size == 0 or unknown.any():
        names = ", ".join(TWO_INPUT_GATES)
        raise ParameterError(f"gate: expected an array of names from {names}; got another one, or none")
    opposite = np.vectorize(lambda name: TWO_INPUT_GATES[name][0] != TWO_INPUT_GATES[name][1], otypes=[np.bool_])(gates)
    try:
        total = a + (b * np.where(opposite, -1, 1) if opposite.any() else b)
        gates = np.broadcast_to(gates, np.broadcast_shapes(gates.shape, total.shape))
    except (ShapeError, ValueError):
        shape = (a + b).shape
        raise ShapeError(f"gate: names of shape {gates.shape} do not fit ciphertexts of shape {shape}") from None
    factors = np.vectorize(lambda name: TWO_INPUT_GATES[name][0], otypes=[np.int64])(gates)
    eighths = np.vectorize(lambda name: TWO_INPUT_GATES[name][2], otypes=[np.int64])(gates)
    constants = {value: torus_constant(session.parameters, value, 8) for value in (-2, -1, 1, 2)}
    words = np.vectorize(constants.__getitem__, otypes=[np.uint64])(eighths)
    return _sign(session, (total * factors)._add_words(words), lambda: total.weight_norm, progress)


def _majority(session: Bootstraps, a: Ciphertexts, b: Ciphertexts, c: Ciphertexts, progress: Progress) -> Ciphertexts:
    """Returns sign(a + b + c), or sign(r + c) where r is a + b refreshed to exactly -1/4, 0 or 1/4."""
    params = session.parameters
    norm = total_norm(a, b, c)
    if norm <= _norm_limit(params):
        return _sign(session, a + b + c, lambda: norm, progress)
    both = a + b
    _check_norm(params, both.weight_norm)
    quarter = torus_constant(params, 1, 4)
    polynomial = slot_polynomials(params, np.array([[0, quarter]], dtype=np.uint64))
    refreshed = session._rotate(both, LookupTables(params, polynomial, Encoding.BOOLEAN), None, None, progress)
    return _sign(session, refreshed + c, lambda: total_norm(refreshed, c), progress)


def _mux(
    session: Bootstraps, select: Ciphertexts, a: Ciphertexts, b: Ciphertexts, *, progress: Progress
) -> Ciphertexts:
    """Returns select ? a : b = OR(AND(select, a), AND(NOT select, b))."""
    try:
        shape = np.broadcast_shapes(select.shape, a.shape, b.shape)
    except ValueError:
        raise ShapeError(f"MUX: shapes {select.shape}, {a.shape} and {b.shape} do not broadcast") from None
    _check_norm(session.parameters, max(total_norm(select, a), total_norm(select, b)))
    select, a, b = (part._broadcast(shape) for part in (select, a, b))
    left = concatenate([select[None], -select[None]])
    right = concatenate([a[None], b[None]])
    both = _two_input(session, "AND", left, right, progress)
    return _two_input(session, "OR", both[0], both[1], progress)


def _sign(session: Bootstraps, total: Ciphertexts, norm: Callable[[], float], progress: Progress) -> Ciphertexts:
    """+1/8 where the phase is in [0, 1/2), -1/8 elsewhere. A GPU is at work on words of its own while their norm is looked into."""
    resident = total.device != "cpu"
    if not resident:
        _check_norm(session.parameters, norm())
    eighth = torus_constant(session.parameters, 1, 8)
    sign = LookupTables.of_sign(session.parameters, eighth, Encoding.BOOLEAN)
    result = session._rotate(total, sign, None, None, progress)
    if resident:
        _check_norm(session.parameters, norm())
    return result


def _norm_limit(params: ParameterSet) -> float:
    """The set's own limit is for a margin of 1/8; an exact set's margin is 2^-(p+2), so that bits on it may be noisier."""
    return params.max_weight_norm * 2.0 ** max(params.message_bits - 1, 0) * (1 + 1e-9)


def _check_norm(params: ParameterSet, norm: float) -> None:
    limit = _norm_limit(params)
    if norm > limit:
        raise ParameterError(
            f"gate: expected inputs with a total weight norm of at most {limit:.4g}, got {norm:.4g}; use different outputs of gates or "
            "fresh encryptions as they are, neither sums nor the same ciphertext twice"
        )


def _checked(gate: str, count: int, inputs: tuple[Ciphertexts, ...]) -> tuple[Ciphertexts, ...]:
    if len(inputs) != count:
        raise ParameterError(f"{gate}: expected {count} input{'s' if count > 1 else ''}, got {len(inputs)}")
    for x in inputs:
        require_ciphertexts(x, gate)
        if x.encoding is not Encoding.BOOLEAN:
            raise ParameterError(
                f"{gate}: expected bits, got encoding {x.encoding.label}; encrypt them with encrypt_bits"
            )
        check_compatible(inputs[0], x)
    return inputs
