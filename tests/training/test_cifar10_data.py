"""CIFAR-10's archive: read once, kept decoded, refused where it is damaged or something else. Archives of three images a class play it."""

from __future__ import annotations

import io
import lzma
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="images need Pillow")

from cloakwork.training import cifar10_data  # noqa: E402
from cloakwork.training.cifar10_data import CLASSES, cifar10_pixels, load_cifar10  # noqa: E402

Members = list[tuple[str, bytes]]


def jpeg(colour: int, size: tuple[int, int] = (32, 32), kind: str = "JPEG") -> bytes:
    """Of one colour, which survives JPEG within a step or two."""
    stream = io.BytesIO()
    Image.new("RGB", size, (colour, 255 - colour, 100)).save(stream, kind, quality=95)
    return stream.getvalue()


def whole() -> Members:
    """Two training images and a test image of each class; colours tell classes and numbers."""
    counts = {"test": 1, "train": 2}
    return [
        (f"{part}/{kind}/{number:04}.jpg", jpeg(20 * label + 5 * number))
        for part, count in counts.items()
        for label, kind in enumerate(CLASSES)
        for number in range(count)
    ]


def write(path: Path, members: Iterable[tuple[str, bytes]], links: Iterable[str] = ()) -> None:
    with tarfile.open(path, "w:xz") as archive:
        for name in ("test", "train"):
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name in links:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive is looked for; nothing is there yet."""
    monkeypatch.setenv("CLOAKWORK_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cifar10_data, "COUNTS", {"train": 2, "test": 1})
    path = cifar10_data.cifar10_archive()
    path.parent.mkdir(parents=True)
    assert path == tmp_path / "data" / "cifar10" / "cifar10-jpeg.tar.xz"
    return path


def test_it_is_decoded_class_by_class(archive: Path) -> None:
    assert not cifar10_data.has_cifar10()
    write(archive, reversed(whole()))
    assert cifar10_data.has_cifar10()
    pixels, labels = cifar10_pixels("train")
    assert pixels.shape == (20, 3, 32, 32) and pixels.dtype == np.uint8
    assert labels.tolist() == np.repeat(np.arange(10), 2).tolist()
    reds = [20 * label + 5 * number for label in range(10) for number in range(2)]
    np.testing.assert_allclose(pixels[:, 0, 16, 16], reds, atol=3)
    np.testing.assert_allclose(pixels[:, 2, 0, 31], 100, atol=3)
    images, labels = load_cifar10("test")
    assert images.shape == (10, 3, 32, 32) and images.dtype == np.float32 and labels.tolist() == list(range(10))
    np.testing.assert_allclose(images[:, 1, 0, 0], (255 - 20 * np.arange(10)) / 255, atol=3 / 255)


def test_it_is_decoded_once(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(archive, whole())
    first, _ = cifar10_pixels("train")
    with monkeypatch.context() as context:
        context.setattr(cifar10_data, "_decoded", lambda _: pytest.fail("decoded again"))
        again, _ = cifar10_pixels("train")
        cifar10_pixels("test")
    np.testing.assert_array_equal(first, again)
    (kept,) = (tmp_path / "cache" / "cloakwork" / "cifar10").glob("*-train.npz")
    for content in (b"", b"PK", kept.read_bytes()[:-2000]):
        kept.write_bytes(content)  # a damaged one is made again
        np.testing.assert_array_equal(cifar10_pixels("train")[0], first)


def test_another_archive_is_not_taken_from_the_cache(archive: Path) -> None:
    write(archive, whole())
    first, _ = cifar10_pixels("test")
    write(archive, [(name, jpeg(200)) for name, _ in whole()])
    assert (cifar10_pixels("test")[0] != first).any()


def test_without_it_the_error_says_where_it_belongs(archive: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"cifar10-jpeg\.tar\.xz.*CLOAKWORK_DATA"):
        load_cifar10("test")


REFUSED: dict[str, Callable[[], Members]] = {
    "has no train/truck/0001.jpg": lambda: whole()[:-1],
    "'test/cat/0000.jpg' is one too many": lambda: [*whole()[:-1], *whole()[3:4]],
    "'train/truck/0002.jpg' is one too many": lambda: [*whole(), ("train/truck/0002.jpg", jpeg(0))],
    "'../test/cat/0000.jpg' of 3 bytes is no image": lambda: [("../test/cat/0000.jpg", b"abc")],
    "'test/lion/0000.jpg' of 3 bytes is no image": lambda: [("test/lion/0000.jpg", b"abc")],
    "'test/cat/0000.jpg' of 16385 bytes is no image": lambda: [("test/cat/0000.jpg", bytes(16385))],
    "test/airplane/0000.jpg is not a JPEG image": lambda: [("test/airplane/0000.jpg", b"abc"), *whole()[1:]],
    "test/airplane/0000.jpg is not a JPEG image of 32": lambda: [
        ("test/airplane/0000.jpg", jpeg(0, kind="PNG")),
        *whole()[1:],
    ],
    "33 x 32 pixels": lambda: [("test/airplane/0000.jpg", jpeg(0, size=(33, 32))), *whole()[1:]],
}


@pytest.mark.parametrize("message", REFUSED)
def test_another_content_is_refused(archive: Path, message: str) -> None:
    write(archive, REFUSED[message]())
    with pytest.raises(OSError, match=message.replace(".", r"\.")):
        load_cifar10("test")


def test_links_are_refused(archive: Path) -> None:
    write(archive, [], links=["test/cat/0000.jpg"])
    with pytest.raises(OSError, match="no image of it"):
        load_cifar10("test")


@pytest.mark.parametrize("part", [slice(0, 0), slice(0, 40), slice(0, -30), slice(1, None)])
def test_damaged_archives_are_refused(archive: Path, part: slice) -> None:
    write(archive, whole())
    archive.write_bytes(archive.read_bytes()[part])
    with pytest.raises(OSError, match=r"is damaged or another file .* get it again"):
        load_cifar10("test")


def test_an_archive_of_something_else_is_refused(archive: Path) -> None:
    archive.write_bytes(lzma.compress(b"text" * 1000))
    with pytest.raises(OSError, match="damaged or another file"):
        load_cifar10("test")


@pytest.mark.parametrize(("limit", "message"), [("_MOST_UNPACKED", "unpacks to more"), ("_MOST_MEMORY", "emory")])
def test_memory_is_bounded(archive: Path, monkeypatch: pytest.MonkeyPatch, limit: str, message: str) -> None:
    write(archive, whole())
    monkeypatch.setattr(cifar10_data, limit, 5000)
    with pytest.raises(OSError, match=message):
        load_cifar10("test")
