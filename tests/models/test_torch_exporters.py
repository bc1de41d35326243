"""Small real PyTorch modules through both exporters: compiled, simulated, and one of them really encrypted."""

from __future__ import annotations

import io
import logging
import warnings

import numpy as np
import onnx
import pytest

from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.compiler import compile_onnx

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
EXPORTERS = ["torchscript", "dynamo"]


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
    compiled = compile_onnx(exported(made, shape, exporter), x, profile="balanced")
    with torch.no_grad():
        expected = made(torch.tensor(x, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(compiled.predict_float(x), expected, atol=2e-5)
    error = compiled.predict(x, fhe="simulate", seed=2) - expected
    assert error.std() < 0.2 * expected.std()


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_residual_module_encrypted(exporter: str) -> None:
    """On a toy set with the noise of a shipped one; two samples."""
    made, shape = module("residual")
    x = np.random.default_rng(2).uniform(-1, 1, (100, *shape))
    proto = exported(made, shape, exporter)
    compiled = compile_onnx(
        proto, x, profile=4.0, weight_bits=3, accuracy=None, candidates=[parameter_set("toy_two_limb")]
    )
    with torch.no_grad():
        expected = made(torch.tensor(x, dtype=torch.float32)).numpy()
    result = compiled.predict(x[:2], fhe="execute")
    simulated = compiled.predict(x, fhe="simulate", seed=1)
    assert np.abs(result - expected[:2]).max() <= 5 * np.abs(simulated - expected).std()
