"""What a compiled network does with inputs unlike those it was calibrated on, with and without straight parts beside its look-ups.

PYTHONPATH=tests/models python tests/benchmarks/beyond_ranges.py

Random dense networks 12-24-16-3, compiled for one set. Inputs: as in calibration; 1.5 times as wide, which the client cuts at the calibrated
range; in the corners of that range, which look like no sample. Errors are of the simulated outputs, in units of the clear outputs' spread.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
from onnx_models import mlp

import cloakwork as cw
import cloakwork.models.compile.stages as stages
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.arrays import Reals

SIZES = [12, 24, 16, 3]
ACTIVATIONS = ["Tanh", "Sigmoid", "Relu", "Softplus", "LeakyRelu", "Elu"]
CALIBRATION, SAMPLES = 400, 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=8, help="of each activation (8)")
    parser.add_argument("--set", default="nn05", help="parameter set (nn05)")
    parser.add_argument("--activation", nargs="*", default=ACTIVATIONS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| activation | inputs | mean error, without -> with | 99.9th percentile | same decisions, % |\n|---|---|---|---|---|"
    )
    for activation in options.activation:
        found = np.array([_network(activation, seed, options.set) for seed in range(options.networks)]).mean(axis=0)
        for inputs, (without, with_lines) in zip(("calibrated", "1.5 x", "corners"), found.swapaxes(0, 1), strict=True):
            cells = [f"{a:.3f} -> {b:.3f}" for a, b in zip(without[:2], with_lines[:2], strict=True)]
            print(
                f"| {activation} | {inputs} | {' | '.join(cells)} | {without[2]:.1f} -> {with_lines[2]:.1f} |",
                flush=True,
            )


def _network(activation: str, seed: int, name: str) -> Reals:
    """[without and with, kinds of inputs, (mean error, 99.9th percentile, decisions in per cent)]"""
    random = np.random.default_rng(seed)
    proto = mlp(random, SIZES, activation)
    x = random.standard_normal((CALIBRATION, SIZES[0]))
    low, high = x.min(axis=0), x.max(axis=0)
    corners = np.where(random.random((SAMPLES, SIZES[0])) < 0.5, low, high)
    inputs = [random.standard_normal((SAMPLES, SIZES[0])), 1.5 * random.standard_normal((SAMPLES, SIZES[0])), corners]
    chosen: dict[str, Any] = {"sets": [parameter_set(name)], "accuracy": 0, "precision": 4.0}
    with patch.object(stages, "carry_lines", lambda *_: None):
        bare = cw.compile(proto, x, **chosen)
    made = [bare, cw.compile(proto, x, **chosen)]
    spread = bare.predict_float(x).std()
    result = np.zeros((2, len(inputs), 3))
    for i, model in enumerate(made):
        for j, far in enumerate(inputs):
            expected = model.predict_float(np.clip(far, low, high))
            found = model.predict(far, how="simulate", seed=seed)
            error = np.abs(found - expected) / spread
            same = (found.argmax(axis=1) == expected.argmax(axis=1)).mean()
            result[i, j] = error.mean(), np.quantile(error, 0.999), 100 * same
    return result


if __name__ == "__main__":
    main()
