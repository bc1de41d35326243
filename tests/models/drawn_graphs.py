"""Small ONNX graphs drawn from a seed: convolutions, pads, zeros of the model, branches, pools of every option, functions before pools.

Each is valid for ONNX Runtime, whose rewriting is switched off: it takes the zeros of a Pad before a MaxPool for the pool's own padding
(PadFusion in 1.32).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

_OPSET: Final = 20
_SAMPLES: Final = 40
_MOST_NUMBERS: Final = 256  # of a tensor
_FUNCTIONS: Final[dict[str, tuple[dict[str, tuple[float, ...]], ...]]] = {  # attributes, one value of each is drawn
    "Abs": (), "Atan": (), "Ceil": (), "Erf": (), "Floor": (), "Gelu": (), "HardSwish": (), "Mish": (), "Neg": (), "Relu": (), "Round": (),
    "Sigmoid": (), "Sign": (), "Sin": (), "Softplus": (), "Softsign": (), "Tanh": (),
    "Celu": ({"alpha": (0.5, 2.0)},),
    "Elu": ({"alpha": (0.5, 1.0, -0.5)},),
    "HardSigmoid": ({"alpha": (0.2, -0.3), "beta": (0.5, 0.1)},),
    "LeakyRelu": ({"alpha": (0.1, -0.4, 1.5)},),
    "Selu": ({"alpha": (1.6733, -1.0), "gamma": (1.05, -1.0)},),
    "ThresholdedRelu": ({"alpha": (1.0, 0.0, -0.5)},),
}  # fmt: skip


@dataclass
class _Drawing:
    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # without the batch

    def pick(self, *values: Any) -> Any:
        return values[int(self.random.integers(len(values)))]

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def normal(self, *shape: int) -> str:
        return self.constant(self.random.normal(size=shape).astype(np.float32))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str | None:
        """The name of what it makes; None, and no node, where ONNX or ONNX Runtime has no such node, or it makes too much."""
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=f"{operator}_{name}", **attributes))
        try:
            session = onnxruntime.InferenceSession(
                self.model(name).SerializeToString(), _quiet(), ["CPUExecutionProvider"]
            )
            (made,) = session.run(None, {"x": np.ones((1, *self.shapes["x"]), dtype=np.float32)})
        except Exception:  # whatever ONNX Runtime raises
            made = None
        if (
            made is None
            or made.ndim < 2
            or len(made) != 1
            or not 0 < made.size <= _MOST_NUMBERS
            or not np.isfinite(made).all()
        ):
            self.nodes.pop()
            return None
        self.shapes[name] = made.shape[1:]
        return name

    def model(self, output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "drawn",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *self.shapes["x"]])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)


def drawn_graph(seed: int, steps: int = 6) -> tuple[onnx.ModelProto, np.ndarray]:
    """A model from `x`, and samples [samples, ..] for it."""
    random = np.random.default_rng(seed)
    drawing = _Drawing(random)
    rank = int(random.choice([1, 2, 2, 2]))
    shape = (int(random.integers(1, 3)), *random.integers(4, 8, rank).tolist())
    drawing.shapes["x"] = shape
    last, before = "x", "x"
    for _ in range(steps):
        layer = drawing.pick(*_LAYERS)
        made = layer(drawing, last, drawing.pick(before, "x"))
        if made is not None:
            before, last = last, made
    if last == "x":
        last = drawing.node("Relu", "x") or "x"
    if random.random() < 0.5:
        flat = drawing.node("Flatten", last)
        assert flat is not None
        dense = drawing.node("Gemm", flat, drawing.normal(int(np.prod(drawing.shapes[last])), 3))
        last = dense or flat
    samples = random.normal(size=(_SAMPLES, *shape)).astype(np.float32)
    return drawing.model(last), samples


def expected(model: onnx.ModelProto, samples: np.ndarray) -> np.ndarray:
    """ONNX Runtime's answers, sample by sample."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), _quiet(), ["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in samples])


def samples_for(model: onnx.ModelProto, seed: int, count: int) -> np.ndarray:
    """[count, ..] of those that `drawn_graph` draws from."""
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    return np.random.default_rng([20261128, seed]).normal(size=(count, *shape)).astype(np.float32)


def smallest(model: onnx.ModelProto, fails: Callable[[onnx.ModelProto], bool]) -> onnx.ModelProto:
    """The same up to the first node at which it still fails."""
    cuts = (_cut(model, node.output[0]) for node in model.graph.node[:-1])
    return next((part for part in cuts if fails(part)), model)


def description(model: onnx.ModelProto) -> str:
    """Its nodes, with what they read."""
    return "; ".join(f"{node.output[0]} = {node.op_type}({', '.join(node.input)})" for node in model.graph.node)


