"""How many integers of quantised networks differ between ONNX Runtime's kernels, its run without them, and ours.

PYTHONPATH=tests/models python tests/benchmarks/rounding_differences.py

An MLP 784-64-10 and a convolutional network, trained on MNIST, quantised by ONNX Runtime's tool in its formats; the 10,000 test images. `float`
is ONNX Runtime without its optimiser, where QDQ models are real numbers; `real` and `onnxruntime` are the two roundings of `cloakwork.compile`.
Differences are counted against the kernels, over all integer tensors that the optimised model has by the same names, and over the scores.
"""

from __future__ import annotations

import argparse

import integer_networks as tools
import numpy as np
import onnx
from integer_networks import IMAGE, Format
from onnxruntime.quantization import QuantType

from cloakwork.training.mnist_data import load_mnist

UNSIGNED, SIGNED = QuantType.QUInt8, QuantType.QInt8
FORMS = [
    Format(operators, per_channel, activations, SIGNED, symmetric)
    for operators in (True, False)
    for per_channel in (False, True)
    for activations, symmetric in ((UNSIGNED, False), (SIGNED, False), (SIGNED, True))
] + [
    Format(weights=UNSIGNED),
    Format(weights=QuantType.QInt4),
    Format(per_channel=True, activations=SIGNED, weights=QuantType.QInt4, symmetric=True),
    Format(activations=QuantType.QUInt16),
]
CALIBRATION = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10000, help="test images (10000)")
    options = parser.parse_args()
    (x, labels), (unseen, _) = load_mnist("train"), load_mnist("test")
    unseen = unseen[: options.images]
    networks = {
        "MLP": (tools.trained_dense(x, labels), (x.shape[1],)),
        "CNN": (tools.trained_convolutional(x.reshape(-1, *IMAGE), labels), IMAGE),
    }
    print("| network, format | integers | float | real | onnxruntime | scores: float | real | onnxruntime |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (proto, shape) in networks.items():
        for form in FORMS:
            quantised = tools.quantise(proto, x[:CALIBRATION].reshape(-1, *shape), form)
            counted, scores = differences(quantised, unseen.reshape(-1, *shape))
            cells = [counted["count"], *(counted[way] for way in WAYS), *(scores[way] for way in WAYS)]
            print(f"| {name} {form} | {' | '.join(map(str, cells))} |", flush=True)


WAYS = ("float", "real", "onnxruntime")


def differences(proto: onnx.ModelProto, x: np.ndarray) -> tuple[dict[str, int], dict[str, int]]:
    """Of integers, and of scores, by the way of computing them; "count" is of all integers."""
    optimised, made = tools.kernels(proto), {name for node in proto.graph.node for name in node.output}
    shared = [name for name in tools.integers(optimised, x[:1]) if name in made and name != "y"]
    expected, unoptimised = tools.integers(optimised, x, shared), tools.integers(proto, x, shared)
    counted = dict.fromkeys(("count", *WAYS), 0)
    for name in shared:
        counted["count"] += expected[name].size
        counted["float"] += int((unoptimised[name] != expected[name]).sum())
        for rounding in WAYS[1:]:
            ours = np.rint(tools.evaluated(proto, x, name, rounding=rounding))
            counted[rounding] += int((ours != expected[name]).sum())
    best = tools.answers(proto, x)
    scores = {"float": int((unoptimised["y"] != best).sum())}
    for rounding in WAYS[1:]:
        scores[rounding] = int((tools.evaluated(proto, x, "y", rounding=rounding).astype(np.float32) != best).sum())
    return counted, scores


if __name__ == "__main__":
    main()
