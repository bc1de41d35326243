"""Files of strangers: client specifications, programs and calibrations with seeded mutations.

Reading ends in one of the documented errors, or gives an object that works: that encrypts, decrypts, reports and predicts, or refuses input
with an error of the tree.
"""

from __future__ import annotations

import hashlib
import json
import random
import resource
import struct
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import several_tensors as tensors
from json_mutations import mutated
from onnx_models import mlp

import cloakwork as cw
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.calibration import Calibration
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble

TOY = parameter_set("toy_two_limb")
CALIBRATION = np.random.default_rng(5).uniform(-1, 1, (50, 3))
LOADING = (SerializationError, KeyMismatchError)
MOST_BYTES = 1 << 28  # that reading a few kilobytes may take for a moment


def network() -> CompiledModel:
    return cw.compile(mlp(np.random.default_rng(2), [3, 3, 2]), CALIBRATION, sets=[TOY], allow_loss=True)


def exact() -> CompiledModel:
    options: dict[str, Any] = {"precision": "exact_64", "weight_bits": 2, "input_bits": 2, "activation_bits": 2}
    return cw.compile(mlp(np.random.default_rng(2), [3, 2, 2]), CALIBRATION, sets=[TOY], accuracy=0, **options)


def linear() -> CompiledModel:
    rng = np.random.default_rng(3)
    labels = np.array(["a", "b", "c"])
    found = LinearModel(
        rng.normal(size=(3, 3)), rng.normal(size=3), "softmax", labels=labels, feature_names=("u", "v", "w")
    )
    return compile_linear(found, CALIBRATION, sets=TOY)


def several() -> CompiledModel:
    """Two inputs, two outputs, a function and a softmax by the client."""
    rng = np.random.default_rng(4)
    x = tensors.samples(rng, 60)
    proto = tensors.image_and_table(rng)
    return cw.compile(proto, x, precision=4.0, weight_bits=3, accuracy=0, sets=[TOY])


def tree(comparisons: Any) -> CompiledModel:
    columns = (
        [0, 1, 0, 0, 0],
        [0.5, -0.25, 0, 0, 0],
        [1, 3, -1, -1, -1],
        [2, 4, -1, -1, -1],
        [[0], [0], [9], [2], [5]],
    )
    ensemble = TreeEnsemble((Tree.of_nodes(*columns),), features=3, feature_names=("u", "v", "w"))
    grid = {"samples": CALIBRATION, "grid": {"u": [0.5, 0.7]}} if comparisons != "client" else {}
    return compile_ensemble(ensemble, sets=[TOY], thresholds=comparisons, **grid)


MODELS: dict[str, Callable[[], CompiledModel]] = {
    "network": network,
    "exact": exact,
    "several": several,
    "linear": linear,
    "tree": lambda: tree("client"),
    "positions": lambda: tree("server"),
    "grid": lambda: tree("grid"),
}
# A network and trees on the server have most of what a file may hold.
NAMES = [
    pytest.param(name, marks=() if name in ("network", "positions") else pytest.mark.tier("all")) for name in MODELS
]
# Client's steps that the models above do not have.
STEPS: list[dict[str, Any]] = [
    {
        "step": "Categories",
        "count": 3,
        "columns": [0],
        "known": [["red", "green"]],
        "unseen": "ignore",
        "names": None,
        "missing": True,
    },
    {"step": "Impute", "fill": [0.0, 1.0, 2.0]},
    {"step": "Complete", "names": ["u"], "columns": [0]},
    {"step": "Normalise", "norm": "l2"},
    {"step": "OneHot", "sizes": [2, 0, 0]},
    {"step": "Select", "columns": [1, 2, 3]},
    {"step": "Round"},
    {
        "step": "Bins",
        "feature": [0, 0],
        "start": [0, 2, 4],
        "threshold": [0.25, 0.5, 0.25, 0.5],
        "digit": [0, 1],
        "radix": 2,
        "strict": False,
        "single": False,
    },
]


@pytest.fixture(scope="module")
def key() -> ClientKey:
    return ClientKey._from_entropy(TOY, bytes(range(32)))


def used(specification: ClientSpecification, key: ClientKey) -> None:
    """Encrypts and decrypts; the client's own input may be refused by an error of the tree."""
    shape = specification.input_shape
    for x in (
        np.zeros((2, 3)),
        np.zeros((2, *shape)),
        np.full((1, *shape), 1e308),
        np.array([["red", 1.0, 2.0]], dtype=object),
        {"image": np.zeros((2, 1, 4, 4)), "table": np.zeros((2, 3))},
        (np.zeros((2, 1, 4, 4)), np.full((2, 3), 1e308)),
    ):
        try:
            specification.encrypt(key, x)
        except FheError:
            continue
    fitting = np.full((2, specification.output_scale.size), 0.1)
    for values in (fitting, np.zeros((1, 7)), -np.ones((3, 1, 2)) / 4):
        result = key.encrypt(values, encoding=Encoding.TORUS)
        for stage in ("scores", "probabilities", "labels"):
            try:
                specification.decrypt(key, result, output=stage)  # type: ignore[arg-type]
            except FheError:
                continue


