"""MNIST from the four files of its distribution: `$CLOAKWORK_DATA/mnist/*.gz`."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_PREFIX = {"train": "train", "test": "t10k"}


def load_mnist(part: Literal["train", "test"]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Images [count, 784] in [0, 1] and labels [count]."""
    folder = Path(os.environ.get("CLOAKWORK_DATA", ".")) / "mnist"
    images = _read_idx(folder / f"{_PREFIX[part]}-images-idx3-ubyte.gz", 3)
    labels = _read_idx(folder / f"{_PREFIX[part]}-labels-idx1-ubyte.gz", 1)
    return images.reshape(len(images), -1) / 255.0, labels.astype(np.int64)


def _read_idx(path: Path, rank: int) -> NDArray[np.uint8]:
    """Magic 0x000008rr, rank sizes, then bytes."""
    if not path.exists():
        raise FileNotFoundError(f"MNIST: expected {path}; set CLOAKWORK_DATA to the folder that holds mnist/")
    data = gzip.decompress(path.read_bytes())
    magic, *shape = struct.unpack_from(f">{1 + rank}I", data)
    if magic != 0x800 + rank or len(data) != 4 * (1 + rank) + int(np.prod(shape)):
        raise ValueError(f"MNIST: {path} is not an IDX file of {rank} dimensions; get it again")
    return np.frombuffer(data, dtype=np.uint8, offset=4 * (1 + rank)).reshape(shape)
