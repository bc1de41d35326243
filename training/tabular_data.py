"""Small tabular data sets that scikit-learn brings along: iris, breast cancer, wine and digits, with one fixed split each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import how_to_install
from cloakwork.models.errors import CompileError

# Rows kept for testing and the seed of the split. Iris: 100 to train and 50 to test, as published results have it.
_SPLITS: Final[dict[str, tuple[str, int, int]]] = {
    "iris": ("load_iris", 50, 0),
    "breast-cancer": ("load_breast_cancer", 143, 0),
    "wine": ("load_wine", 45, 0),
    "digits": ("load_digits", 450, 0),
}
NAMES: Final = tuple(_SPLITS)


@dataclass(frozen=True, eq=False)
class TabularData:
    """A classification data set: x [samples, features], y [samples] indices into `class_names`."""

    name: str
    train_x: NDArray[np.float64]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.float64]
    test_y: NDArray[np.int64]
    feature_names: tuple[str, ...]
    class_names: tuple[str, ...]


def load_tabular(name: str) -> TabularData:
    """Returns one of NAMES; stratified, always the same rows. CompileError for another name or without scikit-learn."""
    if name not in _SPLITS:
        raise CompileError(f"data set: expected {', '.join(NAMES)}, got '{name}'")
    try:
        from sklearn import datasets
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise CompileError(f"data set '{name}': it comes with scikit-learn; {how_to_install('sklearn')}") from error
    loader, test_rows, seed = _SPLITS[name]
    data = getattr(datasets, loader)()
    x, y = np.asarray(data.data, dtype=np.float64), np.asarray(data.target, dtype=np.int64)
    train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=test_rows, random_state=seed, stratify=y)
    names = tuple(str(feature) for feature in data.feature_names)
    return TabularData(name, train_x, train_y, test_x, test_y, names, tuple(str(label) for label in data.target_names))
