"""The noise of every stage on the engine, from both sides: above the model a set fails too often, below it is not as secure as stated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core import _engine, noise

# A toy's key has a few dozen coefficients, so its own noise is further from the mean over keys than a real one's.
TOY_TOLERANCE, TOLERANCE = 0.15, 0.05


def tolerance(laboratory: Any, samples: int) -> float:
    """Of a measured standard deviation: what the key leaves open, and four sigma of so many samples."""
    toy = laboratory.params.name.startswith("toy")
    return (TOY_TOLERANCE if toy else TOLERANCE) + 4 / math.sqrt(2 * samples)


def check(laboratory: Any, stage: Any, independent_samples: int) -> None:
    limit = tolerance(laboratory, independent_samples)
    assert 1 / (1 + limit) < stage.ratio < 1 + limit, (
        f"{stage.name}: {stage.ratio:.3f} times the model's standard deviation"
    )
    centre = abs(float(stage.errors.mean()) - stage.mean) / math.sqrt(stage.variance)
    # A key may have a constant offset (rounding errors times its secrets), far below one standard deviation.
    assert centre < 0.15 + 4 / math.sqrt(independent_samples), (
        f"{stage.name}: mean off by {centre:.3f} standard deviations"
    )


def test_fresh_encryption(laboratory: Any) -> None:
    stage = laboratory.fresh()
    check(laboratory, stage, stage.errors.size)


def test_seeded_glwe_encryption(laboratory: Any) -> None:
    params = laboratory.params
    messages = laboratory.torus_words(8, *laboratory.lanes, params.polynomial_size)
    seed, bodies = laboratory.secret.encrypt_glwe_seeded(messages)
    phases = laboratory.secret.phase_glwe(_engine.expand_glwe(params, seed, bodies))
    errors = (phases.astype(np.int64) - messages.astype(np.int64)).ravel()
    assert np.abs(errors).max() < 8 * params.glwe_sigma
    assert float(np.mean(errors.astype(float) ** 2)) == pytest.approx(
        params.glwe_sigma**2, rel=4 * math.sqrt(2 / errors.size)
    )


def test_public_key_encryption(laboratory: Any) -> None:
    stage = laboratory.public_key()
    # Coefficients of one polynomial share u, e and e_c, and secrets of mean 1/2 gather a sixth of the variance in one pair of frequencies.
    # Over 60 draws the measured deviation varied by 1.2 % (lut4, lut4_fft) and 0.4 % (gate_64, nn2): limits are over six of them away.
    check(laboratory, stage, stage.errors.size // 32)


def test_keyswitch(laboratory: Any) -> None:
    stage = laboratory.keyswitch()
    check(laboratory, stage, stage.errors.size)


def test_modulus_switch(laboratory: Any) -> None:
    stage = laboratory.modulus_switch()
    check(laboratory, stage, stage.errors.size)


def test_blind_rotation(laboratory: Any) -> None:
    stage, params = laboratory.blind_rotation(), laboratory.params
    # Entries of a rotation are correlated, where digits and transforms bring most of the noise by much.
    correlations = [noise.rotation_correlation(params, lag) for lag in range(params.table_size)]
    rotations = stage.errors.size / params.table_size
    check(laboratory, stage, min(stage.errors.size // 8, int(rotations / np.mean(np.square(correlations)))))


def test_whole_lookup(laboratory: Any) -> None:
    stage = laboratory.lookup()
    check(laboratory, stage, stage.errors.size // 4)


def test_linear_layer_scales_as_the_norm(laboratory: Any) -> None:
    params = laboratory.params
    inputs = laboratory.secret.encrypt_lwe(np.zeros((3 * 1024, *laboratory.lanes), np.uint64)).reshape(1024, 3, -1)
    weights = np.array([[3, -4, 12]], dtype=np.int32)
    phases = laboratory.secret.phase_lwe(laboratory.session.linear(weights, inputs).reshape(1024, -1))
    errors = (phases.astype(np.int64) + params.modulus // 2) % params.modulus - params.modulus // 2
    expected = noise.linear_variance(params.glwe_sigma**2, 13.0)
    assert float(np.mean(errors.astype(float) ** 2)) == pytest.approx(expected, rel=4 * math.sqrt(2 / 1024))


def test_switched_noise_of_chained_bootstraps_does_not_grow(toy: Any) -> None:
    """The output of a look-up of a look-up is as noisy as that of the first."""
    params = toy.params
    table = toy.tables(np.full((1, params.table_size), params.modulus // 8, np.uint64))
    lwe = toy.secret.encrypt_lwe(np.full((512, *toy.lanes), params.modulus // 8, np.uint64))
    deviations = []
    for _ in range(3):
        lwe = toy.session.bootstrap(lwe, table).reshape(512, -1)
        errors = toy.secret.phase_lwe(lwe).astype(np.int64) - params.modulus // 8
        deviations.append(float(np.std(errors)) / params.modulus)
    model = math.sqrt(noise.blind_rotation_variance(params))
    assert deviations == pytest.approx([model] * 3, rel=tolerance(toy, 512))
