"""Noise limits by name, by number and by layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_models import mlp

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel

RNG = np.random.default_rng(4)
PROTO = mlp(RNG, [8, 12, 12, 3])
CALIBRATION = RNG.uniform(-1, 1, (200, 8))


def noise(model: CompiledModel) -> dict[str, float]:
    return {layer["name"]: layer["noise_percent"] for layer in model.report()["layers"]}


def test_a_number_is_noise_in_per_cent_of_the_half_torus() -> None:
    by_name, by_number = (
        cw.compile(PROTO, CALIBRATION, accuracy=0, precision=profile) for profile in ("balanced", 1.0)
    )
    assert by_name.report() == by_number.report()
    noisy = cw.compile(PROTO, CALIBRATION, accuracy=0, precision=5.0)
    assert max(noise(noisy).values()) <= 5
    assert noisy.report()["parameter_set"] != by_name.report()["parameter_set"]


def test_layers_may_have_profiles_of_their_own(tmp_path: Path) -> None:
    model = cw.compile(PROTO, CALIBRATION, accuracy=0, precision={"*": "fast", "layer1": 3.5, "activation0": 1.5})
    limits = {layer["name"]: layer["noise_limit_percent"] for layer in model.report()["layers"]}
    assert limits == {"layer0": 1.5, "layer1": 3.5, "layer2": 2.0}
    assert all(noise(model)[name] <= limit for name, limit in limits.items())
    model.save(tmp_path / "model.clkm")
    assert CompiledModel.load(tmp_path / "model.clkm").report() == model.report()
