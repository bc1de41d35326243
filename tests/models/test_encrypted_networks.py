"""Networks of several levels, really encrypted: convolution with padding, max-pool, residual connection, several tables in a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import in_tiers
from onnx import ModelProto, helper
from onnx_models import model

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.runtime import Runtime
from cloakwork.models.runtime.interpreter import simulate

RNG = np.random.default_rng(11)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def convolutional() -> ModelProto:
    constants: dict[str, Any] = {"w": normal(2, 1, 3, 3), "b": normal(2), "g": normal(3, 8)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"], transB=1, name="gemm"),
    ]
    return model(nodes, [1, 4, 4], constants)


def residual() -> ModelProto:
    """Sigmoid and tanh halves of one tensor, padded with a zero, and a skip connection."""
    constants: dict[str, Any] = {
        "w": normal(4, 4) / 2,
        "v": normal(5, 4) / 2,
        "pad": np.array([0, 0, 0, 1]),
        "sizes": np.array([2, 2]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="first"),
        helper.make_node("Split", ["h", "sizes"], ["a", "b"], axis=1),
        helper.make_node("Sigmoid", ["a"], ["s"], name="sigmoid"),
        helper.make_node("Tanh", ["b"], ["t"], name="tanh"),
        helper.make_node("Concat", ["s", "t"], ["u"], axis=1),
        helper.make_node("Pad", ["u", "pad"], ["q"]),
        helper.make_node("MatMul", ["q", "v"], ["m"], name="second"),
        helper.make_node("Add", ["m", "u"], ["z"], name="skip"),
        helper.make_node("Abs", ["z"], ["y"], name="abs"),
    ]  # fmt: skip
    return model(nodes, [4], constants)


@pytest.mark.parametrize(
    ("make", "shape"), in_tiers([(convolutional, (1, 4, 4)), (residual, (4,))], quick=[(residual, (4,))])
)
def test_encrypted_equals_simulation_within_the_noise(make: Callable[[], ModelProto], shape: tuple[int, ...]) -> None:
    compiled = cw.compile(make(), RNG.uniform(-1, 1, (400, *shape)), precision="balanced")
    x = RNG.uniform(-1, 1, (8, *shape))
    program = compiled.program
    key = ClientKey._from_entropy(program.parameters, bytes(range(1, 33)))
    runtime = Runtime(program, Session(key.evaluation_keys()))
    phases = np.asarray(key.decrypt(runtime.run(compiled.client.encrypt(key, x))), dtype=np.float64)
    simulated = np.stack([simulate(program, compiled.client.phases(x), seed) for seed in range(300)])
    difference = phases - simulated.mean(axis=0)
    deviation = simulated.std(axis=0)
    assert (np.abs(difference) < 6 * deviation + 1e-4).all()
    assert 0.3 < np.sqrt((difference**2).mean() / (deviation**2).mean()) < 2.5
    clear = compiled.predict_float(x)
    assert np.abs(compiled.predict(x) - clear).max() < 0.15 * np.abs(clear).max()
