"""Validates the non-ciphertext arguments of large-precision functions, and converts them to the form that they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import check_same_key
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.large.plan import Input, function_p_fail_log2
from cloakwork.fhe_core.modular_integers import ModularIntegers
from cloakwork.fhe_core.server import Session

IntegerFunction: TypeAlias = Callable[[int], int] | ArrayLike

MOST_BITS: Final = 32

_LEAST_P_FAIL_LOG2: Final = -1000.0


def checked_output(output: object, allowed: Sequence[Encoding]) -> Encoding:
    """Checks that an output is one of these; None: the first."""
    if output is None:
        return allowed[0]
    if not isinstance(output, Encoding) or output not in allowed:
        labels = " or ".join(sorted(encoding.label for encoding in allowed))
        label = output.label if isinstance(output, Encoding) else type(output).__name__
        raise ParameterError(f"output: expected encoding {labels}, got {label}; pass a member of Encoding")
    return output


def check_call(session: Session, x: ModularIntegers, p_fail_log2: float, name: str) -> None:
    if not isinstance(x, ModularIntegers):
        raise ShapeError(
            f"{name}: expected ModularIntegers, got {type(x).__name__}; encrypt with encrypt_integers, or wrap torus ciphertexts"
        )
    check_same_key(session.parameters, session.expanded_key.key_id, x.parameters, x.ciphertexts.key_id, "integers")
    if x.size == 0:
        raise ShapeError(
            f"{name}: expected a batch of at least one, got shape {list(x.shape)}; skip the call for empty batches"
        )
    if isinstance(p_fail_log2, bool) or not isinstance(p_fail_log2, int | float | np.number):
        raise ShapeError(f"p_fail_log2: expected a number, got {type(p_fail_log2).__name__}")
    if not _LEAST_P_FAIL_LOG2 <= p_fail_log2 < 0:
        raise ParameterError(f"p_fail_log2: expected log2 of a probability, from -1000 to below 0, got {p_fail_log2:g}")


def check_plan(operation: str, value: Input, bits: int, digits: Sequence[int]) -> None:
    if operation not in ("sign", "floor", "decomp"):
        raise ParameterError(f"operation: expected sign, floor or decomp, got '{operation}'")
    if not 1 <= value.bits <= MOST_BITS:
        raise ParameterError(f"value: expected 1 to {MOST_BITS} bits, got {value.bits}")
    if operation == "floor" and not 1 <= bits < value.bits:
        raise ParameterError(
            f"bits: expected fewer than the value's {value.bits} bits, got {bits}; nothing would be left"
        )
    if operation == "decomp" and sum(digits) != value.bits:
        raise ParameterError(f"digits: expected lengths that add up to {value.bits} bits, got {list(digits)}")


def checked_count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ShapeError(f"{name}: expected an integer, got {type(value).__name__}")
    if value < 0:
        raise ParameterError(f"{name}: expected an integer of at least 0, got {value}")
    return int(value)


def digit_lengths(bits: int, digits: Sequence[int] | None, digit_bits: int | None) -> tuple[int, ...]:
    if (digits is None) == (digit_bits is None):
        raise ParameterError(
            "digits: expected either digits (bits of each) or digit_bits (of all), got both or neither"
        )
    if digit_bits is not None:
        length = min(checked_count(digit_bits, "digit_bits"), bits)
        if length == 0:
            raise ParameterError("digit_bits: expected at least 1, got 0")
        whole = (length,) * (bits // length)
        return whole if bits % length == 0 else (*whole, bits % length)
    if isinstance(digits, str | bytes) or not isinstance(digits, Sequence | np.ndarray):
        raise ShapeError(f"digits: expected a list of integers, got {type(digits).__name__}")
    lengths = tuple(checked_count(length, "digits") for length in digits)
    if 0 in lengths or sum(lengths) != bits:
        raise ParameterError(f"digits: expected lengths of at least 1 that add up to {bits} bits, got {list(lengths)}")
    return lengths


def check_modulus(params: ParameterSet, modulus: int, value: Input, p_fail_log2: float) -> None:
    def p_fail(candidate: int) -> float:
        return function_p_fail_log2(params, candidate, value, False)

    if p_fail(modulus) <= p_fail_log2:
        return
    largest = 1
    while p_fail(largest + 1) <= p_fail_log2:
        largest += 1
    possible = f"moduli up to {largest} are possible; " if largest > 1 else ""
    raise ParameterError(
        f"eval_func: parameter set '{params.name}' does not tell values modulo {modulus} apart with a failure probability of 2^{p_fail_log2:g} at "
        f"a noise of {value.norm:.3g} times a look-up's output; {possible}take digits of larger values (eval_decomp), or a set of more message bits"
    )


def function_values(function: IntegerFunction, inputs: int, modulus: int) -> NDArray[np.uint64]:
    """Returns f of 0 .. inputs - 1, modulo the output's modulus."""
    values = [function(m) for m in range(inputs)] if callable(function) else function
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError("function: expected one integer for each input, got arrays of different lengths") from None
    if array.dtype.kind not in "iub" or array.shape != (inputs,):
        raise ShapeError(
            f"function: expected {inputs} integers, one for each input, got dtype {array.dtype} of shape {list(array.shape)}; "
            "return Python integers, or round"
        )
    wide = array.astype(np.uint64 if array.dtype.kind == "u" else np.int64)
    residues: NDArray[np.uint64] = (wide % wide.dtype.type(modulus)).astype(np.uint64)
    return residues
