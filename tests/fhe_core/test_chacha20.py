"""ChaCha20 against RFC 8439, and the expansion of a seed against a plain-Python reading of the specification, section 9."""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import ShapeError

SEED = bytes(range(32))
PRIMES = (132710401, 134176769, 33538049)


def keystream(seed: bytes, nonce: bytes, first_block: int, blocks: int) -> bytes:
    domain, index = struct.unpack("<IQ", nonce)
    return _engine.chacha20_keystream(seed, domain, index, first_block, blocks)


# --- RFC 8439 ---------------------------------------------------------------------------------------------------------


# (section, key, nonce, block counter, block)
RFC_BLOCKS = [
    (
        "2.3.2",
        bytes(range(32)),
        "000000090000004a00000000",
        1,
        (
            "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
            "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
        ),
    ),
    (
        "A.1 test vector 1",
        bytes(32),
        "000000000000000000000000",
        0,
        (
            "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
            "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        ),
    ),
    (
        "A.1 test vector 2",
        bytes(32),
        "000000000000000000000000",
        1,
        (
            "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
            "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
        ),
    ),
    (
        "A.1 test vector 3",
        bytes(31) + b"\x01",
        "000000000000000000000000",
        1,
        (
            "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
            "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"
        ),
    ),
    (
        "A.1 test vector 5",
        bytes(32),
        "000000000000000000000002",
        0,
        (
            "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
            "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"
        ),
    ),
]


@pytest.mark.parametrize(("section", "key", "nonce", "block", "expected"), RFC_BLOCKS)
def test_block_function(section: str, key: bytes, nonce: str, block: int, expected: str) -> None:
    assert keystream(key, bytes.fromhex(nonce), block, 1).hex() == expected, section


def test_encryption_example_of_section_2_4_2() -> None:
    plaintext = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    stream = keystream(SEED, bytes.fromhex("000000000000004a00000000"), 1, 2)
    ciphertext = bytes(a ^ b for a, b in zip(plaintext, stream, strict=False))
    assert ciphertext.hex() == (
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b3571639d624e65152ab"
        "8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab77937365af90bbf74a35be6b40b8eedf2785e42"
        "874d"
    )


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130])
def test_many_blocks_equal_an_independent_implementation(blocks: int) -> None:
    rng = np.random.default_rng(blocks)
    key, nonce, first = rng.bytes(32), rng.bytes(12), int(rng.integers(2**31))
    oracle = Cipher(algorithms.ChaCha20(key, struct.pack("<I", first) + nonce), mode=None).encryptor()
    assert keystream(key, nonce, first, blocks) == oracle.update(bytes(64 * blocks))


@pytest.mark.os_entropy
@pytest.mark.parametrize("instruction_set", ["baseline", "avx2"])
def test_every_instruction_set_gives_the_same_stream(instruction_set: str) -> None:
    program = (
        "import hashlib; from cloakwork.fhe_core import _engine; "
        "print(hashlib.sha256(_engine.chacha20_keystream(bytes(range(32)), 1, 2, 3, 77)).hexdigest())"
    )
    environment = {**os.environ, "CLOAKWORK_CPU": instruction_set, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == hashlib.sha256(_engine.chacha20_keystream(SEED, 1, 2, 3, 77)).hexdigest()


def test_block_counter_wraps_modulo_two_to_the_32() -> None:
    wrapped = _engine.chacha20_keystream(SEED, 3, 4, 2**32 - 2, 4)
    assert wrapped[128:] == _engine.chacha20_keystream(SEED, 3, 4, 0, 2)


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33), bytearray(32), None, "0" * 32])
def test_seed_is_32_bytes(seed: object) -> None:
    with pytest.raises(ShapeError, match="expected 32 bytes"):
        _engine.chacha20_keystream(seed, 0, 0, 0, 1)


def test_keystream_length_is_limited_before_allocation() -> None:
    with pytest.raises(ShapeError, match="at most 1048576 blocks"):
        _engine.chacha20_keystream(SEED, 0, 0, 0, 2**40)


# --- expansion --------------------------------------------------------------------------------------------------------


