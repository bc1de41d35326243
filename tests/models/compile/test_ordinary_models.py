"""Ordinary networks, trained here without a thought of encryption: with default options as good as in clear, or an error that says not.

A dozen small ones of tests/benchmarks/strangers, which has more and larger ones and tells what they cost.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import pytest
from cases import in_tiers

import cloakwork as cw
from cloakwork.models.errors import CompileError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
nn = torch.nn

ALLOWED_LOSS = 1.5  # points of accuracy, or of explained variance
SEEDS = 3
CALIBRATION, BATCH = 300, 32


class Data(NamedTuple):
    """Samples first; y: class numbers, 0 and 1 ("binary"), or a column of values."""

    task: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


def split(task: str, x: np.ndarray, y: np.ndarray, test: int) -> Data:
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order]
    return Data(task, x[test:], y[test:], x[:test], y[:test])


def digits() -> Data:
    """Pixels 0 .. 16."""
    found = datasets.load_digits()
    return split("classes", found.images[:, None], found.target, 800)


def odd_digits() -> Data:
    data = digits()
    return data._replace(task="binary", train_y=data.train_y % 2, test_y=data.test_y % 2)


def cancer() -> Data:
    """Columns from 0.001 to 4,000."""
    found = datasets.load_breast_cancer()
    return split("binary", found.data, found.target, 228)


def wine() -> Data:
    found = datasets.load_wine()
    return split("classes", found.data, found.target, 89)


def diabetes() -> Data:
    """As measured; targets 25 .. 346."""
    found = datasets.load_diabetes(scaled=False)
    return split("values", found.data, found.target[:, None], 150)


def houses() -> Data:
    """Columns of very different size with long tails, prices in dollars."""
    rng = np.random.default_rng(11)
    income, rooms = rng.lognormal(1.2, 0.45, 1500), rng.lognormal(1.6, 0.3, 1500)
    people, latitude = rng.lognormal(7.0, 0.8, 1500), rng.uniform(32.5, 42.0, 1500)
    price = 42_000 * income**0.9 + 9_000 * rooms - 2.5 * people - 22_000 * np.tanh(latitude - 36) + 60_000
    price = np.clip(price * rng.lognormal(0, 0.1, 1500), 15_000, 500_000)
    return split("values", np.stack([income, rooms, people, latitude], axis=1), price[:, None], 600)


class Rescaled(nn.Module):  # type: ignore[misc,name-defined]
    """Answers in the targets' own unit."""

    def __init__(self, inner: Any, mean: Any, deviation: Any) -> None:
        super().__init__()
        self.inner, self.mean, self.deviation = inner, mean, deviation

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.deviation + self.mean


