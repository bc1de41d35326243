"""Trains 784-30-10 with ReLU on MNIST, with the noise of encrypted look-ups injected, and writes it as ONNX. numpy alone, seed fixed.

CLOAKWORK_DATA=.. python -m cloakwork.training.mnist_mlp_1x30 models/zoo/mnist-mlp-1x30.onnx
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from cloakwork.training.mnist_data import load_mnist

Reals = NDArray[np.float64]

SEED = 20261121
HIDDEN = 30
EPOCHS = 40
BATCH = 128
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 2e-5
LABEL_SMOOTHING = 0.02
# Standard deviation at the hidden layer, as part of its largest magnitude in the batch: profile "fast" of the compiler.
ACTIVATION_NOISE = 0.04


def train(images: Reals, labels: NDArray[np.int64], epochs: int = EPOCHS, seed: int = SEED) -> list[Reals]:
    """Weights and biases [w0, b0, w1, b1] by Adam with a cosine schedule."""
    random = np.random.default_rng(seed)
    weights = [
        random.standard_normal((HIDDEN, images.shape[1])) * np.sqrt(2 / images.shape[1]),
        np.zeros(HIDDEN),
        random.standard_normal((10, HIDDEN)) * np.sqrt(1 / HIDDEN),
        np.zeros(10),
    ]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    steps = epochs * (len(images) // BATCH)
    targets = np.eye(10) * (1 - LABEL_SMOOTHING) + LABEL_SMOOTHING / 10
    step = 0
    for _ in range(epochs):
        order = random.permutation(len(images))
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            step += 1
            for i, slope in enumerate(gradients(weights, images[chosen], targets[labels[chosen]], random)):
                first[i] += 0.1 * (slope - first[i])
                second[i] += 0.001 * (slope**2 - second[i])
                weights[i] -= rate * (first[i] / (1 - 0.9**step)) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
    return weights


def gradients(weights: list[Reals], x: Reals, targets: Reals, random: np.random.Generator) -> list[Reals]:
    """Of the mean cross-entropy, with noise before the ReLU."""
    w0, b0, w1, b1 = weights
    z = x @ w0.T + b0
    z += random.standard_normal(z.shape) * (ACTIVATION_NOISE * np.abs(z).max(axis=0))
    a = np.maximum(z, 0)
    logits = a @ w1.T + b1
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = (p / p.sum(axis=1, keepdims=True) - targets) / len(x)
    back = (error @ w1) * (z > 0)
    return [back.T @ x + WEIGHT_DECAY * w0, back.sum(axis=0), error.T @ a + WEIGHT_DECAY * w1, error.sum(axis=0)]


def to_onnx(weights: list[Reals]) -> onnx.ModelProto:
    names = ("hidden.weight", "hidden.bias", "output.weight", "output.bias")
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["image", names[0], names[1]], ["hidden"], name="hidden", transB=1),
            helper.make_node("Relu", ["hidden"], ["activation"], name="relu"),
            helper.make_node("Gemm", ["activation", names[2], names[3]], ["scores"], name="output", transB=1),
        ],
        "mnist-mlp-1x30",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 784])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(w.astype(np.float32), name) for w, name in zip(weights, names, strict=True)],
    )
    return helper.make_model(
        graph, producer_name="cloakwork", ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
    )


def accuracy(weights: list[Reals], images: Reals, labels: NDArray[np.int64]) -> float:
    scores = np.maximum(images @ weights[0].T + weights[1], 0) @ weights[2].T + weights[3]
    return float((scores.argmax(axis=1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train mnist-mlp-1x30 and write it as ONNX.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args()
    weights = train(*load_mnist("train"), arguments.epochs)
    arguments.path.write_bytes(to_onnx(weights).SerializeToString())
    print(f"accuracy on the test images: {accuracy(weights, *load_mnist('test')):.4f}")  # noqa: T201


if __name__ == "__main__":
    main()
