"""MNIST's files: where they are looked for, fetched from, and refused. A server on this machine plays the mirror."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from cloakwork.training import mnist_data

IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Serves a data set of three images, whose digests are the known ones."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    pixels = np.arange(3 * 784, dtype=np.uint32).astype(np.uint8)
    (folder / IMAGES).write_bytes(gzip.compress(struct.pack(">4I", 0x803, 3, 28, 28) + pixels.tobytes()))
    (folder / LABELS).write_bytes(gzip.compress(struct.pack(">2I", 0x801, 3) + bytes([7, 2, 1])))
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (IMAGES, LABELS)}
    monkeypatch.setattr(mnist_data, "DIGESTS", digests)
    monkeypatch.delenv("CLOAKWORK_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_it_is_fetched_once_and_read(mirror, tmp_path):
    address, folder = mirror
    assert not mnist_data.has_mnist("test")
    mnist_data.download_mnist("test", ["http://127.0.0.1:1/", address])  # the first mirror does not answer
    assert mnist_data.has_mnist("test") and not mnist_data.has_mnist("train")
    assert mnist_data.mnist_folder() == tmp_path / "cache" / "cloakwork" / "mnist"
    images, labels = mnist_data.load_mnist("test")
    assert images.shape == (3, 784) and images[0, 255] == 1.0
    assert labels.tolist() == [7, 2, 1]
    for name in (IMAGES, LABELS):
        (folder / name).unlink()
    mnist_data.download_mnist("test", [address])


def test_a_file_with_another_digest_is_not_kept(mirror):
    address, folder = mirror
    (folder / IMAGES).write_bytes(b"something else")
    with pytest.raises(OSError, match="digest"):
        mnist_data.download_mnist("test", [address])
    assert not mnist_data.has_mnist("test")


def test_what_no_mirror_has_is_an_error_that_names_the_folder(mirror):
    address, folder = mirror
    (folder / LABELS).unlink()
    with pytest.raises(OSError, match="cloakwork"):
        mnist_data.download_mnist("test", [address])


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("CLOAKWORK_DATA", str(tmp_path))
    assert mnist_data.mnist_folder() == tmp_path / "mnist"
    with pytest.raises(FileNotFoundError, match="CLOAKWORK_DATA"):
        mnist_data.load_mnist("test")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        gzip.compress(b"abc", mtime=0),
        gzip.compress(bytes(20), mtime=0),
        gzip.compress(bytes(99), mtime=0)[:-9],
    ],
)
def test_damaged_files_are_refused(mirror, content):
    address, _ = mirror
    mnist_data.download_mnist("test", [address])
    (mnist_data.mnist_folder() / IMAGES).write_bytes(content)
    with pytest.raises(OSError, match="MNIST"):
        mnist_data.load_mnist("test")
