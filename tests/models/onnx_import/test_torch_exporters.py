"""Small real PyTorch modules through both exporters: compiled, simulated, and one of them really encrypted."""

from __future__ import annotations

import io
import logging
import warnings

import numpy as np
import onnx
import pytest

import cloakwork as cw
from cloakwork.fhe_core.parameters import parameter_set

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
EXPORTERS = ["torchscript", pytest.param("dynamo", marks=pytest.mark.tier("all"))]


class Residual(nn.Module):  # type: ignore[misc,name-defined]
    """conv - batch norm - relu - conv, plus its input, relu, max-pool, linear."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = (
            nn.Conv2d(2, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.Conv2d(4, 2, 3, padding=1),
        )
        self.head = nn.Linear(2 * 3 * 3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.relu(self.norm(self.first(x))))
        y = torch.max_pool2d(torch.relu(x + y), 2)
        return self.head(y.view(y.size(0), -1))


class Mixer(nn.Module):  # type: ignore[misc,name-defined]
    """What exporters write in several nodes: gelu, chunk, a gate, unfold, where, mean, clamp, slices."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.unfold, self.head = nn.Linear(6, 8), nn.Unfold((2, 2), stride=2), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = nn.functional.gelu(self.dense(x)).chunk(2, dim=-1)
        gated = left * torch.sigmoid(right)
        patches = self.unfold(gated.reshape(-1, 1, 4, 4))
        pooled = patches.mean(dim=1).clamp(-1.0, 1.5)
        return self.head(torch.where(pooled > 0, pooled, 0.1 * pooled))


class Sequence(nn.Module):  # type: ignore[misc,name-defined]
    """A convolution over time, hard-swish, adaptive pooling, log-softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(3, 4, 3, dilation=2), nn.BatchNorm1d(4), nn.Hardswish(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(4, 3), nn.LogSoftmax(dim=1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


MODULES = {"residual": (Residual, (2, 6, 6)), "mixer": (Mixer, (4, 6)), "sequence": (Sequence, (3, 12))}


def module(name: str) -> tuple[torch.nn.Module, tuple[int, ...]]:
    torch.manual_seed(5)
    kind, shape = MODULES[name]
    made = kind()
    for part in made.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):  # statistics as training leaves them
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    return made.eval(), shape


def exported(made: torch.nn.Module, shape: tuple[int, ...], exporter: str) -> onnx.ModelProto:
    example = torch.randn(1, *shape)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both exporters warn about each other
        if exporter == "dynamo":
            pytest.importorskip("onnxscript", reason="the exporter needs onnxscript")
            program = torch.onnx.export(made, (example,), dynamo=True, verbose=False)
            assert program is not None
            return program.model_proto
        buffer = io.BytesIO()
        dynamic = {"x": {0: "batch"}}
        torch.onnx.export(
            made, (example,), buffer, dynamo=False, input_names=["x"], dynamic_axes=dynamic, opset_version=17
        )
        return onnx.load_from_string(buffer.getvalue())


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", MODULES)
def test_module_is_compiled_as_exported(name: str, exporter: str) -> None:
    made, shape = module(name)
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (200, *shape))
    compiled = cw.compile(
        exported(made, shape, exporter), x, precision="balanced", accuracy=0.9
    )  # they are not trained
    with torch.no_grad():
        expected = made(torch.tensor(x, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(compiled.predict_float(x), expected, atol=2e-5)
    error = compiled.predict(x, how="simulate", seed=2) - expected
    assert error.std() < 0.2 * expected.std()


class TwoHeads(nn.Module):  # type: ignore[misc,name-defined]
    """An image and a table, the table again behind a look-up; classes, a value without a dimension, and the layer before both."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.table, self.mix = nn.Conv2d(1, 2, 3, stride=2), nn.Linear(3, 4), nn.Linear(2 * 3 * 3 + 4, 6)
        self.classes, self.value = nn.Linear(6, 3), nn.Linear(6 + 3, 1)

    def forward(self, image: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left, right = torch.relu(self.image(image)).flatten(1), torch.tanh(self.table(table))
        embedding = self.mix(torch.cat([left, right], dim=1))
        active = torch.relu(embedding)
        value = self.value(torch.cat([active, table], dim=1)).squeeze(-1)
        return torch.softmax(self.classes(active), dim=1), value, embedding


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_two_inputs_and_three_outputs(exporter: str) -> None:
    torch.manual_seed(3)
    made, rng = TwoHeads().eval(), np.random.default_rng(4)
    x = {"image": rng.uniform(0, 1, (200, 1, 7, 7)), "table": 10 * rng.standard_normal((200, 3))}
    compiled = cw.compile(exported_with_names(made, exporter), x, precision="balanced", accuracy=0)
    with torch.no_grad():
        expected = made(*(torch.tensor(array, dtype=torch.float32) for array in x.values()))
    found, simulated = compiled.predict_float(x), compiled.predict(x, how="simulate", seed=2)
    assert len(found) == 3
    for name, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(found[name], wanted.numpy(), atol=2e-5)
        assert (simulated[name] - wanted.numpy()).std() < 0.2 * wanted.numpy().std()


def exported_with_names(made: torch.nn.Module, exporter: str) -> onnx.ModelProto:
    example, names = (torch.zeros(1, 1, 7, 7), torch.zeros(1, 3)), ["image", "table"]
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            pytest.importorskip("onnxscript", reason="the exporter needs onnxscript")
            program = torch.onnx.export(made, example, dynamo=True, verbose=False, input_names=names)
            assert program is not None
            return program.model_proto
        buffer = io.BytesIO()
        dynamic = {name: {0: "batch"} for name in names}
        torch.onnx.export(made, example, buffer, dynamo=False, input_names=names, dynamic_axes=dynamic)
        return onnx.load_from_string(buffer.getvalue())


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_residual_module_encrypted(exporter: str) -> None:
    """On a toy set with the noise of a shipped one; two samples."""
    made, shape = module("residual")
    x = np.random.default_rng(2).uniform(-1, 1, (100, *shape))
    proto = exported(made, shape, exporter)
    compiled = cw.compile(proto, x, precision=4.0, weight_bits=3, accuracy=0, sets=[parameter_set("toy_two_limb")])
    with torch.no_grad():
        expected = made(torch.tensor(x, dtype=torch.float32)).numpy()
    result = compiled.predict(x[:2], how="encrypted")
    simulated = compiled.predict(x, how="simulate", seed=1)
    assert np.abs(result - expected[:2]).max() <= 7 * np.abs(simulated - expected).std()
