"""The recipe of mnist-mlp-1x30 on small made-up data: its slopes are right, it learns, and the ONNX file computes what was trained."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from cloakwork.training import mnist_mlp_1x30 as recipe


def loss(weights: list[np.ndarray], x: np.ndarray, targets: np.ndarray) -> float:
    logits = np.maximum(x @ weights[0].T + weights[1], 0) @ weights[2].T + weights[3]
    logarithm = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    decay = recipe.WEIGHT_DECAY / 2 * sum(float((w**2).sum()) for w in (weights[0], weights[2]))
    return float(-(targets * logarithm).sum(axis=1).mean()) + decay


def test_gradients_equal_difference_quotients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "ACTIVATION_NOISE", 0.0)
    random = np.random.default_rng(2)
    weights = [random.standard_normal(shape) for shape in ((5, 7), (5,), (10, 5), (10,))]
    x, targets = random.standard_normal((6, 7)), np.eye(10)[random.integers(0, 10, 6)]
    slopes = recipe.gradients(weights, x, targets, random)
    for i, slope in enumerate(slopes):
        for position in [(0,) * slope.ndim, tuple(extent - 1 for extent in slope.shape)]:
            sides = []
            for step in (1e-6, -1e-6):
                moved = [w.copy() for w in weights]
                moved[i][position] += step
                sides.append(loss(moved, x, targets))
            assert slope[position] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-4, abs=1e-7)


def test_it_learns_and_the_model_computes_the_same() -> None:
    random = np.random.default_rng(4)
    centres = random.uniform(0, 1, (10, 20))
    labels = random.integers(0, 10, 2000)
    images = centres[labels] + 0.2 * random.standard_normal((2000, 20))
    weights = recipe.train(images, labels, epochs=20)
    assert recipe.accuracy(weights, images, labels) > 0.9
    again = recipe.train(images, labels, epochs=20)
    assert all((a == b).all() for a, b in zip(weights, again, strict=True))
    model = recipe.to_onnx(weights)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 20
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"image": images.astype(np.float32)})
    assert (scores.argmax(axis=1) == labels).mean() == pytest.approx(recipe.accuracy(weights, images, labels), abs=2e-3)
