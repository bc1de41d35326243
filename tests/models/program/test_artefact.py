"""A compiled program through its file, and files that are not one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from onnx_models import mlp

import cloakwork as cw
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.parameters import parameter_digest
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (20, 6))


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return cw.compile(mlp(RNG, [6, 5, 3], "Elu"), RNG.uniform(-1, 1, (200, 6)))


@pytest.fixture(scope="module")
def data(model: CompiledModel) -> bytes:
    return program_to_bytes(model.program)


def resealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def test_saved_and_loaded_model_predicts_the_same(model: CompiledModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.clkm")
    loaded = CompiledModel.load(tmp_path / "model.clkm")
    for mode in ("clear", "simulate"):
        np.testing.assert_array_equal(loaded.predict(X, how=mode, seed=3), model.predict(X, how=mode, seed=3))
    assert loaded.report() == model.report()
    assert program_to_bytes(loaded.program) == program_to_bytes(model.program)
    with pytest.raises(CompileError, match="ONNX"):
        loaded.predict_float(X)


def test_every_changed_byte_is_noticed(data: bytes) -> None:
    for position in range(0, len(data), 7):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(SerializationError):
            program_from_bytes(bytes(changed))


@pytest.mark.parametrize("length", [0, 1, 15, 47, 200, -1])
def test_truncated_files_are_refused(data: bytes, length: int) -> None:
    with pytest.raises(SerializationError):
        program_from_bytes(data[:length])


def test_another_parameter_row_is_refused(model: CompiledModel, data: bytes) -> None:
    digest = parameter_digest(model.program.parameters).hex().encode()
    with pytest.raises(KeyMismatchError, match="another version of parameter set"):
        program_from_bytes(resealed(data[:-32].replace(digest, b"0" * 64)))


def test_made_up_headers_with_a_right_checksum_are_refused(data: bytes) -> None:
    """Every byte of the header in turn; what still describes a program of this form is accepted, nothing else goes through."""
    length = int.from_bytes(data[8:16], "little")
    refused = 0
    for position in range(16, 16 + length, 3):
        changed = bytearray(data[:-32])
        changed[position] ^= 2
        try:
            program_from_bytes(resealed(bytes(changed)))
        except FheError:
            refused += 1
    assert refused > length // 6


def test_client_specification_through_json(model: CompiledModel) -> None:
    loaded = ClientSpecification.from_json(model.client.to_json())
    assert loaded.to_json() == model.client.to_json()
    np.testing.assert_array_equal(loaded.phases(X), model.client.phases(X))
    phases = RNG.uniform(-0.4, 0.4, (4, 3))
    np.testing.assert_array_equal(loaded.output(phases), model.client.output(phases))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cloakwork_client", 1),
        ("cloakwork_client", 3),
        ("program_digest", "00" * 31),
        ("program_digest", "0G" * 32),
        ("program_digest", " " * 64),
        ("program_digest", "AB" * 32),
        ("program_digest", 7),
        ("input_shape", [-1]),
        ("input_scale", float("nan")),
        ("output_scale", [0.0, 1.0, 1.0]),
        ("output_offset", [0.0]),
        ("client_steps", [["Exec", 0, True]]),
        ("client_steps", [["TopK", 1, True, 4, True]]),
        ("client_steps", [["Softmax", 5, True]]),
        ("client_steps", [["Softmax"]]),
        ("output_unit", -0.5),
        ("input_range", [1.0]),
    ],
)
def test_damaged_client_specifications_are_refused(model: CompiledModel, field: str, value: object) -> None:
    fields = json.loads(model.client.to_json())
    fields[field] = value
    with pytest.raises(SerializationError, match="client specification"):
        ClientSpecification.from_json(json.dumps(fields))


def test_client_specification_of_another_parameter_row_is_refused(model: CompiledModel) -> None:
    fields = json.loads(model.client.to_json())
    fields["parameter_digest"] = "0" * 64
    with pytest.raises(KeyMismatchError):
        ClientSpecification.from_json(json.dumps(fields))
