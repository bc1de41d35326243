"""`cloakwork demo mnist`: really encrypted, by a server process that has no secret key."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from cloakwork.app.cli.demo.terminal_image import image_lines
from cloakwork.app.cli.shared.sample_digits import sample_digits
from cloakwork.models import zoo

pytestmark = pytest.mark.os_entropy
ALL = pytest.mark.tier("all")
DATA = os.environ.get("CLOAKWORK_DATA", "")
KEYS = {
    "model", "images", "device", "accuracy_clear", "accuracy_encrypted", "agreement", "seconds_per_image", "seconds_first_image",
    "upload_bytes", "ciphertext_bytes", "bootstraps_per_image", "p_fail_log2", "security_bits",
}  # fmt: skip


def test_our_own_digits_are_read_right(call, tmp_path):
    result = call("demo", "mnist", "--images", "5", "--data", "drawn", "--json", "record.json", "--picture", "out.png")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    record = json.loads((tmp_path / "record.json").read_text())
    assert record.keys() >= KEYS
    assert (record["model"], record["images"], record["device"]) == ("mnist-mlp-1x30", 5, "cpu")
    assert record["accuracy_clear"] == 1.0
    assert record["accuracy_encrypted"] >= 0.8  # noisy by design: one of five may go wrong
    assert 0 < record["seconds_first_image"] and 0 < record["seconds_per_image"]
    assert record["ciphertext_bytes"] <= 8192
    assert record["upload_bytes"] < 40e6
    assert record["bootstraps_per_image"] == 30
    assert "what the server sees" in result.stdout
    assert "answer 0" in result.stdout
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.size[0] > 5 * 28


@ALL
@pytest.mark.skipif(
    not (Path(DATA) / "mnist").is_dir(), reason="no MNIST: set CLOAKWORK_DATA to the folder that holds mnist/"
)
def test_test_images_of_mnist(call, tmp_path):
    arguments = [
        "demo",
        "mnist",
        "--model",
        "mnist-mlp-1x30",
        "--images",
        "20",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--json",
        "-",
    ]
    result = call(*arguments, environment={"CLOAKWORK_DATA": DATA})
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["data"] == "mnist"
    assert record["accuracy_encrypted"] >= 0.9
    assert record["agreement"] >= 0.9
    assert list(tmp_path.iterdir()) == []  # with --json - no picture unless asked for


@ALL
def test_a_compiled_file_is_a_model_and_the_picture_is_of_the_kind_that_its_name_says(call, tmp_path):
    zoo.load_model("mnist-mlp-1x30").save(tmp_path / "mine.clkm")
    arguments = [
        "demo",
        "mnist",
        "--model",
        "mine.clkm",
        "--images",
        "1",
        "--data",
        "drawn",
        "--json",
        "-",
        "--picture",
    ]
    result = call(*arguments, "out.svg")
    record = json.loads(result.stdout)
    assert record["images"] == 1
    assert record["seconds_per_image"] == record["seconds_first_image"]
    root = ElementTree.parse(tmp_path / "out.svg").getroot()
    names = [element.tag.split("}")[1] for element in root.iter()]
    assert root.tag.endswith("}svg") and names.count("image") == 2 and {"title", "desc"} <= set(names)
    for element in root.iter():
        if element.tag.endswith("}image"):
            with Image.open(io.BytesIO(base64.b64decode(element.attrib["href"].split(",")[1]))) as picture:
                assert picture.size == (28, 28)
    refused = call(*arguments, "out.jpg")
    assert refused.returncode == 2 and ".png or .svg" in refused.stderr and refused.stderr.count("\n") == 1


def test_wrong_calls(call, tmp_path, error_line):
    (tmp_path / "text.clkm").write_text("not a program")
    for arguments in (
        ["--model", "no-such-model"],
        ["--model", "text.clkm"],
        ["--device", "abacus"],
        ["--images", "0"],
        ["--data", "photographs"],
    ):
        result = call("demo", "mnist", *arguments)
        assert result.returncode == 2, arguments
        error_line(result.stderr)
    assert "mnist-mlp-1x30" in error_line(call("demo", "mnist", "--model", "no-such-model").stderr)


def test_mnist_that_cannot_be_had_is_a_failure_with_one_line(call, tmp_path, error_line):
    (tmp_path / "mnist").mkdir()
    for file in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        (tmp_path / "mnist" / file).write_bytes(b"not gzip")
    result = call("demo", "mnist", "--data", "mnist", environment={"CLOAKWORK_DATA": str(tmp_path)})
    assert result.returncode == 1
    error_line(result.stderr)


@ALL
def test_an_unusable_device_is_a_failure_of_the_server(call, error_line):
    result = call("demo", "mnist", "--images", "1", "--data", "drawn", "--device", "cuda:99", "--json", "-")
    assert result.returncode == 1
    assert "server" in error_line(result.stderr)


@ALL
def test_an_interrupt_ends_both_processes(tmp_path, wait_for):
    """While the server works, or reads its keys."""
    environment = {**os.environ, "CLOAKWORK_ALLOW_TOY": "1"}
    command = [sys.executable, "-m", "cloakwork.app.cli", "demo", "mnist", "--images", "3000", "--data", "drawn"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(lambda: process.poll() is not None or written_bytes(process.pid) > LESS_THAN_THE_KEYS, "keys are sent")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 1
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, (output, errors)
    assert errors == "cloakwork: interrupted\n"
    assert not any(Path(f"/proc/{child}").exists() for child in children)


LESS_THAN_THE_KEYS = 10_000_000  # bytes, and more than the program


def written_bytes(process_id: int) -> int:
    """All that a process wrote, pipes included."""
    (line,) = (line for line in Path(f"/proc/{process_id}/io").read_text().splitlines() if line.startswith("wchar: "))
    return int(line.split()[1])


def test_the_server_process_has_no_secret_side():
    code = "import sys, cloakwork.app.cli.demo.evaluating_process; print([m for m in sys.modules if m.endswith(('fhe_core.client', 'keystore'))])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]", result.stderr


def test_drawn_digits_look_like_mnist():
    images, labels = sample_digits()
    assert images.shape == (30, 784) and labels.tolist() == list(range(10)) * 3
    assert images.min() == 0 and images.max() == 1
    for image in images.reshape(-1, 28, 28):
        rows, columns = np.nonzero(image)
        assert 16 <= max(np.ptp(rows), np.ptp(columns)) <= 22
        mass = [(image.sum(axis=axis) @ np.arange(28)) / image.sum() for axis in (0, 1)]
        np.testing.assert_allclose(mass, 13.5, atol=0.5)


def test_images_in_the_terminal():
    image = np.zeros((4, 3))
    image[0] = 1.0
    for options, expected in (
        ({"color_system": "truecolor"}, "\x1b[38;2;245;243;230;48;2;13;17;33m▀"),
        ({"color_system": None}, "▒▒▒\n   \n"),
    ):
        stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
        console = Console(file=stream, force_terminal=True, **options)
        for line in image_lines(image, console):
            console.print(line)
        stream.flush()
        assert stream.buffer.getvalue().decode().startswith(expected)


@ALL
def test_a_terminal_without_unicode(run):
    arguments = ["demo", "mnist", "--images", "1", "--data", "drawn", "--picture", "out.png"]
    result = run(*arguments, environment={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0, result.stderr
    assert "####" in result.stdout and result.stdout.isascii()


@pytest.mark.gpu
def test_the_demonstration_on_a_card(call):
    record = json.loads(
        call("demo", "mnist", "--images", "30", "--data", "drawn", "--device", "cuda", "--json", "-").stdout
    )
    assert record["device"] == "cuda"
    assert record["accuracy_encrypted"] >= 0.9
