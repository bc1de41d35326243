"""Measures the noise of every stage on the real engine and compares it with fhe_core/noise.py.

    CLOAKWORK_ALLOW_TOY=1 python fhe_core/tools/measure_noise.py gate_64 lut4   # a Markdown table; without names, every shipped set

Keys, messages and noise follow from the set's name, so the numbers repeat exactly. Errors are centred differences of torus words, as fractions of the torus.

`tests/noise` measures with the same laboratory and stores the numbers (tests/noise/measure.py). A change of the laboratory makes the stored numbers stale.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine, noise
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.lanes import lane_axis

Errors = NDArray[np.float64]
Rotations = tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]  # the words of the engine, and the words that their phases should be
ROTATIONS = 32  # blind rotations; each gives N noise samples
SWITCHES = 4096  # keyswitches
# Polynomials encrypted under a public key, times the parties' number squared: of a binary key, a sixth of the variance lies in one pair of
# frequencies each, of the sum of three, over a third.
PUBLIC = 64


@dataclass(frozen=True)
class Stage:
    """The errors of one stage, as the engine makes them: no number of the model is in them."""

    name: str
    errors: Errors


def model(params: ParameterSet, stage: str) -> tuple[float, float]:
    """The variance and the mean that the model expects of a stage."""
    encryption = noise.fresh_variance if params.party_count == 1 else noise.public_key_variance
    norm = float(np.linalg.norm(integer_weights(params.max_weight_norm)))
    expected = {
        "fresh": (encryption(params), 0.0),
        "public key": (noise.public_key_variance(params), 0.0),
        "keyswitch": (noise.keyswitch_variance(params), noise.keyswitch_offset(params)),
        "modulus switch": (noise.modulus_switch_variance(params), 0.0),
        "blind rotation": (noise.blind_rotation_variance(params), 0.0),
        "look-up": (noise.lookup_variance(params, norm), noise.keyswitch_offset(params)),
    }
    return expected[stage]


def ratio(params: ParameterSet, stage: Stage) -> float:
    """The measured standard deviation (about the model's mean) over the model's."""
    variance, mean = model(params, stage.name)
    return math.sqrt(float(np.mean((stage.errors - mean) ** 2)) / variance)


def centred(difference: NDArray[np.generic], modulus: int) -> Errors:
    """Words modulo `modulus` as fractions of the torus in [-1/2, 1/2)."""
    values = difference.astype(object) if modulus > 2**50 else difference.astype(np.int64)
    return (((values + modulus // 2) % modulus - modulus // 2) / modulus).astype(np.float64)


def subtract(a: NDArray[np.uint64], b: NDArray[np.uint64]) -> NDArray[np.int64]:
    return a.astype(np.int64) - b.astype(np.int64)


class JointSecret:
    """The keys of all parties of a set, which nobody else has in one place. Phases of a joint ciphertext are sums: each party takes its part of the
    mask off the body. Encryption is that under the joint public key, as there is no other."""

    def __init__(self, params: ParameterSet, entropy: bytes) -> None:
        self.params, self.entropy, self.encryptions = params, entropy, 0
        self.parties = [_engine.PartyKey.generate(params, index, entropy) for index in range(params.party_count)]
        self.public_seed, self.keyswitch_seed = (hashlib.sha256(what + entropy).digest() for what in (b"public", b"keyswitch"))
        shares = [party.public_share(self.public_seed) for party in self.parties]
        self.public_bodies: NDArray[np.uint64] = np.add.reduce(shares) % np.uint64(params.modulus)  # a few words of 54 bits

    def public_key(self) -> tuple[bytes, NDArray[np.uint64]]:
        return self.public_seed, self.public_bodies

    def evaluation_keys(self) -> tuple[bytes, NDArray[np.unsignedinteger], NDArray[np.uint32]]:
        bootstrap = np.concatenate([party.bootstrap_share(self.public_seed, self.public_bodies) for party in self.parties])
        keyswitch = np.add.reduce([party.keyswitch_share(self.keyswitch_seed) for party in self.parties], dtype=np.uint32)
        return self.keyswitch_seed, bootstrap, keyswitch & np.uint32(2**self.params.keyswitch_modulus_log2 - 1)

    def encrypt_lwe(self, messages: NDArray[np.uint64]) -> NDArray[np.unsignedinteger]:
        """Coefficient 0 of an encryption of each."""
        constants = np.zeros((len(messages), self.params.polynomial_size), np.uint64)
        constants[:, 0] = messages
        self.encryptions += 1
        randomness = hashlib.sha256(b"encryption %d " % self.encryptions + self.entropy).digest()
        glwe = _engine.public_encrypt_glwe(self.params, self.public_seed, self.public_bodies, constants, randomness)
        masks, negated = glwe[:, :-1], (np.uint64(self.params.modulus) - glwe[:, :-1, :0:-1]) % np.uint64(self.params.modulus)
        lwe = np.concatenate([masks[:, :, :1], negated], axis=2).reshape(len(messages), -1)
        return np.concatenate([lwe, glwe[:, -1, :1]], axis=1)

    def _joint(self, phases: list[NDArray[np.unsignedinteger]], bodies: NDArray[np.unsignedinteger], modulus: int) -> NDArray[np.unsignedinteger]:
        total = bodies.astype(np.uint64)
        for phase in phases:
            total = (total + (modulus - (bodies + (modulus - phase.astype(np.uint64))) % modulus)) % modulus
        return total

    def phase_lwe(self, lwe: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        return self._joint([party.phase_lwe(lwe) for party in self.parties], lwe[:, -1], self.params.modulus)

    def phase_glwe(self, glwe: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        return self._joint([party.phase_glwe(glwe) for party in self.parties], glwe[:, -1], self.params.modulus)

    def phase_small(self, small: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        parts, modulus = [party.phase_small(small) for party in self.parties], 2**self.params.keyswitch_modulus_log2
        return self._joint(parts, small[:, -1].astype(np.uint64), modulus).astype(np.uint32)

    def export(self) -> bytes:
        """The small keys one after the other, and the sum of the ring keys."""
        n, start = self.params.party_dimension, 32  # after the noise key
        secrets = [np.frombuffer(party.export(), np.int8) for party in self.parties]
        rings = np.sum([secret[start + n :] for secret in secrets], axis=0, dtype=np.int8)
        return np.concatenate([*(secret[start : start + n] for secret in secrets), rings]).tobytes()


class Laboratory:
    """Keys of one set from fixed entropy, and the stages measured one by one."""

    def __init__(self, name: str) -> None:
        self.params: ParameterSet = _engine.parameter_set(name)
        self.random = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
        self.lanes = lane_axis(self.params)
        self.public_encryptions = 0
        self.take_key(hashlib.sha256(f"noise of {name}".encode()).digest())

    def take_key(self, entropy: bytes) -> None:
        """Makes the key that follows from the entropy, and works with it from now on."""
        kind = _engine.SecretKey.generate if self.params.party_count == 1 else JointSecret
        self.secret = kind(self.params, entropy)
        self.session = _engine.CpuSession(_engine.CpuKey(self.params, *self.secret.evaluation_keys()), threads=1)
        small = np.frombuffer(self.secret.export(), dtype=np.int8)[: self.params.lane_count * self.params.lwe_dimension]
        self.small_keys = small.reshape(-1, self.params.lwe_dimension).astype(np.int64)  # [r, n]

    def public_randomness(self) -> bytes:
        """A seed for what is encrypted under the public key, another one in each call."""
        self.public_encryptions += 1
        return hashlib.sha256(f"public encryption {self.public_encryptions} of {self.params.name}".encode()).digest()

    def torus_words(self, *shape: int) -> NDArray[np.uint64]:
        return self.random.integers(0, self.params.modulus, shape, dtype=np.uint64)

    def tables(self, words: NDArray[np.uint64]) -> NDArray[np.uint32] | NDArray[np.uint64]:
        return words.astype(np.uint32) if self.params.limb_count == 1 else words

    def switched_phase(self, switched: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Phases modulo 2 nu N of modulus-switched ciphertexts, [B] or [B, r]."""
        words, n = switched.astype(np.int64), self.params.lwe_dimension
        phases = (words[:, n:] - words[:, :n] @ self.small_keys.T) % (2 * self.params.table_size)
        return phases.reshape(-1, *self.lanes)

    # Stages

    def fresh(self) -> Stage:
        messages = self.torus_words(SWITCHES, *self.lanes)
        errors = centred(subtract(self.secret.phase_lwe(self.secret.encrypt_lwe(messages)), messages), self.params.modulus)
        return Stage("fresh", errors)

    def public_key(self) -> Stage:
        messages = self.torus_words(PUBLIC * self.params.party_count**2, *self.lanes, self.params.polynomial_size)
        seed, bodies = self.secret.public_key()
        phases = self.secret.phase_glwe(_engine.public_encrypt_glwe(self.params, seed, bodies, messages, self.public_randomness()))
        return Stage("public key", centred(subtract(phases, messages).ravel(), self.params.modulus))

    def keyswitch(self) -> Stage:
        lwe = self.secret.encrypt_lwe(self.torus_words(SWITCHES, *self.lanes))
        small = self.secret.phase_small(self.session.keyswitch(lwe)) / 2.0**self.params.keyswitch_modulus_log2
        before = self.secret.phase_lwe(lwe) / self.params.modulus
        errors = (small - before + 0.5) % 1.0 - 0.5
        return Stage("keyswitch", errors)

    def modulus_switch(self) -> Stage:
        w = self.params.keyswitch_modulus_log2
        small = self.random.integers(0, 2**w, (SWITCHES, self.params.small_words), dtype=np.uint32)
        after = self.switched_phase(self.session.modulus_switch(small)) / (2 * self.params.table_size)
        errors = (after - self.secret.phase_small(small) / 2.0**w + 0.5) % 1.0 - 0.5
        return Stage("modulus switch", errors)

    def rotate(self) -> Rotations:
        """Blind rotations of a random table by random ciphertexts, and the signed words that their phases should be: X^-phase * table, [B, (r,) nu N]."""
        size = self.params.table_size
        switched = self.random.integers(0, 2 * size, (ROTATIONS, self.params.small_words), dtype=np.uint32)
        table = self.torus_words(1, size)
        signed = np.concatenate([table[0].astype(np.int64), -table[0].astype(np.int64)])
        expected = signed[(np.arange(size) + self.switched_phase(switched)[..., None]) % (2 * size)]
        rotated = self.session.blind_rotate(switched, self.tables(table))
        return rotated.reshape(ROTATIONS, self.params.extension_factor, *rotated.shape[-2:]), expected

    def blind_rotation(self, rotations: Rotations | None = None) -> Stage:
        params = self.params
        rotated, expected = self.rotate() if rotations is None else rotations
        phases = self.secret.phase_glwe(rotated.reshape(-1, *rotated.shape[-2:])).astype(np.int64)
        parts = phases.reshape(*rotated.shape[:2], params.lane_count, params.polynomial_size)
        entries = parts.transpose(0, 2, 3, 1).reshape(expected.shape)
        return Stage("blind rotation", centred((entries - expected).ravel(), params.modulus))

    def lookup(self, rotations: Rotations | None = None, entries: int = 256) -> Stage:
        """Measures what a look-up sees: an integer combination of bootstrap outputs, of that many entries of a rotation, keyswitch, modulus switch."""
        params = self.params
        weights = integer_weights(params.max_weight_norm)
        rotated, expected = self.rotate() if rotations is None else rotations
        coefficients = np.linspace(0, params.table_size - 1, entries).astype(np.uint32)
        places = [divmod(int(c), params.extension_factor) for c in coefficients]
        parts = [self.session.sample_extract(np.ascontiguousarray(rotated[:, i]), np.array([j], np.uint32)) for j, i in places]
        outputs = np.concatenate(parts, axis=1).reshape(-1, params.large_words)
        # Every sum takes outputs of different rotations: one group of rotations per weight.
        inputs = outputs.reshape(len(weights), -1, params.large_words).swapaxes(0, 1)
        sums = self.session.linear(weights[None, :], np.ascontiguousarray(inputs)).reshape(-1, params.large_words)
        chosen = expected.reshape(ROTATIONS, params.lane_count, -1)[..., coefficients].swapaxes(1, 2)
        terms = chosen.reshape(len(weights), -1, *self.lanes).astype(object)  # sums of 54-bit words times weights want more than 64 bits
        ideal = (np.tensordot(weights.astype(object), terms, 1) % params.modulus / params.modulus).astype(np.float64)
        phases = self.switched_phase(self.session.modulus_switch(self.session.keyswitch(sums))) / (2 * params.table_size)
        return Stage("look-up", (phases - ideal + 0.5) % 1.0 - 0.5)

    def stages(self) -> list[Stage]:
        return [
            self.fresh(),
            self.public_key(),
            self.keyswitch(),
            self.modulus_switch(),
            self.blind_rotation(),
            self.lookup(),
        ]


def integer_weights(norm: float) -> NDArray[np.int32]:
    """One to four integer weights with an L2 norm close to `norm` and not above it."""
    count = 1 if norm < 1.4 else 2 if norm < 2 else 4
    return np.full(count, max(1, math.floor(norm / math.sqrt(count) + 1e-9)), dtype=np.int32)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parameter sets")
    names = parser.parse_args().names or [name for name in _engine.parameter_set_names() if not name.startswith("toy")]
    print("| set | fresh | public key | keyswitch | modulus switch | blind rotation | look-up | sd of the look-up, measured |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        laboratory = Laboratory(name)
        stages = laboratory.stages()
        spread = math.sqrt(float(np.mean(stages[-1].errors ** 2)))
        ratios = " | ".join(f"{ratio(laboratory.params, stage):.3f}" for stage in stages)
        print(f"| `{name}` | {ratios} | {spread:.3e} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