@pytest.fixture(autouse=True)
def _bounded() -> Any:
    """Numbers of a made-up file may overflow on their way to a result; memory may not be asked for without bound."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_BYTES


@pytest.mark.parametrize("name", MODELS)
def test_client_specifications(name: str, key: ClientKey) -> None:
    rng, accepted = random.Random(20260101), 0
    fields = json.loads(MODELS[name]().client.to_json())
    ClientSpecification.from_json(json.dumps(fields))
    for i in range(500):
        made = mutated(fields, rng)
        if name == "linear" and i % 2 and isinstance(made.get("input_steps"), list):
            made["input_steps"][:1] = mutated(STEPS, rng)
        try:
            specification = ClientSpecification.from_json(json.dumps(made))
        except LOADING:
            continue
        accepted += 1
        used(specification, key)
    assert 10 < accepted < 450  # both sides of the reader were reached


@pytest.mark.parametrize("name", NAMES)
def test_programs(name: str, key: ClientKey) -> None:
    rng, accepted = random.Random(20260102), 0
    header, arrays = taken_apart(program_to_bytes(MODELS[name]().program))
    for i in range(500):
        made = mutated(header, rng)
        data = bytearray(arrays)
        if i % 4 == 0:
            for _ in range(rng.randrange(1, 9)):
                data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
            made = made if i % 8 else header
        try:
            program = program_from_bytes(put_together(made, bytes(data)))
        except LOADING:
            continue
        accepted += 1
        model = CompiledModel(program)
        if i % 3 == 0:
            used(model.client, key)
        assert ClientSpecification.from_json(model.client.to_json()).input_shape == model.client.input_shape
        str(model), model.details
        for x in (
            np.zeros((2, *model.client.input_shape)),
            CALIBRATION[:2],
            tensors.samples(np.random.default_rng(0), 2),
        ):
            try:
                model.predict(x)
            except FheError:
                continue
    assert 10 < accepted < 450


def test_calibrations() -> None:
    rng, accepted = random.Random(20260103), 0
    fields = json.loads(calibrate(mlp(np.random.default_rng(2), [3, 3, 2]), CALIBRATION).to_json())
    proto = mlp(np.random.default_rng(2), [3, 3, 2])
    for i in range(1000):
        try:
            found = Calibration.from_json(json.dumps(mutated(fields, rng)))
        except SerializationError:
            continue
        accepted += 1
        if i % 10 == 0:
            try:
                cw.compile(proto, found, sets=[TOY])
            except FheError:
                continue
    assert 10 < accepted < 900


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        "null",
        '"a"',
        "[" * 100_000,
        '{"cloakwork_client": ' * 5000,
        "\x00",
        "{}",
        "NaN",
        "1" * 10_000,
    ],
)
def test_texts_that_are_no_specification(text: str) -> None:
    for read in (ClientSpecification.from_json, Calibration.from_json):
        with pytest.raises(SerializationError):
            read(text)
        with pytest.raises(SerializationError):
            read(text.encode() + b"\xff")  # type: ignore[arg-type]
    with pytest.raises(SerializationError):
        program_from_bytes(put_together(text, b""))


_PLAIN = {"strict": False, "single": False}


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"step": "OneHot", "sizes": [10**12, 0, 0]}, "columns of categories"),
        ({"step": "OneHot", "sizes": [2**52] * 3}, "columns of categories"),
        ({"step": "Standardise", "offset": [[0.0]] * 4000, "scale": [[1.0] * 4000]}, "each column"),
        ({"step": "Bins", "feature": [0], "start": [0, 1], "threshold": [0.5], "digit": [2**50], "radix": 2**50} | _PLAIN, "digits"),
        ({"step": "Positions", "feature": [0], "count": [2**40], "low": [0.0], "spacing": [1.0], "points": [], "bits": 1, "missing": False} | _PLAIN,
         "points"),
        ({"step": "Positions", "feature": [0], "count": [3], "low": [0.0], "spacing": [1.0], "points": [], "bits": 2**40, "missing": False} | _PLAIN,
         "digits"),
    ],
)  # fmt: skip
def test_little_text_cannot_ask_for_much(step: dict[str, Any], says: str) -> None:
    fields = json.loads(linear().client.to_json())
    fields["input_steps"].insert(1, step)
    with pytest.raises(SerializationError, match=says):
        ClientSpecification.from_json(json.dumps(fields))


def test_arrays_of_a_program_are_read_once() -> None:
    """Thousands of nodes that name the same bytes would take as many copies of them."""
    header, arrays = taken_apart(program_to_bytes(network().program))
    header["nodes"] += [header["nodes"][-1]] * 1000
    with pytest.raises(SerializationError, match="into another"):
        program_from_bytes(put_together(header, arrays))


def taken_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack_from("<Q", data, 8)
    return json.loads(data[16 : 16 + length]), data[16 + length : -32]


def put_together(header: Any, arrays: bytes) -> bytes:
    text = header if isinstance(header, str) else json.dumps(header)
    body = data_prefix(len(text.encode("utf-8", "surrogatepass"))) + text.encode("utf-8", "surrogatepass") + arrays
    return body + hashlib.sha256(body).digest()


def data_prefix(length: int) -> bytes:
    return struct.pack("<4sHHQ", b"CLKM", 1, 0, length)
