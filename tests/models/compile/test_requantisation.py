"""Integer networks as ONNX Runtime's tool writes them: encrypted, they answer the integers of its kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from cases import in_tiers
from sklearn.datasets import load_digits

pytest.importorskip("onnxruntime", reason="ONNX Runtime is what is compared with")
pytest.importorskip("torch", reason="the networks are trained with PyTorch")

from integer_networks import Format, answers, kernels, output_scale, quantise, trained_dense
from onnx import TensorProto, helper
from onnx_models import model, runtime
from onnxruntime.quantization import QuantType

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.exact import choose_exact
from cloakwork.models.exact.wide_lookups import widened
from cloakwork.models.graph.ir import Graph

TOY = ["toy_fine"]
ROUNDING = ("Requantize", "QuantizeLinear")
UINT4 = helper.tensor_dtype_to_np_dtype(TensorProto.UINT4)
FORMATS = [
    Format(operators=True),
    Format(activations=QuantType.QInt8, symmetric=True),
    Format(activations=QuantType.QUInt4, weights=QuantType.QInt4),
]


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    return data.data.astype(np.float32), data.target


def compiled(proto: onnx.ModelProto, x: np.ndarray) -> CompiledModel:
    return cw.compile(proto, x, precision="exact", sets=TOY, rounding="onnxruntime")


def integers(proto: onnx.ModelProto, values: np.ndarray) -> np.ndarray:
    """Of outputs, which are multiples of their scale but for the last bits of a float32."""
    scale = output_scale(proto)
    found: np.ndarray = np.rint(np.asarray(values) / scale).astype(np.int64)
    np.testing.assert_allclose(found * scale, values, rtol=1e-5, atol=1e-5)
    return found


@pytest.mark.parametrize("form", in_tiers(FORMATS, FORMATS[:1]), ids=str)
def test_integers_of_a_network_are_those_of_the_kernels(
    form: Format, table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """Raw features from 0 to 16; in clear, with the noise of encryption, really encrypted, and from a file."""
    x, labels = table
    proto = quantise(trained_dense(x[:900], labels[:900], hidden=5, epochs=6), x[:200], form)
    made = compiled(proto, x[:200])
    assert made.program.parameters.name == "toy_fine"
    wanted = integers(proto, answers(proto, x[900:]))
    assert len(np.unique(wanted)) > 8
    made.save(tmp_path / "digits.cwm")
    loaded = CompiledModel.load(tmp_path / "digits.cwm")
    np.testing.assert_array_equal(integers(proto, made.predict(x[900:])), wanted)
    np.testing.assert_array_equal(integers(proto, made.predict(x[900:], "simulate", seed=15)), wanted)
    np.testing.assert_array_equal(integers(proto, loaded.predict(x[900:904], "encrypted")), wanted[:4])


@pytest.mark.tier("all")
@pytest.mark.parametrize("form", [Format(operators=True), FORMATS[1]], ids=str)
def test_inputs_at_the_corners_are_right_too(form: Format, table: tuple[np.ndarray, np.ndarray]) -> None:
    """Sums far beyond what samples show, and inputs beyond them, saturate as the kernels do: ranges are those of interval arithmetic."""
    x, labels = table
    proto = quantise(trained_dense(x[:900], labels[:900], hidden=6, epochs=6), x[:200], form)
    made = compiled(proto, x[:200])
    for values in ([0, 16], [-30, -16, -3, 0, 5, 16, 40]):
        corners = np.random.default_rng(15).choice(np.float32(values), (400, 64))
        wanted = integers(proto, answers(proto, corners))
        np.testing.assert_array_equal(integers(proto, made.predict(corners)), wanted)
        np.testing.assert_array_equal(integers(proto, made.predict(corners, "simulate", seed=16)), wanted)


def pooled(x: np.ndarray, labels: np.ndarray, steps: tuple[int, int]) -> onnx.ModelProto:
    """Conv - ReLU - max-pool by such steps - Gemm on images of 8 x 8 pixels, trained in the last layer alone."""
    rng = np.random.default_rng(15)
    kernel, bias = rng.normal(size=(1, 1, 3, 3)), np.array([3.0])
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c"], strides=[steps[0]] * 2, name="conv0"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[steps[1]] * 2, name="pool0"),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["y"], transB=1, name="dense1"),
    ]
    given = {"w0": kernel.astype(np.float32), "b0": bias.astype(np.float32)}
    features = runtime(model(nodes[:4], (1, 8, 8), given, output="f"), x)
    targets = np.eye(10)[labels]
    fitted = np.linalg.lstsq(np.column_stack([features, np.ones(len(x))]), targets, rcond=None)[0]
    last = {"w1": fitted[:-1].T.astype(np.float32), "b1": fitted[-1].astype(np.float32)}
    return model(nodes, (1, 8, 8), {**given, **last})


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    ("form", "steps", "maxima", "requantised"),
    [(Format(operators=True), (1, 2), 27, 9), (Format(), (2, 1), 12, 9)],
    ids=["maxima first", "requantised first"],
)
def test_max_pools_of_integers_are_those_of_the_kernels(
    form: Format, steps: tuple[int, int], maxima: int, requantised: int, table: tuple[np.ndarray, np.ndarray]
) -> None:
    """In the order that costs less: maxima of 36 accumulators, 9 of which are requantised, or 9 requantised whose windows overlap."""
    x, labels = table[0].reshape(-1, 1, 8, 8), table[1]
    proto = quantise(pooled(x[:300], labels[:300], steps), x[:200], form)
    told: dict[str, Graph] = {}
    made = cw.compile(
        proto,
        x[:200],
        precision="exact",
        sets=TOY,
        rounding="onnxruntime",
        accuracy=0,
        on_step=told.__setitem__,
    )
    lookups = told["separate_levels"].lookups
    rounded = [node.size for node in lookups if any(step.operator in ROUNDING for step in node.steps)]
    assert (sum(rounded), sum(node.size for node in lookups)) == (requantised, requantised + maxima)
    assert (lookups[0].size == requantised) == (steps == (2, 1))
    wanted = integers(proto, answers(proto, x[900:]))
    np.testing.assert_array_equal(integers(proto, made.predict(x[900:])), wanted)
    np.testing.assert_array_equal(integers(proto, made.predict(x[900:1100], "simulate", seed=15)), wanted[:200])
    np.testing.assert_array_equal(integers(proto, made.predict(x[900:902], "encrypted")), wanted[:2])


def residual(x: np.ndarray, labels: np.ndarray) -> onnx.ModelProto:
    """Conv - ReLU, a 1 x 1 Conv of it added to it - ReLU - global mean - Gemm on images of 8 x 8 pixels, trained in the last layer alone."""
    rng = np.random.default_rng(15)
    given = {
        "w0": rng.normal(size=(2, 1, 3, 3)) / 3, "b0": np.array([0.5, 0.2]),
        "w1": np.array([[0.6, 0.3], [-0.2, 0.5]]).reshape(2, 2, 1, 1), "b1": np.array([0.1, -0.1]),
    }  # fmt: skip
    given = {name: value.astype(np.float32) for name, value in given.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], strides=[3, 3], name="conv0"),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], name="conv1"),
        helper.make_node("Add", ["c1", "r0"], ["s"], name="add"),
        helper.make_node("Relu", ["s"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], transB=1, name="dense"),
    ]
    features = runtime(model(nodes[:-1], (1, 8, 8), given, output="f"), x)
    fitted = np.linalg.lstsq(np.column_stack([features, np.ones(len(x))]), np.eye(10)[labels], rcond=None)[0]
    last = {"w2": fitted[:-1].T.astype(np.float32), "b2": fitted[-1].astype(np.float32)}
    return model(nodes, (1, 8, 8), given | last)


@pytest.mark.tier("all")
@pytest.mark.parametrize("times", [1, 0.37, 1.2345])
def test_residual_networks_are_those_of_the_kernels(
    times: float, table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    """QLinearAdd and QLinearGlobalAveragePool. Scales of both summands are alike, as 37 to 100, and so that weights are 458 and 371."""
    x, labels = table[0].reshape(-1, 1, 8, 8), table[1]
    proto = quantise(residual(x[:300], labels[:300]), x[:200], Format())
    scales = {each.name: each for each in proto.graph.initializer if each.name in ("c1_scale", "r0_scale")}
    shared = times * onnx.numpy_helper.to_array(scales["r0_scale"])
    scales["c1_scale"].CopyFrom(onnx.numpy_helper.from_array(shared.astype(np.float32), "c1_scale"))
    assert {"QLinearAdd", "QLinearGlobalAveragePool"} <= {node.op_type for node in kernels(proto).graph.node}
    made = cw.compile(proto, x[:200], precision="exact", sets=TOY, rounding="onnxruntime", accuracy=0)
    wanted = integers(proto, answers(proto, x[900:]))
    assert len(np.unique(wanted)) > 100
    np.testing.assert_array_equal(integers(proto, made.predict(x[900:])), wanted)
    np.testing.assert_array_equal(integers(proto, made.predict(x[900:1100], "simulate", seed=15)), wanted[:200])
    made.save(tmp_path / "residual.cwm")
    loaded = CompiledModel.load(tmp_path / "residual.cwm")
    np.testing.assert_array_equal(integers(proto, loaded.predict(x[900:902], "encrypted")), wanted[:2])


@pytest.mark.tier("all")
def test_weights_in_parts_bring_less_noise(
    table: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done where there is no room otherwise: the same integers, for more look-ups, under weights of at most 16."""
    x, labels = table
    proto = quantise(trained_dense(x[:900], labels[:900], (4, 3), epochs=2), x[:200], Format(operators=True))
    whole = compiled(proto, x[:200])
    monkeypatch.setattr(choose_exact, "widened", lambda *given: widened(*given[:4], in_parts=True))
    parts = compiled(proto, x[:200])
    norms = [max(each["norm_on_lookups"] for each in made.report()["layers"]) for made in (whole, parts)]
    assert norms[1] < norms[0] / 2
    assert whole.program.bootstraps < parts.program.bootstraps < 1.5 * whole.program.bootstraps
    wanted = integers(proto, answers(proto, x[900:]))
    np.testing.assert_array_equal(integers(proto, parts.predict(x[900:])), wanted)
    np.testing.assert_array_equal(integers(proto, parts.predict(x[900:], "simulate", seed=15)), wanted)


