"""The bridge from look-ups to levelled arithmetic, on the server: LWE ciphertexts are packed into the coefficients of one polynomial.

Words are scaled to Q_l and multiplied by t, which leaves an integer with the message at its low end and a noise t times as large. Each becomes a
ciphertext whose constant coefficient has its phase, and which is keyswitched to the levelled key. A tree of automorphisms puts them side by side,
and takes out what else they hold, doubling in each of its log2 M rounds what was divided by M before.

Source: [CDKS21] the tree.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import on_host
from cloakwork.fhe_core.arrays.encoding import Encoding, slot_bits
from cloakwork.fhe_core.ciphertexts import Ciphertexts, check_same_key, require_ciphertexts
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, ShapeError, require_kind
from cloakwork.fhe_core.levelled import noise
from cloakwork.fhe_core.levelled.backends import AnyPrepared, AnyWords, backend_of
from cloakwork.fhe_core.levelled.bridges.keys import FromLookupsKeys, component, packing_automorphisms, require_bridge
from cloakwork.fhe_core.levelled.bridges.torus_words import scaled_residues
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.noise import blind_rotation_variance, word_rounding_variance
from cloakwork.fhe_core.parameters import parameter_digest
from cloakwork.fhe_core.words import Phases

_AT_ONCE = 128  # ciphertexts of a batch: each is a whole levelled one until it is packed


class FromLookups:
    """Packs ciphertexts of look-ups of one key.

    Args:
        keys: of the client.
        lookups: the set of the look-ups.
        device: "cpu", "cuda" or "cuda:N"; results are there, the same words.
        threads: of the CPU.
        p_fail_log2: results that would decrypt wrongly with a larger probability are refused.

    Raises:
        KeyMismatchError: keys for another set, or not all that packing needs.
    """

    def __init__(
        self,
        keys: FromLookupsKeys,
        lookups: ParameterSet,
        *,
        device: str = "cpu",
        threads: int = 1,
        p_fail_log2: float = FAILURE_LOG2,
    ) -> None:
        require_kind(keys, FromLookupsKeys, "keys", "pass what the client made with from_lookups_keys")
        require_kind(lookups, ParameterSet, "lookups", "pass a set: Session.parameters, or parameter_set(name)")
        self._ratio = require_bridge(keys.parameters, lookups)
        if keys.lookups_digest != parameter_digest(lookups):
            raise KeyMismatchError(
                f"bridge: expected keys from look-ups of '{lookups.name}', got those from another set"
            )
        components = [component(i) for i in range(lookups.glwe_dimension)]
        missing = [g for g in (*components, *packing_automorphisms(keys.parameters)) if g not in keys.keys]
        if missing:
            raise KeyMismatchError(f"bridge: no key number {missing[0]} is here; make keys with from_lookups_keys")
        self._parameters, self._lookups, self._limit = keys.parameters, lookups, p_fail_log2
        self._key_id, self._lookups_key_id = keys.key_id, keys.lookups_key_id
        self._backend = backend_of(keys.parameters.engine, device, threads)
        self._keys = self._backend.keys(keys.expanded(threads))
        self._shifts: dict[tuple[int, int], AnyPrepared] = {}

    @property
    def parameters(self) -> LevelledParameters:
        """Returns the parameters of the levelled side."""
        return self._parameters

    def positions(self, count: int) -> NDArray[np.int64]:
        """Coefficients that `count` packed values are at; the others are zero. ShapeError: none, or more than there are coefficients."""
        size = self._parameters.polynomial_size
        if not 1 <= count <= size:
            raise ShapeError(f"ciphertexts: expected 1 to {size} of them, got {count}")
        return np.arange(count) * (size >> (count - 1).bit_length())

    def pack(self, ciphertexts: Ciphertexts, level: int = 2) -> LevelledCiphertexts:
        """Packs one levelled ciphertext, value i of a flat array of ciphertexts at coefficient `positions(count)[i]`.

        Messages m of encoding `message` want t = 2^(p + 1), of `full_domain` 2^p; values of `torus` have to be multiples m / t of the torus. The
        noise comes along: of an output of `lut4` it is 2^-15 of the torus, and so of Q_l; what follows are sums and products with small plaintexts.

        Args:
            level: primes of the result; one is too few for most plaintext moduli.

        Raises:
            KeyMismatchError: ciphertexts of another key or set.
            ParameterError: another plaintext modulus than their encoding asks for, or too much noise for it.
            ShapeError: no ciphertexts, or more than a polynomial has coefficients.
        """
        lookups, t = self._lookups, self._parameters.plaintext_modulus
        require_ciphertexts(ciphertexts, "pack")
        check_same_key(lookups, self._lookups_key_id, ciphertexts.parameters, ciphertexts.key_id, "ciphertexts to pack")
        if not 1 <= level <= self._parameters.levels:
            raise ParameterError(f"level: expected 1 to {self._parameters.levels}, got {level}")
        if ciphertexts.encoding is not Encoding.TORUS and t != 1 << slot_bits(lookups, ciphertexts.encoding):
            raise ParameterError(
                f"plaintext_modulus: expected {1 << slot_bits(lookups, ciphertexts.encoding)} for encoding {ciphertexts.encoding.label} of "
                f"'{lookups.name}', got {t}"
            )
        count = ciphertexts.size
        self.positions(count)
        words = on_host(ciphertexts.words).reshape(count, -1)
        padded = np.zeros((1 << (count - 1).bit_length(), words.shape[1]), dtype=np.uint64)
        padded[:count] = words
        result = self._traced(self._tree(padded, level), len(padded), level)
        modulus = self._parameters.modulus(level)
        after = self._noise(ciphertexts, level)
        if (p_fail := noise.failure_log2(after, self._parameters, level)) > self._limit:
            raise ParameterError(
                f"the result would decrypt wrongly with probability 2^{p_fail:.0f}, more than 2^{self._limit:.0f}: take a smaller plaintext modulus, "
                "a set of look-ups with finer outputs, or more levels"
            )
        return LevelledCiphertexts(self._parameters, self._key_id, result, -modulus % t, after)

    # --- inside ---

    def _tree(self, words: Phases, level: int) -> AnyWords:
        """LWE words [2^v, kN + 1] -> [1, 2, level, M], values M / 2^v apart; other coefficients are not zero yet."""
        if len(words) > _AT_ONCE:
            even, odd = self._tree(words[::2], level), self._tree(words[1::2], level)
            return self._merged(even, odd, len(words), level)
        held, together = self._embedded(words, level), 1
        while together < len(words):
            half = len(words) // together // 2
            together *= 2
            even, odd = self._backend.take(held, 0, half), self._backend.take(held, half, 2 * half)
            held = self._merged(even, odd, together, level)
        return held

    def _merged(self, even: AnyWords, odd: AnyWords, together: int, level: int) -> AnyWords:
        """`together` values in each from halves of them."""
        batch = even.shape[0]
        rows = self._backend.reshape(odd, (1, 2 * batch))
        shifted = self._backend.reshape(self._backend.products(rows, self._shift(together, level)), (batch, 2))
        total = self._backend.add(even, shifted, False)
        return self._with_image(total, self._backend.add(even, shifted, True), together + 1)

    def _traced(self, words: AnyWords, together: int, level: int) -> AnyWords:
        while together < self._parameters.polynomial_size:
            together *= 2
            words = self._with_image(words, words, together + 1)
        return words

    def _with_image(self, words: AnyWords, other: AnyWords, g: int) -> AnyWords:
        """words and the image of others under X -> X^g."""
        moved = self._backend.automorphism(other, g)
        switched = self._backend.keyswitch(self._backend.part(moved, 1), self._keys[g])
        body = self._backend.add(self._backend.part(moved, 0), self._backend.part(switched, 0), False)
        image = self._backend.from_parts([body, self._backend.part(switched, 1)])
        return self._backend.add(words, image, False)

    def _embedded(self, words: Phases, level: int) -> AnyWords:
        """LWE words [batch, kN + 1] -> [batch, 2, level, M] under the levelled key, the phase (times t / M) in the constant coefficient."""
        size, batch, primes = self._parameters.polynomial_size, len(words), self._parameters.set.primes[:level]
        modulus = np.uint64(self._lookups.modulus)
        masks = words[:, :-1].reshape(batch, -1, self._lookups.polynomial_size)
        # -a_0 + a_{N-1} Y + a_{N-2} Y^2 + ..: its product with z has minus the sum of a_j z_j as its constant coefficient.
        negated = np.concatenate([(modulus - masks[..., :1]) % modulus, masks[..., :0:-1]], axis=-1)
        held: AnyWords = None
        for i in range(masks.shape[1]):
            mask = self._spread(negated[:, i], self._ratio, primes)
            switched = self._backend.keyswitch(self._backend.transform(mask), self._keys[component(i)])
            held = switched if held is None else self._backend.add(held, switched, False)
        body = self._backend.transform(self._spread(words[:, -1:], size, primes))
        body = self._backend.add(self._backend.part(held, 0), body, False)
        return self._backend.from_parts([body, self._backend.part(held, 1)])

    def _spread(self, polynomials: Phases, ratio: int, primes: list[int]) -> NDArray[np.uint32]:
        """Torus words [batch, M / ratio] at X^(ratio j), scaled to Q_l and times t / M: [batch, level, M]."""
        size, t = self._parameters.polynomial_size, self._parameters.plaintext_modulus
        scaled = scaled_residues(polynomials, primes, self._lookups.modulus).astype(np.uint64)
        spread = np.zeros((len(polynomials), len(primes), size), dtype=np.uint32)
        for i, prime in enumerate(primes):
            factor = np.uint64(t * pow(size, -1, prime) % prime)
            spread[:, i, ::ratio] = scaled[:, i] * factor % np.uint64(prime)
        return spread

    def _shift(self, together: int, level: int) -> AnyPrepared:
        """X^(M / together)."""
        if (together, level) not in self._shifts:
            size = self._parameters.polynomial_size
            monomial = np.zeros((1, level, size), dtype=np.uint32)
            monomial[..., size // together] = 1
            self._shifts[together, level] = self._backend.table(iter([monomial]), (1, 1, level, size))
        return self._shifts[together, level]

    def _noise(self, ciphertexts: Ciphertexts, level: int) -> noise.Noise:
        """What comes along, the rounding to Q_l, and keyswitches: each round of the tree doubles what there is and adds one."""
        lookups, size = self._lookups, self._parameters.polynomial_size
        t, modulus = self._parameters.plaintext_modulus, self._parameters.modulus(level)
        variance = ciphertexts.weight_norm**2 * blind_rotation_variance(lookups) * modulus**2
        rounding = word_rounding_variance(lookups, 0)
        words = t * (modulus / lookups.modulus + 1)  # of torus words, which are rounded too
        brought = noise.Noise(words, (0.0, t * t * (variance + rounding)))
        switches = size * math.sqrt(lookups.glwe_dimension + 1 / 3)
        return brought.plus(noise.keyswitch(self._parameters, level).scaled(switches))
