"""Weight norms of what a user combines: equal words have one noise, whatever memory they lie in; different ones are independent."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloakwork.fhe_core.arrays import noise_terms
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts, concatenate, total_norm
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.server import Session

TORUS = Encoding.TORUS


@pytest.fixture(scope="module")
def session(key: ClientKey) -> Session:
    return Session(key.evaluation_keys())


def fresh(key: ClientKey, *shape: int) -> Ciphertexts:
    return key.encrypt(np.zeros(shape), encoding=TORUS)


def again(x: Ciphertexts) -> Ciphertexts:
    """The same words in other memory, of which nothing is known but the words."""
    return Ciphertexts.from_words(x.parameters, x.words.copy(), encoding=x.encoding, key_id=x.key_id)


# --- sums ------------------------------------------------------------------------------------------------------------------------


def test_equal_words_are_found_wherever_they_lie(key: ClientKey, tmp_path: Path) -> None:
    a, b = fresh(key, 5), fresh(key, 5)
    a.save(tmp_path / "a")
    for twin in (a.copy(), again(a), Ciphertexts.load(tmp_path / "a"), Ciphertexts.from_bytes(a.to_bytes()), a + 0.1):
        assert (a + twin).weight_norm == 2
        assert (a - twin).weight_norm == 0
        assert (again(-a) + twin).weight_norm == 0
        assert (a * 3 - twin).weight_norm == 2
        assert (a + b + twin + again(b)).weight_norm == pytest.approx(math.sqrt(8))
        assert total_norm(a, twin, b) == pytest.approx(math.sqrt(5))
    assert (a + again(b)).weight_norm == pytest.approx(math.sqrt(2))
    assert (Ciphertexts.load(tmp_path / "a") + Ciphertexts.load(tmp_path / "a")).weight_norm == 2


def test_equal_look_ups_are_found(key: ClientKey, session: Session) -> None:
    x = key.encrypt([0, 1, 2])
    y, twin, other = (session.bootstrap(x, table) for table in ([0, 1, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]))
    assert (y + twin).weight_norm == 2
    assert (y - twin).weight_norm == 0
    assert (y + other).weight_norm == pytest.approx(math.sqrt(2))
    # A table turned by one entry, at an argument turned with it, is the same rotation.
    turned = session.bootstrap((x + 1).with_message_bound(0, 3), [0, 0, 1, 0])
    assert bool((y.words == turned.words).all()) and (y + turned).weight_norm == 2
    shifted = session.bootstrap(x.with_message_bound(0, 2), [0, 0, 1, 0], shifts=[0, 1])
    assert (shifted[:, 0] + shifted[:, 1]).weight_norm == pytest.approx(math.sqrt(2))
    # Another coefficient of a turned table: the same words where the decomposition commutes with the sign.
    same = (y.words == shifted[:, 1].words).all(axis=-1)
    norms = [(y + shifted[:, 1])[i].weight_norm for i in range(3)]
    np.testing.assert_allclose(norms, np.where(same, 2, math.sqrt(2)))


def test_opposite_tables_are_opposite_where_the_words_are(session: Session, key: ClientKey) -> None:
    """With one level and two limbs the decomposition commutes with the sign, so that -f is f negated; elsewhere the two are unrelated."""
    x = key.encrypt_torus([0.1, -0.1])
    plus = session.bootstrap_negacyclic(x, lambda t: 0.125 + 0 * t)
    minus = session.bootstrap_negacyclic(x, lambda t: -0.125 + 0 * t)
    opposite = bool((plus.words == (-minus).words).all())
    assert opposite == (key.parameters.limb_count == 2 and key.parameters.mask_gadget[1] == 1)
    assert (plus + minus).weight_norm == (0 if opposite else pytest.approx(math.sqrt(2)))


def test_every_ciphertext_of_an_array_has_a_norm_of_its_own(key: ClientKey) -> None:
    a, b = fresh(key, 4), fresh(key, 4)
    crossed = a + concatenate([again(a[:1]), b[1:]])
    assert crossed.weight_norm == 2
    assert crossed[1:].weight_norm == pytest.approx(math.sqrt(2))
    assert (a[:, None] + a[None, :]).weight_norm == 2  # the diagonal
    assert (a[:-1] + a[1:]).weight_norm == pytest.approx(math.sqrt(2))
    assert concatenate([a + b, a * 3]).weight_norm == 3
    assert concatenate([a + b, a * 3])[:4].weight_norm == pytest.approx(math.sqrt(2))
    assert (a + b).reshape(2, 2)[0].weight_norm == pytest.approx(math.sqrt(2))
    assert ((a + b) + (a + b).reshape(2, 2).reshape(4)).weight_norm == pytest.approx(math.sqrt(8))
    assert (a + b + a[::-1]).weight_norm == pytest.approx(math.sqrt(3))
    assert (a * [1, 2, 3, 0]).weight_norm == 3
    assert (fresh(key)[None] + fresh(key)).weight_norm == pytest.approx(math.sqrt(2))


def test_ciphertexts_without_masks_have_no_noise(key: ClientKey) -> None:
    a = fresh(key, 3)
    zero = again(a * 0)
    assert (zero + again(zero)).weight_norm == 0
    assert (a + zero + 0.1).weight_norm == 1
    sparse = np.zeros((2, a.words.shape[-1]), a.words.dtype)
    sparse[:, 9] = [5, 6]  # made by hand: not trivial, and not the same
    x = Ciphertexts.from_words(key.parameters, sparse, encoding=TORUS)
    assert (x[0] + x[1]).weight_norm == pytest.approx(math.sqrt(2))
    assert (x + again(x)).weight_norm == 2


def test_sums_from_files_may_share_noise_with_anything(key: ClientKey) -> None:
    a, b, c = fresh(key, 2), fresh(key, 2), fresh(key, 2)
    loaded = Ciphertexts.from_bytes((a + b).to_bytes())
    assert loaded.weight_norm == pytest.approx(math.sqrt(2))
    assert (loaded + a).weight_norm == pytest.approx(math.sqrt(2) + 1)
    assert (loaded + a + c).weight_norm == pytest.approx(2 * math.sqrt(2))
    assert (loaded + Ciphertexts.from_bytes((a + b).to_bytes())).weight_norm == pytest.approx(2 * math.sqrt(2))
    assert (loaded - Ciphertexts.from_bytes((a + b).to_bytes())).weight_norm == 0
    assert (loaded + Ciphertexts.from_bytes((a + c).to_bytes())).weight_norm == pytest.approx(2 * math.sqrt(2))


def test_records_stay_smaller_than_the_words(key: ClientKey) -> None:
    """Beyond that a sum counts as one source, whose noise may be that of whatever it is added to."""
    x = fresh(key, 400, 1)
    total = x[0]
    for i in range(1, 300):
        total = total + x[i]
    assert total.weight_norm >= math.sqrt(300)
    terms = total.noise.terms
    assert sum(array.nbytes for array in (terms.sources, terms.factors)) <= total.nbytes
    assert (total + x[350]).weight_norm > total.weight_norm
    assert (total + x[0]).weight_norm >= math.sqrt(299 + 4)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), count=st.integers(1, 5))
def test_norms_are_those_of_the_integer_combination(data: st.DataObject, count: int) -> None:
    """Any order of +, -, * and copies of a few sources."""
    key = _toy_key()
    sources = fresh(key, count)
    totals = np.zeros(count, dtype=np.int64)
    x = sources[0] * 0
    for _ in range(data.draw(st.integers(1, 12))):
        which, factor = data.draw(st.integers(0, count - 1)), data.draw(st.integers(-3, 3))
        source = again(sources[which]) if data.draw(st.booleans()) else sources[which]
        if data.draw(st.booleans()):
            x, totals = -x, -totals
        x = x + source * factor
        totals[which] += factor
    assert x.weight_norm == pytest.approx(float(np.linalg.norm(totals)), abs=1e-9)
    assert not totals.any() or x.weight_norm > 0


_KEYS: list[ClientKey] = []


def _toy_key() -> ClientKey:
    if not _KEYS:
        _KEYS.append(ClientKey.generate("toy"))
    return _KEYS[0]


# --- linear layers ---------------------------------------------------------------------------------------------------------------


def test_weights_of_equal_columns_are_added(key: ClientKey, session: Session) -> None:
    x = fresh(key, 3)
    weights = np.array([[1, 2, 3], [3, -1, 0]])
    assert session.linear(weights, x).weight_norm == pytest.approx(math.sqrt(14))
    gathered = x[[0, 1, 0]]
    assert session.linear(weights, gathered).weight_norm == pytest.approx(math.sqrt(20))
    assert session.linear(weights, again(gathered)).weight_norm == pytest.approx(math.sqrt(20))
    mixed = concatenate([x[:2], again(-x[:1])])
    assert session.linear(weights, mixed).weight_norm == pytest.approx(math.sqrt(10))
    prepared = session.weights(weights)
    assert session.linear(prepared, mixed).weight_norm == pytest.approx(math.sqrt(10))
    batch = concatenate([x[None], gathered[None], mixed[None]])  # another pattern in every sample
    outputs = session.linear(weights, batch)
    assert outputs.weight_norm == pytest.approx(math.sqrt(20))
    norms = [[math.sqrt(14), math.sqrt(10)], [math.sqrt(20), math.sqrt(10)], [math.sqrt(8), math.sqrt(10)]]
    for i, j in np.ndindex(3, 2):
        assert outputs[i, j].weight_norm == pytest.approx(norms[i][j])
    assert (outputs[0, 0] - session.linear(weights, x)[0]).weight_norm == 0
    assert (outputs[0, 0] + x[0]).weight_norm == pytest.approx(math.sqrt(17))


def test_linear_layers_of_equal_look_ups(key: ClientKey, session: Session) -> None:
    x = key.encrypt(np.full(8, 1))[[0] * 8]
    y = session.bootstrap(x, [0, 1, 0, 0])
    assert session.linear(np.ones((1, 8), int), y).weight_norm == 8


def test_packed_values_have_the_sources_of_their_extraction(key: ClientKey, session: Session) -> None:
    size = key.parameters.polynomial_size
    packed = key.encrypt_packed(np.zeros((2, size + 3)), encoding=TORUS)
    weights = np.random.default_rng(1).integers(-3, 4, (2, size + 3))
    by_hand, at_once = session.linear(weights, session.extract(packed)), session.linear_packed(weights, packed)
    heads = noise_terms.packed_leading_words(key.parameters, packed.expand().words)
    extracted = session.extract(packed).words.reshape(-1, by_hand.words.shape[-1])
    np.testing.assert_array_equal(heads[: len(extracted)], extracted[:, : noise_terms.MASK_WORDS])
    assert at_once.weight_norm == by_hand.weight_norm == pytest.approx(np.sqrt((weights**2).sum(axis=1).max()))
    small, few = key.encrypt_packed(np.zeros((2, 3)), encoding=TORUS), weights[:, :3]
    assert (session.linear(few, session.extract(small)) - session.linear_packed(few, small)).weight_norm == 0


def test_packed_ciphertexts_that_are_equal(key: ClientKey, session: Session) -> None:
    """The same GLWE ciphertext twice, as a file may hold it."""
    size = key.parameters.polynomial_size
    packed = key.encrypt_packed(np.zeros(2 * size), encoding=TORUS).expand()
    packed.words[1] = packed.words[0]
    weights = np.zeros((1, 2 * size), int)
    weights[0, [7, size + 7]] = 1
    assert session.linear_packed(weights, packed).weight_norm == 2


# --- look-ups --------------------------------------------------------------------------------------------------------------------


def test_look_ups_refuse_sums_of_equal_ciphertexts(key: ClientKey, session: Session) -> None:
    count = math.floor(key.parameters.max_weight_norm) + 1
    parts = [key.encrypt([0]) for _ in range(count)]
    independent, equal = parts[0], parts[0]
    for part in parts[1:]:
        independent, equal = independent + part, equal + again(parts[0]).with_encoding(Encoding.MESSAGE)
    session.bootstrap(independent.with_message_bound(0, 0), lambda m: m)
    with pytest.raises(ParameterError, match=f"got {count}; .*equal ciphertexts have one noise"):
        session.bootstrap(equal.with_message_bound(0, 0), lambda m: m)


def test_full_domain_look_ups_know_what_they_add(key: ClientKey, session: Session) -> None:
    x = key.encrypt([0, 1, 3], encoding=Encoding.FULL_DOMAIN)
    y = session.bootstrap_full_domain(x, [1, 2, 3, 0])
    twin = session.bootstrap_full_domain(x, [1, 2, 3, 0])
    assert (y + twin).weight_norm == 2
    np.testing.assert_array_equal(key.decrypt(y), [1, 2, 0])


def test_models_never_ask_for_terms(key: ClientKey, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that are wrapped, weighted, shifted and looked up with allow_noise cost no fingerprint."""

    def refuse(*_: object) -> None:
        raise AssertionError("fingerprints were made")

    monkeypatch.setattr(noise_terms, "leading_words", refuse)
    x = again(fresh(key, 2, 3))
    y = session.linear([[1, 2, 3]], x) + 0.01
    session.activation(y, lambda t: t, allow_noise=True)
    session.activation(x, lambda t: t)
