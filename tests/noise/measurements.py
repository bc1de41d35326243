"""Measures one parameter set on the engine: plain numbers that the tests of this folder compare with fhe_core/noise.py.

A number here is a fact of the engine, such as the variance of a stage's errors; no number of the noise model is in it. Keys, messages and noise
follow from the set's name, so that a set that is measured twice has the same numbers. measured.json has them (records.py); measure.py writes it.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.parameters import word_dtype

SCRIPT = Path(__file__).resolve().parents[2] / "fhe_core" / "tools" / "measure_noise.py"
Facts = dict[str, Any]

LAGS = (1, 2, 5)  # and an eighth, a quarter and a half of the table
LINEAR_WEIGHTS = (3, -4, 12)  # of norm 13
KEYS, SWITCHED_KEYS = (
    24,
    4,
)  # of a toy whose digits select keys: a key of a few hundred coefficients is off the mean over keys by some per cent
WRONG_SAMPLES, WRONG_AT = 8192, (1.2, 2.0)  # margins in standard deviations
ZEROS, ZEROS_BINS = 4096, 64


def is_shipped_block(params: ParameterSet) -> bool:
    return params.structured_secret and params.accumulator == "glwe" and not params.name.startswith("toy")


def laboratory_script() -> ModuleType:
    """The measuring script of fhe_core/tools as a module: it is in the repository and not in the wheel."""
    name = "measure_noise"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, SCRIPT)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    return sys.modules[name]


def moments(parts: Iterable[NDArray[np.float64]]) -> Facts:
    """The number of errors, their mean, their variance about it, and the largest one without its sign."""
    errors = np.concatenate([part.ravel() for part in parts])
    largest = float(np.abs(errors).max())
    return {"samples": errors.size, "mean": float(errors.mean()), "variance": float(errors.var()), "largest": largest}


def measure(name: str) -> Facts:
    """Makes a laboratory for the set, measures all that has a test, and drops the laboratory."""
    laboratory = laboratory_script().Laboratory(name)
    params = laboratory.params
    if params.digit_bits and name.startswith("toy"):
        return {"over keys": _over_keys(laboratory)}
    key = _key(laboratory)
    stages, correlations = _stages(laboratory)
    if params.party_count == 1:
        stages |= _encryptions(laboratory)
    facts: Facts = {
        "key": key,
        "stages": stages,
        "correlations": correlations,
        "zeros": _zeros(laboratory),
    }
    if name.startswith("toy") and params.party_count == 1:
        facts["chained"] = _chained(laboratory)
        facts["wrong look-ups"] = {str(z): _wrong_lookups(laboratory, z) for z in WRONG_AT}
    return facts


def _key(laboratory: Any) -> Facts:
    small = laboratory.small_keys
    return {"small_sum": int(small.sum()), "small_squares": int((small**2).sum())}


def _stages(laboratory: Any) -> tuple[Facts, Facts]:
    """Every stage, and how alike the entries of one rotation are.

    Shipped block sets have ten times as many modulus switches, and rotations and look-ups under twelve keys, or four if their table is several
    accumulators: the weight of a key moves what a look-up sees by some per cent.
    """
    params = laboratory.params
    block, extended = is_shipped_block(params), params.extension_factor > 1
    stages = {
        "fresh": [laboratory.fresh()],
        "public key": [laboratory.public_key()],
        "keyswitch": [laboratory.keyswitch()],
    }
    stages["modulus switch"] = [laboratory.modulus_switch() for _ in range(10 if block else 1)]
    rotations, lookups = [], []
    for number in range((4 if extended else 12) if block else 1):
        if number:
            laboratory.take_key(bytes([number] * 32))
        rotated = laboratory.rotate()
        rotations.append(laboratory.blind_rotation(rotated))
        lookups.append(laboratory.lookup(rotated))
    stages |= {"blind rotation": rotations, "look-up": lookups}
    facts = {stage: moments(each.errors for each in runs) for stage, runs in stages.items()}
    return facts, _correlations(params, rotations[0].errors)


def _correlations(params: ParameterSet, errors: NDArray[np.float64]) -> Facts:
    """Mean products of the errors of two entries of one rotation, over the mean square; all pairs of a lag count."""
    n = params.table_size
    rows = errors.reshape(-1, n)
    lags = (*LAGS, n // 8, n // 4, n // 2)
    mean_square = np.square(rows).mean()
    return {str(lag): float((rows[:, lag:] * rows[:, :-lag]).mean() / mean_square) for lag in lags}


def _encryptions(laboratory: Any) -> Facts:
    """Seeded encryption, and integer combinations of fresh ciphertexts."""
    params, secret = laboratory.params, laboratory.secret
    messages = laboratory.torus_words(8, *laboratory.lanes, params.polynomial_size)
    phases = secret.phase_glwe(_engine.expand_glwe(params, *secret.encrypt_glwe_seeded(messages)))
    seeded = _centred(phases.astype(np.int64) - messages.astype(np.int64), params)
    zeros = np.zeros((len(LINEAR_WEIGHTS) * 1024, *laboratory.lanes), np.uint64)
    inputs = secret.encrypt_lwe(zeros).reshape(1024, len(LINEAR_WEIGHTS), -1)
    sums = laboratory.session.linear(np.array([LINEAR_WEIGHTS], dtype=np.int32), inputs)
    linear = _centred(secret.phase_lwe(sums.reshape(1024, -1)).astype(np.int64), params)
    return {"seeded": moments([seeded]), "linear": moments([linear])}


def _centred(difference: NDArray[np.int64], params: ParameterSet) -> NDArray[np.float64]:
    half = params.modulus // 2
    return ((difference + half) % params.modulus - half) / params.modulus


def _zeros(laboratory: Any) -> Facts:
    """Encryptions of zero under the public key, as a service adds them: their noise, how alike neighbours are, and how uniform their masks."""
    params = laboratory.params
    seed, bodies = laboratory.secret.public_key()
    none = np.zeros((ZEROS, params.large_words), dtype=word_dtype(params))
    zeros = _engine.add_public_zeros(params, seed, bodies, none, laboratory.public_randomness())
    errors = _centred(laboratory.secret.phase_lwe(zeros).astype(np.int64), params).reshape(ZEROS, -1)
    neighbours = float(np.corrcoef(errors[1:].ravel(), errors[:-1].ravel())[0, 1])
    masks = zeros[:256, : params.large_dimension]
    return {"noise": moments([errors]), "neighbours": neighbours, "masks": uniformity(masks, params.modulus)}


def uniformity(words: NDArray[Any], modulus: int) -> float:
    """Chi-square of the words over 64 equal parts of their range, as standard deviations from what uniform words have.

    Wilson-Hilferty: the cube root of chi-square over its degrees of freedom is nearly Gaussian.
    """
    counts = np.bincount((words.astype(object) * ZEROS_BINS // modulus).astype(np.int64).ravel(), minlength=ZEROS_BINS)
    expected = words.size / ZEROS_BINS
    chi_square = float((np.square(counts - expected) / expected).sum())
    degrees, share = ZEROS_BINS - 1, 2 / (9 * (ZEROS_BINS - 1))
    return ((chi_square / degrees) ** (1 / 3) - (1 - share)) / math.sqrt(share)


def _chained(laboratory: Any) -> list[Facts]:
    """The noise of a look-up's output, of a look-up of that, and of one more."""
    params, level = laboratory.params, laboratory.params.modulus // 8
    table = laboratory.tables(np.full((1, params.table_size), level, np.uint64))
    lwe = laboratory.secret.encrypt_lwe(np.full((512, *laboratory.lanes), level, np.uint64))
    outputs = []
    for _ in range(3):
        lwe = laboratory.session.bootstrap(lwe, table).reshape(512, -1)
        outputs.append(moments([_centred(laboratory.secret.phase_lwe(lwe).astype(np.int64) - level, params)]))
    return outputs


