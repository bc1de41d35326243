"""Pictures of docs/ that follow from other things: plots of the tables of docs/benchmarks, and the levels of a program of the zoo.

`python tools/site/plots.py` writes them; `tests/test_site.py` finds out when a table has changed and its plot has not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from bars import Bars, bars_svg
from page_tables import Row, cell, number, plain, table

ROOT: Final = Path(__file__).resolve().parents[2]
BENCHMARKS: Final = ROOT / "docs" / "benchmarks"


def openfhe() -> Bars:
    """The ratios of cpu.md; rows without one are what is compared with."""
    page = BENCHMARKS / "cpu.md"
    rows = [
        row
        for row in table(page, "# The CPU back end beside OpenFHE", "operation", "OpenFHE / this")
        if (_value(row, "OpenFHE / this") or 1) != 1
    ]
    return Bars(
        "Times as fast as OpenFHE on a CPU",
        "OpenFHE's time over ours, for one value; one thread unless marked, medians of a sitting in turns: cpu.md",
        _labels(rows, "operation"),
        {"ratio": [_value(row, "OpenFHE / this") for row in rows]},
    )


def bootstraps() -> Bars:
    rows = [
        row
        for row in table(
            BENCHMARKS / "cuda.md", "## Block-binary keys, clusters, `wgmma`, extended tables", "set", "now", "`_block`"
        )
        if plain(cell(row, "set")).isidentifier() and (_value(row, "now") or _value(row, "`_block`"))
    ]
    return Bars(
        "Bootstraps a second of one H200",
        "Key switch included, batches of 16,384; sets of block-binary keys rest on a structured secret: cuda.md",
        _labels(rows, "set"),
        {
            "as named": [_value(row, "now") for row in rows],
            "with block-binary keys": [_value(row, "`_block`") for row in rows],
        },
    )


# By the beginnings of their rows in models.md and in cuda.md.
_MODELS: Final = {
    "MNIST, 784-30-10": ("mnist-mlp-1x30,", "mnist-mlp-1x30,", "images/s"),
    "iris, a tree": ("iris decision tree,", "iris decision tree,", "samples/s"),
    "breast cancer, 20 trees": ("breast cancer forest,", "breast cancer forest,", "samples/s"),
    "breast cancer, XGBoost": ("XGBoost, 20 trees, depth 4,", "XGBoost 20 x 4,", "samples/s"),
}


def models() -> Bars:
    """Samples a second: one over the seconds of models.md, and the rates of cuda.md."""
    ours = table(BENCHMARKS / "models.md", "# Models, encrypted", "model", "CPU, s/sample")
    on_cpu, on_gpu = [], []
    for cpu_row, gpu_row, rate in _MODELS.values():
        seconds = _value(_row(ours, "model", cpu_row), "CPU, s/sample")
        on_cpu.append(None if seconds is None else 1 / seconds)
        gpu = table(BENCHMARKS / "cuda.md", "## Models", rate)
        on_gpu.append(_value(_row(gpu, next(iter(gpu[0])), gpu_row), rate))
    return Bars(
        "Encrypted samples a second",
        "Logarithmic; one CPU thread (models.md), and full batches on one H200 (cuda.md)",
        list(_MODELS),
        {"one CPU thread": on_cpu, "one H200": on_gpu},
        logarithmic=True,
    )


def joined() -> Bars:
    rows = table(BENCHMARKS / "fleet.md", "## Requests that wait together", "model, cards", "alone", "joined")
    return Bars(
        "Requests a second, alone and joined",
        "A service's engine on H100s, 256 requests of one sample that wait together: fleet.md",
        _labels(rows, "model, cards"),
        {"alone": [_value(row, "alone") for row in rows], "joined": [_value(row, "joined") for row in rows]},
    )


def levels() -> str:
    """The picture of mnist-cnn, with the stored forecast: as on a machine on which nothing was measured."""
    from cloakwork.models import zoo
    from cloakwork.models.report import picture_svg

    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory() as empty:
        os.environ["XDG_CACHE_HOME"] = empty
        try:
            return picture_svg(zoo.load_model("mnist-cnn").program)
        finally:
            os.environ.pop("XDG_CACHE_HOME")
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


PICTURES: Final[dict[str, Callable[[], str]]] = {
    "docs/benchmarks/images/openfhe.svg": lambda: bars_svg(openfhe()),
    "docs/benchmarks/images/bootstraps.svg": lambda: bars_svg(bootstraps()),
    "docs/benchmarks/images/models.svg": lambda: bars_svg(models()),
    "docs/benchmarks/images/joined.svg": lambda: bars_svg(joined()),
    "docs/images/levels.svg": levels,
}


def _value(row: Row, column: str) -> float | None:
    return number(cell(row, column))


def _labels(rows: Iterable[Row], column: str) -> list[str]:
    return [plain(cell(row, column)) for row in rows]


def _row(rows: Iterable[Row], column: str, begins: str) -> Row:
    matching = [row for row in rows if plain(cell(row, column)).startswith(begins)]
    if len(matching) != 1:
        raise LookupError(f"expected one row '{begins}', found {len(matching)}")
    return matching[0]


if __name__ == "__main__":
    for name, make in PICTURES.items():
        (ROOT / name).write_text(make(), encoding="utf-8")
