"""keygen, encrypt, decrypt: files on disk, passphrases, refusals."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cloakwork.app.cli.commands.keys import _model_answer
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.client_steps import Labels
from cloakwork.models.graph.last_steps import Softmax

PASSPHRASE = {"CLOAKWORK_PASSPHRASE": "correct horse"}


@pytest.fixture
def toy_key(call, tmp_path: Path) -> Path:
    result = call("keygen", "--set", "toy", "--json", "-", environment=PASSPHRASE)
    assert result.returncode == 0, result.stderr
    record = json.loads(result.stdout)
    assert record["upload_bytes"] == (tmp_path / "evaluation.keys").stat().st_size
    return tmp_path / "client.key"


def test_a_round_trip_through_files(call, tmp_path, toy_key):
    assert call("encrypt", "3", "0", "2", "1", environment=PASSPHRASE).returncode == 0
    result = call("decrypt", "ciphertexts.bin", environment=PASSPHRASE)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "3 0 2 1\n"


def test_the_evaluation_keys_on_disk_work(call, tmp_path, toy_key):
    from cloakwork.fhe_core.server import Session
    from cloakwork.fhe_core.switched_ciphertexts import load_ciphertexts

    assert call("encrypt", "3", "0", "2", "1", "--full", environment=PASSPHRASE).returncode == 0
    session = Session(EvaluationKeys.load(tmp_path / "evaluation.keys"))
    table = [1, 3, 0, 2]
    ciphertexts = load_ciphertexts((tmp_path / "ciphertexts.bin").read_bytes())
    session.bootstrap(ciphertexts, table).save(tmp_path / "results.bin")
    result = call("decrypt", "results.bin", environment=PASSPHRASE)
    assert result.stdout == "2 1 0 3\n"


def test_values_from_files_keep_their_shape(call, tmp_path, toy_key):
    values = np.arange(6).reshape(2, 3) % 4
    np.save(tmp_path / "values.npy", values)
    assert call("encrypt", "--input", "values.npy", environment=PASSPHRASE).returncode == 0
    arguments = ["decrypt", "ciphertexts.bin", "--out", "back.npy", "--noise", "--json", "-"]
    record = json.loads(call(*arguments, environment=PASSPHRASE).stdout)
    assert record["values"] == values.tolist()
    assert 0 < record["noise_sd"] < 1 / 16
    np.testing.assert_array_equal(np.load(tmp_path / "back.npy", allow_pickle=False), values)


def test_values_from_standard_input(call, toy_key):
    assert call("encrypt", "--input", "-", environment=PASSPHRASE, stdin="1, 2\n3").returncode == 0
    assert call("decrypt", "ciphertexts.bin", environment=PASSPHRASE).stdout == "1 2 3\n"


def test_the_secret_key_is_private_and_encrypted(call, tmp_path, toy_key):
    assert stat.S_IMODE(toy_key.stat().st_mode) == 0o600
    (tmp_path / "wrong.txt").write_text("battery staple\n")
    call("encrypt", "1", environment=PASSPHRASE)
    result = call("decrypt", "ciphertexts.bin", "--passphrase-file", "wrong.txt")
    assert result.returncode == 1
    assert "passphrase" in result.stderr


def test_the_passphrase_file_wins_and_only_its_first_line_counts(call, tmp_path, toy_key):
    (tmp_path / "right.txt").write_text("correct horse\nsomething else\n")
    wrong = {"CLOAKWORK_PASSPHRASE": "battery staple"}
    assert call("encrypt", "1", "--passphrase-file", "right.txt", environment=wrong).returncode == 0


def test_without_a_passphrase_or_a_terminal_nothing_is_written(call, tmp_path, error_line):
    result = call("keygen", "--set", "toy")
    assert result.returncode == 2
    assert "CLOAKWORK_PASSPHRASE" in error_line(result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_passphrase_is_refused(call, tmp_path, error_line):
    result = call("keygen", "--set", "toy", environment={"CLOAKWORK_PASSPHRASE": ""})
    assert result.returncode == 2
    error_line(result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_existing_keys_are_not_overwritten(call, toy_key, error_line):
    before = toy_key.read_bytes()
    result = call("keygen", "--set", "toy", environment=PASSPHRASE)
    assert result.returncode == 1
    assert "--force" in error_line(result.stderr)
    assert toy_key.read_bytes() == before
    assert call("keygen", "--set", "toy", "--force", environment=PASSPHRASE).returncode == 0
    assert toy_key.read_bytes() != before


@pytest.mark.parametrize("values", [["4"], ["-1"], ["x"], ["1.5"], []])
def test_values_that_do_not_fit_are_wrong_calls(call, tmp_path, toy_key, error_line, values):
    result = call("encrypt", "--", *values, environment=PASSPHRASE)
    assert result.returncode == 2
    error_line(result.stderr)
    assert not (tmp_path / "ciphertexts.bin").exists()


def test_a_ciphertext_of_another_key_is_refused(call, tmp_path, toy_key, error_line):
    call("encrypt", "1", environment=PASSPHRASE)
    call("keygen", "--set", "toy", "--out", "other", environment=PASSPHRASE)
    result = call("decrypt", "ciphertexts.bin", "--key", "other/client.key", environment=PASSPHRASE)
    assert result.returncode == 1
    error_line(result.stderr)
    assert result.stdout == ""


def test_a_damaged_file_is_refused(call, tmp_path, toy_key, error_line):
    call("encrypt", "1", environment=PASSPHRASE)
    path = tmp_path / "ciphertexts.bin"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    result = call("decrypt", "ciphertexts.bin", environment=PASSPHRASE)
    assert result.returncode == 1
    error_line(result.stderr)


def test_missing_files_have_status_1(call, error_line):
    for arguments in (["encrypt", "1"], ["decrypt", "nothing.bin"]):
        result = call(*arguments, environment=PASSPHRASE)
        assert result.returncode == 1
        error_line(result.stderr)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_two_keygens_at_once_make_one_pair(tmp_path):
    """The other one is told that there is a key."""
    command = [sys.executable, "-m", "cloakwork.app.cli", "keygen", "--set", "toy"]
    options = {"cwd": tmp_path, "env": {**os.environ, **PASSPHRASE}, "text": True}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    both = [subprocess.Popen(command, **options, **pipes) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], errors
    assert "would be overwritten" in "".join(errors)
    key = ClientKey.load(tmp_path / "client.key", PASSPHRASE["CLOAKWORK_PASSPHRASE"])
    assert EvaluationKeys.load(tmp_path / "evaluation.keys").key_id == key.key_id


def test_new_evaluation_keys_for_a_key_that_is_there(call, tmp_path, toy_key, error_line):
    before, old = toy_key.read_bytes(), (tmp_path / "evaluation.keys").read_bytes()
    refused = call("keygen", "--key", "client.key", environment=PASSPHRASE)
    assert refused.returncode == 1 and "evaluation.keys would be overwritten" in error_line(refused.stderr)
    assert call("keygen", "--key", "client.key", "--set", "toy", environment=PASSPHRASE).returncode == 2
    result = call("keygen", "--key", "client.key", "--force", environment=PASSPHRASE)
    assert result.returncode == 0, result.stderr
    assert toy_key.read_bytes() == before and (tmp_path / "evaluation.keys").read_bytes() != old
    key = ClientKey.load(toy_key, PASSPHRASE["CLOAKWORK_PASSPHRASE"])
    assert EvaluationKeys.load(tmp_path / "evaluation.keys").key_id == key.key_id


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        ((), ["0.25 3", "-1 0.5"]),  # may be a regression of two outputs
        ((Softmax(-1),), ["1", "1"]),
        ((Labels(np.array(["no", "yes"]), 0.5),), ["yes", "no"]),
    ],
    ids=["numbers", "softmax", "labels"],
)
def test_classes_only_of_what_says_that_it_is_a_classifier(
    steps: Any, shown: list[str], capsys: pytest.CaptureFixture[str]
):
    numbers = np.array([[0.25, 3], [-1, 0.5]])
    values = np.array(["yes", "no"]) if steps and isinstance(steps[0], Labels) else numbers
    _model_answer(values, lambda: numbers, SimpleNamespace(output_steps=steps)).show(with_scores=False)  # type: ignore[arg-type]
    assert capsys.readouterr().out.splitlines() == shown
