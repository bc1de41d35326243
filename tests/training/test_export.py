"""A trained module as ONNX: onnxruntime computes the same, and the compiler gives back integers and ranges as trained."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest

torch = pytest.importorskip("torch", reason="training needs PyTorch")

import cloakwork as cw  # noqa: E402
from cloakwork.fhe_core.errors import SerializationError  # noqa: E402
from cloakwork.models.calibration import Calibration  # noqa: E402
from cloakwork.training.export import layer_noise, ranges_json, to_onnx, trained_options  # noqa: E402
from cloakwork.training.layers import NoisyMaxPool2d, NoisyReLU, QuantConv2d, QuantLinear, freeze  # noqa: E402
from cloakwork.training.noise import LookupNoise  # noqa: E402

NOISE = LookupNoise.of("nn2")


def mlp() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        QuantLinear(20, 64, NOISE),
        torch.nn.ReLU(),
        QuantLinear(64, 48, NOISE, largest_norm=7.0),
        torch.nn.ReLU(),
        QuantLinear(48, 5, NOISE, largest_norm=12.0, is_output=True),
    )


def cnn() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 10, 10)),
        QuantConv2d(1, 3, 3, before_pool=True),
        NoisyMaxPool2d(3, NOISE),
        NoisyReLU(3, NOISE),
        QuantConv2d(3, 4, 3, NOISE, largest_norm=20.0),
        torch.nn.Sigmoid(),
        torch.nn.Flatten(),
        QuantLinear(16, 5, NOISE, largest_norm=20.0, is_output=True),
    )


def settled(model: torch.nn.Sequential, inputs: int) -> tuple[torch.nn.Sequential, np.ndarray]:
    torch.manual_seed(7)
    x = torch.rand(500, inputs)
    model.train()
    for _ in range(20):
        model(x)
    freeze(model)
    return model, x.numpy()


def run_onnx(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"input": x})
    return scores


@pytest.mark.parametrize(("make", "inputs"), [(mlp, 20), (cnn, 100)])
def test_onnxruntime_computes_what_the_module_does(make, inputs: int) -> None:
    model, x = settled(make(), inputs)
    proto = to_onnx(model, "test", [inputs])
    assert proto.opset_import[0].version >= 17
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(run_onnx(proto, x), expected, rtol=1e-4, atol=1e-5)
    integers = [t for t in proto.graph.initializer if t.name.endswith("weight.integers")]
    assert len(integers) == 3
    assert all(t.data_type == onnx.TensorProto.INT8 for t in integers)


def test_the_compiler_gives_back_the_integers_as_trained() -> None:
    model, x = settled(mlp(), 20)
    calibration = Calibration.from_json(ranges_json(model))
    compiled = cw.compile(to_onnx(model, "test", [20]), calibration, **trained_options(model))
    assert compiled.program.parameters.name == "nn2"
    layers = [layer for layer in model if isinstance(layer, QuantLinear)]
    for layer, node in zip(layers, compiled.program.graph.linears, strict=True):
        np.testing.assert_array_equal(node.weights[0], layer.integers().numpy())
    # Noise that training injects is the noise that simulation sees, at the client and relative to the range of each score.
    with torch.no_grad():
        clear = model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(compiled.predict(x), clear, atol=0.02 * np.abs(clear).max())


def test_learned_ranges_survive_json() -> None:
    model, _ = settled(mlp(), 20)
    calibration = Calibration.from_json(ranges_json(model))
    assert calibration.learned
    assert Calibration.from_json(calibration.to_json()).learned
    half = (calibration.rows[1][1] - calibration.rows[1][0])[0] / 2
    np.testing.assert_allclose(half, model[2].seen.half_range.numpy(), rtol=1e-3)
    assert set(layer_noise(model)) == {"quantlinear_0", "quantlinear_2", "quantlinear_4"}
    without = {**json.loads(calibration.to_json()), "learned": "yes"}
    with pytest.raises(SerializationError, match="version 1 of its JSON"):
        Calibration.from_json(json.dumps(without))


def test_an_unknown_layer_is_named() -> None:
    with pytest.raises(ValueError, match="GELU"):
        to_onnx(torch.nn.Sequential(QuantLinear(4, 2), torch.nn.GELU()), "test", [4])


def test_a_model_that_pools_has_no_ranges_to_hand_over() -> None:
    with pytest.raises(ValueError, match="max-pool"):
        ranges_json(cnn())