@pytest.mark.tier("all")
def test_units_are_chosen_by_cost() -> None:
    """Sums that fill half of the circle: a search has no margin there; finer units take a look-up less."""
    width, rows = 72, 3
    rng = np.random.default_rng(15)
    weights = rng.permuted(np.tile(np.float32([[15], [-15]]), (width // 2, rows)), axis=0)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["sums"], name="sums"),
        helper.make_node("QuantizeLinear", ["sums", "step", "zero"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "step", "zero"], ["s"]),
        helper.make_node("MatMul", ["s", "last"], ["y"], name="last"),
    ]
    constants = {
        "one": np.float32(1), "zero": np.array(0, dtype=UINT4), "w": weights,
        "step": np.float32(1000), "last": rng.integers(-3, 4, (rows, 2)).astype(np.float32),
    }  # fmt: skip
    proto = model(nodes, [width], constants, opset=21)
    made = cw.compile(proto, precision="exact", sets=["large16"])
    assert made.program.bootstraps <= 6 * rows
    x = rng.integers(0, 16, (300, width))
    x[:150] = np.where(weights[:, 0] > 0, rng.integers(0, 16, (150, 1)), x[:150] // 4)
    sums = np.clip(np.rint(x @ weights / 1000), 0, 15) * 1000
    assert {0, 1, 2, 5, 6, 7} <= set(np.unique(sums[:, 0] // 1000))
    np.testing.assert_allclose(made.predict(x, "simulate", seed=4), sums @ constants["last"], atol=1)


@pytest.mark.tier("all")
def test_noise_that_leaves_no_bit_is_refused_before_chains_are_made(
    table: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sums of look-ups' results under weights of 8 bits, even in parts: with the layer, its norm and what helps."""
    x, labels = table
    proto = quantise(trained_dense(x[:900], labels[:900], (64, 3), epochs=2), x[:200], Format(operators=True))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("no chain is made")

    monkeypatch.setattr(choose_exact, "widened", never)
    with pytest.raises(
        NoParameterSetError, match=r"dense1.* under a weight norm of [1-9]\d\d, is too much .*: make the layer narrower"
    ):
        cw.compile(proto, x[:200], precision="exact", sets=["large16"], rounding="onnxruntime")


def test_a_set_that_is_too_noisy_is_refused(table: tuple[np.ndarray, np.ndarray]) -> None:
    x, labels = table
    proto = quantise(trained_dense(x[:900], labels[:900], hidden=5, epochs=2), x[:200], Format(operators=True))
    with pytest.raises(NoParameterSetError, match="dense"):
        cw.compile(proto, x[:200], precision="exact", sets=["lut4"], rounding="onnxruntime")
