"""ONNX-ML files of trees drawn from a seed: classes without weights, odd labels, base values, transforms; regressors of several targets.

Weights are sixteenths, so that a score is the same number in every runtime and a tie is a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

ML: Final = "ai.onnx.ml"
FEATURES: Final = 2
_LABELS: Final[dict[int, list[list[Any]]]] = {
    2: [[0, 1], [1, 0], [7, 3], [-1, 1], ["no", "yes"], ["yes", "no"]],
    3: [[0, 1, 2], [2, 0, 1], [5, 9, 1], ["c", "a", "b"]],
}
_KINDS: Final = {"first": 0.3, "second": 0.1, "each": 0.2, "opposite": 0.2, "one of them": 0.1, "one a tree": 0.1}
"""Which classes a leaf has weights of, and how often that is drawn."""
_TRANSFORMS: Final = ("NONE", "LOGISTIC", "SOFTMAX")


@dataclass(frozen=True)
class DrawnTrees:
    name: str
    model: onnx.ModelProto
    samples: np.ndarray


def drawn_trees(seed: int) -> DrawnTrees:
    rng = np.random.default_rng([20261128, 38, seed])
    samples = rng.normal(size=(60, FEATURES)).astype(np.float32)
    outputs = int(rng.choice([2, 3], p=[0.75, 0.25]))
    if rng.random() < 0.15:
        return _regressor(rng, samples)
    labels = _LABELS[outputs][int(rng.integers(len(_LABELS[outputs])))]
    depths = rng.integers(1, 3, int(rng.integers(1, 5))).tolist()
    kind = str(rng.choice(list(_KINDS), p=list(_KINDS.values())))
    sign = str(rng.choice(["positive", "mixed", "negative"], p=[0.35, 0.5, 0.15]))
    votes = {
        (number, leaf): _votes(rng, kind, sign, outputs, number)
        for number, depth in enumerate(depths)
        for leaf in range(2**depth - 1, 2 ** (depth + 1) - 1)
    }
    post, base = str(rng.choice(_TRANSFORMS)), _base(rng, outputs)
    texts = isinstance(labels[0], str)
    own = {"classlabels_strings" if texts else "classlabels_int64s": labels, "post_transform": post}
    own |= {"base_values": base} if base else {}
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "p"], domain=ML, **_nodes(rng, depths), **_weights("class", votes), **own
    )  # fmt: skip
    nodes, result = [node], "p"
    if rng.random() < 0.15:
        nodes, result = [node, helper.make_node("Normalizer", ["p"], ["q"], domain=ML, norm="L1")], "q"
    name = (
        f"{len(depths)} trees, {kind}, {sign}, {labels}, {post}, base {base}{', Normalizer' if result == 'q' else ''}"
    )
    ends = [("label", TensorProto.STRING if texts else TensorProto.INT64, 1), (result, TensorProto.FLOAT, 2)]
    return DrawnTrees(name, _model(nodes, ends), samples)


def _regressor(rng: np.random.Generator, samples: np.ndarray) -> DrawnTrees:
    targets, depths = int(rng.integers(1, 4)), rng.integers(1, 3, int(rng.integers(1, 4))).tolist()
    votes = {
        (number, leaf): _votes(rng, "each", "mixed", targets, number)
        for number, depth in enumerate(depths)
        for leaf in range(2**depth - 1, 2 ** (depth + 1) - 1)
    }
    post, base = str(rng.choice(_TRANSFORMS, p=[0.6, 0.2, 0.2])), _base(rng, targets)
    own = {"n_targets": targets, "post_transform": post, "aggregate_function": str(rng.choice(["SUM", "AVERAGE"]))}
    own |= {"base_values": base} if base else {}
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["p"], domain=ML, **_nodes(rng, depths), **_weights("target", votes), **own
    )  # fmt: skip
    name = f"{len(depths)} trees, {targets} targets, {own['aggregate_function']}, {post}, base {base}"
    return DrawnTrees(name, _model([node], [("p", TensorProto.FLOAT, 2)]), samples)


def _votes(rng: np.random.Generator, kind: str, sign: str, outputs: int, tree: int) -> list[tuple[int, int]]:
    """Of one leaf."""
    low, high = {"positive": (0, 17), "mixed": (-16, 17), "negative": (-16, 0)}[sign]
    weights = rng.integers(low, high, outputs).tolist()
    if kind == "opposite" and outputs == 2:
        return [(0, -weights[0]), (1, weights[0])]
    if kind in ("each", "opposite"):
        return list(enumerate(weights))
    number = {"first": 0, "second": 1, "one a tree": tree % outputs}.get(kind, int(rng.integers(outputs)))
    return [(number, weights[0])]


def _base(rng: np.random.Generator, outputs: int) -> list[float]:
    count = int(rng.choice([0, 1, outputs], p=[0.6, 0.2, 0.2]))
    return (rng.integers(-16, 17, count) / 16).tolist()


def _nodes(rng: np.random.Generator, depths: list[int]) -> dict[str, Any]:
    """Complete trees: node i has the children 2 i + 1 and 2 i + 2."""
    columns: dict[str, list[Any]] = {}
    mode = str(rng.choice(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"]))
    for tree, depth in enumerate(depths):
        for node in range(2 ** (depth + 1) - 1):
            leaf = node >= 2**depth - 1
            row = {
                "treeids": tree,
                "nodeids": node,
                "featureids": int(rng.integers(FEATURES)),
                "modes": "LEAF" if leaf else mode,
                "values": 0.0 if leaf else round(float(rng.normal(0, 0.5)), 2),
                "truenodeids": 0 if leaf else 2 * node + 1,
                "falsenodeids": 0 if leaf else 2 * node + 2,
            }
            for name, value in row.items():
                columns.setdefault(f"nodes_{name}", []).append(value)
    return columns


def _weights(prefix: str, votes: dict[tuple[int, int], list[tuple[int, int]]]) -> dict[str, Any]:
    rows = [(tree, leaf, number, sixteenths) for (tree, leaf), own in votes.items() for number, sixteenths in own]
    tree, leaf, number, sixteenths = zip(*rows, strict=True)
    return {
        f"{prefix}_treeids": list(tree),
        f"{prefix}_nodeids": list(leaf),
        f"{prefix}_ids": list(number),
        f"{prefix}_weights": [each / 16 for each in sixteenths],
    }


def _model(nodes: list[onnx.NodeProto], ends: list[tuple[str, int, int]]) -> onnx.ModelProto:
    outputs = [helper.make_tensor_value_info(name, kind, ["n", None][:rank]) for name, kind, rank in ends]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])]
    graph = helper.make_graph(nodes, "drawn trees", inputs, outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
