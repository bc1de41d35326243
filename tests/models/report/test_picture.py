"""The picture of a program: every node in a box of its own, named and with its cost; text stays inside, lines go around boxes."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import mlp, model
from requirements import needs

import cloakwork as cw
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.report import Report, picture_svg
from cloakwork.models.report.picture_layout import BOX_HEIGHT, BOX_WIDTH, Band, PictureLayout

RNG = np.random.default_rng(29)
X = RNG.uniform(-1, 1, (300, 8))
SVG = "{http://www.w3.org/2000/svg}"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ODD = "<script>&Ünïcode名前" + "W" * 60


@pytest.fixture(scope="module")
def small() -> CompiledModel:
    return cw.compile(mlp(RNG, [8, 12, 5, 3]), X, precision="fast", accuracy=0)


@pytest.fixture(scope="module")
def odd() -> CompiledModel:
    """Names that have to be escaped and cut."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name=ODD),
        helper.make_node("MatMul", ["r", "w"], ["y"], name="last"),
    ]
    return cw.compile(model(nodes, [3], {"w": np.ones((3, 2), np.float32)}), X[:, :3], accuracy=0)


def boxes(svg: str) -> list[ElementTree.Element]:
    return ElementTree.fromstring(svg).findall(f"{SVG}g")


def words(box: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in box.findall(f"{SVG}text")]


def test_every_node_has_a_box_with_its_name_shape_and_cost(small: CompiledModel, tmp_path: Path) -> None:
    small.save_picture(tmp_path / "model.svg")
    svg = (tmp_path / "model.svg").read_text(encoding="utf-8")
    shown = [words(box) for box in boxes(svg)]
    assert len(shown) == len(small.program.graph.nodes) + 1
    assert [name for name, *_ in shown] == ["x", "layer0", "activation0", "layer1", "activation1", "layer2", "answer"]
    assert shown[1][1] == "12 x 8 weights" and "Relu(x)" in shown[2][1] and shown[2][2].startswith("12 bootstraps, ")
    assert "bits, noise " in shown[1][2] and shown[0][2].startswith("encrypted by the client")
    assert shown[-1][1] == "3 numbers"
    assert svg == picture_svg(small.program) == small._repr_svg_()


def test_times_of_boxes_add_up_to_the_forecast(small: CompiledModel) -> None:
    found = Report.of(small.program)
    parts = next(iter(found.seconds.values()))["parts_one_sample"]
    bars = [box.find(f"{SVG}rect[@class='cw-cost']") for box in boxes(picture_svg(small.program))]
    lengths = [float(bar.get("width", 0)) for bar in bars if bar is not None]
    whole = BOX_WIDTH - 28
    assert len(lengths) == 5 and sum(lengths) == pytest.approx(whole, abs=3.0)  # none is drawn shorter than a pixel
    of_lookups = (lengths[1] + lengths[3]) / whole
    assert of_lookups == pytest.approx(parts["look-ups"] / (parts["look-ups"] + parts["linear layers"]), abs=0.01)
    assert lengths[1] / lengths[3] == pytest.approx(12 / 5, rel=0.02)


def test_boxes_of_one_name_are_numbered() -> None:
    shown = [words(box)[0] for box in boxes(picture_svg(zoo.load_model("mnist-cnn").program))]
    assert shown[1:6] == [f"/3/MaxPool, {part}" for part in ("1 of 3", "1 of 2", "2 of 3", "2 of 2", "3 of 3")]


def test_it_is_read_aloud_in_full(small: CompiledModel) -> None:
    root = ElementTree.fromstring(picture_svg(small.program))
    assert root.get("role") == "img"
    told = {
        f"{each.tag.removeprefix(SVG)}": each
        for each in root
        if each.get("id") in (root.get("aria-labelledby") or "").split()
    }
    assert set(told) == {"title", "desc"}
    assert re.match(r"17 bootstraps in 2 levels, about [\d.]+ m?s a sample on ", told["title"].text or "")
    assert re.search(r"activation0 of layer0: .*Relu\(x\).*; 12 bootstraps, ", told["desc"].text or "")
    assert "answer of layer2: 3 numbers" in (told["desc"].text or "")


def test_a_linear_model_has_no_bootstraps() -> None:
    svg = picture_svg(zoo.load_model("digits-logistic").program)
    assert ">No bootstraps, about " in svg and "of 0" not in svg and "level 1" not in svg


def test_names_are_escaped_and_cut(odd: CompiledModel) -> None:
    svg = picture_svg(odd.program)
    assert "<script>" not in svg
    whole = [box.findtext(f"{SVG}title") or "" for box in boxes(svg)]
    assert any(ODD in title for title in whole)
    assert any(name.startswith("<script>&Ünïcode名前") and name.endswith("…") for name, *_ in map(words, boxes(svg)))