def uniform_modulo_prime(seed: bytes, domain: int, index: int, q: int, count: int) -> list[int]:
    """Section 9, one coefficient at a time."""
    bound = 2**32 // q * q
    rounds: dict[int, bytes] = {}

    def word(round_: int, j: int) -> int:
        if round_ not in rounds:
            blocks = -(-count // 16)
            rounds[round_] = _engine.chacha20_keystream(seed, domain, index, round_ * 2**16, blocks)
        return struct.unpack_from("<I", rounds[round_], 4 * j)[0]

    return [next(w % q for r in range(256) if (w := word(r, j)) < bound) for j in range(count)]


def expected_words(params: _engine.ParameterSet, seed: bytes, domain: int, index: int, count: int) -> list[int]:
    r0 = uniform_modulo_prime(seed, domain, index, PRIMES[0], count)
    if (params.key_limb_count if domain == 1 else params.limb_count) == 1:
        return r0
    number = 2 if params.raised else 1
    q0, q1 = PRIMES[0], PRIMES[number]
    r1 = uniform_modulo_prime(seed, domain + 256 * number, index, q1, count)
    return [(a * q1 * pow(q1, -1, q0) + b * q0 * pow(q0, -1, q1)) % (q0 * q1) for a, b in zip(r0, r1, strict=True)]


ONE_LIMB = next(n for n in _engine.parameter_set_names() if _engine.parameter_set(n).limb_count == 1)
TWO_LIMBS = next(n for n in _engine.parameter_set_names() if _engine.parameter_set(n).limb_count == 2)


@pytest.mark.parametrize("name", [ONE_LIMB, TWO_LIMBS, "toy_raised"])
@pytest.mark.parametrize(
    ("domain", "index", "count"), [(1, 0, 4096), (3, 5, 1), (5, 2**40 + 7, 1000), (4, 2**64 - 1, 17)]
)
def test_uniform_words_follow_the_specification(name: str, domain: int, index: int, count: int) -> None:
    params = _engine.parameter_set(name)
    words = _engine.testing.expand_words(params, SEED, domain, index, count)
    assert words.tolist() == expected_words(params, SEED, domain, index, count)


def test_a_long_stream_needs_second_and_third_rounds() -> None:
    """1.1 % of the words of round 0 are rejected modulo q0, so that a few of 2^16 coefficients reach round 2."""
    q, count = PRIMES[0], 2**16
    bound = 2**32 // q * q
    rounds = [
        np.frombuffer(_engine.chacha20_keystream(SEED, 1, 9, r * 2**16, count // 16), dtype="<u4") for r in range(2)
    ]
    assert (rounds[0] >= bound).sum() > 500
    assert ((rounds[0] >= bound) & (rounds[1] >= bound)).any()
    words = _engine.testing.expand_words(_engine.parameter_set(ONE_LIMB), SEED, 1, 9, count)
    assert words.tolist() == uniform_modulo_prime(SEED, 1, 9, q, count)


@pytest.mark.parametrize("modulus_log2", [1, 12, 20, 31, 32])
@pytest.mark.parametrize("count", [1, 16, 700, 1025])
def test_words_modulo_a_power_of_two(modulus_log2: int, count: int) -> None:
    stream = np.frombuffer(_engine.chacha20_keystream(SEED, 2, 77, 0, -(-count // 16)), dtype="<u4")[:count]
    words = _engine.testing.expand_power_of_two(SEED, 2, 77, modulus_log2, count)
    assert np.array_equal(words, stream & np.uint32(2**modulus_log2 - 1))


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        (ONE_LIMB, "fe06dc11600b5b46144b86743213b3e570f64ebd3b7fbbf4bf29d82a30f97efc"),
        (TWO_LIMBS, "938209f8b725c02facbc2e634775d5f15bac6782f87d8b0559a02c385a024be3"),
    ],
)
def test_expanded_words_are_pinned(name: str, digest: str) -> None:
    """The bytes that every back end, and the browser, must reproduce: 4096 words, domain 1, index 123456789."""
    words = _engine.testing.expand_words(_engine.parameter_set(name), SEED, 1, 123456789, 4096)
    assert hashlib.sha256(words.astype(words.dtype.newbyteorder("<")).tobytes()).hexdigest() == digest


def test_power_of_two_words_are_pinned() -> None:
    words = _engine.testing.expand_power_of_two(SEED, 2, 123456789, 20, 1000)
    assert hashlib.sha256(words.astype("<u4").tobytes()).hexdigest() == (
        "36d07d0cc2ede42b3adc2671d6ea01bb23e7fd830938347f71a5d76df2d52cd8"
    )


def test_domains_and_indices_are_independent_streams() -> None:
    params = _engine.parameter_set(ONE_LIMB)
    streams = {
        _engine.testing.expand_words(params, seed, domain, index, 64).tobytes()
        for seed in (SEED, bytes(32))
        for domain in (1, 2, 3, 257)
        for index in (0, 1, 2**32)
    }
    assert len(streams) == 2 * 4 * 3
