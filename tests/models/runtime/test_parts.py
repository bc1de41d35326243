"""Several requests of one key in one evaluation: each has, byte for byte, the answer that it would have alone."""

from __future__ import annotations

import hashlib
import itertools
from functools import partial

import numpy as np
import pytest
from cases import in_tiers
from odd_programs import ODD, program

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import CancelledError, KeyMismatchError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.audit.audit_key import AuditKey, Transcript
from cloakwork.models.errors import ShapeError
from cloakwork.models.program import Program
from cloakwork.models.runtime import Runtime

ROWS = (1, 3, 1, 2)  # of each part: none fills a packed ciphertext
SETS = ("toy", "toy_two_limb", "toy_fft", "toy_lanes")
DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))
COMPUTING = [name for name in ODD if name != "outputs_are_inputs"]  # which has no answer: nothing is computed for it
AUDIT_KEY = AuditKey(bytes(range(32)))


def encrypted(key: ClientKey, made: Program) -> list[SeededPackedCiphertexts]:
    random, shape = np.random.default_rng(5), (made.graph.input.size, *lane_axis(key.parameters))
    values = [random.uniform(-0.2, 0.2, (rows, *shape)) for rows in ROWS]
    return [key.encrypt_packed(each, encoding=Encoding.TORUS).with_purpose(made.digest) for each in values]


def seed(x: SeededPackedCiphertexts) -> partial[bytes]:
    return partial(AUDIT_KEY.seed, Transcript(b"program", b"keys", hashlib.sha256(x.to_bytes()).digest()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "set_name"),
    in_tiers(
        itertools.product(COMPUTING, SETS),
        quick=[*((name, "toy") for name in COMPUTING), *(("several_readers", name) for name in SETS)],
    ),
)
def test_bytes_are_those_of_each_alone(name: str, set_name: str, device: str) -> None:
    params = parameter_set(set_name)
    key, made = ClientKey.generate(params), program(name, params)
    runtime = Runtime(made, Session(key.evaluation_keys(), device=device))
    parts = encrypted(key, made)
    seeds = [seed(x) for x in parts]
    alone = [runtime.answer(x, seed=own).to_bytes() for x, own in zip(parts, seeds, strict=True)]
    assert [answer.to_bytes() for answer in runtime.answer_parts(parts, seeds=seeds)] == alone
    mixed = [x.expand() if i % 2 else x for i, x in enumerate(parts)]  # seeds are a shorter way to write the same
    assert [answer.to_bytes() for answer in runtime.answer_parts(mixed, seeds=seeds)] == alone
    assert [answer.to_bytes() for answer in runtime.answer_parts(parts[::-1], seeds=seeds[::-1])] == alone[::-1]
    assert [words.to_bytes() for words in runtime.run_parts(parts)] == [runtime.run(x).to_bytes() for x in parts]


def test_progress_is_that_of_all_and_cancels_all() -> None:
    params = parameter_set("toy")
    key, made = ClientKey.generate(params), program("several_readers", params)
    runtime, parts = Runtime(made, Session(key.evaluation_keys())), encrypted(key, made)
    calls: list[tuple[int, int]] = []
    runtime.run_parts(parts, lambda done, total: calls.append((done, total)))
    assert calls[-1] == (sum(ROWS) * made.bootstraps,) * 2
    with pytest.raises(CancelledError):
        runtime.run_parts(parts, lambda done, total: False)


def test_what_does_not_belong_is_refused_before_anything_is_computed() -> None:
    params = parameter_set("toy")
    key, other, made = ClientKey.generate(params), ClientKey.generate(params), program("windows", params)
    runtime, (part, *_) = Runtime(made, Session(key.evaluation_keys())), encrypted(key, made)
    calls: list[tuple[int, int]] = []
    narrow = key.encrypt_packed(np.zeros((1, 3)), encoding=Encoding.TORUS).with_purpose(made.digest)
    wrong = {
        "belong to different secret keys": encrypted(other, made)[0],
        "expected packed ciphertexts of shape": narrow,
        "input:": part.with_purpose(bytes(32)),
    }
    for text, x in wrong.items():
        with pytest.raises((KeyMismatchError, ShapeError), match=text):
            runtime.run_parts([part, x], lambda done, total: calls.append((done, total)))
    assert calls == []
