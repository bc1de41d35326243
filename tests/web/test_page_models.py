"""What the page shows for each kind of model: probabilities, blocks of ink, photographs, keys that are asked for, jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_visits import (
    BITMAPS,
    BROWSER,
    NETWORK,
    PHOTOGRAPHS,
    Opened,
    answer_of,
    ask,
    choose,
    colour_reader,
    overheard,
    with_models,
)
from scoring_server import Server, running

from cloakwork.app.cli.demo.cifar10 import _read
from cloakwork.models import zoo

pytestmark = [pytest.mark.tier("all"), pytest.mark.os_entropy, BROWSER]

COLOURS = {"airplane": (255, 0, 0), "automobile": (0, 255, 0), "bird": (0, 0, 255)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Where every answer is a job, as those of large networks are."""
    data = with_models(tmp_path_factory.mktemp("models") / "data", NETWORK, BITMAPS)
    (data / "models" / PHOTOGRAPHS).mkdir()
    colour_reader().save(data / "models" / PHOTOGRAPHS / "1.clkm")
    (data / "models" / "somebodys").mkdir()
    zoo.load_model(NETWORK).save(data / "models" / "somebodys" / "1.clkm")
    with running(data, environment={"SYNCHRONOUS_SECONDS": "1e-9", "STRUCTURED": "true"}) as started:
        yield started


def shares_of(page: Any) -> list[float]:
    return [float(text.split()[0]) for text in page.locator(".bar span:last-child").all_inner_texts()]


def test_scores_of_the_networks_are_shown_as_probabilities(opened: Opened):
    page = opened()
    overheard(page)
    page.reload()
    page.get_by_role("button", name="Sample digit 4").click()
    assert ask(page) == "4"
    scores = np.array(page.evaluate("window.answered[0].scores"))
    powers = np.exp(scores - scores.max())
    np.testing.assert_allclose(shares_of(page), 100 * powers / powers.sum(), atol=0.051)
    assert page.locator("#scale").is_visible() and "softmax" in page.locator("#scale").inner_text()
    assert page.locator("meter").first.get_attribute("max") == "1"


def test_other_models_of_that_shape_keep_their_scores(opened: Opened):
    """Nobody says that they are logarithms of odds."""
    page = opened()
    choose(page, "somebodys")
    page.get_by_role("button", name="Sample digit 4").click()
    assert ask(page) == "4"
    assert page.locator("#scale").is_hidden() and "%" not in page.locator("#scores").inner_text()


def test_blocks_of_ink(opened: Opened):
    """Held-out digits as they are, and drawn ones as whole numbers from 0 to 16."""
    page = opened()
    overheard(page)
    page.reload()
    choose(page, BITMAPS)
    samples = zoo.held_out(BITMAPS)
    for digit in (0, 8):
        page.get_by_role("button", name=f"Sample digit {digit}").click()
        assert ask(page) == str(digit)
        chosen = np.array(page.evaluate("window.asked.at(-1)"))
        assert (samples.x[samples.y == digit] == chosen).all(axis=1).any()
    assert page.locator("#scale").is_hidden()  # the model has probabilities of its own
    np.testing.assert_allclose(sum(shares_of(page)), 1, atol=0.051)

    page.locator(".board").scroll_into_view_if_needed()
    box = page.locator(".board").bounding_box()
    for x, y in ((0.5, 0.1), (0.5, 0.9)):
        page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        page.mouse.down()
    page.mouse.up()
    assert ask(page) == "1"
    drawn = np.array(page.evaluate("window.asked.at(-1)")).reshape(8, 8)
    assert ((drawn == np.round(drawn)) & (drawn >= 0) & (drawn <= 16)).all()
    assert (drawn[:, [0, 1, 2, 5, 6, 7]] == 0).all() and (drawn[1:7, 3:5] > 0).all()  # the chosen digit is gone
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Encrypt and ask").click()
    assert page.get_by_role("alert").inner_text() == "Draw a digit first, or choose one."


