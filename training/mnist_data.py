"""MNIST from the four files of its distribution: `$CLOAKWORK_DATA/mnist/*.gz`, else a cache folder that `download_mnist` fills."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import urllib.request
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.wire.files import cache_folder

MIRRORS: Final = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
# SHA-256 of the files as they are distributed.
DIGESTS: Final = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
Split = Literal["train", "test"]
_PREFIX = {"train": "train", "test": "t10k"}
_MOST_BYTES = 1 << 24


def mnist_folder() -> Path:
    """Returns the folder of the files: the folder that `CLOAKWORK_DATA` names, else the cache."""
    data = os.environ.get("CLOAKWORK_DATA")
    if data:
        return Path(data) / "mnist"
    return cache_folder() / "mnist"


def load_mnist(part: Split) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns images [count, 784] in [0, 1] and labels [count]."""
    images, labels = (_read_idx(mnist_folder() / file, rank) for file, rank in zip(_files(part), (3, 1), strict=True))
    return images.reshape(len(images), -1) / 255.0, labels.astype(np.int64)


def has_mnist(part: Split) -> bool:
    """Whether the files of a part are in the data folder already."""
    return all((mnist_folder() / file).is_file() for file in _files(part))


def download_mnist(part: Split, mirrors: Sequence[str] = MIRRORS, timeout: float = 10.0) -> None:
    """Fetches what is missing of a part into `mnist_folder()`; a file whose digest is not the known one is not kept.

    Raises:
        OSError: no mirror could be reached, or none has the right file.
    """
    folder = mnist_folder()
    for file in _files(part):
        if not (folder / file).is_file():
            content = _fetch(file, mirrors, timeout)
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f"{file}.{os.getpid()}.tmp"
            temporary.write_bytes(content)
            temporary.replace(folder / file)


def _fetch(file: str, mirrors: Sequence[str], timeout: float) -> bytes:
    reasons = []
    for mirror in mirrors:
        try:
            with urllib.request.urlopen(mirror + file, timeout=timeout) as response:
                content: bytes = response.read(_MOST_BYTES)
        except (OSError, ValueError) as error:
            reasons.append(f"{mirror}: {getattr(error, 'reason', error)}")
            continue
        if hashlib.sha256(content).hexdigest() == DIGESTS[file]:
            return content
        reasons.append(f"{mirror}: its digest is not the known one")
    raise OSError(f"MNIST: could not get {file} ({'; '.join(reasons)}); put the files into {mnist_folder()}")


def _files(part: Split) -> tuple[str, str]:
    return f"{_PREFIX[part]}-images-idx3-ubyte.gz", f"{_PREFIX[part]}-labels-idx1-ubyte.gz"


def _read_idx(path: Path, rank: int) -> NDArray[np.uint8]:
    """Magic 0x000008rr, rank sizes, then bytes."""
    if not path.exists():
        raise FileNotFoundError(f"MNIST: expected {path}; set CLOAKWORK_DATA to the folder that holds mnist/")
    try:
        data = gzip.decompress(path.read_bytes())
        magic, *shape = struct.unpack_from(f">{1 + rank}I", data)
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise OSError(f"MNIST: {path} is damaged ({error}); get it again") from error
    if magic != 0x800 + rank or len(data) != 4 * (1 + rank) + math.prod(shape):
        raise OSError(f"MNIST: {path} is not an IDX file of {rank} dimensions; get it again")
    return np.frombuffer(data, dtype=np.uint8, offset=4 * (1 + rank)).reshape(shape)
