"""Failure probability: measured where it is large enough to count, and the Gaussian model carries it to the table's 2^-64 and 2^-128."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from measurements import WRONG_AT, WRONG_SAMPLES, noisy_zeros
from records import stored_set
from toys import TOYS

from cloakwork.fhe_core import noise


@pytest.mark.parametrize("z", WRONG_AT)
@pytest.mark.parametrize("name", TOYS)
def test_wrong_lookups_are_as_frequent_as_the_model_says(name: str, z: float) -> None:
    """Of 8192 inputs, so noisy that the margin is about z standard deviations; the share that left its slot is stored."""
    stored = stored_set(name)
    params, wrong = stored.params, stored.facts["wrong look-ups"][str(z)]
    margin, n = noise.lookup_margin(params), params.table_size
    assert wrong["input_variance"] == pytest.approx((margin / z) ** 2)
    half_slot = round(margin * 2 * n)
    variance = noise.lookup_variance(params, 1.0, wrong["input_variance"])
    # Both edges of [-half_slot, half_slot) on the integers, before the last rounding.
    sd = 2 * n * math.sqrt(variance)
    offset = 2 * n * noise.keyswitch_offset(params)
    expected = 0.5 * math.erfc((half_slot - 0.5 - offset) / sd / math.sqrt(2)) + 0.5 * math.erfc(
        (half_slot + 0.5 + offset) / sd / math.sqrt(2)
    )
    scatter = math.sqrt(expected / WRONG_SAMPLES)
    assert wrong["share"] == pytest.approx(expected, rel=0.06, abs=4 * scatter)
    assert 2.0 ** noise.p_fail_log2(margin, variance, noise.lookup_offset(params)) >= 0.9 * expected


def test_lookup_fails_where_the_switched_phase_left_its_slot(toy: Any) -> None:
    """The blind rotation adds no failures of its own: wrong outputs are exactly those whose switched phase is out of the slot."""
    params = toy.params
    n = params.table_size
    half_slot = round(noise.lookup_margin(params) * 2 * n)
    inside, outside = 3 * params.modulus // 8, params.modulus // 8
    table = np.full(n, inside, np.uint64)
    table[half_slot : n - half_slot] = outside
    table[n - half_slot :] = params.modulus - inside  # the slot of message 0 goes on below 0, with the other sign
    noisy, _ = noisy_zeros(toy, 1.2, 512)
    phases = toy.switched_phase(toy.session.modulus_switch(toy.session.keyswitch(noisy)))
    outputs = toy.session.bootstrap(noisy, toy.tables(table[None, :])).reshape(512, -1)
    distance = np.abs(toy.secret.phase_lwe(outputs).astype(np.int64) - inside)
    left = ((phases + half_slot) % (2 * n)) >= 2 * half_slot
    assert 0 < left.sum() < left.size
    np.testing.assert_array_equal(distance > params.modulus // 8, left)
