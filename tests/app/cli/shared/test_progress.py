"""A progress bar for whatever may take more than two seconds: on a terminal alone."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cloakwork.app.cli.main import run
from cloakwork.app.cli.shared import console
from cloakwork.models import zoo

MODEL = "iris-tree"


def test_long_steps_have_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "gravel pelican nineteen tundra")
    shown: list[str] = []

    @contextmanager
    def recorded(label: str) -> Iterator[Callable[[str, int, int], bool]]:
        shown.append(label)
        yield lambda _stage, _done, _total: True

    monkeypatch.setattr(console, "progress_of_stages", recorded)
    np.save(tmp_path / "x.npy", zoo.held_out(MODEL).x[:2])
    (tmp_path / "model.clkm").write_bytes(zoo.card(MODEL).path.read_bytes())
    for command, labels in (
        (f"inspect {MODEL}", ["reading the model"]),
        (f"keygen --model {MODEL}", ["reading the model", "evaluation keys"]),
        (f"encrypt x.npy --model {MODEL} -o x.bin", ["reading the model", "encryption"]),
        (f"run {MODEL} x.bin", ["reading the model", "expanding the keys", "encrypted inference"]),
        (f"decrypt results.bin --model {MODEL}", ["reading the model", "decryption"]),
        (f"simulate {MODEL} --data x.npy", ["reading the model", "in clear", "simulation", "noise"]),
        ("models add model.clkm --data data", ["reading the model"]),
    ):
        shown.clear()
        assert run(command.split()) == 0
        assert shown == labels, command


def test_a_bar_is_drawn_on_a_terminal_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal in (True, False):
        told = io.StringIO()
        made = Console(file=told, force_terminal=is_terminal, width=80)
        monkeypatch.setattr(console, "standard_error", lambda made=made: made)
        with console.progress("reading the model") as update:
            assert update(1, 2)
        assert ("reading the model" in told.getvalue()) == is_terminal
        assert is_terminal or told.getvalue() == ""
