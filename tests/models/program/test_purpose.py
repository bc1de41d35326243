"""Inputs and results say which program they are for: what belongs to another model of the same set and shapes is refused, not computed with."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts, load_results
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.facts import Facts
from cloakwork.models.runtime import Runtime
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from tests.models.trees.tree_models import random_tree

RNG = np.random.default_rng(8)
X = RNG.uniform(-1, 1, (40, 3))


def linear(weights: list[list[float]]) -> CompiledModel:
    """Equal set, shapes and scales: only weights differ."""
    return compile_linear(LinearModel(np.array(weights), np.zeros(len(weights))), X)


@pytest.fixture(scope="module")
def models() -> tuple[CompiledModel, CompiledModel]:
    return linear([[1.0, -1.0, 0.5], [0.25, 1.0, 1.0]]), linear([[-1.0, 1.0, 0.5], [0.25, 1.0, 1.0]])


@pytest.fixture(scope="module")
def key(models: tuple[CompiledModel, CompiledModel]) -> ClientKey:
    return ClientKey.generate(models[0].program.parameters)


@pytest.fixture(scope="module")
def runtimes(models: tuple[CompiledModel, CompiledModel], key: ClientKey) -> list[Runtime]:
    session = Session(key.evaluation_keys())
    return [Runtime(model.program, session) for model in models]


def test_an_input_runs_on_its_own_model_alone(
    models: tuple[CompiledModel, CompiledModel], key: ClientKey, runtimes: list[Runtime]
) -> None:
    first, second = models
    encrypted = SeededPackedCiphertexts.from_bytes(first.client.encrypt(key, X[:2]).to_bytes())
    with pytest.raises(
        KeyMismatchError, match="input: expected ciphertexts for program .*, another model; encrypt with"
    ):
        runtimes[1].answer(encrypted)
    for unsaid in (encrypted.with_purpose(None), key.encrypt_packed(np.zeros((2, 3)), encoding=Encoding.TORUS)):
        with pytest.raises(KeyMismatchError, match="do not say which program .* earlier release"):
            runtimes[0].run(unsaid)
    result = load_results(runtimes[0].answer(encrypted).to_bytes())
    assert result.purpose == first.program.digest == runtimes[0].run(encrypted.expand()).purpose
    np.testing.assert_array_equal(first.client.decrypt(key, result), first.predict(X[:2]))
    with pytest.raises(KeyMismatchError, match="result: .*another model; decrypt it with the client specification"):
        second.client.decrypt(key, result)
    with pytest.raises(KeyMismatchError, match="do not say"):
        first.client.decrypt(key, result.with_purpose(None))


def test_answers_in_few_bits_say_their_program_too(models: tuple[CompiledModel, CompiledModel]) -> None:
    trees = compile_ensemble(
        TreeEnsemble((random_tree(RNG, 3, 2, 1, 5),), 3, "mean"),
        sets=["toy_two_limb"],
        p_fail_log2=-30.0,
        thresholds="client",
    )
    own, x = ClientKey.generate(trees.program.parameters), RNG.integers(0, 5, (2, 3)) / 2
    answer = Runtime(trees.program, Session(own.evaluation_keys())).answer(trees.client.encrypt(own, x))
    assert isinstance(answer, SwitchedCiphertexts) and answer.purpose == trees.program.digest
    read = load_results(answer.to_bytes())
    for result in (answer, read):
        np.testing.assert_array_equal(trees.client.decrypt(own, result), trees.predict(x))
        with pytest.raises(KeyMismatchError, match="result: .*another model"):
            replace(trees.client, program=models[0].program.digest).decrypt(own, result)
        with pytest.raises(KeyMismatchError, match="do not say"):
            trees.client.decrypt(own, result.with_purpose(None))


def test_the_digest_is_that_of_the_file(models: tuple[CompiledModel, CompiledModel], tmp_path: Path) -> None:
    first, second = models
    first.save(tmp_path / "first.clkm")
    data = (tmp_path / "first.clkm").read_bytes()
    loaded = CompiledModel.load(tmp_path / "first.clkm")
    assert first.program.digest == data[-32:] == loaded.program.digest != second.program.digest
    assert first.report()["program_digest"] == data[-32:].hex() == json.loads(loaded.client.to_json())["program_digest"]
    assert replace(loaded.program, facts=Facts(others={"another": 1})).digest != loaded.program.digest
    assert ClientSpecification.from_json(loaded.client.to_json()).program == data[-32:]


def test_a_file_of_another_release_keeps_the_digest_that_it_has(models: tuple[CompiledModel, CompiledModel]) -> None:
    """A field that this release would write and that file lacks does not change its name."""
    data = program_to_bytes(models[0].program)
    length = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + length])
    del header["layer_noise"]
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = data[:8] + len(text).to_bytes(8, "little") + text + data[16 + length : -32]
    old = body + hashlib.sha256(body).digest()
    program = program_from_bytes(old)
    assert program.digest == old[-32:] != data[-32:]
    assert program_to_bytes(program) == old and program_to_bytes(replace(program, facts=Facts()))[-32:] != old[-32:]
    assert ClientSpecification.of(program).program == old[-32:]


def test_specifications_of_the_first_version_say_what_to_do(models: tuple[CompiledModel, CompiledModel]) -> None:
    fields = json.loads(models[0].client.to_json())
    fields["cloakwork_client"] = 1
    del fields["program_digest"]
    with pytest.raises(SerializationError, match="version 2 .* of version 1.*cloakwork inspect --client"):
        ClientSpecification.from_json(json.dumps(fields))
