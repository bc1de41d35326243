"""The images that the demonstrations use: MNIST where it is found or can be fetched, else digits of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import WrongCallError
from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.training.mnist_data import download_mnist, has_mnist, load_mnist

SOURCES: Final = ("auto", "mnist", "drawn")


@dataclass(frozen=True, eq=False)
class Digits:
    images: NDArray[np.float64]  # [count, 784] in [0, 1]
    labels: NDArray[np.int64]
    source: str  # for people
    data: str  # "mnist" or "drawn"


def digits(source: str) -> Digits:
    """`mnist`: the test set, fetched once if need be; `drawn`: ours; `auto`: the first that is to be had. FailureError, OSError without MNIST."""
    if source not in SOURCES:
        raise WrongCallError(f"--data: expected one of {', '.join(SOURCES)}, got '{source}'")
    if source != "drawn":
        try:
            if not has_mnist("test"):
                download_mnist("test")
            return Digits(*load_mnist("test"), "MNIST test images", "mnist")
        except OSError:
            if source == "mnist":
                raise
    reason = " (there is no MNIST here)" if source == "auto" else ""
    return Digits(*sample_digits(), f"digits drawn by this program{reason}", "drawn")
