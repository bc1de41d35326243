"""Files of 0.1 (write_files.py wrote them with that code) are read by today's: keys, program, specification, input, a service's data folder.

What is refused, with the reason, is tested beside the reader of each: versions 1 of evaluation keys and of client specifications.
docs/howto/upgrading.md is the table of all.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scoring_server import Server, running

from cloakwork.app.client import Client
from cloakwork.app.client.keyring import Keyring
from cloakwork.fhe_core import wire
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.wire.layout import EVALUATION_KEYS_VERSION, UNBLOCKED_VERSION
from cloakwork.models.program.artefact import load_program
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime import Runtime

SET = "toy_two_limb"
FILES = Path(__file__).parent / "files_of_0.1"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))
SAMPLES, ANSWERS = np.array(EXPECTED["samples"]), np.array(EXPECTED["answers"])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data folder of the service, unpacked."""
    with tarfile.open(FILES / "data.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "data"


@pytest.fixture
def old_keys(data: Path) -> Path:
    """Evaluation keys, as 0.1 sent them."""
    (path,) = (data / "objects" / "keys").iterdir()
    return path


@pytest.fixture
def ring(tmp_path: Path, old_keys: Path) -> Keyring:
    folder = tmp_path / "keys"
    shutil.copytree(FILES / "keys", folder)
    folder.chmod(0o700)
    (secret,) = folder.iterdir()
    secret.chmod(0o600)
    shutil.copy(old_keys, folder / f"{secret.name.removesuffix('.key')}.evaluation.keys")
    return Keyring(folder, EXPECTED["passphrase"])


@pytest.fixture
def server(data: Path) -> Iterator[Server]:
    with running(data, insecure=False) as started:
        yield started


def wire_version(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[4:6], "little")


def same(answers: object) -> bool:
    """Answers carry the noise of the last layer, a small part of their range."""
    return bool(np.abs(np.asarray(answers) - ANSWERS).max() < 0.05 * np.ptp(ANSWERS))


def test_a_program_computes_with_old_keys_on_an_old_input(ring: Keyring, old_keys: Path) -> None:
    key, program = ring.key(SET), load_program(FILES / "program.clkm")
    specification = ClientSpecification.from_json((FILES / "client.json").read_text(encoding="utf-8"))
    assert specification.program == program.digest
    assert wire_version(old_keys) == UNBLOCKED_VERSION
    session = Session(EvaluationKeys.load(old_keys), "cpu")
    packed = SeededPackedCiphertexts.load(FILES / "input.clkw")
    result = Runtime(program, session).run(packed)
    assert same(specification.decrypt(key, result))


def test_a_key_ring_goes_on_with_its_evaluation_keys(ring: Keyring, old_keys: Path) -> None:
    """The bytes that servers have are not replaced, so that nothing is sent again; keys that are made now are of the new version."""
    path = ring.evaluation_keys(SET)
    assert path.read_bytes() == old_keys.read_bytes()
    assert wire.peek(path.read_bytes()).key_id == ring.key(SET).key_id
    path.unlink()
    assert wire_version(ring.evaluation_keys(SET)) == EVALUATION_KEYS_VERSION


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_service_goes_on_with_its_data_folder(server: Server, ring: Keyring) -> None:
    """Migrations run at the start; tenant, API key, model and uploaded keys are there, and the user's key ring works."""
    with server.client(headers={"Authorization": f"Bearer {EXPECTED['token']}"}) as http:
        before = http.get("/v2/keys").raise_for_status().json()["keys"]
        assert [entry["state"] for entry in before] == ["ready"]
        with Client(server.url, api_key=EXPECTED["token"], keyring=ring, share_keys=True) as client:
            assert same(client.predict("toy", SAMPLES))
        after = http.get("/v2/keys").raise_for_status().json()["keys"]
        assert [entry["id"] for entry in after] == [entry["id"] for entry in before]  # nothing was sent again
