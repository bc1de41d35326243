"""The client in Node refuses the answers that Python's refuses, by the same numbers."""

from __future__ import annotations

import json
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set, parameter_sets, word_dtype
from cloakwork.fhe_core.session.answer_masks import most_zero_words
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.models.program.answers import grid_step, least_unit
from cloakwork.models.program.client_specification import ClientSpecification

pytestmark = pytest.mark.os_entropy
OUTPUTS = 6
SCRIPT = """
import { readFileSync } from "node:fs";
const { ClientKey, ClientSpecification, Engine, parameterSet } = await import(`${process.argv[1]}/dist/index.js`);
const { leastUnit, mostZeroWords, settled } = await import(`${process.argv[1]}/dist/answers.js`);
const { sets, zeros, keys, answers } = JSON.parse(readFileSync(0, "utf8"));
const engine = await Engine.load({ environment: { CLOAKWORK_ALLOW_TOY: "1" } });
const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));
const found = { digests: [], units: [], steps: [], zeros: zeros.map(([words, bits]) => mostZeroWords(words, bits)), answers: [] };
for (const name of sets) {
  const params = parameterSet(engine, name);
  found.digests.push(Buffer.from(params.digest).toString("hex"));
  found.units.push(leastUnit(params));
  found.steps.push([0, 12].map((bits) => settled(params, Float64Array.of(0.1234567891234567), 0, bits)[0]));
}
const open = {};
for (const name in keys) open[name] = await ClientKey.load(bytes(keys[name]), "correct horse battery staple", engine);
for (const { set, client, answer } of answers) {
  try {
    const numbers = await new ClientSpecification(client, engine).decrypt(open[set], bytes(answer));
    found.answers.push({ numbers: Array.from(numbers.data) });
  } catch (error) {
    found.answers.push({ error: error.name, message: error.message });
  }
}
console.log(JSON.stringify(found));
"""


def in_node(web: Path, asked: dict[str, Any]) -> dict[str, Any]:
    command = ["node", "--input-type=module", "-e", SCRIPT, str(web)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def client(name: str, unit: float) -> ClientSpecification:
    ones = np.ones(OUTPUTS)
    return ClientSpecification(bytes(32), name, (1,), (-1.0, 1.0), 0.125, ones, 0 * ones, output_unit=unit)


def answers_of(key: ClientKey) -> list[tuple[float, Any]]:
    """Honest ones first, then those that no evaluation gives. Units with answers."""
    params, rng = key.parameters, np.random.default_rng(5)
    honest = key.encrypt(np.array([[0.125, -0.125, 0, 0.125, 0, 0.25]]), encoding=Encoding.TORUS)
    off = key.encrypt(np.full((1, OUTPUTS), 1 / 16), encoding=Encoding.TORUS)
    result: list[tuple[float, Any]] = [(0.125, honest), (0.0, honest), (0.125, SwitchedCiphertexts.switch(honest, 14))]
    result += [(0.0, SwitchedCiphertexts.switch(honest, 14)), (0.125, off)]
    uniform = rng.integers(0, params.modulus, honest.words.shape, dtype=np.uint64).astype(word_dtype(params))
    for rows, columns in ((slice(None), slice(None, -1)), (slice(2, 3), slice(0, 100))):
        words = uniform.copy()
        words[0, rows, columns] = 0
        result.append((0.0, words))
    twins = uniform.copy()
    twins[0, 4, :-1] = twins[0, 1, :-1]
    twins[0, 4, 9] ^= 1
    result.append((0.0, twins))
    made = [
        (unit, Ciphertexts(params, each, (1, OUTPUTS), encoding=Encoding.TORUS, key_id=key.key_id))
        if isinstance(each, np.ndarray)
        else (unit, each)
        for unit, each in result
    ]
    made += [(0.0, SwitchedCiphertexts.switch(made[-1][1], 14)), (0.0, honest.with_encoding(Encoding.BOOLEAN))]
    return [(unit, each.with_purpose(bytes(32))) for unit, each in made]


def test_limits_are_those_of_python(web: Path) -> None:
    sets = [params.name for params in parameter_sets()]
    zeros = [(words, bits) for words in (256, 1024, 4096) for bits in (1, 4, 11, 16, 27, 54)]
    found = in_node(web, {"sets": sets, "zeros": zeros, "keys": {}, "answers": []})
    assert found["digests"] == [parameter_digest(parameter_set(name)).hex() for name in sets]
    assert found["zeros"] == [most_zero_words(*each) for each in zeros]
    np.testing.assert_allclose(found["units"], [least_unit(parameter_set(name)) for name in sets], rtol=1e-12)
    for name, (full, few) in zip(sets, found["steps"], strict=True):
        for value, bits in ((full, None), (few, 12)):
            step = grid_step(parameter_set(name), bits)
            assert value == np.rint(0.1234567891234567 / step) * step, name


def test_answers_are_taken_and_refused_alike(web: Path, tmp_path: Path) -> None:
    cases, keys, expected = [], {}, []
    for name in ("toy", "toy_two_limb"):
        key = ClientKey.generate(name)
        key.save(tmp_path / name, "correct horse battery staple")
        keys[name] = b64encode((tmp_path / name).read_bytes()).decode()
        for unit, answer in answers_of(key):
            one = client(name, unit)
            cases.append({"set": name, "client": one.to_json(), "answer": b64encode(answer.to_bytes()).decode()})
            try:
                expected.append({"numbers": one.decrypt(key, answer).ravel().tolist()})
            except FheError as error:
                expected.append({"error": type(error).__name__, "message": str(error)})
    found = in_node(web, {"sets": [], "zeros": [], "keys": keys, "answers": cases})["answers"]
    assert [each.get("error") for each in found] == [each.get("error") for each in expected]
    assert [each.get("error") for each in expected] == 2 * [
        *4 * [None],
        "KeyMismatchError",
        *4 * ["SerializationError"],
        "KeyMismatchError",
    ]
    for one, other in zip(found, expected, strict=True):
        assert one.get("numbers") == other.get("numbers")
        assert "error" not in one or one["error"] == "KeyMismatchError" or one["message"] == other["message"]