def noisy_zeros(laboratory: Any, z: float, samples: int) -> tuple[NDArray[Any], float]:
    """Encryptions of Gaussian words, so noisy that a look-up's margin is about z standard deviations, and the variance of the words."""
    params = laboratory.params
    deviation = noise.lookup_margin(params) / z
    words = np.rint(laboratory.random.normal(0, deviation * params.modulus, (samples, *laboratory.lanes)))
    return laboratory.secret.encrypt_lwe((words.astype(np.int64) % params.modulus).astype(np.uint64)), deviation**2


def _wrong_lookups(laboratory: Any, z: float) -> Facts:
    """The share of noisy inputs whose switched phase is out of the message's slot."""
    params, margin = laboratory.params, noise.lookup_margin(laboratory.params)
    message = round(params.modulus * margin) if params.kind == "gate" else 0
    zeros, input_variance = noisy_zeros(laboratory, z, WRONG_SAMPLES)
    noisy = laboratory.session.combine(zeros, 1, constant=message)
    phases = laboratory.switched_phase(laboratory.session.modulus_switch(laboratory.session.keyswitch(noisy)))
    n = params.table_size
    half_slot = round(margin * 2 * n)
    centre = half_slot if params.kind == "gate" else 0
    errors = (phases - centre + n) % (2 * n) - n
    wrong = (errors < -half_slot) | (errors >= half_slot)
    return {"input_variance": input_variance, "share": float(wrong.mean())}


def _over_keys(laboratory: Any) -> Facts:
    """Rotations under KEYS keys; modulus switches under SWITCHED_KEYS, and the mean square sum of their small keys."""

    def over(count: int, stage: Callable[[], Any]) -> tuple[Facts, float]:
        errors, squares = [], 0
        for number in range(count):
            laboratory.take_key(bytes([number] * 32))
            errors.append(stage().errors)
            squares += int((laboratory.small_keys**2).sum())
        return moments(errors), squares / count

    switches, squares = over(SWITCHED_KEYS, laboratory.modulus_switch)
    return {
        "blind rotation": over(KEYS, laboratory.blind_rotation)[0],
        "modulus switch": switches,
        "small_squares": squares,
    }
