"""What commands do only after their user agreed, and what they remind of."""

from __future__ import annotations

import getpass
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from servers.cases import Case
from servers.server import serving

from cloakwork.app.cli.shared import passphrase
from cloakwork.app.cli.shared.console import WrongCallError
from cloakwork.app.client import agreement
from cloakwork.fhe_core.wire import keystore

STRONG = "gravel pelican nineteen tundra"


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keystore.save_secret, "__defaults__", (keystore.ScryptCost(log2_n=10),))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is typed for passphrases, one after the other."""
    typed: list[str] = []
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(getpass, "getpass", lambda _: typed.pop(0))
    monkeypatch.setenv("CLOAKWORK_WEAK_PASSPHRASE", "0")
    monkeypatch.delenv("CLOAKWORK_PASSPHRASE", raising=False)
    return typed


def test_a_weak_passphrase_is_refused_without_a_terminal(call: Run) -> None:
    environment = {"CLOAKWORK_PASSPHRASE": "password1234", "CLOAKWORK_WEAK_PASSPHRASE": "0"}
    refused = call("keygen", "--set", "toy", environment=environment)
    assert refused.returncode == 2 and "words that are guessed first" in refused.stderr
    assert "--weak-passphrase" in refused.stderr and "password1234" not in refused.stderr
    assert call("keygen", "--set", "toy", "--weak-passphrase", environment=environment).returncode == 0
    strong = {**environment, "CLOAKWORK_PASSPHRASE": STRONG}
    assert call("keygen", "--set", "toy", "--force", environment=strong).returncode == 0


def test_a_terminal_asks_again(terminal: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    terminal += ["short", "short", STRONG, STRONG]
    assert passphrase.read_passphrase(None, confirm=True) == STRONG
    assert "fewer than 12 characters" in capsys.readouterr().err
    terminal += ["short"] * 6
    with pytest.raises(WrongCallError, match="--weak-passphrase accepts it"):
        passphrase.read_passphrase(None, confirm=True)
    terminal += ["short", "short"]
    assert passphrase.read_passphrase(None, confirm=True, weak=True) == "short"
    terminal += ["short"]
    assert passphrase.read_passphrase(None, confirm=False) == "short"  # of a key that is there


def test_decrypt_says_what_results_give_away(call: Run) -> None:
    environment = {"CLOAKWORK_PASSPHRASE": STRONG}
    for arguments in (("keygen", "--set", "toy"), ("encrypt", "1", "2")):
        assert call(*arguments, environment=environment).returncode == 0
    result = call("decrypt", "ciphertexts.bin", environment=environment)
    assert result.stdout == "1 2\n"
    assert "learns parts of your secret key" in result.stderr


def test_scoring_asks_for_changes_and_large_keys(call: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.array([[0.3]]))
    specification: dict[str, Any] = {}
    with serving(Case(lambda: specification)) as server:

        def score(*options: str) -> Any:
            arguments = ("score", "x.npy", "--url", server.url, "--model", "m", "--keys", "keys", *options)
            return call(*arguments, environment={"CLOAKWORK_PASSPHRASE": STRONG})

        monkeypatch.setattr(agreement, "LARGE_KEYS_BYTES", 1000)
        refused = score()
        assert refused.returncode == 2 and "--accept-large-keys" in refused.stderr
        assert score("--accept-large-keys").returncode == 0
        specification["output_offset"] = [1.0]
        refused = score()
        assert refused.returncode == 1 and "--accept-change" in refused.stderr
        assert score("--accept-change").returncode == 0
        assert score().returncode == 0
        before = server.counts["opening"]
        assert score("--share-keys", "--accept-large-keys").returncode == 0
        assert server.counts["opening"] == before + 1
        assert {path.name.partition("@")[2] == "" for path in (tmp_path / "keys").glob("toy*.key")} == {True, False}
