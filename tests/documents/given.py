"""Makes what a page takes as given before its first block: small models under the names of docs/explanation/compiler.md."""

from __future__ import annotations

from typing import Final

_COMPILER: Final = """
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

rng = np.random.default_rng(0)


def save(file, nodes, inputs, outputs, **constants):
    values = [numpy_helper.from_array(np.asarray(value, dtype=np.float32), name) for name, value in constants.items()]
    columns = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", count]) for name, count in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "given", columns, results, values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def weights(*shape):
    return rng.standard_normal(shape) / np.sqrt(shape[0])


calibration = rng.standard_normal((300, 5)).astype(np.float32)
x = calibration[:2]
layers = [("MatMul", ["x", "w"], ["h"]), ("Relu", ["h"], ["a"]), ("MatMul", ["a", "v"], ["y"])]
save("model.onnx", layers, {"x": 5}, ["y"], w=weights(5, 8), v=weights(8, 3))

rows = rng.standard_normal((300, 3)).astype(np.float32)
bright = (np.arange(300)[:, None] + [0, 0, 1, 1]) % 2  # two kinds of images that no noise mixes up
images = (0.7 * bright + rng.uniform(0, 0.3, (300, 4))).astype(np.float32)
joined = [
    ("MatMul", ["image", "w"], ["a"]), ("MatMul", ["table", "v"], ["b"]), ("Add", ["a", "b"], ["c"]), ("Relu", ["c"], ["embedding"]),
    ("MatMul", ["embedding", "u"], ["s"]), ("Softmax", ["s"], ["probabilities"]),
]
outputs = ["probabilities", "embedding"]
save("two.onnx", joined, {"image": 4, "table": 3}, outputs, w=np.abs(weights(4, 6)) + bright[0, :, None], v=weights(3, 6) / 3, u=weights(6, 4))

samples = rng.integers(0, 16, (300, 4)).astype(np.float32)
samples[0], samples[1] = 0, 15
split = [("MatMul", ["x", "w"], ["form"]), ("Less", ["form", "t"], ["c"]), ("Where", ["c", "low", "high"], ["y"])]
save("oblique.onnx", split, {"x": 4}, ["y"], w=[[3.0], [-2], [5], [1]], t=[20.0], low=[[1.0]], high=[[4.0]])


class Rows(CalibrationDataReader):
    def __init__(self):
        self.rows = iter([{"x": images[:100]}])

    def get_next(self):
        return next(self.rows, None)


save("mnist.onnx", layers, {"x": 4}, ["y"], w=[[0.9, 0.11], [0.73, -0.08], [-0.12, 0.81], [0.07, 0.94]], v=[[0.83, -0.71], [-0.92, 0.78]])
quantize_static("mnist.onnx", "mnist-int8.onnx", Rows(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8)
"""

GIVEN: Final = {"docs/explanation/compiler.md": _COMPILER}
