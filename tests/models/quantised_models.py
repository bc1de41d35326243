"""Networks quantised by ONNX Runtime's own tool, QDQ and QOperator."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx_models import model
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SHAPE = (1, 8, 8)


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, x: np.ndarray) -> None:
        self._rest = iter(x)

    def get_next(self) -> dict[str, np.ndarray] | None:
        sample = next(self._rest, None)
        return None if sample is None else {"x": sample[None].astype(np.float32)}


def network(rng: np.random.Generator) -> onnx.ModelProto:
    """conv - relu - max-pool - conv - relu - average - gemm."""
    constants: dict[str, Any] = {
        "w0": 0.4 * rng.standard_normal((3, 1, 3, 3)),
        "b0": 0.1 * rng.standard_normal(3),
        "w1": 0.2 * rng.standard_normal((4, 3, 3, 3)),
        "b1": 0.1 * rng.standard_normal(4),
        "g": rng.standard_normal((3, 4)),
        "c": rng.standard_normal(3),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu0"),
        helper.make_node("MaxPool", ["r0"], ["p0"], name="pool0", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p0", "w1", "b1"], ["c1"], name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["r1"], ["a"], name="average"),
        helper.make_node("Flatten", ["a"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "g", "c"], ["y"], transB=1, name="fc"),
    ]
    return model(nodes, SHAPE, {name: value.astype(np.float32) for name, value in constants.items()})


def quantised(
    folder: Path, proto: onnx.ModelProto, x: np.ndarray, *, operators: bool, per_channel: bool
) -> onnx.ModelProto:
    source, target = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(proto, source)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # the tool recommends pre-processing
    try:
        quantize_static(
            source,
            target,
            Samples(x),
            quant_format=QuantFormat.QOperator if operators else QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            reduce_range=True,  # 7 bits: on CPUs without VNNI ONNX Runtime's own sums of 8-bit products saturate at 16 bits
        )
    finally:
        root.setLevel(level)
    return onnx.load(target)