def _cut(model: onnx.ModelProto, output: str) -> onnx.ModelProto:
    """What a result of the model takes."""
    part, needed = onnx.ModelProto(), {output}
    part.CopyFrom(model)
    nodes = []
    for node in reversed(model.graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(node.input)
    del part.graph.node[:], part.graph.initializer[:], part.graph.output[:]
    part.graph.node.extend(reversed(nodes))
    part.graph.initializer.extend(each for each in model.graph.initializer if each.name in needed)
    part.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    return part


def _quiet() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


# --- layers: of what was made last, and of something made before; None where it does not fit ---


def _function(d: _Drawing, x: str, _: str) -> str | None:
    name = d.pick(*_FUNCTIONS)
    attributes = {key: float(d.pick(*values)) for chosen in _FUNCTIONS[name] for key, values in chosen.items()}
    return d.node(name, x, **attributes)


def _with_constants(d: _Drawing, x: str, _: str) -> str | None:
    channels = (d.shapes[x][0], *[1] * (len(d.shapes[x]) - 1))
    kind = d.pick("Add", "Mul", "Sub", "Max", "Min", "PRelu", "Clip", "Div", "Pow")
    if kind == "Clip":
        low, high = d.pick((-0.5, 0.5), (0.0, 6.0), (0.5, -0.5), (-2.0, 0.0))
        return d.node("Clip", x, d.constant(np.float32(low)), d.constant(np.float32(high)))
    if kind == "Pow":
        return d.node("Pow", x, d.constant(np.float32(d.pick(2, 3))))
    if kind == "Div":
        return d.node("Div", x, d.constant(np.float32(d.pick(-2.0, 0.7))))
    return d.node(kind, x, d.normal(*channels))


def _pad(d: _Drawing, x: str, _: str) -> str | None:
    rank = len(d.shapes[x])
    amounts = [d.pick(0, 0, 1, 2) if axis > 1 or rank == 1 else 0 for axis in range(rank + 1)] + [
        d.pick(0, 1, 2) if axis > 1 or rank == 1 else 0 for axis in range(rank + 1)
    ]
    amounts[0] = amounts[rank + 1] = 0
    mode = d.pick("constant", "constant", "constant", "edge", "reflect")
    pads = d.constant(np.array(amounts, dtype=np.int64))
    if mode != "constant":
        return d.node("Pad", x, pads, mode=mode)
    value = d.pick(None, 0.0, 0.0, 0.7, -1.5)
    return d.node("Pad", x, pads, *([] if value is None else [d.constant(np.float32(value))]))


def _concat(d: _Drawing, x: str, before: str) -> str | None:
    axis = int(d.random.integers(1, len(d.shapes[x]) + 1))
    shape = list(d.shapes[x])
    shape[axis - 1] = d.pick(1, 2)
    kind = d.pick("zeros", "zeros", "constant", "other", "itself")
    if kind == "itself":
        return d.node("Concat", x, x, axis=axis)
    if kind == "other":
        return d.node("Concat", x, before, axis=axis)
    added = d.constant(np.zeros((1, *shape), dtype=np.float32)) if kind == "zeros" else d.normal(1, *shape)
    return d.node("Concat", *d.pick([x, added], [added, x]), axis=axis)


def _pool(d: _Drawing, x: str, _: str) -> str | None:
    rank = len(d.shapes[x]) - 1
    kernel = [d.pick(1, 2, 2, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [d.pick(1, 2) for _ in range(rank)],
        "pads": [int(d.random.integers(0, size)) for size in (*kernel, *kernel)],
        "ceil_mode": d.pick(0, 0, 1),
    }
    operator = d.pick("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool")
    if operator == "AveragePool":
        attributes["count_include_pad"] = d.pick(0, 1 - attributes["ceil_mode"])  # runtimes differ on both together
    if d.random.random() < 0.3:
        attributes["dilations"] = [d.pick(1, 2) for _ in range(rank)]
    return d.node(operator, x, **attributes)


def _global(d: _Drawing, x: str, _: str) -> str | None:
    kind = d.pick(
        "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2", "GlobalMaxPool", "GlobalAveragePool", "ReduceSumSquare"
    )
    if kind.startswith("Global"):
        return d.node(kind, x)
    axes = d.constant(np.array([int(d.random.integers(1, len(d.shapes[x]) + 1))]))
    return d.node(kind, x, axes, keepdims=1)


def _conv(d: _Drawing, x: str, _: str) -> str | None:
    channels, *spatial = d.shapes[x]
    rank, group = len(spatial), d.pick(1, channels)
    kernel = [d.pick(1, 2, 3) for _ in range(rank)]
    filters = d.pick(1, 2) * group
    weights = d.normal(filters, channels // group, *kernel)
    pads = [int(d.random.integers(0, size)) for size in (*kernel, *kernel)]
    dilations = [d.pick(1, 1, 2) for _ in range(rank)]
    strides = [d.pick(1, 1, 2) for _ in range(rank)]
    return d.node("Conv", x, weights, pads=pads, dilations=dilations, group=group, strides=strides)


def _moving(d: _Drawing, x: str, _: str) -> str | None:
    rank = len(d.shapes[x])
    kind = d.pick(
        "Trilu", "Trilu", "Slice", "Transpose", "Resize", "Gather", "Tile", "Reshape", "DepthToSpace", "SpaceToDepth"
    )
    if kind == "Tile":
        return d.node("Tile", x, d.constant(np.array([1, *(d.pick(1, 1, 2) for _ in range(rank))])))
    if kind == "Reshape":
        sizes = list(d.shapes[x])
        sizes = d.pick([*sizes[1:], sizes[0]], [1, *sizes], [-1, sizes[-1]], [*sizes, 1])
        return d.node("Reshape", x, d.constant(np.array([1, *sizes])))
    if kind in ("DepthToSpace", "SpaceToDepth"):
        return d.node(kind, x, blocksize=2)
    if kind == "Trilu":
        return d.node("Trilu", x, d.constant(np.int64(d.pick(-1, 0, 1))), upper=d.pick(0, 1)) if rank > 1 else None
    if kind == "Slice":
        axis, step = int(d.random.integers(1, rank + 1)), d.pick(1, -1, 2)
        begin, end = (0, 100) if step > 0 else (-1, -100)
        return d.node("Slice", x, *(d.constant(np.array([v])) for v in (begin, end, axis, step)))
    if kind == "Transpose":
        return d.node("Transpose", x, perm=[0, *(1 + d.random.permutation(rank)).tolist()])
    if kind == "Gather":
        axis = int(d.random.integers(1, rank + 1))
        return d.node("Gather", x, d.constant(d.random.integers(0, d.shapes[x][axis - 1], 3)), axis=axis)
    scales = np.array([1.0, 1.0, *[d.pick(1.0, 2.0) for _ in range(rank - 1)]], dtype=np.float32)
    return d.node("Resize", x, "", d.constant(scales), mode=d.pick("nearest", "linear"))


def _branch(d: _Drawing, x: str, before: str) -> str | None:
    """Of two tensors, whose shapes may have to be broadcast."""
    kind = d.pick("Add", "Sub", "Max", "Min", "Mul", "Mean", "Where", "MatMul", "Div")
    if kind == "Where":
        larger = d.node(d.pick("Greater", "LessOrEqual"), x, d.pick(before, d.constant(np.float32(0.2))))
        return (
            None
            if larger is None
            else d.node("Where", larger, *d.pick([x, before], [before, x], [x, d.constant(np.float32(0))]))
        )
    if kind == "Div":
        below = d.node("Softplus", before)
        return None if below is None else d.node("Div", x, below)
    return d.node(kind, x, before)


def _normalised(d: _Drawing, x: str, _: str) -> str | None:
    """A mean taken out of all numbers along an axis; normalisations by name."""
    channels, axis = d.shapes[x][0], int(d.random.integers(1, len(d.shapes[x]) + 1))
    kind = d.pick(
        "ReduceMean",
        "LayerNormalization",
        "BatchNormalization",
        "InstanceNormalization",
        "Softmax",
        "LogSoftmax",
    )
    if kind == "ReduceMean":
        taken = d.node(kind, x, d.constant(np.array([axis])), keepdims=1)
        return None if taken is None else d.node("Sub", x, taken)
    if kind == "LayerNormalization":
        last = d.shapes[x][-1]
        return d.node(kind, x, d.normal(last), d.normal(last), axis=-1)
    if kind == "BatchNormalization":
        variance = d.constant(np.abs(d.random.normal(size=channels)).astype(np.float32) + 0.1)
        return d.node(kind, x, d.normal(channels), d.normal(channels), d.normal(channels), variance)
    if kind == "InstanceNormalization":
        return d.node(kind, x, d.normal(channels), d.normal(channels))
    return d.node(kind, x, axis=axis)


def _transposed(d: _Drawing, x: str, _: str) -> str | None:
    channels, *spatial = d.shapes[x]
    kernel = [d.pick(1, 2, 3) for _ in spatial]
    pads = [int(d.random.integers(0, size)) for size in (*kernel, *kernel)]
    return d.node(
        "ConvTranspose",
        x,
        d.normal(channels, d.pick(1, 2), *kernel),
        strides=[d.pick(1, 2) for _ in spatial],
        pads=pads,
    )


def _matmul(d: _Drawing, x: str, _: str) -> str | None:
    return d.node("MatMul", x, d.normal(d.shapes[x][-1], d.pick(1, 3)))


def _rounded(d: _Drawing, x: str, _: str) -> str | None:
    """To integers and back, as quantised networks have it."""
    scale, zero = d.constant(np.float32(d.pick(0.1, 0.5))), d.constant(d.pick(np.int8(0), np.int8(-20), np.uint8(128)))
    integers = d.node("QuantizeLinear", x, scale, zero)
    return None if integers is None else d.node("DequantizeLinear", integers, scale, zero)


_LAYERS: Final[tuple[Callable[[_Drawing, str, str], str | None], ...]] = (
    _function, _function, _with_constants, _pad, _pad, _concat, _concat, _pool, _pool, _pool, _global, _conv, _moving, _moving, _branch, _branch,
    _normalised, _transposed, _matmul, _rounded,
)  # fmt: skip
