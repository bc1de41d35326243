"""Failure probability: measured where it is large enough to count, and the Gaussian model carries it to the table's 2^-64 and 2^-128."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core import noise

SAMPLES = 8192


def noisy_zeros(laboratory: Any, z: float, samples: int) -> tuple[Any, float]:
    """Encryptions of Gaussian words, so noisy that a look-up's margin is about z standard deviations, and their variance."""
    params = laboratory.params
    target = ((noise.lookup_margin(params) - abs(noise.keyswitch_offset(params))) / z) ** 2
    variance = target - noise.lookup_variance(params, 0.0)
    words = np.rint(
        laboratory.random.normal(0, math.sqrt(variance) * params.modulus, (samples, *laboratory.lanes))
    ).astype(np.int64)
    return laboratory.secret.encrypt_lwe((words % params.modulus).astype(np.uint64)), variance


@pytest.mark.parametrize("z", [1.2, 2.0])
def test_wrong_lookups_are_as_frequent_as_the_model_says(toy: Any, z: float) -> None:
    params = toy.params
    margin = noise.lookup_margin(params)
    message = round(params.modulus * margin) if params.kind == "gate" else 0
    zeros, input_variance = noisy_zeros(toy, z, SAMPLES)
    noisy = toy.session.combine(zeros, 1, constant=message)
    phases = toy.switched_phase(toy.session.modulus_switch(toy.session.keyswitch(noisy)))
    n = params.table_size
    half_slot = round(margin * 2 * n)
    centre = half_slot if params.kind == "gate" else 0
    errors = (phases - centre + n) % (2 * n) - n
    wrong = float(((errors < -half_slot) | (errors >= half_slot)).mean())
    variance = noise.lookup_variance(params, 1.0, input_variance)
    # Both edges of [-half_slot, half_slot) on the integers, before the last rounding.
    sd = 2 * n * math.sqrt(variance)
    offset = 2 * n * noise.keyswitch_offset(params)
    expected = 0.5 * math.erfc((half_slot - 0.5 - offset) / sd / math.sqrt(2)) + 0.5 * math.erfc(
        (half_slot + 0.5 + offset) / sd / math.sqrt(2)
    )
    assert wrong == pytest.approx(expected, rel=0.06, abs=4 * math.sqrt(expected / SAMPLES))
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


def test_gates_and_luts_are_right_at_their_own_noise(laboratory: Any) -> None:
    """The largest switched error of a few thousand look-ups is far inside the margin, as 2^-64 needs."""
    params = laboratory.params
    if params.kind == "approximate":
        pytest.skip("approximate sets have no margin")
    stage = laboratory.lookup()
    assert np.abs(stage.errors).max() < noise.lookup_margin(params) * 5.5 / 9.2
