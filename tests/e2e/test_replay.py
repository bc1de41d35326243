"""A service answers, its client writes an audit file, the service's owner computes the answer again: the same bytes, or what differs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scoring_server import Server, toy_model

from cloakwork.app.cli.main import run
from cloakwork.app.client import Client, Recorder
from cloakwork.app.client.keyring import Keyring
from cloakwork.fhe_core.wire import HEADER_BYTES, peek
from cloakwork.models.audit.audit_file import AuditFile, AuditObject, Manifest, write_audit_file

pytestmark = pytest.mark.os_entropy
NORM_OFFSET = HEADER_BYTES - 16  # the weight norm, before lengths of eight bytes
SAMPLES = np.random.default_rng(4).uniform(-0.7, 0.7, (5, 4))
Replay = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def asked(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An audit file with keys, and the file of the keys."""
    folder = tmp_path_factory.mktemp("asked")
    keyring = Keyring(folder / "keys", "word")
    with Client(server.url, keyring=keyring) as client:
        client.score("toy", SAMPLES, recorder=Recorder(folder / "with.clka"))
        client.score("toy", SAMPLES[:1], recorder=Recorder(folder / "without.clka", with_keys=False))
    return folder, keyring.evaluation_keys("toy_two_limb", server=server.url)


@pytest.fixture
def replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Replay:
    """replay(arguments): status, the JSON record, standard error."""

    def call(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / "record.json"
        path.unlink(missing_ok=True)
        status = run(["replay", *map(str, arguments), "--json", str(path)])
        record = json.loads(path.read_text()) if path.exists() else {}
        return status, record, capsys.readouterr().err

    return call


def test_the_same_answer_byte_for_byte(server: Server, asked: tuple[Path, Path], replay: Replay) -> None:
    folder, _ = asked
    for name, samples in (("with", 5), ("without", 1)):  # whose keys the service's folder has
        status, record, _ = replay(folder / f"{name}.clka", "--data", server.data, "--threads", "2")
        assert status == 0 and record["equal"] and record["result"] == "the same, byte for byte"
        assert record["samples"] == samples and record["service"] == server.url
        assert record["sha256"] == record["answer_sha256"]


@pytest.mark.tier("all")
def test_on_another_instruction_set_from_files_alone(server: Server, asked: tuple[Path, Path], tmp_path: Path) -> None:
    """As on another machine: the model, the audit key and the file are all that it gets."""
    folder, keys = asked
    for name in ("1.clkm", "audit.key"):
        shutil.copy(server.data / ("models/toy" if name == "1.clkm" else "") / name, tmp_path / name)
    command = [sys.executable, "-m", "cloakwork.app.cli", "replay", str(folder / "without.clka"), "--json", "-"]
    command += ["--model", str(tmp_path / "1.clkm"), "--audit-key", str(tmp_path / "audit.key"), "--keys", str(keys)]
    for kind in ("baseline", "avx2"):
        done = subprocess.run(
            command, env={**os.environ, "CLOAKWORK_CPU": kind}, capture_output=True, text=True, timeout=120
        )
        if kind == "avx2" and "avx2" in done.stderr.lower() and done.returncode:
            continue  # this machine has none
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["equal"] is True


@pytest.mark.tier("all")
def test_many_requests_are_one_file(job_server: Server, tmp_path: Path, replay: Replay) -> None:
    """Batches beyond the largest go in several requests, as jobs here."""
    data, samples, file = job_server.data, tmp_path / "x.npy", tmp_path / "three.clka"
    np.save(samples, SAMPLES)
    call = ["score", str(samples), "--model", "toy", "--url", job_server.url, "--audit", str(file), "--json", "-"]
    assert run([*call, "--no-audit-keys"]) == 0
    assert run(call) == 1  # the file is there
    with Client(job_server.url, keyring=Keyring(tmp_path / "keys", "word")) as client:
        client.score("toy", SAMPLES, recorder=Recorder(tmp_path / "kept.clka"))
    status, record, _ = replay(tmp_path / "kept.clka", "--data", data)
    assert status == 0 and record["samples"] == 5 and len(record["sha256"]) == 3
    assert len(AuditFile.open(file).manifest.exchanges) == 3
    status, record, error = replay(file, "--data", data)
    # The key of the run was deleted with it: nothing but its digest is known.
    assert status == 1 and "SHA-256" in error and record == {}


class Case:
    """One audit file, changed in one place, and what replay says of it."""

    def __init__(self, folder: Path, original: AuditFile, keys: Path) -> None:
        self._folder, self._original, self._keys, self._written = folder, original, keys, 0

    def written(self, request: bytes | None = None, answer: bytes | None = None, **manifest: Any) -> Path:
        exchange = (request or self._original.request(0), answer or self._original.answer(0))
        parts = ((AuditObject.of(exchange[0]), AuditObject.of(exchange[1])),)
        self._written += 1
        path = self._folder / f"changed{self._written}.clka"
        write_audit_file(path, replace(self._original.manifest, exchanges=parts, **manifest), self._keys, [exchange])
        return path


@pytest.mark.tier("all")
def test_what_differs_is_said(server: Server, asked: tuple[Path, Path], replay: Replay, tmp_path: Path) -> None:
    folder, keys = asked
    file = AuditFile.open(folder / "with.clka")
    request, answer = file.request(0), file.answer(0)
    altered = bytearray(answer[:-32])
    altered[-40] ^= 1
    with Client(server.url, keyring=Keyring(folder / "keys", "word")) as client:
        client.score("toy", SAMPLES, recorder=Recorder(tmp_path / "again.clka"))
    other_keyring = Keyring(tmp_path / "other", "word")
    with Client(server.url, keyring=other_keyring) as client:
        client.score("toy", SAMPLES, recorder=Recorder(tmp_path / "other.clka"))
    toy_model(seed=1).save(tmp_path / "next.clkm")
    (tmp_path / "key").write_bytes(bytes(32))
    case = Case(tmp_path, file, keys)
    written = case.written
    cases: list[tuple[Path, tuple[Any, ...], str]] = [
        (
            written(answer=bytes(altered) + hashlib.sha256(altered).digest()),
            (),
            "answer 1 differs: 1 of its 15 ciphertexts",
        ),
        (written(answer=bytes(altered) + answer[-32:]), (), "answer 1 differs: it is no sound object"),
        (written(answer=request), (), "answer 1: expected an answer"),
        (written(request=answer), (), "request 1: expected a request"),
        (
            written(request=AuditFile.open(tmp_path / "other.clka").request(0)),
            (),
            "request 1: it belongs to another key",
        ),
        (written(request=AuditFile.open(tmp_path / "again.clka").request(0)), (), "answer 1 differs: 15 of its 15"),
        (written(program="0" * 64), (), "another program"),
        (written(version="2"), (), "no version 2"),
        (written(audit_key="0" * 16), (), "another audit key"),
        (written(keys=AuditObject(file.manifest.keys.size, "0" * 64)), (), "the evaluation keys: the SHA-256"),
        (written(), ("--model", tmp_path / "next.clkm"), "another program"),
        (written(), ("--audit-key", tmp_path / "key"), "another audit key"),
        (
            written(),
            ("--keys", other_keyring.evaluation_keys("toy_two_limb", server=server.url)),
            "other evaluation keys",
        ),
    ]
    for path, arguments, expected in cases:
        status, record, error = replay(path, "--data", server.data, *arguments)
        assert status == 1 and expected in error, (expected, error)
        assert record == {} or (record["equal"] is False and record["sha256"] != record["answer_sha256"])
    assert replay(written(), "--data", server.data)[0] == 0


@pytest.mark.tier("all")
@pytest.mark.parametrize(("factor", "same"), [(1 + 1e-12, True), (1 - 1e-12, True), (1.01, False)])
def test_the_last_digits_of_the_noise_may_differ(
    server: Server, asked: tuple[Path, Path], replay: Replay, tmp_path: Path, factor: float, same: bool
) -> None:
    """Square roots of sums are the only numbers of an answer that machines may round each in its way."""
    folder, keys = asked
    file = AuditFile.open(folder / "with.clka")
    answer = bytearray(file.answer(0)[:-32])
    (norm,) = struct.unpack_from("<d", answer, NORM_OFFSET)
    assert norm == peek(file.answer(0)).weight_norm
    struct.pack_into("<d", answer, NORM_OFFSET, norm * factor)
    path = Case(tmp_path, file, keys).written(answer=bytes(answer) + hashlib.sha256(answer).digest())
    status, record, error = replay(path, "--data", server.data)
    assert record["equal"] is same and status == (0 if same else 1)
    assert "last digits" in record["result"] if same else "header is another one" in error


def test_what_is_missing_is_asked_for(server: Server, asked: tuple[Path, Path], replay: Replay, tmp_path: Path) -> None:
    folder, _ = asked
    model = server.data / "models" / "toy" / "1.clkm"
    file = folder / "without.clka"
    status, _, error = replay(file)
    assert status == 2 and "--data" in error
    status, _, error = replay(file, "--model", "toy", "--data", server.data)
    assert status == 2 and "no file 'toy'" in error
    status, _, error = replay(file, "--model", model)
    assert status == 2 and "no audit key" in error and "guesses" in error
    status, _, error = replay(file, "--model", model, "--audit-key", tmp_path / "none")
    assert status == 2 and "cannot be read" in error
    status, _, error = replay(file, "--model", model, "--audit-key", server.data / "audit.key")
    assert status == 1 and "no evaluation keys" in error and "--keys" in error
    assert replay(tmp_path / "none.clka", "--data", server.data)[0] == 1
    assert replay(model, "--data", server.data)[0] == 1  # another kind of file


def test_nothing_secret_is_in_the_file(asked: tuple[Path, Path]) -> None:
    folder, _ = asked
    manifest = AuditFile.open(folder / "with.clka").manifest
    assert set(json.loads(manifest.to_json())) == {
        "model", "version", "program", "audit_key", "service", "time", "keys", "exchanges",
    }  # fmt: skip
    assert Manifest.from_json(manifest.to_json().encode()) == manifest
    key = Keyring(folder / "keys", "word").key("toy_two_limb")
    assert bytes(key._secret_key.export()) not in (folder / "with.clka").read_bytes()
