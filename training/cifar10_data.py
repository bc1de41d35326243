"""CIFAR-10 from a copy whose images are JPEG files: `$CLOAKWORK_DATA/cifar10/cifar10-jpeg.tar.xz`, else the same below the cache folder.

JPEG is lossy, so accuracies on this copy are near to but not the same as those on the original. It has no public address, so nothing is fetched. What
was decoded stays in the cache, under the archive's digest.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import re
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, Literal

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import how_to_install
from cloakwork.fhe_core.wire.files import atomic_writer, cache_folder

CLASSES: Final = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
COUNTS: Final = {"train": 5000, "test": 1000}  # images of each class
Split = Literal["train", "test"]
Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

_SIDE: Final = 32
_NAME: Final = re.compile(rf"(train|test)/({'|'.join(CLASSES)})/([0-9]{{4}})\.jpg")
_MOST_BYTES: Final = 1 << 14  # of an image's file; the largest has 1,124
_MOST_UNPACKED: Final = 1 << 28  # of the archive; it has 93 MB
_MOST_MEMORY: Final = 1 << 26  # of the decompressor; it takes 9 MiB
_DECODED_AT_ONCE: Final = 500
_READ_AT_ONCE: Final = 1 << 16


def cifar10_archive() -> Path:
    """Returns the path of the archive: in the folder that `CLOAKWORK_DATA` names, else in the cache."""
    data = os.environ.get("CLOAKWORK_DATA")
    return (Path(data) if data else cache_folder()) / "cifar10" / "cifar10-jpeg.tar.xz"


def has_cifar10() -> bool:
    """Whether the archive is in the data folder already."""
    return cifar10_archive().is_file()


def load_cifar10(part: Split) -> tuple[NDArray[np.float32], Labels]:
    """Returns images [count, 3, 32, 32] in [0, 1] and labels [count], numbers into CLASSES; errors as `cifar10_pixels`."""
    pixels, labels = cifar10_pixels(part)
    return pixels.astype(np.float32) / np.float32(255), labels


def cifar10_pixels(part: Split) -> tuple[Pixels, Labels]:
    """Returns images [count, 3, 32, 32] of red, green and blue in 0 .. 255, and labels [count], class by class.

    Raises:
        FileNotFoundError: the archive is not there.
        OSError: it is damaged, or not what it should be.
        ImportError: it has to be decoded, and Pillow is not installed.
    """
    archive = cifar10_archive()
    if not archive.is_file():
        raise FileNotFoundError(
            f"CIFAR-10: expected {archive}, images as train/CLASS/NNNN.jpg and test/CLASS/NNNN.jpg; "
            "set CLOAKWORK_DATA to the folder that holds cifar10/"
        )
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    cached = {each: cache_folder() / "cifar10" / f"{digest[:16]}-{each}.npz" for each in COUNTS}
    arrays = _cached(cached[part], part)
    if arrays is not None:
        return arrays
    decoded = _decoded(archive)
    cached[part].parent.mkdir(parents=True, exist_ok=True)
    for each, path in cached.items():
        with atomic_writer(path) as stream:
            np.savez(stream, pixels=decoded[each][0], labels=decoded[each][1])
    return decoded[part]


def _cached(path: Path, part: str) -> tuple[Pixels, Labels] | None:
    """Returns what was decoded before; None where nothing was, or what is there is not it."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            pixels, labels = arrays["pixels"], arrays["labels"]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    count = COUNTS[part] * len(CLASSES)
    sound = (
        pixels.shape == (count, 3, _SIDE, _SIDE) and pixels.dtype == np.uint8 and np.array_equal(labels, _labels(part))
    )
    return (pixels, labels) if sound else None


def _labels(part: str) -> Labels:
    return np.repeat(np.arange(len(CLASSES), dtype=np.int64), COUNTS[part])


def _decoded(archive: Path) -> dict[str, tuple[Pixels, Labels]]:
    files = _files(archive)
    names = {
        part: [f"{part}/{kind}/{number:04}.jpg" for kind in CLASSES for number in range(count)]
        for part, count in COUNTS.items()
    }
    missing = next((name for part in names.values() for name in part if name not in files), None)
    if missing is not None:
        raise OSError(f"CIFAR-10: {archive} has no {missing}; get it again")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        decoded = {}
        for part, part_names in names.items():
            chunks = [
                part_names[start : start + _DECODED_AT_ONCE] for start in range(0, len(part_names), _DECODED_AT_ONCE)
            ]
            pixels = pool.map(lambda chunk: np.stack([_image(files[name], name) for name in chunk]), chunks)
            decoded[part] = np.concatenate(list(pixels)), _labels(part)
    return decoded


def _files(archive: Path) -> dict[str, bytes]:
    """Returns the JPEG files by their names in the archive."""
    files: dict[str, bytes] = {}
    most = sum(COUNTS.values()) * len(CLASSES)
    try:
        with archive.open("rb") as packed, tarfile.open(fileobj=(unpacked := _Unpacked(packed)), mode="r|") as members:
            for member in members:
                if member.isdir():
                    continue
                if not member.isfile() or not _NAME.fullmatch(member.name) or member.size > _MOST_BYTES:
                    raise OSError(f"'{member.name[:80]}' of {member.size} bytes is no image of it")
                if member.name in files or len(files) == most:
                    raise OSError(f"'{member.name}' is one too many")
                stream = members.extractfile(member)
                assert stream is not None  # it is a file
                files[member.name] = stream.read()
            while unpacked.read(_READ_AT_ONCE):
                pass  # to the check at its end
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
        raise OSError(f"CIFAR-10: {archive} is damaged or another file ({error}); get it again") from error
    return files


class _Unpacked(io.RawIOBase):
    """The bytes of an xz stream, in bounded memory."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)
        self._read = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0, "tarfile reads blocks"
        chunks: list[bytes] = []
        remaining = size
        while remaining and not self._decompressor.eof:
            packed = self._packed.read(_READ_AT_ONCE) if self._decompressor.needs_input else b""
            if self._decompressor.needs_input and not packed:
                raise EOFError("it ends early")
            chunks.append(self._decompressor.decompress(packed, remaining))
            remaining -= len(chunks[-1])
        self._read += size - remaining
        if self._read > _MOST_UNPACKED:
            raise OSError(f"it unpacks to more than {_MOST_UNPACKED} bytes")
        return b"".join(chunks)


def _image(content: bytes, name: str) -> Pixels:
    """Returns [3, 32, 32]"""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"CIFAR-10's images are JPEG files, which need Pillow; {how_to_install('train')}") from error
    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            if image.size != (_SIDE, _SIDE) or image.mode not in ("RGB", "L"):
                raise OSError(f"{image.size[0]} x {image.size[1]} pixels of {image.mode}")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except (OSError, SyntaxError, ValueError) as error:
        raise OSError(
            f"CIFAR-10: {name} is not a JPEG image of 32 x 32 pixels ({error}); get the archive again"
        ) from error