class Residual(nn.Module):  # type: ignore[misc,name-defined]
    """relu(x + conv(relu(conv(x))))"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def mlp(*sizes: int, activation: Callable[[], Any] = nn.ReLU, norm: bool = False) -> list[Any]:
    """Args: norm: batch normalisation of the input."""
    layers: list[Any] = [nn.Flatten(), *([nn.BatchNorm1d(sizes[0])] if norm else [])]
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), activation()]
    return layers[:-1]


def max_pooled() -> list[Any]:
    return [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), *mlp(64, 10)]


def normalised() -> list[Any]:
    first = [nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2)]
    return [*first, nn.Conv2d(4, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU(), *mlp(48, 10)]


def separable() -> list[Any]:
    first = [nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU()]
    depthwise = [nn.Conv2d(6, 6, 3, groups=6), nn.BatchNorm2d(6), nn.ReLU6()]
    return [*first, *depthwise, nn.Conv2d(6, 16, 1), nn.ReLU(), *mlp(64, 10)]


def with_shortcut() -> list[Any]:
    return [nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU(), Residual(6), *mlp(96, 10)]


# Name: data, layers, epochs.
NETWORKS: dict[str, tuple[Callable[[], Data], Callable[[], list[Any]], int]] = {
    "relu": (digits, lambda: mlp(64, 32, 10), 12),
    "deep": (digits, lambda: mlp(64, 16, 16, 16, 10), 20),
    "silu": (digits, lambda: mlp(64, 20, 10, activation=nn.SiLU), 12),
    "mish": (digits, lambda: mlp(64, 16, 10, activation=nn.Mish), 12),
    "final sigmoid": (odd_digits, lambda: [*mlp(64, 24, 1), nn.Sigmoid()], 12),
    "max-pools": (digits, max_pooled, 8),
    "batch norm, average pools": (digits, normalised, 6),
    "depthwise": (digits, separable, 8),
    "residual": (digits, with_shortcut, 6),
    "raw columns": (cancer, lambda: mlp(30, 16, 1, norm=True), 30),
    "raw columns, tanh": (wine, lambda: mlp(13, 16, 3, activation=nn.Tanh, norm=True), 60),
    "raw columns and targets": (diabetes, lambda: mlp(10, 12, 1, norm=True), 50),
    "prices": (houses, lambda: mlp(4, 16, 8, 1, norm=True), 20),
}


def trained(data: Data, layers: list[Any], epochs: int) -> Any:
    """Adam at 0.003 falling to 0, mini-batches of 32."""
    x, y = torch.tensor(data.train_x), torch.tensor(data.train_y)
    network, loss = nn.Sequential(*layers), nn.CrossEntropyLoss()
    mean, deviation = torch.zeros(1), torch.ones(1)
    if data.task == "values":
        mean, deviation, loss = y.float().mean(), y.float().std(), nn.MSELoss()
        y = (y.float() - mean) / deviation
    elif data.task == "binary":
        y, loss = y.float()[:, None], nn.BCELoss() if isinstance(layers[-1], nn.Sigmoid) else nn.BCEWithLogitsLoss()
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(BATCH)[:-1]:
            optimiser.zero_grad()
            loss(network(x[batch]), y[batch]).backward()
            optimiser.step()
        schedule.step()
    return (Rescaled(network, mean, deviation) if data.task == "values" else network).eval()


def exported(network: Any, data: Data) -> onnx.ModelProto:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter says that it is the old one
        torch.onnx.export(
            network, (torch.tensor(data.train_x[:1]),), buffer, dynamo=False, input_names=["x"],
            dynamic_axes={"x": {0: "batch"}}, opset_version=17,
        )  # fmt: skip
    return onnx.load_from_string(buffer.getvalue())


def correct(data: Data, answers: np.ndarray, threshold: float) -> np.ndarray:
    """[samples] 0 or 1; of values, what is explained of the mean sample's variance."""
    y = data.test_y
    if data.task == "values":
        return np.asarray(1 - np.square(answers.reshape(-1) - y[:, 0]) / y.var())
    decided = answers.argmax(axis=1) if data.task == "classes" else answers.reshape(-1) > threshold
    return (decided == y).astype(np.float64)


@pytest.mark.tier("all")
@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.CalibratedRangeWarning")
@pytest.mark.parametrize("name", in_tiers(NETWORKS, quick=("raw columns, tanh",)))
def test_as_good_as_in_clear_or_refused(name: str) -> None:
    """Within ALLOWED_LOSS and one standard error of what so many test samples tell."""
    load, layers, epochs = NETWORKS[name]
    data = load()
    torch.manual_seed(7)
    model = exported(trained(data, layers(), epochs), data)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    threshold = 0.5 if name == "final sigmoid" else 0.0
    clear = correct(data, session.run(None, {"x": data.test_x})[0], threshold)
    assert clear.mean() > (0.4 if data.task == "values" else 0.85), "it was not trained well enough to tell"
    try:
        compiled = cw.compile(model, data.train_x[:CALIBRATION])
    except CompileError as error:
        assert "layer" in str(error)
        return
    x, seeds = data.test_x, range(SEEDS)
    found = [correct(data, compiled.predict(x, how="simulate", seed=seed), threshold) for seed in seeds]
    loss = clear - np.mean(found, axis=0)
    chance = loss.std() / np.sqrt(len(loss))
    assert 100 * (loss.mean() - chance) <= ALLOWED_LOSS, f"{100 * clear.mean():.1f} became {100 * np.mean(found):.1f}"
