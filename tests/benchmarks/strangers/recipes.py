"""Who the strangers are: a name, a data set, a network and how long it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from torch import nn

from .networks import (
    InnerResidual,
    Residual,
    convolutions,
    lenet,
    mlp,
    public_mnist_cnn,
    separable,
    tutorial_cnn,
)

_LEAKY = partial(nn.LeakyReLU, 0.1)


@dataclass(frozen=True, eq=False)
class Stranger:
    """Args:
    network: a new untrained torch module; or estimator: a new unfitted one of scikit-learn.
    options: of the compiler, where the stranger asks for some itself.
    quantised: exported in QDQ form, and compiled without calibration data.
    """

    name: str
    architecture: str
    data: str
    network: Callable[[], nn.Module] | None = None
    epochs: int = 3
    learning_rate: float = 2e-3
    estimator: Callable[[], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    quantised: bool = False


def _mlp_classifier(standardised: bool) -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier((16,), max_iter=500, random_state=2)  # others stop at once, on features as they are
    return make_pipeline(StandardScaler(), network) if standardised else network


def _mlp_regressor() -> Any:
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(),
        MLPRegressor(hidden_layer_sizes=(32, 16), max_iter=400, learning_rate_init=0.01, random_state=0),
    )


def _qdq_cnn() -> nn.Module:
    return convolutions(nn.Conv2d(1, 6, 5, stride=2), nn.ReLU(), nn.MaxPool2d(2), head=(6 * 6 * 6, 32, 10))


def _exact(accumulator_bits: int) -> dict[str, Any]:
    return {"precision": "exact", "accumulator_bits": accumulator_bits}


_ISSUE_ROWS: Final = (
    Stranger("cancer-mlp-raw", "MLPClassifier((16,))", "breast-cancer", estimator=partial(_mlp_classifier, False)),
    Stranger(
        "cancer-mlp-scaled", "MLPClassifier((16,)), scaled", "breast-cancer", estimator=partial(_mlp_classifier, True)
    ),
    Stranger("cancer-batchnorm", "BatchNorm, MLP ReLU", "breast-cancer", lambda: mlp((30, 32, 1), first_norm=True), 60),
    Stranger("mnist-cnn-tutorial", "CNN 3x3 padded, max-pools", "mnist", tutorial_cnn),
    Stranger("mnist-cnn-public", "CNN 5x5 padded, max-pools", "mnist-bytes", public_mnist_cnn),
    Stranger("digits-exact", "MLP ReLU, exact", "digits", lambda: mlp((64, 32, 10)), 30, options=_exact(4)),
    Stranger(
        "digits-exact-deep", "MLP ReLU, deep, exact", "digits", lambda: mlp((64, 32, 16, 16, 10)), 30, options=_exact(3)
    ),
    Stranger("mnist-mlp-silu", "MLP SiLU", "mnist", lambda: mlp((784, 128, 64, 10), nn.SiLU)),
    Stranger("mnist-cnn-qdq", "CNN strided, max-pool, QDQ", "mnist", _qdq_cnn, quantised=True),
)  # fmt: skip

_MNIST: Final = (
    Stranger("mnist-mlp-deep", "MLP ReLU, narrow, deep", "mnist", lambda: mlp((784, 24, 24, 24, 24, 24, 10)), 5),
    Stranger("mnist-mlp-wide", "MLP ReLU, wide", "mnist", lambda: mlp((784, 256, 10))),
    Stranger("mnist-mlp-batchnorm", "MLP BatchNorm ReLU", "mnist", lambda: mlp((784, 64, 32, 10), norm=True)),
    Stranger("mnist-mlp-gelu", "MLP GELU", "mnist", lambda: mlp((784, 64, 32, 10), nn.GELU)),
    Stranger("mnist-mlp-tanh", "MLP tanh", "mnist", lambda: mlp((784, 64, 32, 10), nn.Tanh)),
    Stranger("mnist-mlp-bytes", "MLP ReLU", "mnist-bytes", lambda: mlp((784, 64, 10))),
    Stranger(
        "mnist-cnn-strided", "CNN strided", "mnist",
        lambda: convolutions(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU(), head=(16 * 4 * 4, 10)
        ),
    ),
    Stranger("mnist-lenet", "CNN tanh, average pools", "mnist", lenet),
    Stranger(
        "mnist-cnn-depthwise", "CNN depthwise separable", "mnist",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
            *separable(8, 24, 2), *separable(24, 32, 2), head=(32 * 16, 10),
        ),
    ),
    Stranger("mnist-autoencoder", "autoencoder ReLU", "mnist-copies", lambda: mlp((784, 64, 16, 64, 784))),
)  # fmt: skip

_DIGITS: Final = (
    Stranger("digits-mlp", "MLP ReLU", "digits", lambda: mlp((64, 32, 10)), 30),
    Stranger("digits-mlp-deep", "MLP ReLU, narrow, deep", "digits", lambda: mlp((64, 16, 16, 16, 16, 16, 16, 10)), 40),
    Stranger("digits-mlp-wide", "MLP ReLU, wide", "digits", lambda: mlp((64, 300, 10)), 20),
    Stranger("digits-mlp-sigmoid", "MLP sigmoid", "digits", lambda: mlp((64, 48, 10), nn.Sigmoid), 40),
    Stranger("digits-mlp-leaky", "MLP LeakyReLU", "digits", lambda: mlp((64, 40, 20, 10), _LEAKY), 25),
    Stranger("digits-mlp-silu", "MLP SiLU", "digits", lambda: mlp((64, 48, 24, 10), nn.SiLU), 25),
    Stranger("digits-mlp-hardswish", "MLP HardSwish", "digits", lambda: mlp((64, 48, 24, 10), nn.Hardswish), 25),
    Stranger("digits-mlp-mish", "MLP Mish", "digits", lambda: mlp((64, 48, 10), nn.Mish), 25),
    Stranger(
        "digits-cnn-padded", "CNN padded, BatchNorm", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), head=(256, 10),
        ), 8,
    ),
    Stranger(
        "digits-cnn-valid", "CNN without padding", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.ReLU(), head=(12 * 16, 32, 10)
        ), 10,
    ),
    Stranger(
        "digits-cnn-residual", "CNN residual adds", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), Residual(8), Residual(8), nn.AvgPool2d(2), head=(8 * 16, 10)
        ), 8,
    ),
    Stranger(
        "digits-cnn-depthwise", "CNN depthwise separable", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), *separable(8, 16), nn.MaxPool2d(2), *separable(16, 16),
            head=(16 * 16, 10),
        ), 15,
    ),
    Stranger(
        "digits-cnn-average", "CNN average pools", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
            nn.AvgPool2d(2), head=(64, 10),
        ), 12,
    ),
    Stranger(
        "digits-cnn-max", "CNN max-pools", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 24, 2), nn.MaxPool2d(2), nn.ReLU(),
            head=(24, 10),
        ), 25,
    ),
    Stranger(
        "digits-cnn-elu", "CNN strided", "digits",
        lambda: convolutions(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ELU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ELU(),
            head=(64, 10),
        ), 20,
    ),
    Stranger(
        "digits-odd", "binary MLP, final Sigmoid", "digits-odd",
        lambda: nn.Sequential(*mlp((64, 32, 16, 1)), nn.Sigmoid()), 25,
    ),
)  # fmt: skip

_TABLES: Final = (
    Stranger(
        "cancer-sigmoid", "binary MLP, final Sigmoid", "breast-cancer",
        lambda: nn.Sequential(*mlp((30, 24, 12, 1), nn.Tanh, first_norm=True), nn.Sigmoid()), 60,
    ),
    Stranger("cancer-wide", "MLP LeakyReLU, wide", "breast-cancer/standardised", lambda: mlp((30, 200, 1), _LEAKY), 40),
    Stranger("wine-batchnorm", "BatchNorm, MLP ReLU", "wine", lambda: mlp((13, 24, 3), first_norm=True), 100),
    Stranger("wine-silu", "MLP SiLU", "wine/standardised", lambda: mlp((13, 24, 12, 3), nn.SiLU), 80),
    Stranger("diabetes", "regression MLP ReLU", "diabetes", lambda: mlp((10, 32, 16, 1)), 80),
    Stranger("diabetes-raw", "regression BatchNorm MLP", "diabetes-raw", lambda: mlp((10, 16, 1), first_norm=True), 80),
    Stranger("houses", "regression BatchNorm MLP", "houses", lambda: mlp((6, 32, 16, 1), first_norm=True), 25),
    Stranger(
        "houses-residual", "regression residual GELU", "houses/standardised",
        lambda: nn.Sequential(nn.Linear(6, 24), InnerResidual(24, 32), InnerResidual(24, 32), nn.Linear(24, 1)), 20,
    ),
    Stranger("houses-regressor", "MLPRegressor((32, 16)), scaled", "houses", estimator=_mlp_regressor),
)  # fmt: skip

_OTHERS: Final = (
    Stranger(
        "signals-conv", "1-D CNN, average", "signals",
        lambda: convolutions(
            nn.Conv1d(1, 8, 7, stride=2), nn.ReLU(), nn.Conv1d(8, 16, 5, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), head=(16, 4),
        ), 15,
    ),
    Stranger(
        "signals-conv-max", "1-D CNN, max-pools", "signals",
        lambda: convolutions(
            nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool1d(4), head=(64, 4),
        ), 10,
    ),
    Stranger(
        "cifar-tiny", "CNN strided, BatchNorm", "cifar",
        lambda: convolutions(
            nn.Conv2d(3, 12, 5, stride=3, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 16, 3, stride=2, bias=False), nn.BatchNorm2d(16), nn.ReLU(), head=(256, 10),
        ), 10,
    ),
)  # fmt: skip

_ROW_NAMES: Final = frozenset(stranger.name for stranger in _ISSUE_ROWS)
STRANGERS: Final = (*_ISSUE_ROWS, *_MNIST, *_DIGITS, *_TABLES, *_OTHERS)


def is_issue_row(stranger: Stranger) -> bool:
    """Whether it stands in the table of issue 11."""
    return stranger.name in _ROW_NAMES