def picture(path: Path, size: tuple[int, int], **options: Any) -> Path:
    """A gradient, so that neighbours are alike and every place is not."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    width, height = size
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    pixels = np.stack([255 * x, 255 * y, 127 * (x + 1 - y)], axis=-1).astype(np.uint8)
    image.fromarray(pixels).save(path, **options)
    return path


def test_photographs_are_cut_as_python_does_it(opened: Opened, tmp_path: Path):
    from PIL import Image

    turned = Image.Exif()
    turned[0x0112] = 6  # the camera was held upright
    files = [
        (picture(tmp_path / "wide.png", (192, 128)), 1.01 / 255),
        (picture(tmp_path / "tall.png", (64, 96)), 1.01 / 255),
        (picture(tmp_path / "turned.jpg", (128, 96), exif=turned, quality=95), 5 / 255),
    ]
    page = opened()
    overheard(page)
    page.reload()
    choose(page, PHOTOGRAPHS)
    page.get_by_label("Make such keys").check()
    for i, (path, tolerance) in enumerate(files):
        page.locator("#photograph").set_input_files(path)
        page.get_by_role("img", name=f"The picture as it is encrypted: {path.name}").wait_for()
        ask(page)
        found = np.array(page.evaluate(f"window.asked[{i}]")).reshape(3, 32, 32)
        assert found.min() >= 0 and found.max() <= 1
        np.testing.assert_allclose(found, _read(path), atol=tolerance)


def test_a_photograph_is_answered_by_a_job_after_the_person_agreed(opened: Opened, server: Server, tmp_path: Path):
    page = opened()
    choose(page, PHOTOGRAPHS)
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for name, colour in COLOURS.items():
        image.new("RGB", (40, 40), colour).save(tmp_path / f"{name}.png")
    page.get_by_role("button", name="Encrypt and ask").click()
    assert page.get_by_role("alert").inner_text() == "Choose a picture first, or paste one."
    page.locator("#photograph").set_input_files(tmp_path / "bird.png")
    page.get_by_role("img", name="The picture as it is encrypted").wait_for()
    page.get_by_role("button", name="Encrypt and ask").click()
    assert "structured secret" in page.get_by_role("alert").inner_text()
    assert page.evaluate("document.activeElement.id") == "consent"
    with server.client() as http:
        before = http.get("/v2/keys").json()["keys"]
        page.keyboard.press("Space")
        jobs = http.get("/v2/jobs").json()["jobs"]
        assert ask(page) == "bird"
        assert len(http.get("/v2/keys").json()["keys"]) == len(before) + 1
        assert len(http.get("/v2/jobs").json()["jobs"]) == len(jobs) + 1
    assert page.locator(".bar").count() == 10 and page.locator("#scale").is_visible()
    page.locator("#photograph").set_input_files(tmp_path / "automobile.png")
    page.get_by_role("img", name="The picture as it is encrypted: automobile.png").wait_for()
    assert ask(page) == "automobile"
    choose(page, NETWORK)
    choose(page, PHOTOGRAPHS)
    assert not page.get_by_label("Make such keys").is_checked()  # asked anew


def test_a_picture_is_pasted_and_a_file_that_is_none_is_said(opened: Opened, tmp_path: Path):
    page = opened()
    choose(page, PHOTOGRAPHS)
    (tmp_path / "no.png").write_bytes(b"\x89PNG\r\n\x1a\n of no picture")
    page.locator("#photograph").set_input_files(tmp_path / "no.png")
    page.get_by_text("no.png is no picture that this browser can read.").wait_for()
    page.evaluate("""async () => {
        const canvas = Object.assign(document.createElement("canvas"), { width: 50, height: 50 });
        const drawing = canvas.getContext("2d");
        drawing.fillStyle = "#ff0000";
        drawing.fillRect(0, 0, 50, 50);
        const data = new DataTransfer();
        data.items.add(new File([await new Promise((resolve) => canvas.toBlob(resolve))], "pasted.png", { type: "image/png" }));
        document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
    }""")
    page.get_by_role("img", name="The picture as it is encrypted: pasted.png").wait_for()
    page.get_by_label("Make such keys").check()
    assert ask(page) == "airplane"


def test_a_service_that_takes_no_structured_keys_says_so(opened: Opened, page_server: Server):
    """Its models of such sets are not offered."""
    page = opened(of=page_server)
    page.wait_for_selector(".board")
    assert (page_server.data / "models" / PHOTOGRAPHS / "1.clkm").exists()
    offered = page.locator("#model option").evaluate_all("all => all.map((each) => each.value)")
    assert NETWORK in offered and PHOTOGRAPHS not in offered


def test_new_parts_work_on_a_phone_in_the_dark_with_a_keyboard(opened: Opened, tmp_path: Path):
    page = opened(viewport={"width": 360, "height": 640}, has_touch=True, color_scheme="dark")
    for model in (BITMAPS, PHOTOGRAPHS):
        choose(page, model)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_label("Make such keys").focus()
    page.keyboard.press("Space")
    assert page.get_by_label("Make such keys").is_checked()
    choose(page, BITMAPS)
    page.get_by_role("button", name="Sample digit 5").press("Enter")
    page.get_by_role("button", name="Encrypt and ask").press("Enter")
    assert answer_of(page) == "5"
