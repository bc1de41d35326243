"""Every block of shell and Python of README, documents and notebooks runs, page by page, and prints what the page shows."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from requirements import needs
from scoring_server import running
from warm_process import WarmPython, clean_environment, warm

from tests.documents.given import GIVEN
from tests.documents.pages import (
    LANGUAGES,
    MARKDOWN,
    NOTEBOOKS,
    REPOSITORY,
    SHELL,
    Block,
    blocks,
    name_of,
    shows_what_it_prints,
)
from tests.documents.reader import PORT, Reader, Result

pytestmark = [pytest.mark.os_entropy, pytest.mark.timeout(1200)]

README = REPOSITORY / "README.md"
# What pages import, and commands: once for all of them.
IMPORTED = (
    "cloakwork.app.cli.main",
    "cloakwork.app.client",
    "cloakwork.models.compiler",
    "cloakwork.estimators",
    "sklearn.datasets",
    "torch",
)
RANDOM = re.compile(r" *\d{10,}|\b[0-9a-f]{8}(?=\.\.)")  # words of ciphertexts, and numbers of keys
# Notebooks run in `make test-release`, and these pages.
LONG_PAGES = ("docs/howto/batch.md",)  # several clusters of Ray
EXTRAS = {
    "cifar10": ["PIL"],
    "your_table": ["pandas"],
    "credit_decisions": ["xgboost"],
    "service_from_a_notebook": ["fastapi"],
}  # of notebooks


# --- What pages are made of ----------------------------------------------------------------------------------------------------------


def test_every_block_says_what_it_is() -> None:
    for page in MARKDOWN:
        read = blocks(page)
        assert [(block.where, block.language) for block in read if block.language not in LANGUAGES] == []
        unknown = [
            (block.where, block.words)
            for block in read
            if block.language in ("python", *SHELL) and block.words and not block.reason
        ]
        assert unknown == []
        fences = re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert len(fences) == 2 * len(read), name_of(page)


def test_blocks_that_do_not_run_here_are_well_formed() -> None:
    """Those with a reason: bash reads commands, and Python compiles its blocks; tests/documents/test_commands.py knows their commands."""
    left_out = [block for page in MARKDOWN for block in blocks(page) if block.reason is not None]
    assert len(left_out) > 20
    for block in left_out:
        if block.language == "python":
            compile(block.text, block.where, "exec")
        else:
            checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=30)
            assert checked.returncode == 0, f"{block.where}: {checked.stderr}"


def test_examples_of_the_readme_are_ten_lines() -> None:
    examples = [block.text for block in blocks(README) if block.language == "python"]
    assert len(examples) == 2
    assert max(len([line for line in text.splitlines() if line.strip()]) for text in examples) <= 10


def test_the_readme_is_one_screen_to_the_first_answer() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.encode()) <= 6_000
    assert text.count("\n", 0, text.index('how="encrypted"')) <= 40


# --- What they do --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def python() -> Iterator[WarmPython]:
    with warm(*IMPORTED) as started:
        yield started


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with every model of the zoo, which the services of pages start with."""
    folder = tmp_path_factory.mktemp("zoo")
    subprocess.run(
        [sys.executable, "-m", "cloakwork.models.repository", folder, "--zoo"],
        env=clean_environment(),
        check=True,
        timeout=300,
    )
    return folder


@pytest.fixture(scope="module")
def service(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a service for pages that start none before they ask one."""
    data = tmp_path_factory.mktemp("service")
    shutil.copytree(zoo, data / "models")
    with running(data, environment={"ZOO": "true"}) as server:
        yield server.port


def check(block: Block, result: Result) -> None:
    said = f"{block.where}:\n{block.text}\n{result.output}\n{result.errors[-3000:]}"
    assert not result.failed, said
    if block.shown:
        shown, output = (RANDOM.sub("#", text) for text in (block.shown, result.output))
        assert doctest.OutputChecker().check_output(shown, output, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), (
            said
        )
    elif shows_what_it_prints(block.page) and block.language == "python":
        assert result.output == "", f"printed, and not shown: {said}"
    lines = iter(result.output.splitlines())
    assert all(promise in lines for promise in block.promises), f"expected {block.promises}: {said}"


def read_aloud(page: Path, reader: Reader) -> str:
    """Runs the page; returns what it printed."""
    given = [Block(page, 0, "python", "", GIVEN[name_of(page)])] if name_of(page) in GIVEN else []
    printed = []
    for block in [*given, *blocks(page)]:
        if block.runs:
            result = reader.run(block)
            check(block, result)
            printed.append(result.output)
    return "\n".join(printed)


def test_the_first_example_of_the_readme(tmp_path: Path) -> None:
    example = next(block for block in blocks(README) if block.language == "python")
    assert example.promises
    needs(importlib.util.find_spec("sklearn"), "the example fits a tree of scikit-learn")
    with warm() as python:
        reader = Reader(tmp_path / "page", python)
        check(example, reader.run(example))
        reader.leave()


@pytest.mark.tier("all")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.tier("release" if name_of(page) in LONG_PAGES else "all"))
        for page in MARKDOWN
        if any(block.runs for block in blocks(page))
    ],
    ids=name_of,
)
def test_the_blocks_of_a_page_run(
    page: Path, python: WarmPython, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    needs(shutil.which("bash") and shutil.which("curl"), "the blocks of pages need bash and curl")
    run = [block for block in blocks(page) if block.runs]
    asks = [PORT in block.text for block in run]
    serves = ["cloakwork serve" in block.text for block in run]
    with ExitStack() as stack:
        before = any(asks) and not serves[asks.index(True)]
        reader = Reader(tmp_path / "page", python, shared_port=request.getfixturevalue("service") if before else None)
        stack.callback(reader.leave)
        if any(serves):
            shutil.copytree(request.getfixturevalue("zoo"), reader.here / "data" / "models")
        read_aloud(page, reader)


@pytest.mark.tier("release")
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_the_cells_of_a_notebook_run(page: Path, python: WarmPython, tmp_path: Path) -> None:
    for module in ("IPython", *EXTRAS.get(page.stem, ())):
        needs(importlib.util.find_spec(module), f"{module} is not installed: 'make notebooks' installs it")
    variables = {"CLOAKWORK_DATA": os.environ.get("CLOAKWORK_DATA", str(tmp_path))}
    if page.stem == "cifar10":
        from cloakwork.training.cifar10_data import has_cifar10

        needs(has_cifar10(), "no CIFAR-10: set CLOAKWORK_DATA to the folder that holds cifar10/")
    reader = Reader(tmp_path / "page", python, notebook=True, variables=variables)
    try:
        printed = read_aloud(page, reader)
    finally:
        reader.leave()
    assert "bits of security" in printed and "<image/png>" in printed
