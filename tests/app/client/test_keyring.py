"""The user's keys on disk."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keys_at_once
import pytest

from cloakwork.app.client.keyring import Keyring, TemporaryKeyring, default_folder, sha256_of
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys


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


# --- other users of the machine ---------------------------------------------------------------------------------------------------


def test_a_folder_that_others_can_open_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o755)
    with pytest.raises(ParameterError, match=f"its mode is 755; run 'chmod 700 {folder}'"):
        Keyring(folder, "word").key("toy")
    assert list(folder.iterdir()) == []
    folder.chmod(0o700)
    made = Keyring(folder, "word").key("toy").key_id
    for mode in (0o710, 0o701, 0o777):
        folder.chmod(mode)
        with pytest.raises(ParameterError, match=f"its mode is {mode:o}"):
            Keyring(folder, "word").key("toy")
    folder.chmod(0o500)  # nothing has to be written
    assert Keyring(folder, "word").key("toy").key_id == made
    folder.chmod(0o700)


def test_a_secret_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    Keyring(tmp_path, "word").key("toy")
    (secret,) = (path for path in tmp_path.glob("*.key"))
    secret.chmod(0o640)
    with pytest.raises(ParameterError, match=f"{secret}, but its mode is 640; run 'chmod 600 {secret}'"):
        Keyring(tmp_path, "word").key("toy")
    secret.chmod(0o600)
    Keyring(tmp_path, "word").key("toy")


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Keyring(tmp_path, "word").key("toy")
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    with pytest.raises(ParameterError, match="belongs to another user"):
        Keyring(tmp_path, "word").key("toy")


def test_a_link_is_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "keys").symlink_to(tmp_path / "disk")
    with pytest.raises(ParameterError, match="mode is 755"):
        Keyring(tmp_path / "keys", "word").key("toy")
    (tmp_path / "disk").chmod(0o700)
    made = Keyring(tmp_path / "keys", "word").key("toy")
    assert Keyring(tmp_path / "disk", "word").key("toy").key_id == made.key_id


# --- damaged files ----------------------------------------------------------------------------------------------------------------


def test_errors_name_the_secret_keys_file_and_leave_it_alone(tmp_path: Path) -> None:
    Keyring(tmp_path, "word").key("toy")
    (secret,) = (path for path in tmp_path.glob("*.key") if "evaluation" not in path.name)
    whole = secret.read_bytes()
    with pytest.raises(KeyMismatchError, match=f"{secret}: secret key: the passphrase does not open"):
        Keyring(tmp_path, "another").key("toy")
    for half in (whole[: len(whole) // 2], b""):
        secret.write_bytes(half)
        with pytest.raises(SerializationError, match=f"{secret}: .*truncated"):
            Keyring(tmp_path, "word").key("toy")
        assert secret.read_bytes() == half


@pytest.mark.parametrize("trouble", ["another key's", "half of them", "a flipped bit", "an earlier release's", "empty"])
def test_evaluation_keys_that_do_not_belong_are_made_again(tmp_path: Path, trouble: str) -> None:
    keyring = Keyring(tmp_path, "word")
    path, key = keyring.evaluation_keys("toy"), keyring.key("toy")
    data = bytearray(path.read_bytes())
    match trouble:
        case "another key's":
            ClientKey.generate("toy").evaluation_keys().save(path)
        case "half of them":
            path.write_bytes(data[: len(data) // 2])
        case "a flipped bit":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "an earlier release's":
            data[4] = 1
            path.write_bytes(data)
        case _:
            path.write_bytes(b"")
    again = EvaluationKeys.load(Keyring(tmp_path, "word").evaluation_keys("toy"))
    assert again.key_id == key.key_id


# --- several at once --------------------------------------------------------------------------------------------------------------

PROCESSES = 3


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_processes_that_make_a_key_at_once_end_with_one_pair(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(PROCESSES), context.Queue()
    started = [context.Process(target=keys_at_once.make, args=(tmp_path, barrier, found)) for _ in range(PROCESSES)]
    for process in started:
        process.start()
    seen = [found.get(timeout=120) for _ in range(keys_at_once.ROUNDS * PROCESSES)]
    for process in started:
        process.join(30)
        assert process.exitcode == 0
    for number in range(keys_at_once.ROUNDS):
        pairs = {(key_id, digest) for each, key_id, digest in seen if each == number}
        assert len(pairs) == 1, f"round {number}: {len(pairs)} pairs"
        folder = tmp_path / str(number)
        assert sorted(path.suffix for path in folder.iterdir()) == [".key", ".keys"]  # and nothing half done
        keyring = Keyring(folder, "word")
        path = keyring.evaluation_keys("toy")
        assert pairs == {(keyring.key("toy").key_id, sha256_of(path))}
        assert EvaluationKeys.load(path).key_id == keyring.key("toy").key_id


@pytest.mark.parametrize("broken", ["locks", "links"])
def test_file_systems_without_locks_or_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """Without locks another process may publish its key while ours is made: that one counts."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    first: list[bytes] = []
    if broken == "locks":
        monkeypatch.setattr(fcntl, "flock", refuse)
        save = ClientKey.save

        def overtaken(key: ClientKey, path: Path, word: str) -> None:
            save(key, path, word)
            if not first:
                first.append(b"")
                first[0] = Keyring(tmp_path, "word").key("toy").key_id

        monkeypatch.setattr(ClientKey, "save", overtaken)
    else:
        monkeypatch.setattr(os, "link", refuse)
    keyring = Keyring(tmp_path, "word")
    key = keyring.key("toy")
    if broken == "locks":
        assert [key.key_id] == first
    assert EvaluationKeys.load(keyring.evaluation_keys("toy")).key_id == key.key_id
    assert Keyring(tmp_path, "word").key("toy").key_id == key.key_id


@pytest.mark.parametrize("temporary", [False, True])
def test_threads_share_one_key(tmp_path: Path, temporary: bool) -> None:
    keyring = TemporaryKeyring(tmp_path) if temporary else Keyring(tmp_path, "word")
    with ThreadPoolExecutor(4) as pool:
        paths = [pool.submit(keyring.evaluation_keys, "toy") for _ in range(4)]
        assert len({sha256_of(future.result()) for future in paths}) == 1
        keys = [pool.submit(keyring.key, "toy") for _ in range(4)]
        assert len({future.result().key_id for future in keys}) == 1


def test_a_new_passphrase_is_asked_for_when_a_key_is_made(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask(kind: str) -> Callable[[], str]:
        return lambda: asked.append(kind) or "word"  # type: ignore[func-returns-value]

    for _ in range(2):
        keyring = Keyring(tmp_path, ask("known"), ask("new"))
        keyring.evaluation_keys("toy")
    assert asked == ["new", "known"]
