"""Sessions: every way to bootstrap, the linear layer, the stages, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from emulation import batch_of, some_of

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import (
    CancelledError,
    DeviceError,
    FheError,
    KeyMismatchError,
    OutOfDeviceMemory,
    ParameterError,
    PrecisionOverflowError,
    ShapeError,
)
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.session.lookup_tables import LookupTables

ALL = pytest.mark.tier("all")
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, keys: EvaluationKeys) -> Iterator[Session]:
    yield Session(keys, device=request.param)


# --- exact look-ups --------------------------------------------------------------------------------------------------------------


def test_activation_at_several_coefficients(key: ClientKey, session: Session) -> None:
    size = session.parameters.table_size
    x, coefficients = np.array([-0.2, -0.05, 0.1]), np.array([0, size // 8, size // 2])
    outputs = session.activation(key.encrypt_torus(x), lambda v: v, coefficients=coefficients)
    moved = x[:, None] + coefficients / (2 * size)
    expected = np.where(moved < 0.25, moved, -(moved - 0.5))
    assert outputs.shape == (3, 3)
    np.testing.assert_allclose(key.decrypt(outputs), expected, atol=0.05)
    for bad in ([size], [-1], [[0]], [0.5], []):
        with pytest.raises((ParameterError, ShapeError), match="coefficients"):
            session.activation(key.encrypt_torus(x), lambda v: v, coefficients=bad)


@pytest.mark.parametrize("batch", [1, 33, *(pytest.param(batch, marks=ALL) for batch in (31, 32, 100))])
def test_one_table_for_all(key: ClientKey, session: Session, batch: int) -> None:
    messages = np.random.default_rng(batch).integers(0, 4, batch)
    outputs, noise = key.decrypt(session.bootstrap(key.encrypt(messages), [3, 1, 0, 2]), return_noise=True)
    np.testing.assert_array_equal(outputs, np.array([3, 1, 0, 2])[messages])
    assert float(np.abs(noise).max()) < 1 / 32


@pytest.mark.parametrize(
    "table", [lambda m: m * m % 4, [0, 1, 0, 1], np.array([0, 1, 0, 1]), ([0, 1, 0, 1],), [[0, 1, 0, 1]]]
)
def test_forms_of_one_table(key: ClientKey, session: Session, table: object) -> None:
    outputs = key.decrypt(session.bootstrap(key.encrypt([0, 1, 2, 3]), table))  # type: ignore[arg-type]
    np.testing.assert_array_equal(outputs, [0, 1, 0, 1])


def test_all_functions_of_two_bits(key: ClientKey, session: Session) -> None:
    """All 256 functions, one per ciphertext, on each message."""
    tables = some_of(session, np.array(list(itertools.product(range(4), repeat=4))), 15)
    for message in range(4):
        outputs = session.bootstrap(key.encrypt(np.full(len(tables), message)), tables)
        np.testing.assert_array_equal(key.decrypt(outputs), tables[:, message])


def test_tables_per_ciphertext_and_by_index(key: ClientKey, session: Session) -> None:
    generator = np.random.default_rng(3)
    messages = generator.integers(0, 4, (2, 5))
    tables = generator.integers(0, 4, (2, 5, 4))
    expected = np.take_along_axis(tables, messages[..., None], axis=-1)[..., 0]
    ciphertexts = key.encrypt(messages)
    np.testing.assert_array_equal(key.decrypt(session.bootstrap(ciphertexts, tables)), expected)
    index = generator.integers(0, 3, 5)
    functions = [lambda m: 3 - m, [1, 1, 2, 2], np.array([0, 3, 0, 3])]
    rows = np.array([[3, 2, 1, 0], [1, 1, 2, 2], [0, 3, 0, 3]])
    outputs = session.bootstrap(ciphertexts, functions, table_index=index)
    np.testing.assert_array_equal(key.decrypt(outputs), rows[index, messages])


def test_prepared_tables(key: ClientKey, session: Session) -> None:
    tables = LookupTables.of_messages(key.parameters, [[0, 0, 1, 1], [2, 2, 3, 3]])
    assert len(tables) == 2
    outputs = session.bootstrap(key.encrypt([0, 3]), tables, table_index=[1, 0])
    np.testing.assert_array_equal(key.decrypt(outputs), [2, 1])


def test_several_outputs_of_one_rotation(key: ClientKey, session: Session) -> None:
    """f(m + s), and beyond the last message the negated f(m + s - 4): as a word modulo 8, 8 - f."""
    table = np.array([1, 2, 3, 0])
    messages, shifts = np.array([[0, 1], [2, 3]]), np.array([0, 1, 3])
    inputs = key.encrypt(messages)
    with pytest.raises(PrecisionOverflowError, match=r"may lie in \[0, 3\] plus shifts of up to 3"):
        session.bootstrap(inputs, table, shifts=shifts)
    outputs = session.bootstrap(inputs.with_message_bound(0, 0), table, shifts=shifts)
    assert outputs.shape == (2, 2, 3)
    total = messages[..., None] + shifts
    expected = np.where(total < 4, table[total % 4], -table[total % 4] % 8)
    np.testing.assert_array_equal(key.decrypt(outputs), expected)


def test_bootstraps_of_sums_and_chains(key: ClientKey, session: Session) -> None:
    a, b = key.encrypt([0, 1, 1, 2]), key.encrypt([1, 1, 2, 1])
    total = session.bootstrap((a + b).with_message_bound(1, 3), lambda m: m)
    assert total.weight_norm == 1
    for _ in range(3):
        total = session.bootstrap(total, lambda m: (m + 1) % 4)
    np.testing.assert_array_equal(key.decrypt(total), [0, 1, 2, 2])


def test_half_domain(key: ClientKey, session: Session) -> None:
    """f(m + 2) = -f(m) on the whole torus, one bootstrap."""
    ciphertexts = key.encrypt([0, 1, 2, 3], encoding=Encoding.FULL_DOMAIN)
    outputs = session.bootstrap_negacyclic(ciphertexts, [1, 3])
    np.testing.assert_array_equal(key.decrypt(outputs), [1, 3, 3, 1])


def test_sign(key: ClientKey, session: Session) -> None:
    values = np.array([-0.4, -0.2, -0.1, 0.1, 0.2, 0.4])
    outputs = session.bootstrap_negacyclic(key.encrypt_torus(values, limit=0.5), lambda x: 0.125 + 0 * x)
    np.testing.assert_allclose(key.decrypt(outputs), np.sign(values) / 8, atol=0.02)


def test_full_domain(key: ClientKey, session: Session) -> None:
    """Every function of two bits on every message, without padding, and its output as either encoding."""
    tables = some_of(session, np.array(list(itertools.product(range(4), repeat=4))), 15)
    messages = np.arange(len(tables)) % 4
    ciphertexts = key.encrypt(messages, encoding=Encoding.FULL_DOMAIN)
    expected = np.take_along_axis(tables, messages[:, None], axis=1)[:, 0]
    outputs = session.bootstrap_full_domain(ciphertexts, tables)
    assert outputs.encoding is Encoding.FULL_DOMAIN
    np.testing.assert_array_equal(key.decrypt(outputs), expected)
    padded = session.bootstrap_full_domain(ciphertexts, tables, output=Encoding.MESSAGE)
    assert padded.encoding is Encoding.MESSAGE
    np.testing.assert_array_equal(key.decrypt(padded), expected)


def test_full_domain_wraps_around(key: ClientKey, session: Session) -> None:
    a = key.encrypt([3, 2, 1], encoding=Encoding.FULL_DOMAIN)
    outputs = session.bootstrap_full_domain(a + a[::-1] + 3, lambda m: m)
    np.testing.assert_array_equal(key.decrypt(outputs), [3, 3, 3])


def test_activation(key: ClientKey, session: Session) -> None:
    values = np.linspace(-0.24, 0.24, 50)
    outputs = session.activation(key.encrypt_torus(values), lambda x: np.maximum(x, 0))
    np.testing.assert_allclose(key.decrypt(outputs), np.maximum(values, 0), atol=0.02)
    both = session.activation(key.encrypt_torus(values), [np.square, lambda x: -x], table_index=np.arange(50) % 2)
    np.testing.assert_allclose(key.decrypt(both), np.where(np.arange(50) % 2, -values, values**2), atol=0.02)


# --- linear layer, packing -------------------------------------------------------------------------------------------------------


def test_linear(key: ClientKey, session: Session) -> None:
    generator = np.random.default_rng(4)
    weights = generator.integers(-3, 4, (5, 7))
    messages = generator.integers(0, 4, (2, 3, 7))
    outputs = session.linear(weights, key.encrypt(messages, encoding=Encoding.FULL_DOMAIN))
    assert outputs.shape == (2, 3, 5)
    np.testing.assert_array_equal(key.decrypt(outputs), messages @ weights.T % 4)
    assert outputs.weight_norm == pytest.approx(np.sqrt((weights**2).sum(axis=1).max()))
    assert session.linear(weights, key.encrypt(messages[0, 0])).shape == (5,)


def test_linear_agrees_with_ciphertext_arithmetic(key: ClientKey, session: Session) -> None:
    ciphertexts = key.encrypt([1, 2, 3])
    by_matrix = session.linear([[2, -1, 3]], ciphertexts)
    by_hand = ciphertexts[0] * 2 - ciphertexts[1] + ciphertexts[2] * 3
    np.testing.assert_array_equal(by_matrix.words[0], by_hand.words)


@pytest.mark.parametrize("set_name", ["toy", "toy_two_limb"])
@pytest.mark.parametrize("threads", [1, 3])
def test_linear_packed_gives_the_words_of_linear(set_name: str, threads: int) -> None:
    """Samples that end inside a GLWE ciphertext, fill it, and reach over two."""
    key = ClientKey.generate(set_name)
    session = Session(key.evaluation_keys(), threads=threads)
    size = key.parameters.polynomial_size
    for samples, columns in ((1, 1), (3, 10), (2, size), (5, size - 3), (2, 2 * size + 5)):
        rng = np.random.default_rng(columns)
        packed = key.encrypt_packed(rng.uniform(-0.2, 0.2, (samples, columns)), encoding=Encoding.TORUS).expand()
        weights = rng.integers(-(1 << 20), 1 << 20, (4, columns))
        expected = session.linear(weights, session.extract(packed))
        product = session.linear_packed(weights, packed)
        assert np.array_equal(product.words, expected.words)
        assert product.weight_norm == expected.weight_norm


def test_linear_packed_refuses_other_shapes(key: ClientKey, session: Session) -> None:
    packed = key.encrypt_packed(np.zeros((2, 3)), encoding=Encoding.TORUS).expand()
    with pytest.raises(ShapeError, match=r"\[.., 4\]"):
        session.linear_packed(np.ones((2, 4), dtype=np.int64), packed)
    with pytest.raises(ShapeError, match="quantise"):
        session.linear_packed(np.ones((2, 3)), packed)


@pytest.mark.parametrize("count", [1, 256, 300])
def test_extraction_from_packed(key: ClientKey, session: Session, count: int) -> None:
    messages = np.arange(count).reshape(-1, 1) % 4
    for packed in (key.encrypt_packed(messages).expand(), key.public_key().encrypt(messages)):
        ciphertexts = session.extract(packed)
        assert ciphertexts.shape == (count, 1)
        np.testing.assert_array_equal(key.decrypt(ciphertexts), messages)
        assert key.decrypt(session.bootstrap(ciphertexts[:4], lambda m: 3 - m)).tolist() == (3 - messages[:4]).tolist()


@pytest.mark.parametrize("columns", [[0], [3, 255, 256, 599], [599], list(range(600))])
def test_extraction_of_some_columns(key: ClientKey, session: Session, columns: list[int]) -> None:
    """The words of all of them: several samples in a ciphertext, several ciphertexts in a sample."""
    packed = key.encrypt_packed(np.arange(1800).reshape(3, 600) % 4).with_purpose(bytes(32))
    every, some = session.extract(packed), session.extract_columns(packed, columns)
    np.testing.assert_array_equal(some.words, every.words[:, columns])
    assert some.shape == (3, len(columns)) and some.purpose == every.purpose
    np.testing.assert_array_equal(key.decrypt(some), np.arange(1800).reshape(3, 600)[:, columns] % 4)


@pytest.mark.parametrize("columns", [[], [-1], [600], [2, 1], [1, 1], [[1]], [0.5]])
def test_columns_that_do_not_exist(key: ClientKey, session: Session, columns: list[int]) -> None:
    with pytest.raises(ShapeError, match="columns: expected"):
        session.extract_columns(key.encrypt_packed(np.zeros((1, 600), dtype=np.int64)), columns)


# --- stages ----------------------------------------------------------------------------------------------------------------------


def test_the_stages_make_the_bootstrap(key: ClientKey, session: Session) -> None:
    ciphertexts = key.encrypt([[0, 1], [2, 3]])
    tables = LookupTables.of_messages(key.parameters, [1, 2, 3, 0])
    small = session.keyswitch(ciphertexts)
    switched = session.modulus_switch(small)
    glwe = session.blind_rotate(switched, tables)
    nu = key.parameters.extension_factor
    parts = () if nu == 1 else (nu,)
    staged = session.sample_extract(glwe)[..., 0]
    assert small.shape == switched.shape == (2, 2, key.parameters.lwe_dimension + 1)
    assert glwe.shape == (2, 2, *parts, key.parameters.glwe_dimension + 1, key.parameters.polynomial_size)
    staged = staged if nu == 1 else staged[..., 0]
    np.testing.assert_array_equal(staged.words, session.bootstrap(ciphertexts, tables).words)


def test_the_stages_are_the_reference(key: ClientKey, keys: EvaluationKeys, session: Session) -> None:
    params, reference = key.parameters, _engine.reference
    ciphertexts = key.encrypt([0, 3])
    tables = LookupTables.of_messages(params, [1, 2, 3, 0])
    keyswitch_key = reference.expand_keyswitch_key(params, keys.seed, keys.keyswitch_bodies)
    bootstrap_key = reference.expand_bootstrap_key(params, keys.seed, keys.bootstrap_bodies)
    switched = reference.modulus_switch(params, reference.keyswitch(params, keyswitch_key, ciphertexts.words))
    glwe = reference.blind_rotate(params, bootstrap_key, switched, tables.polynomials, np.zeros(2, np.uint32))
    first = glwe if params.extension_factor == 1 else np.ascontiguousarray(glwe[:, 0])
    words = reference.sample_extract(params, first, np.zeros(1, np.uint32))[:, 0]
    np.testing.assert_array_equal(session.bootstrap(ciphertexts, tables).words, words)


def test_same_inputs_same_words(key: ClientKey, keys: EvaluationKeys) -> None:
    ciphertexts = key.encrypt(np.arange(40) % 4)
    first = Session(keys).bootstrap(ciphertexts, [1, 2, 3, 0])
    second = Session(EvaluationKeys.from_bytes(keys.to_bytes()), threads=2).bootstrap(ciphertexts, [1, 2, 3, 0])
    np.testing.assert_array_equal(first.words, second.words)


# --- refusals --------------------------------------------------------------------------------------------------------------------


def test_noise_above_the_limit(key: ClientKey, session: Session) -> None:
    ciphertexts = key.encrypt([0, 1])
    largest = int(key.parameters.max_weight_norm)
    small, large = ((ciphertexts * factor).with_message_bound(0, 3) for factor in (largest, largest + 1))
    session.bootstrap(small, lambda m: m)
    with pytest.raises(ParameterError, match=r"weight norm of at most .*pass allow_noise=True"):
        session.bootstrap(large, lambda m: m)
    session.bootstrap(large, lambda m: m, allow_noise=True)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ([0, 1, 2], ShapeError, "expected 4 entries"),
        ([0, 1, 2, 3, 0], ShapeError, "expected 4 entries"),
        ([], ShapeError, "expected 4 entries"),
        (3, ShapeError, "expected 4 entries"),
        ([0.0, 1.0, 2.0, 3.0], ShapeError, "expected integers"),
        ([[0, 1, 2, 3], [0, 1]], ShapeError, "different lengths"),
        ([0, 1, 2, 4], ParameterError, r"entries in \[0, 4\).*position 3"),
        (lambda m: m - 1, ParameterError, r"position \(0, 0\)"),
        ([[0, 1, 2, 3]] * 2, ShapeError, "pass table_index"),
    ],
)
def test_bad_tables(key: ClientKey, session: Session, table: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        session.bootstrap(key.encrypt([0, 1, 2]), table)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([0, 1, 2], ParameterError, r"in \[0, 2\).*position 2"),
        ([0, -1, 0], ParameterError, "position 1"),
        ([0, 1], ShapeError, "does not broadcast"),
        ([0.0, 1.0, 0.0], ShapeError, "expected integers"),
    ],
)
def test_bad_table_indices(
    key: ClientKey, session: Session, index: list[int], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        session.bootstrap(key.encrypt([0, 1, 2]), [[0, 1, 2, 3]] * 2, table_index=index)


@pytest.mark.parametrize(
    ("shifts", "error"),
    [([4], ParameterError), ([-1], ParameterError), ([0.5], ShapeError), ([], ShapeError), ([[0]], ShapeError)],
)
def test_bad_shifts(key: ClientKey, session: Session, shifts: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        session.bootstrap(key.encrypt([0]), lambda m: m, shifts=shifts)  # type: ignore[arg-type]


def test_batch_of_zero(key: ClientKey, session: Session) -> None:
    empty = key.encrypt([0, 1])[:0]
    with pytest.raises(ShapeError, match="at least one"):
        session.bootstrap(empty, lambda m: m)
    with pytest.raises(ShapeError, match="at least one"):
        session.linear([[1, 2]], key.encrypt([[0, 1]])[:0])
    with pytest.raises(ShapeError, match="at least one"):
        key.decrypt(empty)


def test_foreign_keys_and_sets(key: ClientKey, session: Session) -> None:
    with pytest.raises(KeyMismatchError, match="different secret keys"):
        session.bootstrap(ClientKey.generate(key.parameters.name).encrypt([0]), lambda m: m)
    with pytest.raises(KeyMismatchError, match=f"expected parameter set '{key.parameters.name}', got 'lut4'"):
        session.bootstrap(ClientKey.generate("lut4").encrypt([0]), lambda m: m)
    with pytest.raises(ParameterError, match="build it for this set"):
        session.bootstrap(
            key.encrypt([0]), LookupTables.of_messages(ClientKey.generate("lut4").parameters, lambda m: m)
        )


def test_wrong_forms(key: ClientKey, session: Session) -> None:
    seeded = key.encrypt([0], seeded=True)
    with pytest.raises(ShapeError, match="expand seeded ones"):
        session.linear([[1]], seeded)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="expected ciphertexts of encoding message, got torus"):
        session.bootstrap(key.encrypt_torus([0.1]), lambda m: m)
    with pytest.raises(ParameterError, match="expected ciphertexts of encoding torus, got message"):
        session.activation(key.encrypt([0]), np.square)
    with pytest.raises(ParameterError, match="expected ciphertexts of encoding full_domain"):
        session.bootstrap_full_domain(key.encrypt([0]), lambda m: m)


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        ([[0.5, 1.0]], ShapeError),
        ([1, 2], ShapeError),
        ([[1, 2, 3]], ShapeError),
        ([[2**31, 0]], ParameterError),
        (np.zeros((0, 2), int), ShapeError),
    ],
)
def test_bad_weights(key: ClientKey, session: Session, weights: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        session.linear(weights, key.encrypt([0, 1]))  # type: ignore[arg-type]


@pytest.mark.parametrize("function", [lambda x: x + 1, lambda x: x * np.nan, lambda x: x[:3], lambda x: 1j * x])
def test_bad_activations(key: ClientKey, session: Session, function: object) -> None:
    with pytest.raises(FheError):
        session.activation(key.encrypt_torus([0.1]), function)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["gpu", "cpu:1", "cuda:x", "", "CPU"])
def test_unknown_devices(keys: EvaluationKeys, device: str) -> None:
    with pytest.raises(DeviceError, match="expected 'cpu', 'cuda', 'cuda:N' or 'cuda:N,M,..'"):
        keys.expand(device)


@pytest.mark.skipif(hasattr(_engine, "CudaKey"), reason="a build without CUDA runs it")
def test_a_build_without_cuda_says_what_to_do(keys: EvaluationKeys) -> None:
    with pytest.raises(DeviceError, match=r"no CUDA back end; install nvcc .* or use device='cpu'"):
        Session(keys, device="cuda")


def test_a_key_is_expanded_for_one_device(keys: EvaluationKeys) -> None:
    with pytest.raises(DeviceError, match="expanded for 'cpu', not 'cuda'"):
        Session(keys.expand("cpu"), device="cuda")


@pytest.mark.parametrize("threads", [0, -1, 10**6])
def test_bad_thread_counts(keys: EvaluationKeys, threads: int) -> None:
    with pytest.raises(ParameterError, match="threads"):
        Session(keys, threads=threads)


def test_memory_that_does_not_suffice(key: ClientKey, session: Session) -> None:
    ciphertexts = key.encrypt([0])
    words = np.broadcast_to(ciphertexts.words, (10**13, ciphertexts.words.shape[-1]))
    many = Ciphertexts(key.parameters, words, words.shape[:-1], key_id=key.key_id)
    with pytest.raises(OutOfDeviceMemory, match="use smaller batches"):
        session.bootstrap(many, [0, 1, 2, 3])
    with pytest.raises(OutOfDeviceMemory, match="use smaller batches"):
        session.linear([[1]], many.reshape(-1, 1))


# --- progress --------------------------------------------------------------------------------------------------------------------


def test_progress_is_reported_and_cancels(key: ClientKey, keys: EvaluationKeys, session: Session) -> None:
    ciphertexts = key.encrypt(np.arange(batch_of(300, emulated=20)) % 4)
    calls: list[tuple[int, int]] = []
    session.bootstrap(ciphertexts, lambda m: m, progress=lambda done, total: calls.append((done, total)))
    assert calls and calls[-1][0] == calls[-1][1]
    assert all(earlier[0] <= later[0] for earlier, later in itertools.pairwise(calls))
    with pytest.raises(CancelledError):
        session.bootstrap(ciphertexts, lambda m: m, progress=lambda done, total: False)
    with pytest.raises(CancelledError):
        key.evaluation_keys(progress=lambda done, total: False)
    with pytest.raises(CancelledError):
        keys.expand(progress=lambda done, total: False)


def test_an_exception_in_progress_comes_through(key: ClientKey, session: Session) -> None:
    def fail(done: int, total: int) -> bool:
        raise ValueError("from the callback")

    with pytest.raises(ValueError, match="from the callback"):
        session.bootstrap(key.encrypt(np.arange(batch_of(300, emulated=20)) % 4), lambda m: m, progress=fail)


# --- a shipped set, end to end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lut4", pytest.param("lut4_fft", marks=ALL)])
def test_four_bits_end_to_end(name: str) -> None:
    key = ClientKey.generate(name)
    session = Session(EvaluationKeys.from_bytes(key.evaluation_keys().to_bytes()), threads=2)
    messages = np.arange(16)
    fresh = key.encrypt(messages, seeded=True)
    loaded = type(fresh).from_bytes(fresh.to_bytes()).expand()
    outputs, noise = key.decrypt(session.bootstrap(loaded, lambda m: m * m % 16), return_noise=True)
    np.testing.assert_array_equal(outputs, messages**2 % 16)
    assert float(np.abs(noise).max()) < 2.0**-9
    sums = session.bootstrap(Ciphertexts.from_bytes(loaded.to_bytes()) + 3 - 3, lambda m: 15 - m)
    np.testing.assert_array_equal(key.decrypt(sums), 15 - messages)
    full = session.bootstrap_full_domain(
        key.encrypt(messages, encoding=Encoding.FULL_DOMAIN), lambda m: (7 * m + 3) % 16
    )
    np.testing.assert_array_equal(key.decrypt(full), (7 * messages + 3) % 16)
