"""Samples with labels for measuring a model: by the name of a data set, or from files."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import FailureError, WrongCallError
from cloakwork.app.cli.shared.digits import digits
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.client.table import read_samples, read_tensors
from cloakwork.models import zoo
from cloakwork.models.client_steps import named_inputs
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.training.cifar10_data import load_cifar10

Samples = tuple[NDArray[np.float64], NDArray[Any]]  # and what each is: a number, or a name


def _mnist() -> Samples:
    samples = digits("mnist")
    return samples.images, samples.labels


def _cifar10() -> Samples:
    images, labels = load_cifar10("test")
    return images.astype(np.float64), labels


def _drawn_digits() -> Samples:
    samples = digits("drawn")
    return samples.images, samples.labels


def _held_out(model_name: str) -> Samples:
    held_out = zoo.held_out(model_name)
    return held_out.x, held_out.y


TABLE_SUFFIXES: Final = (".csv", ".tsv", ".txt")

# Samples [samples, ..] and labels [samples]: for MNIST and CIFAR-10 the whole test set, of small tables the rows that are kept for testing.
DATA_SETS: Final[dict[str, Callable[[], Samples]]] = {
    "mnist": _mnist,
    "cifar10": _cifar10,
    "drawn-digits": _drawn_digits,
    "iris": lambda: _held_out("iris-tree"),
    "breast-cancer": lambda: _held_out("breast-cancer-forest"),
    "wine": lambda: _held_out("wine-boosting"),
    "digits": lambda: _held_out("digits-logistic"),
}


def load_samples(source: str, labels: Path | None) -> tuple[Any, NDArray[Any] | None]:
    """Loads a data set by its name, or samples of a .npy or .csv file, whose labels may be in another one; of a .npz file arrays by name."""
    if source in DATA_SETS:
        if labels is not None:
            raise WrongCallError(f"--labels: the data set '{source}' has its own; leave the option out")
        return DATA_SETS[source]()
    if source.endswith(".npz"):
        if labels is not None:
            raise WrongCallError("--labels: goes with samples of one array; leave the option out for a .npz file")
        return load_inputs(Path(source)), None
    if not source.endswith((".npy", *TABLE_SUFFIXES)):
        raise WrongCallError(
            f"--data: expected one of {', '.join(DATA_SETS)}, a .npy, .csv or .npz file, got '{source}'"
        )
    samples = load_inputs(Path(source))
    if labels is None:
        return samples, None
    classes = load_array(labels, kinds="iuU")
    if classes.shape != samples.shape[:1]:
        raise FailureError(
            f"{labels}: expected a class for each of {len(samples)} samples, got an array of shape {list(classes.shape)}"
        )
    return samples, classes if classes.dtype.kind == "U" else classes.astype(np.int64)


def load_inputs(path: Path) -> Any:
    """Read samples of a .npy file, a table of a .csv file, or of a .npz file arrays by the names of a model's inputs.

    FailureError: as `load_rows`. ShapeError: the text is no table.
    """
    if path.suffix in TABLE_SUFFIXES:
        with reading(path, "a table"):
            return read_samples(path)
    if path.suffix != ".npz":
        return load_rows(path)
    return {name: _checked_rows(path, array) for name, array in read_tensors(path).items()}


def load_rows(path: Path) -> NDArray[Any]:
    """Read numbers [samples, ..] of a .npy file. FailureError: another file, a single number, or no sample."""
    return _checked_rows(path, load_array(path))


def _checked_rows(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    if np.ndim(array) == 0 or len(array) == 0:
        got = "a single number" if np.ndim(array) == 0 else "none"
        raise FailureError(f"{path}: expected at least one sample [samples, ..], got {got}")
    return array


def as_arrays(samples: Any) -> Any:
    """Returns samples without names of columns."""
    return samples if isinstance(samples, dict) else np.asarray(samples)


def count_of(samples: Any) -> int:
    return len(next(iter(samples.values())) if isinstance(samples, dict) else samples)


def some_of(samples: Any, chosen: slice) -> Any:
    """Returns some samples of an array, or of several by name."""
    if isinstance(samples, dict):
        return {name: array[chosen] for name, array in samples.items()}
    return samples[chosen]


def load_array(path: Path, kinds: str = "biuf") -> NDArray[Any]:
    """Returns numbers of a .npy file, or what `kinds` of dtypes say; FailureError for anything else."""
    what = "integers or names" if "U" in kinds else "numbers"
    with reading(path, f"a .npy file of {what}", "write one with numpy.save"):
        array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
        raise FailureError(f"{path}: expected a .npy file of {what}, got another kind of content")
    return array


def shaped_for(specification: Any, samples: Any, source: Path | str) -> Any:
    """Returns samples in the shape of the model's input, where the numbers of a sample are as many; tables of columns and several tensors stay.

    Args:
        specification: of the client, of whichever kind of model.
        source: of the samples, for errors.
    """
    if isinstance(samples, dict):
        if not isinstance(specification, ClientSpecification) or named_inputs(specification.input_steps) is None:
            raise WrongCallError(f"{source}: the model has one input; expected a .npy file, got several arrays (.npz)")
        return samples
    if not isinstance(specification, ClientSpecification):
        return samples
    shape = specification.input_shape
    same_count = math.prod(samples.shape[1:]) == math.prod(shape)
    return (
        np.asarray(samples).reshape(len(samples), *shape) if same_count and not specification.input_steps else samples
    )


def classes_of(outputs: NDArray[Any]) -> NDArray[Any]:
    """Returns the class of each sample: that of the largest score, or the number or name that the model says itself."""
    scores = outputs.reshape(len(outputs), -1)
    if scores.shape[1] > 1:
        return np.asarray(scores.argmax(axis=1))
    first: NDArray[Any] = scores[:, 0]
    return first if first.dtype.kind in "UO" else first.astype(np.int64)


def share_right(classes: NDArray[Any], labels: NDArray[Any]) -> float:
    """Returns the share of classes that are the labels. WrongCallError where one says numbers and the other names: none would be."""
    names = [each.dtype.kind in "UO" for each in (classes, labels)]
    if names[0] != names[1]:
        kinds = ["names" if each else "numbers" for each in names]
        raise WrongCallError(
            f"--labels: the model answers with {kinds[0]} such as '{classes[0]}', and the labels are {kinds[1]} such as '{labels[0]}'"
        )
    return float((classes == labels).mean())
