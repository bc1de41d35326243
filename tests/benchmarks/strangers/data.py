"""The data sets: images, tables with columns of very different size, and short signals; always the same rows."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cloakwork.training.mnist_data import load_mnist

Task = Literal["classes", "binary", "values"]
Reals = NDArray[np.float32]

_MNIST_TRAIN, _MNIST_TEST = 6_000, 4_000
_CIFAR_TRAIN, _CIFAR_TEST = 200, 50  # of each class


@dataclass(frozen=True, eq=False)
class Data:
    """Samples first; y holds class numbers ("classes", "binary": 0 and 1) or a column of real values ("values")."""

    name: str
    task: Task
    train_x: Reals
    train_y: NDArray[Any]
    test_x: Reals
    test_y: NDArray[Any]

    @property
    def classes(self) -> int:
        return int(self.train_y.max()) + 1

    def standardised(self) -> Data:
        """Columns of mean 0 and deviation 1, as a person does by hand before training."""
        mean, deviation = self.train_x.mean(axis=0), self.train_x.std(axis=0)
        deviation[deviation == 0] = 1.0
        return replace(self, train_x=(self.train_x - mean) / deviation, test_x=(self.test_x - mean) / deviation)


def load(name: str) -> Data:
    """Raises KeyError for a name that is none."""
    base, _, variant = name.partition("/")
    data = _SETS[base]()
    return data.standardised() if variant == "standardised" else data


@cache
def _mnist() -> Data:
    (train_x, train_y), (test_x, test_y) = load_mnist("train"), load_mnist("test")
    rng = np.random.default_rng(1)
    train = rng.permutation(len(train_x))[:_MNIST_TRAIN]
    test = rng.permutation(len(test_x))[:_MNIST_TEST]
    images = [x.astype(np.float32).reshape(-1, 1, 28, 28) for x in (train_x[train], test_x[test])]
    return Data("mnist", "classes", images[0], train_y[train], images[1], test_y[test])


def _mnist_bytes() -> Data:
    """Pixels 0 .. 255."""
    data = _mnist()
    return replace(data, name="mnist-bytes", train_x=data.train_x * 255, test_x=data.test_x * 255)


def _mnist_copies() -> Data:
    """What an autoencoder is trained on: the image itself."""
    data = _mnist()
    train, test = (x.reshape(len(x), -1) for x in (data.train_x, data.test_x))
    return Data("mnist-copies", "values", train, train, test, test)


@cache
def _digits() -> Data:
    """8 x 8 pixels 0 .. 16, as scikit-learn gives them."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return _split("digits", "classes", found.images.reshape(-1, 1, 8, 8), found.target, 800)


def _digits_odd() -> Data:
    data = _digits()
    return replace(data, name="digits-odd", task="binary", train_y=data.train_y % 2, test_y=data.test_y % 2)


@cache
def _breast_cancer() -> Data:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    return _split("breast-cancer", "binary", found.data, found.target, 228)


@cache
def _wine() -> Data:
    from sklearn.datasets import load_wine

    found = load_wine()
    return _split("wine", "classes", found.data, found.target, 89)


def _diabetes(scaled: bool) -> Data:
    """Targets 25 .. 346; features of scikit-learn's scale (deviation 0.05), or as they were measured."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes(scaled=scaled)
    return _split("diabetes", "values", found.data, found.target[:, None], 150)


@cache
def _houses() -> Data:
    """Made by hand in the manner of the Californian census table: columns from 0.5 to 40,000, long tails, prices in dollars."""
    rng = np.random.default_rng(11)
    count = 3_000
    income = rng.lognormal(1.2, 0.45, count)
    age = rng.integers(1, 53, count)
    rooms = rng.lognormal(1.6, 0.3, count)
    people = rng.lognormal(7.0, 0.8, count)
    latitude, longitude = rng.uniform(32.5, 42.0, count), rng.uniform(-124.3, -114.3, count)
    coast = np.abs(longitude + 124.3 - 0.9 * (42.0 - latitude))
    price = 42_000 * income**0.9 + 900 * age + 9_000 * rooms - 2.5 * people - 22_000 * np.tanh(coast - 2) + 60_000
    price = np.clip(price * rng.lognormal(0, 0.12, count), 15_000, 500_000)
    table = np.stack([income, age, rooms, people, latitude, longitude], axis=1)
    return _split("houses", "values", table, price[:, None], 1_000)


@cache
def _signals() -> Data:
    """Four wave forms [1, 64] of random frequency, phase and height under noise."""
    rng = np.random.default_rng(12)
    count = 3_000
    kind = rng.integers(0, 4, count)
    turn = np.arange(64) / 64 * rng.uniform(2, 5, (count, 1)) + rng.uniform(0, 1, (count, 1))
    saw = turn % 1.0
    forms = [
        np.sin(2 * np.pi * turn),
        np.sign(np.sin(2 * np.pi * turn)),
        2 * saw - 1,
        1 - 4 * np.abs(saw - 0.5),
    ]
    waves = np.choose(kind[:, None], forms) * rng.uniform(0.5, 2.0, (count, 1)) + 0.25 * rng.standard_normal(
        (count, 64)
    )
    return _split("signals", "classes", waves[:, None, :], kind, 1_000)


@cache
def _cifar() -> Data:
    """Some of the images of CIFAR-10 in a JPEG copy, `$CLOAKWORK_DATA/cifar10`; [3, 32, 32] in [0, 1]."""
    from PIL import Image

    wanted = {"train": _CIFAR_TRAIN, "test": _CIFAR_TEST}
    found: dict[str, list[tuple[int, Any]]] = {"train": [], "test": []}
    names: dict[str, int] = {}
    seen: dict[tuple[str, str], int] = {}
    archive = Path(os.environ.get("CLOAKWORK_DATA", ".")) / "cifar10" / "cifar10-jpeg.tar.xz"
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            parts = Path(member.name).parts
            if len(parts) < 3 or not member.isfile() or parts[-3] not in wanted:
                continue
            part, label = parts[-3], parts[-2]
            seen[part, label] = seen.get((part, label), 0) + 1
            stream = tar.extractfile(member)
            if stream is None or seen[part, label] > wanted[part]:
                continue
            pixels = np.asarray(Image.open(io.BytesIO(stream.read())).convert("RGB"), dtype=np.float32)
            found[part].append((names.setdefault(label, len(names)), pixels.transpose(2, 0, 1) / 255))
    arrays = []
    for part in ("train", "test"):
        order = np.random.default_rng(3).permutation(len(found[part]))
        arrays.append(np.stack([found[part][i][1] for i in order]))
        arrays.append(np.array([found[part][i][0] for i in order]))
    return Data("cifar", "classes", *arrays)


def _split(name: str, task: Task, x: NDArray[Any], y: NDArray[Any], test: int) -> Data:
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order].astype(np.float32), y[order]
    return Data(name, task, x[test:], y[test:], x[:test], y[:test])


_SETS: Final[dict[str, Callable[[], Data]]] = {
    "mnist": _mnist,
    "mnist-bytes": _mnist_bytes,
    "mnist-copies": _mnist_copies,
    "digits": _digits,
    "digits-odd": _digits_odd,
    "breast-cancer": _breast_cancer,
    "wine": _wine,
    "diabetes": lambda: _diabetes(True),
    "diabetes-raw": lambda: _diabetes(False),
    "houses": _houses,
    "signals": _signals,
    "cifar": _cifar,
}
