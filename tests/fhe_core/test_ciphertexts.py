"""Arrays of ciphertexts: arithmetic on the phases, indexing, weight norms, no copies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts, concatenate
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, ShapeError

NAMES = ("lut4", "toy")  # two limbs and one


@pytest.fixture(scope="module")
def keys() -> dict[str, ClientKey]:
    return {name: ClientKey.generate(name) for name in NAMES}


@pytest.fixture(params=NAMES)
def key(request: pytest.FixtureRequest, keys: dict[str, ClientKey]) -> ClientKey:
    return keys[request.param]


# --- encryption and decryption ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (31,), (33,), (2, 3), (2, 1, 4)])
@pytest.mark.parametrize("seeded", [False, True])
def test_messages_of_any_shape(key: ClientKey, shape: tuple[int, ...], seeded: bool) -> None:
    messages = np.random.default_rng(1).integers(0, 1 << key.parameters.message_bits, shape)
    ciphertexts = key.encrypt(messages, seeded=True) if seeded else key.encrypt(messages)
    assert ciphertexts.shape == shape
    decrypted, noise = key.decrypt(ciphertexts, return_noise=True)
    np.testing.assert_array_equal(decrypted, messages)
    assert noise.shape == shape
    assert float(np.abs(noise).max()) < 10 * key.parameters.glwe_sigma / key.parameters.modulus


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("packed", [False, True])
def test_every_encoding(key: ClientKey, encoding: Encoding, packed: bool) -> None:
    generator = np.random.default_rng(2)
    values: np.ndarray = generator.integers(0, 1 << key.parameters.message_bits, 40)
    if encoding is Encoding.BOOLEAN:
        values = values % 2 == 1
    if encoding is Encoding.TORUS:
        values = generator.uniform(-0.25, 0.25, 40)
    ciphertexts = key.encrypt_packed(values, encoding=encoding) if packed else key.encrypt(values, encoding=encoding)
    assert ciphertexts.encoding is encoding
    decrypted = key.decrypt(ciphertexts)
    if encoding is Encoding.TORUS:
        np.testing.assert_allclose(decrypted, values, atol=1e-5)
    else:
        np.testing.assert_array_equal(decrypted, values)
        assert decrypted.dtype == values.dtype


@pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
def test_packing_fills_polynomials(keys: dict[str, ClientKey], count: int) -> None:
    key = keys["toy"]
    messages = np.arange(count) % 4
    packed = key.encrypt_packed(messages)
    groups = -(-count // key.parameters.polynomial_size)
    assert packed.words.shape == (groups, key.parameters.polynomial_size)
    full = packed.expand()
    assert full.words.shape == (groups, key.parameters.glwe_dimension + 1, key.parameters.polynomial_size)
    np.testing.assert_array_equal(key.decrypt(packed), messages)
    np.testing.assert_array_equal(key.decrypt(full), messages)
    np.testing.assert_array_equal(key.decrypt(key.public_key().encrypt(messages)), messages)


def test_equal_messages_give_unrelated_ciphertexts(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    words = key.encrypt(np.zeros(50, dtype=int)).words
    assert len({row.tobytes() for row in words}) == 50
    assert key.encrypt([0], seeded=True).seed != key.encrypt([0], seeded=True).seed


@pytest.mark.parametrize(("values", "position"), [([0, 4], "1"), ([-1], "0"), ([[0, 1], [2, 99]], r"\(1, 1\)")])
def test_messages_out_of_range(keys: dict[str, ClientKey], values: list[int], position: str) -> None:
    with pytest.raises(ParameterError, match=rf"integers in \[0, 4\).*position {position} is outside") as caught:
        keys["toy"].encrypt(values)
    assert "99" not in str(caught.value)  # never the plaintext


@pytest.mark.parametrize("values", [[0.3], [-0.26], [float("nan")], [float("inf")]])
def test_torus_values_out_of_range(keys: dict[str, ClientKey], values: list[float]) -> None:
    with pytest.raises(ParameterError, match="position 0 is outside"):
        keys["toy"].encrypt_torus(values)


def test_torus_values_up_to_half_on_request(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    values = [-0.49, -0.25, 0.3, 0.49]
    np.testing.assert_allclose(key.decrypt(key.encrypt_torus(values, limit=0.5)), values, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "error"),
    [([], ShapeError), ([0.5], ShapeError), (["a"], ShapeError), ([1j], ShapeError), ([2**70], ShapeError)],
)
def test_values_that_are_no_messages(keys: dict[str, ClientKey], values: list[object], error: type[Exception]) -> None:
    with pytest.raises(error):
        keys["toy"].encrypt(values)  # type: ignore[arg-type]


def test_bits_are_zero_or_one(keys: dict[str, ClientKey]) -> None:
    with pytest.raises(ParameterError, match="position 1 is neither"):
        keys["toy"].encrypt_bits([0, 2])


def test_messages_need_an_exact_set() -> None:
    with pytest.raises(ParameterError, match="'gate_64' is of kind gate and has no integer messages"):
        ClientKey.generate("gate_64").encrypt([1], encoding=Encoding.MESSAGE)


def test_noise_of_torus_values_needs_the_truth(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    ciphertexts = key.encrypt_torus([0.1, -0.2])
    with pytest.raises(ParameterError, match="pass expected="):
        key.decrypt(ciphertexts, return_noise=True)
    _, noise = key.decrypt(ciphertexts, return_noise=True, expected=[0.1, -0.2])
    assert 0 < float(np.abs(noise).max()) < 1e-5


def test_foreign_keys_are_noticed(keys: dict[str, ClientKey]) -> None:
    ciphertexts = keys["toy"].encrypt([1])
    with pytest.raises(KeyMismatchError, match="different secret keys"):
        ClientKey.generate("toy").decrypt(ciphertexts)
    with pytest.raises(KeyMismatchError, match="expected parameter set 'lut4', got 'toy'"):
        keys["lut4"].decrypt(ciphertexts)
    with pytest.raises(KeyMismatchError, match="different secret keys"):
        ciphertexts + ClientKey.generate("toy").encrypt([1])


# --- arithmetic ------------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_arithmetic_is_that_of_the_integers(keys: dict[str, ClientKey], data: st.DataObject, name: str) -> None:
    """Without padding, a p-bit message is an integer modulo 2^p."""
    key = keys[name]
    modulus = 1 << key.parameters.message_bits
    vectors = st.lists(st.integers(0, modulus - 1), min_size=3, max_size=3)
    x, y = (np.array(data.draw(vectors)) for _ in range(2))
    factor = data.draw(st.integers(-20, 20))
    constant = data.draw(st.integers(-100, 100))
    cx, cy = (key.encrypt(values, encoding=Encoding.FULL_DOMAIN) for values in (x, y))
    result = (cx + cy * factor - constant) + (2 - cx) - (-cy)
    np.testing.assert_array_equal(key.decrypt(result), (x + y * factor - constant + 2 - x + y) % modulus)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32), factor=st.integers(-(2**31) + 1, 2**31 - 1))
def test_word_arithmetic_is_exact_modulo_q(keys: dict[str, ClientKey], name: str, seed: int, factor: int) -> None:
    params = keys[name].parameters
    generator = np.random.default_rng(seed)
    size = (2, params.large_dimension + 1)
    x, y = (generator.integers(0, params.modulus, size, dtype=keys[name].encrypt(0).words.dtype) for _ in range(2))
    x[0, :3] = [0, params.modulus - 1, 1]
    y[0, :3] = [0, params.modulus - 1, params.modulus - 1]
    a, b = Ciphertexts.from_words(params, x), Ciphertexts.from_words(params, y)
    q, xi, yi = params.modulus, x.astype(object), y.astype(object)
    np.testing.assert_array_equal((a + b).words, (xi + yi) % q)
    np.testing.assert_array_equal((a - b).words, (xi - yi) % q)
    np.testing.assert_array_equal((-a).words, -xi % q)
    np.testing.assert_array_equal((a * factor).words, xi * factor % q)


def test_a_sum_that_runs_into_the_padding_shows(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    np.testing.assert_array_equal(key.decrypt(key.encrypt([3, 2]) + key.encrypt([3, 1])), [6, 3])


def test_broadcasting_and_factors_per_ciphertext(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    grid = key.encrypt([[0], [1]]) + key.encrypt([0, 1, 2])
    np.testing.assert_array_equal(key.decrypt(grid), [[0, 1, 2], [1, 2, 3]])
    np.testing.assert_array_equal(key.decrypt(key.encrypt([1, 1, 1]) * [1, 2, 3]), [1, 2, 3])
    np.testing.assert_array_equal(key.decrypt(np.array([1, 2]) + key.encrypt([1, 1])), [2, 3])
    with pytest.raises(ShapeError, match="do not broadcast"):
        key.encrypt([1, 2]) + key.encrypt([1, 2, 3])
    for operand in (np.ones(3, int), np.ones((3, 2, 3), int)):
        with pytest.raises(ShapeError, match="do not broadcast"):
            key.encrypt([1, 2]) * operand
        with pytest.raises(ShapeError, match="do not broadcast"):
            key.encrypt([1, 2]) + operand


@pytest.mark.parametrize(
    ("factor", "error"),
    [(0.5, ShapeError), ("2", ShapeError), (2**31, ParameterError), (-(2**63), ParameterError), (2**64, ShapeError)],
)
def test_factors_that_are_refused(keys: dict[str, ClientKey], factor: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        keys["toy"].encrypt([1]) * factor


def test_constants_of_the_wrong_kind(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    with pytest.raises(ShapeError, match="expected integers"):
        key.encrypt([1]) + 0.5
    with pytest.raises(ParameterError, match="bits have none"):
        key.encrypt_bits([True]) + 1
    with pytest.raises(ParameterError, match="one encoding"):
        key.encrypt([1]) + key.encrypt_bits([True])
    np.testing.assert_allclose(key.decrypt(key.encrypt_torus([0.1]) + 0.05), [0.15], atol=1e-5)


def test_weight_norms(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    a, b = key.encrypt([1, 2]), key.encrypt([1, 0])
    assert a.weight_norm == 1
    assert (a + b).weight_norm == pytest.approx(math.sqrt(2))
    assert (a * 3 - b).weight_norm == pytest.approx(math.sqrt(10))
    assert (a + a).weight_norm == 2  # the same noise twice
    assert (-a + 1).weight_norm == 1
    assert concatenate([a, a + b]).weight_norm == pytest.approx(math.sqrt(2))
    assert (a * 0).weight_norm == 0


# --- as arrays -------------------------------------------------------------------------------------------------------------------


def test_indexing_follows_numpy(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    messages = np.arange(24).reshape(2, 3, 4) % 4
    ciphertexts = key.encrypt(messages)
    for index in (
        0,
        -1,
        (1, 2),
        (slice(None), 1),
        (..., 3),
        slice(None, None, -1),
        np.array([1, 0]),
        (0, [2, 0]),
        None,
        (0, None),
    ):
        part = ciphertexts[index]
        np.testing.assert_array_equal(key.decrypt(part), messages[index])
        assert part.shape == messages[index].shape
    assert len(ciphertexts) == 2 and [part.shape for part in ciphertexts] == [(3, 4), (3, 4)]
    with pytest.raises(IndexError):
        ciphertexts[2]
    with pytest.raises(IndexError):
        ciphertexts[0, 0, 0, 0]
    with pytest.raises(TypeError, match="no length"):
        len(key.encrypt(1))


def test_reshape_and_concatenate(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    messages = np.arange(12) % 4
    ciphertexts = key.encrypt(messages)
    np.testing.assert_array_equal(key.decrypt(ciphertexts.reshape(3, -1)), messages.reshape(3, 4))
    np.testing.assert_array_equal(key.decrypt(ciphertexts.reshape((2, 6))), messages.reshape(2, 6))
    for shape in ((5, 2), (-1, 5), (-1, -1), (-3, -4), (0, -1), ()):
        with pytest.raises(ShapeError, match="do not fit shape"):
            ciphertexts.reshape(shape)
    assert ciphertexts[:0].reshape(0, 3).shape == (0, 3)
    assert ciphertexts[0].reshape(()).shape == ()
    grid = ciphertexts.reshape(3, 4)
    np.testing.assert_array_equal(
        key.decrypt(concatenate([grid, grid[:, :1]], axis=-1)),
        np.concatenate([messages.reshape(3, 4), messages.reshape(3, 4)[:, :1]], axis=1),
    )
    with pytest.raises(ShapeError, match="do not fit along axis"):
        concatenate([grid, grid[:, :1]])
    with pytest.raises(ShapeError, match="at least one"):
        concatenate([])


def test_views_share_memory_and_copies_do_not(keys: dict[str, ClientKey]) -> None:
    ciphertexts = keys["toy"].encrypt(np.arange(6) % 4)
    assert np.shares_memory(ciphertexts[1:3].words, ciphertexts.words)
    assert np.shares_memory(ciphertexts.reshape(2, 3).words, ciphertexts.words)
    assert not np.shares_memory(ciphertexts.copy().words, ciphertexts.words)


def test_dlpack_shares_memory_both_ways(keys: dict[str, ClientKey]) -> None:
    key = keys["toy"]
    ciphertexts = key.encrypt([1, 2, 3])
    array = np.from_dlpack(ciphertexts)
    assert np.shares_memory(array, ciphertexts.words)

    class Foreign:
        """An array of another library."""

        def __dlpack__(self, **options: object) -> object:
            return ciphertexts.words.__dlpack__(**options)  # type: ignore[call-overload]

        def __dlpack_device__(self) -> object:
            return ciphertexts.words.__dlpack_device__()

    back = Ciphertexts.from_words(key.parameters, Foreign(), key_id=key.key_id)
    assert np.shares_memory(back.words, ciphertexts.words)
    np.testing.assert_array_equal(key.decrypt(back), [1, 2, 3])


def test_words_that_are_refused(keys: dict[str, ClientKey]) -> None:
    params = keys["toy"].parameters
    width = params.large_dimension + 1
    with pytest.raises(ShapeError, match="__dlpack__, got list"):
        Ciphertexts.from_words(params, [[0] * width])
    for words in (np.zeros((2, width), np.uint64), np.zeros((2, width + 1), np.uint32), np.zeros((), np.uint32)):
        with pytest.raises(ShapeError, match="check which set"):
            Ciphertexts.from_words(params, words)
    with pytest.raises(ParameterError, match="below Q"):
        Ciphertexts.from_words(params, np.full((1, width), params.modulus, np.uint32))
