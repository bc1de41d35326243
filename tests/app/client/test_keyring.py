"""The user's keys on disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cloakwork.app.client.keyring import Keyring, default_folder, sha256_of
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys


def test_a_key_is_made_once_and_found_again(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys", "word")
    key, path = keyring.key("toy"), keyring.evaluation_keys("toy")
    again = Keyring(tmp_path / "keys", lambda: "word")
    assert again.key("toy").key_id == key.key_id
    assert sha256_of(again.evaluation_keys("toy")) == sha256_of(path)
    assert EvaluationKeys.load(path).key_id == key.key_id


def test_secrets_are_encrypted_and_private(tmp_path: Path) -> None:
    Keyring(tmp_path / "keys", "word").key("toy")
    (secret,) = (tmp_path / "keys").glob("*.key")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    with pytest.raises(KeyMismatchError, match="passphrase"):
        Keyring(tmp_path / "keys", "another").key("toy")


def test_lost_evaluation_keys_are_made_again(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path, "word")
    keyring.evaluation_keys("toy").unlink()
    assert EvaluationKeys.load(keyring.evaluation_keys("toy")).key_id == keyring.key("toy").key_id


def test_a_passphrase_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOAKWORK_PASSPHRASE", raising=False)
    with pytest.raises(ParameterError, match="CLOAKWORK_PASSPHRASE"):
        Keyring(tmp_path).key("toy")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("CLOAKWORK_PASSPHRASE", "word")
    Keyring(tmp_path).key("toy")


def test_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOAKWORK_HOME", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("CLOAKWORK_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_folder() == tmp_path / "data" / "cloakwork"
