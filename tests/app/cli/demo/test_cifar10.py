"""`cloakwork demo cifar10`: photographs, really encrypted, read by a process without the key. A small network stands for those of the zoo."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_models import model
from PIL import Image

import cloakwork as cw
from cloakwork.app.cli.demo import cifar10
from cloakwork.models.compiled import CompiledModel
from cloakwork.training.cifar10_data import CLASSES

DATA = os.environ.get("CLOAKWORK_DATA", "")
pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy]


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    """A network that says class 0, 1, 2 for red, green, blue."""
    weights = {"w": np.eye(3, dtype=np.float32), "u": np.eye(3, 10, dtype=np.float32) * 4}
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["h"], name="in"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "u"], ["y"], name="out"),
    ]
    samples = np.random.default_rng(6).uniform(0, 1, (200, 3, 1, 1)) * np.ones((1, 1, 32, 32))
    return cw.compile(model(nodes, [3, 32, 32], weights), samples)


@pytest.fixture
def colours(compiled: CompiledModel, tmp_path: Path) -> str:
    compiled.save(tmp_path / "colours.clkm")
    return "colours.clkm"


def save(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (50, 80)) -> str:
    Image.new("RGB", size, colour).save(path)
    return path.name


def test_pictures_of_ones_own(call, tmp_path, colours):
    names = [save(tmp_path / "red.png", (250, 9, 9)), save(tmp_path / "blue.jpg", (5, 20, 240), (400, 30))]
    result = call("demo", "cifar10", *names, "--model", colours, "--json", "r.json", "--picture", "out.png")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["answers"] == [CLASSES[0], CLASSES[2]]
    assert (record["data"], record["images"], record["agreement"]) == ("files", 2, 1.0)
    assert "accuracy_encrypted" not in record and "right" not in result.stdout
    assert "answer airplane" in result.stdout and "what the server sees" in result.stdout
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.getpixel((30, 60)) == (250, 9, 9)
        below = np.asarray(picture)[140:210, 20:90].reshape(-1, 3)
    assert below.std(axis=0).min() > 50  # words of ciphertexts: all colours


def test_pictures_as_cameras_and_scanners_write_them(call, tmp_path, colours):
    """One that lies on its side, as its EXIF data say; 16 bits; one with palette; the middle counts."""
    wide = Image.new("RGB", (90, 30), (0, 0, 255))
    wide.paste((255, 0, 0), (30, 0, 60, 30))
    wide.quantize(4).save(tmp_path / "palette.png")
    Image.fromarray(np.full((40, 40), 30_000, dtype=np.uint16)).save(tmp_path / "deep.png")
    record = json.loads(call("demo", "cifar10", "palette.png", "--model", colours, "--json", "-").stdout)
    assert record["answers"] == [CLASSES[0]]
    lying = Image.new("RGB", (64, 64), (255, 0, 0))
    lying.paste((0, 0, 255), (32, 0, 64, 64))
    turned = lying.getexif()
    turned[0x0112] = 6  # its left is the top
    lying.save(tmp_path / "turned.png", exif=turned)
    upright = cifar10._read(tmp_path / "turned.png")
    assert (upright[0, :16] == 1).all() and (upright[0, 16:] == 0).all()
    grey = cifar10._read(tmp_path / "deep.png")
    assert np.abs(grey - 30_000 / 65_535).max() < 1 / 255


@pytest.mark.tier("release")
@pytest.mark.skipif(
    not (Path(DATA) / "cifar10").is_dir(), reason="no CIFAR-10: set CLOAKWORK_DATA to the folder that holds cifar10/"
)
def test_test_images_come_from_all_classes(call, tmp_path, colours):
    arguments = ["--model", colours, "--images", "12", "--json", "-"]
    result = call("demo", "cifar10", *arguments, environment={"CLOAKWORK_DATA": DATA})
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert (record["data"], record["images"]) == ("cifar10", 12)
    assert record["accuracy_clear"] < 0.5  # of a network that knows colours alone
    assert record["agreement"] >= 0.5 and record["agreement_simulated"] >= 0.5
    assert [path.name for path in tmp_path.iterdir()] == [colours]  # no picture unless asked for


def test_wrong_calls(call, tmp_path, colours, error_line):
    save(tmp_path / "red.png", (250, 9, 9))
    (tmp_path / "text.png").write_text("no picture")
    Image.new("1", (12_000, 12_000)).save(tmp_path / "bomb.png")
    Image.fromarray(np.ones((40, 40), dtype=np.float32)).save(tmp_path / "floats.tiff")
    for arguments, code, word in (
        (["red.png", "--images", "2"], 2, "--images"),
        (["red.png", "--model", "mnist-strided"], 2, "784"),
        (["text.png", "--model", colours], 1, "text.png"),
        (["none.png", "--model", colours], 1, "none.png"),
        (["bomb.png", "--model", colours], 1, "bomb.png"),
        (["floats.tiff", "--model", colours], 1, "8 or 16 bits"),
        (["--model", colours], 1, "pictures of your own"),
    ):
        result = call("demo", "cifar10", *arguments, environment={"CLOAKWORK_DATA": str(tmp_path)})
        assert result.returncode == code, (arguments, result.stderr)
        assert word in error_line(result.stderr)
