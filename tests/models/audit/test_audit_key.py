"""Seeds of answers: a function of everything an answer depends on, and of a key that nothing tells."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mask_attack import FIRST_PRIME, integer_weights

from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.models.audit.audit_key import AuditKey, Transcript, load_audit_key, own_audit_key
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.runtime import Runtime

KEY = AuditKey(bytes(range(32)))
TRANSCRIPT = Transcript(b"p" * 32, b"k" * 32, b"r" * 32)


def words(last: int = 3) -> Ciphertexts:
    params = parameter_set("toy")
    rows = np.arange(2 * params.large_words, dtype=np.uint32).reshape(2, -1)
    rows[-1, -1] = last
    return Ciphertexts.from_words(params, rows)


def test_the_seed_is_pinned() -> None:
    """An answer is made again by later releases too: HMAC-SHA-256(key, label || program || keys || request || SHA-256 of the words)."""
    assert KEY.seed(TRANSCRIPT, words()).hex() == "44c1749d431917576dab9df168824b65a2fa78e77fe0cb9b6a6d948b4be6839d"
    assert KEY.id == "af42dfd95d67405c"


def test_everything_that_an_answer_depends_on_changes_the_seed() -> None:
    seeds = {KEY.seed(replace(TRANSCRIPT, **{name: b"x" * 32}), words()) for name in vars(TRANSCRIPT)}
    seeds |= {
        KEY.seed(TRANSCRIPT, words()),
        KEY.seed(TRANSCRIPT, words(4)),
        AuditKey(bytes(32)).seed(TRANSCRIPT, words()),
    }
    swapped = Transcript(TRANSCRIPT.keys, TRANSCRIPT.program, TRANSCRIPT.request)
    seeds.add(KEY.seed(swapped, words()))
    assert len(seeds) == 7 and {len(seed) for seed in seeds} == {32}


def test_the_key_is_in_no_text() -> None:
    secret = AuditKey(b"0123456789abcdef0123456789ABCDEF")
    for text in (repr(secret), str(secret), secret.id):
        assert "0123456789abcdef" not in text and secret.secret.hex() not in text
    for wrong in (b"", b"x" * 31, b"x" * 33):
        with pytest.raises(ParameterError) as caught:
            AuditKey(wrong)
        assert "xxx" not in str(caught.value)


def test_a_folder_has_one_key_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    first = own_audit_key(path)
    assert own_audit_key(path) == first == load_audit_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert own_audit_key(tmp_path / "other.key") != first


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33, b"x" * 1_000_000])
def test_other_files_are_refused_and_stay(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "audit.key"
    path.write_bytes(content)
    with pytest.raises(ParameterError, match="expected 32 bytes"):
        own_audit_key(path)
    assert path.read_bytes() == content
    with pytest.raises(ParameterError, match="cannot be read"):
        load_audit_key(tmp_path / "missing")
    with pytest.raises(ParameterError, match="cannot be read"):
        load_audit_key(tmp_path)


# --- what a client can do with seeded answers ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def regression() -> CompiledModel:
    rng = np.random.default_rng(12)
    model = LinearModel(rng.normal(size=(1, 7)), rng.normal(size=1), "sigmoid", labels=np.array(["no", "yes"]))
    return compile_linear(model, rng.uniform(-1, 1, (200, 7)), sets="toy_two_limb")


def test_masks_of_seeded_answers_tell_nothing(regression: CompiledModel) -> None:
    """One answer, and the differences of answers to several requests, through the attack that finds the weights in words before."""
    key = ClientKey._from_entropy(regression.program.parameters, bytes(range(32)))
    session = Session(key.evaluation_keys())
    runtime = Runtime(regression.program, session)
    x = np.random.default_rng(13).uniform(-1, 1, (2, 7))
    packed = [regression.client.encrypt(key, row[None]) for row in x]
    inputs = [session.extract(each)[0] for each in packed]
    plain = [runtime.run(each)[0] for each in packed]
    transcripts = [Transcript(regression.program.digest, b"k" * 32, bytes([i]) * 32) for i in range(2)]
    answers = []
    for each, transcript in zip(packed, transcripts, strict=True):
        answer = runtime.answer(each, seed=lambda found, of=transcript: KEY.seed(of, found))
        answers.append((answer.expand() if isinstance(answer, SwitchedCiphertexts) else answer)[0])
    weights = regression.program.graph.linears[0].weights[0, 0]
    np.testing.assert_array_equal(integer_weights(inputs[0], plain[0][0]), weights)
    assert all(integer_weights(inputs[i], answers[i][0]) is None for i in range(2))
    # With one seed for both the zeros would cancel: the difference of masks would be that of the words before.
    same = [session.rerandomise(each, bytes(32)) for each in plain]
    assert (difference(*same) == difference(*plain)).all()
    own = [session.rerandomise(each, KEY.seed(of, each)) for each, of in zip(plain, transcripts, strict=True)]
    assert (difference(*own) == difference(*plain)).mean() < 0.01


def difference(first: Ciphertexts, second: Ciphertexts) -> np.ndarray:
    """Of masks, modulo q0."""
    masks = [each.words[..., :-1].astype(np.int64) % FIRST_PRIME for each in (first, second)]
    return (masks[0] - masks[1]) % FIRST_PRIME


def test_seeded_zeros_do_not_depend_on_threads_or_the_size_of_the_batch() -> None:
    key = ClientKey.generate("toy_two_limb").public_key()
    seed = bytes(range(7, 39))
    many = key.zeros(600, 1, seed)
    for count, threads in ((600, 2), (600, 7), (599, 3), (1, 1), (15, 2), (16, 2), (17, 1), (257, 4)):
        np.testing.assert_array_equal(key.zeros(count, threads, seed), many[:count])
    assert len({row.tobytes() for row in many}) == 600
    for wrong in (b"", bytes(31), bytes(33), "x" * 32, bytearray(32)):
        with pytest.raises(ShapeError, match="randomness"):
            key.zeros(1, 1, wrong)  # type: ignore[arg-type]
