"""Upper limit that a GPU's integer-multiply pipe sets: the count of docs/explanation/cuda.md ("Operations and floor"), from a set's shape.

64 slots a clock and multiprocessor; a butterfly takes four, a wide product two, a Montgomery reduction three. None where that page has no
such count: products in double precision, extended tables, and steps whose factor multiplies the accumulator.
"""

from __future__ import annotations

import math
from typing import Any, Final

from cloakwork.fhe_core.noise import share_of_steps_taken
from cloakwork.fhe_core.parameters import ParameterSet

SLOTS_PER_CLOCK: Final = 64
CLOCK_HZ: Final = {"H200": 1.98e9, "H100": 1.98e9}  # under load, by a part of the card's name
LARGE_DIGIT_LOG2: Final = 12  # smaller digits have first stages of plain products
_COUNTED_STEPS: Final = ("ternary", "binary_pair", "block_", "select_")
_FOLDED_SLOTS: Final = {2048: 1, 4096: 7}  # of a point of many digits: first stages made anew for each part


def clocks_of_step(params: ParameterSet) -> float | None:
    """Returns the clock cycles of a step of one ciphertext with all its lanes, on one multiprocessor; on average where a digit of 0 skips the
    step."""
    if params.rounded_products or params.extension_factor > 1 or not params.cmux.startswith(_COUNTED_STEPS):
        return None
    size, limbs, keys = params.polynomial_size, params.key_limb_count, params.keys_per_step
    rows, outputs = params.row_count, params.accumulator_components
    points = limbs * size
    butterflies = (rows + outputs) * points / 2 * math.log2(size) * 4 - _plain_stages(params)
    sums = outputs * size * (0 if limbs == 1 else 4 if params.raised else 8)
    if params.digit_bits:  # one selected key, no factors
        products, reductions = rows * outputs * points * 2, outputs * points * 3
        return share_of_steps_taken(params) * (butterflies + products + reductions + sums) / SLOTS_PER_CLOCK
    if limbs == 2 and rows == outputs:  # factors first
        products = rows * outputs * points * 2 * (1 + keys)
        reductions = (rows + 1) * outputs * points * 3
    else:  # digits first
        products = (rows + 1) * outputs * keys * points * 2
        reductions = (keys + 1) * outputs * points * 3
    return (butterflies + products + reductions + sums) / SLOTS_PER_CLOCK


def _plain_stages(params: ParameterSet) -> float:
    """Returns slots that small digits save in the first stages of forward transforms."""
    size, rows = params.polynomial_size, params.row_count
    if params.mask_gadget[0] >= LARGE_DIGIT_LOG2:
        return 0.0
    if params.key_limb_count == 1:
        return rows * size / 2 * 3
    stages = math.log2(size / 1024)
    return rows * 2 * size * (2 * stages - _FOLDED_SLOTS.get(size, 0))


def ceiling_per_second(params: ParameterSet, device: dict[str, Any] | None) -> float | None:
    """Returns rotations of values a second on a device of `cuda_devices()`; None on a CPU, an unknown card, or without a count."""
    clocks = clocks_of_step(params)
    clock = next((hertz for part, hertz in CLOCK_HZ.items() if device is not None and part in device["name"]), None)
    if clocks is None or clock is None or device is None:
        return None
    return float(device["multiprocessors"]) * clock / (clocks * params.step_count) * params.lane_count
