"""Which passphrases a new secret key takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloakwork.app.client.errors import WeakPassphraseError
from cloakwork.app.client.keyring import Keyring
from cloakwork.app.client.passphrases import weakness

WEAK = (
    "", "short", "elevenchars", "aaaaaaaaaaaaaaaa", "abcabcabcabcabc", "password1234", "Password!2024", "P@ssw0rd1234", "passwordpassword",
    "iloveyou1234", "correcthorsebatterystaple", "123456789012", "qwertyuiop123456", "abcdefghijklmn", "1q2w3e4r5t6y", "zyxwvutsrqponm",
    "changeme2026", "welcome welcome", "mysecretpassword", "letmeinletmein", "trustno1trustno1", "monkeydragon12", "112211221122", "cloakwork-test",
)  # fmt: skip
STRONG = (
    "of the secret key on this disk", "gravel pelican 19 tundra", "Zwölf Boxkämpfer jagen Viktor", "x7#Lq0!vR2@mT", "correct zebra invoice moss",
    "3 blind owls read maps", "ткань мороз укроп лодка",
)  # fmt: skip


@pytest.mark.parametrize("passphrase", WEAK)
def test_weak_ones_are_known(passphrase: str) -> None:
    reason = weakness(passphrase)
    assert reason is not None and (len(passphrase) < 6 or passphrase not in reason)


@pytest.mark.parametrize("passphrase", STRONG)
def test_others_pass(passphrase: str) -> None:
    assert weakness(passphrase) is None


def test_a_long_one_is_judged_at_once() -> None:
    assert weakness("passwordabcd" * 2_000) is not None
    assert weakness("gravel pelican tundra in a box " * 1_000) is None


def test_a_new_key_wants_a_strong_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOAKWORK_WEAK_PASSPHRASE", "0")
    with pytest.raises(WeakPassphraseError, match=r"fewer than 12 characters.*CLOAKWORK_WEAK_PASSPHRASE=1"):
        Keyring(tmp_path / "keys", "word").key("toy")
    assert not (tmp_path / "keys").exists()
    key = Keyring(tmp_path / "keys", "word", weak_passphrase=True).key("toy")
    assert Keyring(tmp_path / "keys", "word").key("toy").key_id == key.key_id  # one that is there is opened
    Keyring(tmp_path / "others", STRONG[0]).key("toy")