def test_styles_stay_in_the_picture(small: CompiledModel) -> None:
    """A notebook has several on one page, among other things of its own."""
    (style,) = re.findall(r"<style>(.*?)</style>", picture_svg(small.program), re.DOTALL)
    assert "prefers-color-scheme: dark" in style
    selectors = re.findall(r"(?:^|\}|\{)\s*([^{}@]+)\{", style)
    assert selectors and all(each.strip().startswith(".cw-") for group in selectors for each in group.split(","))


def test_no_line_crosses_a_box() -> None:
    """Levels with several boxes, lines that skip levels, lines within a column."""
    bands = [
        Band("client", ((0, 1), ())),
        Band("level 1", ((2, 3), (4, 5, 6))),
        Band("level 2", ((7,), (8,))),
        Band("after", ((9, 10), (11,))),
    ]
    edges = [
        (0, 2),
        (0, 7),
        (1, 3),
        (1, 10),
        (2, 3),
        (2, 4),
        (3, 5),
        (3, 6),
        (4, 7),
        (5, 9),
        (6, 10),
        (4, 8),
        (7, 8),
        (8, 9),
    ]
    edges += [(9, 10), (2, 11), (4, 11), (10, 11), (5, 10)]
    layout = PictureLayout(bands, edges, 50)
    for source, target in edges:
        points = [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+) (-?[\d.]+)", layout.line(source, target))]
        for (x0, y0), (x1, y1) in pairwise(points):
            assert 0 <= min(x0, x1) <= max(x0, x1) <= layout.width and 0 <= min(y0, y1) <= max(y0, y1) <= layout.height
            for box in range(12):
                x, y = layout.corner(box)
                inside_x = max(x0, x1) > x + 1e-6 and min(x0, x1) < x + BOX_WIDTH - 1e-6
                inside_y = max(y0, y1) > y + 1e-6 and min(y0, y1) < y + BOX_HEIGHT - 1e-6
                assert not (inside_x and inside_y), (source, target, box)


@pytest.fixture
def drawn() -> Any:
    """drawn(svg): widths of text and boxes, as a browser has them."""
    needs(BROWSER is not None and importlib.util.find_spec("playwright"), "install playwright and Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()

        def measure(svg: str) -> Any:
            page.set_content(svg)
            return page.evaluate(
                """() => [...document.querySelectorAll("svg > g")].map((g) => {
                    const box = g.querySelector("rect").getBBox();
                    return [...g.querySelectorAll("text")].map((t) => {
                        const text = t.getBBox();
                        return [text.x - box.x, box.x + box.width - text.x - text.width, box.y + box.height - text.y - text.height];
                    });
                })"""
            )

        yield measure
        browser.close()


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_text_fits_its_box_in_a_browser(drawn: Callable[[str], Any], odd: CompiledModel) -> None:
    for name in ("odd", "mnist-cnn", "breast-cancer-forest", "cifar10-vgg"):
        program = odd.program if name == "odd" else zoo.load_model(name).program
        measured = drawn(picture_svg(program))
        assert len(measured) == len(program.graph.nodes) + 1, name
        for box in measured:
            for left, right, below in box:
                assert left >= 10 and right >= 4 and below >= 0, name


def test_names_of_any_letters_break_neither_the_picture_nor_the_report():
    """A file may call its nodes what it likes: commands of terminals, letters that XML has not, half of a tag, nothing."""
    names = ['a\x1b[2J<b>&"', "x" * 300, "\u65e5\u672c\n\u5c64\u202e", "]]><script>", "\x00\x07", ""]
    weights = np.random.default_rng(1).normal(size=(len(names), 4, 4)).astype(np.float32)
    made = [
        helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"h{i}"], name=name)
        if i % 2 == 0
        else helper.make_node("Relu", [f"x{i}"], [f"h{i}"], name=name)
        for i, name in enumerate(names)
    ]
    for i, node in enumerate(made[1:], 1):
        node.input[0] = f"h{i - 1}"
    odd = helper.make_model(
        helper.make_graph(
            made, "g",
            [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["n", 4])],
            [helper.make_tensor_value_info(f"h{len(names) - 1}", TensorProto.FLOAT, ["n", 4])],
            [numpy_helper.from_array(weights[i], f"w{i}") for i in range(0, len(names), 2)],
        ),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=9,
    )  # fmt: skip
    samples = np.random.default_rng(2).normal(size=(100, 4))
    compiled = cw.compile(odd, samples, task="regression", accuracy=0.01, allow_loss=True)
    picture = ElementTree.fromstring(picture_svg(compiled.program))
    assert 'a?[2J<b>&"' in "".join(picture.itertext())
    assert all(line.isprintable() for line in compiled.details.splitlines()) and "\u202e" not in compiled.details
