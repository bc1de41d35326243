"""Large precision: any function without a padding bit, and floor, sign and digits of integers of up to 32 bits.

    eval_bin_gate(session, "XOR", a, b)     a Boolean gate
    eval_func(session, x, f)                f(m) for any function of a small modulus, 2 rotations (1 for f(m + q/2) = -f(m))
    eval_floor(session, x, bits=3)          m with its lowest 3 bits removed
    eval_sign(session, x)                   the top bit: 1 where m >= 2^(B-1)
    eval_decomp(session, x, digits=[4, 4])  the digits, lowest first

Values are `ModularIntegers`. What look-ups a call makes is its `Plan` (plan.py), the cheapest one that fails with at most `p_fail_log2`, all
look-ups of one value together, by the noise model of the session's set and the noise that the value has. Nothing here is a GPU's or a CPU's:
plans are carried out by linear operations and look-ups of `Session`.

Source: [LMP21]; docs/howto/large-precision.md says where ours differs and which call of OpenFHE's binfhe is which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding, slot_bits, torus_constant
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.large import plan as large_plan
from cloakwork.fhe_core.large import search as large_search
from cloakwork.fhe_core.large.arguments import (
    IntegerFunction,
    check_call,
    check_modulus,
    check_plan,
    checked_count,
    checked_output,
    digit_lengths,
    function_values,
)
from cloakwork.fhe_core.large.plan import Input, Output, Plan, Rotation
from cloakwork.fhe_core.modular_integers import ModularIntegers, checked_modulus, encode_integers
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.lookup_tables import LookupTables
from cloakwork.fhe_core.words import Phases, Progress

__all__ = ["P_FAIL_LOG2", "eval_bin_gate", "eval_decomp", "eval_floor", "eval_func", "eval_sign", "plan_of"]

P_FAIL_LOG2: Final = -128.0
_MOST_SHIFT: Final = 30  # factors of ciphertexts are below 2^31


def eval_bin_gate(session: Session, gate: str, *inputs: Ciphertexts, progress: Progress = None) -> Ciphertexts:
    """Evaluates AND, OR, NAND, NOR, XOR, XNOR, ANDNY, ANDYN, ORNY or ORYN of two bits, NOT of one, MAJORITY, AND3 or OR3 of three, MUX(select, a, b).

    Bits are of encoding `boolean` (`ClientKey.encrypt_bits`). It is `Session.gate`: docs in `cloakwork.fhe_core.gates`.
    """
    return session.gate(gate, *inputs, progress=progress)


def eval_func(
    session: Session,
    x: ModularIntegers,
    function: IntegerFunction,
    *,
    output_modulus: int | None = None,
    p_fail_log2: float = P_FAIL_LOG2,
    progress: Progress = None,
) -> ModularIntegers:
    """Evaluates f(m) modulo `output_modulus` for any function of an integer modulo q, with fresh noise.

    Args:
        function: of one integer in [0, q), or q integers. Taken modulo the output's modulus.
        output_modulus: 2 to 2^32; None: q.
        p_fail_log2: of one value.

    Cost: two rotations; one where q is even and f(m + q/2) = -f(m).

    Raises:
        ParameterError: a modulus, or noise, that the set does not tell apart at `p_fail_log2`; the message says which modulus it does.
    """
    check_call(session, x, p_fail_log2, "eval_func")
    modulus = x.modulus if output_modulus is None else checked_modulus(output_modulus)
    value = Input(0, x.weight_norm, x.rounding)
    one = large_plan.function_p_fail_log2(session.parameters, x.modulus, value, True)
    if x.modulus % 2 or one > p_fail_log2:
        check_modulus(session.parameters, x.modulus, value, p_fail_log2)
    outputs = function_values(function, x.modulus, modulus)
    half = x.modulus // 2
    if x.modulus % 2 == 0 and not ((outputs[half:] + outputs[:half]) % np.uint64(modulus)).any():
        phase = x.ciphertexts.add_torus_constant(1, 2 * x.modulus)
        table = _integer_table(session.parameters, outputs[:half], modulus)
        bootstrapped = session.bootstrap_negacyclic(phase, table, allow_noise=True, progress=progress)
        return ModularIntegers(bootstrapped, modulus, 0.5)
    check_modulus(session.parameters, x.modulus, value, p_fail_log2)
    # m / 2q with half a slot, or half a turn more: its sign is taken away, and what is left lies in half of the torus.
    phase = x.ciphertexts.add_torus_constant(1, 2 * x.modulus)._halved()
    sign = LookupTables.of_sign(session.parameters, torus_constant(session.parameters, 1, 4), Encoding.TORUS)
    bootstrapped = session.bootstrap_negacyclic(phase, sign, allow_noise=True, progress=_share(progress, 0, 2))
    lower = phase + bootstrapped.add_torus_constant(-1, 4)
    table = _integer_table(session.parameters, outputs, modulus)
    bootstrapped = session.bootstrap_negacyclic(lower, table, allow_noise=True, progress=_share(progress, 1, 2))
    return ModularIntegers(bootstrapped, modulus, 0.5)


def eval_floor(
    session: Session,
    x: ModularIntegers,
    bits: int,
    *,
    p_fail_log2: float = P_FAIL_LOG2,
    progress: Progress = None,
) -> ModularIntegers:
    """Returns m without its lowest `bits` bits: floor(m / 2^bits), a value of B - bits bits. bits = 0 gives x.

    The noise is that of x and of the outputs that were subtracted (`weight_norm`), so results have few bits on sets whose outputs are noisy;
    they are checked to decode, within the same `p_fail_log2`. Bits that come to less than that noise, or 1/256 of half a slot, may stay:
    `rounding` counts them.

    Raises:
        ParameterError: a modulus that is no power of two, or more bits than the set and the noise allow; the message says how many.
    """
    check_call(session, x, p_fail_log2, "eval_floor")
    removed = checked_count(bits, "bits")
    if removed == 0:
        return x
    plan = plan_of("floor", session.parameters, _value(x), bits=removed, p_fail_log2=p_fail_log2)
    extracted = _carried_out(session, x, plan, progress)
    (output,) = plan.outputs
    left = plan.left_below(output)
    floor = (x.ciphertexts - _summed(plan, extracted, output)).add_torus_constant(-left, 2 << x.bits)
    moved = x.rounding + len(output.parts) + 1 + left * session.parameters.modulus / (2 << x.bits)
    return ModularIntegers(floor, 1 << (x.bits - removed), moved)


def eval_sign(
    session: Session,
    x: ModularIntegers,
    *,
    output: Encoding | None = None,
    p_fail_log2: float = P_FAIL_LOG2,
    progress: Progress = None,
) -> Ciphertexts:
    """Returns 1 where m >= 2^(B-1), which in two's complement is a negative value, else 0: one fresh ciphertext per value.

    Args:
        output: `message` (where the set has messages), `full_domain`, or `boolean` (any set) for gates.

    Raises:
        ParameterError: as `eval_floor`.
    """
    check_call(session, x, p_fail_log2, "eval_sign")
    encoding = _sign_encoding(session.parameters, output)
    plan = plan_of("sign", session.parameters, _value(x), output=encoding, p_fail_log2=p_fail_log2)
    sign = _carried_out(session, x, plan, progress)[-1]
    if encoding is Encoding.BOOLEAN:
        sign = sign.add_torus_constant(-1, 8)
    return _bounded(sign.with_encoding(encoding), 1)


def eval_decomp(
    session: Session,
    x: ModularIntegers,
    digits: Sequence[int] | None = None,
    *,
    digit_bits: int | None = None,
    output: Encoding | None = None,
    p_fail_log2: float = P_FAIL_LOG2,
    progress: Progress = None,
) -> list[Ciphertexts]:
    """Returns the digits of m, lowest first, as messages that look-ups of the set take.

    Args:
        digits: bits of each, which add up to B; or `digit_bits`: all of this length, the last one of what is left.
        output: `message` (padded, for `Session.bootstrap`) or `full_domain`.

    Raises:
        ParameterError: as `eval_floor`; digits that do not add up, or longer than a message of the set.
    """
    check_call(session, x, p_fail_log2, "eval_decomp")
    lengths = digit_lengths(x.bits, digits, digit_bits)
    encoding = _digit_encoding(output)
    plan = plan_of("decomp", session.parameters, _value(x), digits=lengths, output=encoding, p_fail_log2=p_fail_log2)
    extracted = _carried_out(session, x, plan, progress)
    return [
        _bounded(_summed(plan, extracted, part).with_encoding(encoding), (1 << bits) - 1)
        for part, bits in zip(plan.outputs, lengths, strict=True)
    ]


# --- plans ------------------------------------------------------------------------------------------------------------------------


def plan_of(
    operation: str,
    parameters: ParameterSet,
    value: Input,
    *,
    bits: int = 0,
    digits: Sequence[int] = (),
    output: Encoding | None = None,
    p_fail_log2: float = P_FAIL_LOG2,
) -> Plan:
    """Plans the look-ups of a `sign`, of a `floor` by `bits`, or of a `decomp` into `digits`, with their failure probability.

    Args:
        value: its bits and noise; of a fresh encryption `Input(bits, encryption_norm(parameters, 1 << bits))`.

    Raises:
        ParameterError: nothing reaches `p_fail_log2` with this set and this noise; the message says what does.
    """
    check_plan(operation, value, bits, digits)
    match operation:
        case "sign":
            scale = _sign_scale(parameters, _sign_encoding(parameters, output), value.bits)
            plan = large_search.sign_plan(parameters, value, scale, p_fail_log2)
        case "floor":
            plan = large_search.floor_plan(parameters, value, bits, p_fail_log2)
        case "decomp":
            plan = _decomposition_plan(
                parameters,
                value,
                tuple(digits),
                checked_output(output, (Encoding.MESSAGE, Encoding.FULL_DOMAIN)),
                p_fail_log2,
            )
        case _:
            raise ParameterError(f"operation: expected sign, floor or decomp, got '{operation}'")
    if plan is None:
        raise ParameterError(
            f"eval_{operation}: no look-ups of parameter set '{parameters.name}' do this for a value of {value.bits} bits with a failure "
            f"probability of 2^{p_fail_log2:g} at a noise of {value.norm:.3g} times a look-up's output; "
            + _way_out(operation, parameters, value, bits, p_fail_log2)
        )
    return plan


def _decomposition_plan(
    params: ParameterSet, value: Input, digits: tuple[int, ...], output: Encoding, p_fail_log2: float
) -> Plan | None:
    slots, longest = slot_bits(params, output), params.message_bits
    if not digits or max(digits) > longest:
        raise ParameterError(
            f"digits: expected at most {longest} bits each, a message of parameter set '{params.name}', got {list(digits)}; split them"
        )
    return large_search.decomposition_plan(params, value, digits, slots, p_fail_log2)


def _way_out(operation: str, params: ParameterSet, value: Input, bits: int, p_fail_log2: float) -> str:
    """What would do: the most bits, or nothing of this set."""
    if operation == "decomp":
        return "use shorter digits, a value with less noise, or a set whose look-ups have less"

    def possible(count: int) -> bool:
        if operation == "sign":
            return (
                large_search.sign_plan(params, Input(count, value.norm, value.rounding), count + 1, p_fail_log2)
                is not None
            )
        return large_search.floor_plan(params, value, value.bits - count, p_fail_log2) is not None

    low, high = 0, value.bits - (bits if operation == "floor" else 0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    if low == 0:
        return "use a value with less noise, or a set whose look-ups have less"
    what = "results" if operation == "floor" else "values"
    return f"{what} of up to {low} bits are possible; or use a value with less noise, or a set whose look-ups have less"


def _value(x: ModularIntegers) -> Input:
    return Input(x.bits, x.weight_norm, x.rounding)


def _digit_encoding(output: Encoding | None) -> Encoding:
    return checked_output(output, (Encoding.MESSAGE, Encoding.FULL_DOMAIN))


def _sign_encoding(params: ParameterSet, output: Encoding | None) -> Encoding:
    allowed = (Encoding.MESSAGE, Encoding.FULL_DOMAIN, Encoding.BOOLEAN)
    return checked_output(output, allowed if params.message_bits else allowed[::-1])


def _sign_scale(params: ParameterSet, encoding: Encoding, bits: int) -> int:
    """1 is at 2^-slots of the torus; booleans are a quarter turn apart."""
    return bits - 1 + (2 if encoding is Encoding.BOOLEAN else slot_bits(params, encoding))


# --- carrying out -----------------------------------------------------------------------------------------------------------------


def _carried_out(session: Session, x: ModularIntegers, plan: Plan, progress: Progress) -> list[Ciphertexts]:
    """Returns the output of every rotation: the bits it found, at its scale."""
    extracted: list[Ciphertexts] = []
    window: tuple[int, int, tuple[int, ...]] | None = None
    for number, rotation in enumerate(plan.rotations):
        if window != (rotation.position, rotation.top, rotation.removed):
            window = (rotation.position, rotation.top, rotation.removed)
            phase = _times_power(x.ciphertexts, plan.bits - rotation.top)
            for i in rotation.removed:
                phase = phase - _times_power(extracted[i], plan.rotations[i].scale - rotation.top)
            phase = phase.add_torus_constant(plan.margin_words(rotation), 2 << rotation.top)
        share = _share(progress, number, len(plan.rotations))
        extracted.append(_found(session, phase, rotation, share))
    return extracted


def _found(session: Session, phase: Ciphertexts, rotation: Rotation, progress: Progress) -> Ciphertexts:
    lowest, end = rotation.found
    params = session.parameters
    if not rotation.sign:
        values = np.arange(1 << (end - lowest), dtype=np.uint64)
        table = _integer_table(params, values, 1 << (rotation.scale - lowest))
        return session.bootstrap_negacyclic(phase, table, allow_noise=True, progress=progress)
    half = 2 << (rotation.scale - lowest)  # the bit is 2 / half: the sign gives 1 / half for 0 and -1 / half for 1
    sign = LookupTables.of_sign(params, torus_constant(params, 1, half), Encoding.TORUS)
    bootstrapped = session.bootstrap_negacyclic(phase, sign, allow_noise=True, progress=progress)
    return (-bootstrapped).add_torus_constant(1, half)


def _summed(plan: Plan, extracted: list[Ciphertexts], output: Output) -> Ciphertexts:
    parts = [_times_power(extracted[i], plan.rotations[i].scale - output.scale) for i in output.parts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _times_power(ciphertexts: Ciphertexts, exponent: int) -> Ciphertexts:
    """Times 2^exponent."""
    while exponent > 0:
        shift = min(exponent, _MOST_SHIFT)
        ciphertexts, exponent = ciphertexts * (1 << shift), exponent - shift
    return ciphertexts


def _bounded(ciphertexts: Ciphertexts, largest: int) -> Ciphertexts:
    return ciphertexts.with_message_bound(0, largest) if ciphertexts.encoding is Encoding.MESSAGE else ciphertexts


def _integer_table(params: ParameterSet, values: NDArray[np.uint64], modulus: int) -> LookupTables:
    """Returns E entries for [0, 1/2) in slots from 0 on, v at v / modulus: entry i of S is number floor(i E / S)."""
    words = _phases(params, values, modulus)
    chosen = np.arange(params.table_size) * len(values) // params.table_size
    return LookupTables(params, words[chosen][None].astype(word_dtype(params)), Encoding.TORUS)


def _phases(params: ParameterSet, values: NDArray[np.uint64], modulus: int) -> Phases:
    if modulus <= 1 << 32:
        return encode_integers(params, values, modulus)
    words = [int(value) * params.modulus // modulus for value in values]  # few, of a fine scale
    return np.array(words, dtype=np.uint64)


def _share(progress: Progress, number: int, count: int) -> Progress:
    """Returns the share of one of several rotations of the same batch: counts all of them."""
    if progress is None:
        return None
    return partial(_forwarded, progress, number, count)


def _forwarded(
    progress: Callable[[int, int], bool | None], number: int, count: int, done: int, total: int
) -> bool | None:
    return progress(number * total + done, count * total)
