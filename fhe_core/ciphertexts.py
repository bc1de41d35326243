"""Arrays of ciphertexts: LWE (`Ciphertexts`), GLWE holding up to N values each (`PackedCiphertexts`), and their seeded forms.

Nothing here holds or needs a key; the arithmetic is exact modulo Q. Words are numpy arrays, or lie on CUDA devices (`to_device`) and are
computed with there; the same operations give the same words.
"""

from __future__ import annotations

import math
import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine, engine, wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays import device_words, message_bounds, noise_terms
from cloakwork.fhe_core.arrays.device_words import DeviceWords, on_host
from cloakwork.fhe_core.arrays.encoding import Encoding, default_encoding, slot_bits
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.arrays.message_bounds import Bounds
from cloakwork.fhe_core.arrays.noise_terms import NoiseTerms
from cloakwork.fhe_core.arrays.phase_arithmetic import add, add_to_bodies, constant_words, halve, multiply, negate_words
from cloakwork.fhe_core.errors import DeviceError, KeyMismatchError, ParameterError, ShapeError, require_kind
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.wire.layout import MAX_WEIGHT_NORM
from cloakwork.fhe_core.wire.objects import WireObject
from cloakwork.fhe_core.words import Words

if TYPE_CHECKING:
    from cloakwork.fhe_core.wire import BytesSource

MAX_SCALAR = 1 << 31


class _CiphertextArray(WireObject):
    """The base of the four classes of ciphertexts: parameter set, logical shape, encoding, weight norm, key, and the words themselves."""

    kind: wire.Kind
    seeded: bool

    def __init__(
        self,
        parameters: ParameterSet,
        words: Any,
        shape: tuple[int, ...],
        *,
        encoding: Encoding | None = None,
        weight_norm: float = 1.0,
        key_id: bytes | None = None,
        message_bound: tuple[int, int] | None = None,
        purpose: bytes | None = None,
    ) -> None:
        self._parameters = parameters
        self._purpose = purpose
        self._words = words
        self._shape = shape
        self._encoding = default_encoding(parameters) if encoding is None else encoding
        self._weight_norm = float(weight_norm)
        self._key_id = key_id
        self._bounds = message_bounds.initial(parameters, self._encoding, shape, self._weight_norm, message_bound)

    @property
    def parameters(self) -> ParameterSet:
        return self._parameters

    @property
    def words(self) -> Words:
        """The words themselves, not a copy: a numpy array, or `DeviceWords` for ciphertexts on a device."""
        words: Words = self._words
        return words

    @property
    def device(self) -> str:
        """`cpu` for words of the host, else `cuda:N`, or `cuda:N,M,..` for words spread over several GPUs."""
        return "cpu" if isinstance(self._words, np.ndarray) else str(self._words.device)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def size(self) -> int:
        return math.prod(self._shape)

    @property
    def encoding(self) -> Encoding:
        return self._encoding

    @property
    def weight_norm(self) -> float:
        """Standard deviation of the noise in units of a fresh bootstrap output, at most, of the noisiest ciphertext."""
        return self._weight_norm

    @property
    def message_bound(self) -> tuple[int, int] | None:
        """Least and largest message, by the operations that made them; None for encodings that have no bounds (all but `message`)."""
        return message_bounds.whole(self._bounds)

    def with_message_bound(self, least: int, largest: int) -> Self:
        """Returns the same ciphertexts, of which the caller says that every message lies in [least, largest].

        For sums that stay smaller than the bounds of their terms add up to. Nothing checks it, and who sees the ciphertexts may see it:
        take it from what is publicly known, not from the values. A look-up of a message outside of its table gives a wrong value.

        Raises:
            ParameterError: not messages with padding, or least above largest.
        """
        if self._encoding is not Encoding.MESSAGE:
            raise ParameterError(
                f"message bound: expected encoding message, got {self._encoding.label}, which has none"
            )
        result = copy(self)
        result._bounds = message_bounds.uniform(self._shape, message_bounds.claimed(least, largest))
        return result

    @property
    def key_id(self) -> bytes | None:
        """The public identifier of the key, 16 bytes; None when it is not known."""
        return self._key_id

    @property
    def purpose(self) -> bytes | None:
        """Returns what they are for, 32 bytes that the application chose (of a model's input and output: the program's digest); None: not said.

        A claim that catches mix-ups, public like the weight norm. Slices, copies and sums keep it (a sum of different ones has none), look-ups
        and linear layers do not.
        """
        return self._purpose

    def with_purpose(self, purpose: bytes | None) -> Self:
        """Returns the same ciphertexts, said to be for this. ShapeError: not 32 bytes."""
        if purpose is not None and len(purpose) != wire.PURPOSE_BYTES:
            raise ShapeError(f"purpose: expected {wire.PURPOSE_BYTES} bytes, got {len(purpose)}; pass a digest")
        result = copy(self)
        result._purpose = purpose
        return result

    @property
    def nbytes(self) -> int:
        return int(self._words.nbytes)

    def __repr__(self) -> str:
        place = "" if self.device == "cpu" else f" on {self.device}"
        return f"<{type(self).__name__} {self._parameters.name} shape={self._shape} {self._encoding.label}{place}>"

    def _header(self) -> wire.Header:
        return wire.Header(
            kind=self.kind,
            parameters=self._parameters,
            seeded=self.seeded,
            key_id=self._key_id,
            shape=self._shape,
            encoding=self._encoding,
            weight_norm=min(self.weight_norm, MAX_WEIGHT_NORM),
            message_bound=self.message_bound,
            purpose=self._purpose,
        )

    def _metadata(self) -> dict[str, Any]:
        return {
            "encoding": self._encoding,
            "weight_norm": self.weight_norm,
            "key_id": self._key_id,
            "message_bound": self.message_bound,
            "purpose": self._purpose,
        }

    def _sections(self) -> list[wire.Section]:
        return [on_host(self._words)]

    @classmethod
    def _from_source(cls, source: BytesSource, parameters: ParameterSet | None, max_bytes: int) -> Self:
        header, sections = wire.read(source, cls.kind, seeded=cls.seeded, parameters=parameters, max_bytes=max_bytes)
        return cls._from_sections(header, sections)

    @classmethod
    @abstractmethod
    def _from_sections(cls, header: wire.Header, sections: list[wire.Section]) -> Self: ...


class _Seeded(_CiphertextArray):
    """Bodies and the seed of the masks."""

    seeded = True

    def __init__(
        self, parameters: ParameterSet, seed: bytes, bodies: Words, shape: tuple[int, ...], **metadata: Any
    ) -> None:
        super().__init__(parameters, bodies, shape, **metadata)
        self._seed = seed

    @property
    def seed(self) -> bytes:
        return self._seed

    @property
    def bodies(self) -> Words:
        bodies: Words = self._words
        return bodies

    def _sections(self) -> list[wire.Section]:
        return [self._seed, self._words]

    @classmethod
    def _from_sections(cls, header: wire.Header, sections: list[wire.Section]) -> Self:
        seed, bodies = sections
        assert isinstance(seed, bytes) and isinstance(bodies, np.ndarray)
        return cls(header.parameters, seed, bodies, header.shape, **header.metadata())


class Ciphertexts(_CiphertextArray):
    """An array of LWE ciphertexts under the large key: `words` has shape `shape + (kN + r,)`, r = 1 for most sets.

    With r > 1 lanes each holds r values, which all operations treat alike (`Session`'s too): constants, weights and tables are those of a
    ciphertext.
    Keys encrypt to them, sessions give them, `cloakwork.engine.from_bytes` reads them; `from_words` wraps words of your own.
    Indexing, reshaping and concatenation follow numpy on `shape`. `+`, `-` and `*` compute on the phases: with another array of
    ciphertexts (broadcast), `+` and `-` with plaintext constants in the encoding of the array, `*` with integers.
    """

    kind = wire.Kind.CIPHERTEXTS
    seeded = False
    rounded_bits: int | None = None  # of words that came in few bits (`SwitchedCiphertexts.expand`)
    __array_ufunc__ = None  # array + ciphertexts asks __radd__ instead of going element by element

    def __init__(
        self,
        parameters: ParameterSet,
        words: Any,
        shape: tuple[int, ...],
        *,
        noise: NoiseTerms | None = None,
        **metadata: Any,
    ) -> None:
        """noise: what the ciphertexts were made of; None: each one is a source of its own, of norm `weight_norm`."""
        super().__init__(parameters, words, shape, **metadata)
        self._noise = NoiseTerms.of_words(parameters, words, self._weight_norm) if noise is None else noise

    @property
    def weight_norm(self) -> float:
        """Standard deviation of the noise in units of a fresh bootstrap output, at most, of the noisiest ciphertext.

        Terms with equal words, up to sign and constants, have one noise, which adds up; fresh ones that differ are independent; sums whose
        terms are not known (from files, or of very many terms) count as if their noise were that of everything they are added to.
        """
        return self._noise.norm

    @property
    def noise(self) -> NoiseTerms:
        """Returns the terms of the noise."""
        return self._noise

    @classmethod
    def from_words(
        cls,
        parameters: ParameterSet,
        words: Any,
        *,
        encoding: Encoding | None = None,
        weight_norm: float = 1.0,
        key_id: bytes | None = None,
    ) -> Ciphertexts:
        """Wraps words without a copy: a numpy array or anything with `__dlpack__`, `[.., kN + r]` of the set's word type.

        Noise (`weight_norm`, 1: encryptions and outputs of look-ups) and range of the messages (`with_message_bound`) are the caller's claim.

        Memory of a GPU (torch, CuPy, `DeviceArray`) stays there; work that its library has enqueued is waited for on the device.
        """
        dtype, last = word_dtype(parameters), parameters.large_words
        array: Any = device_words.external(words)
        if array is None:
            if not hasattr(words, "__dlpack__"):
                raise ShapeError(
                    f"words: expected a numpy array or an object with __dlpack__, got {type(words).__name__}"
                )
            array = words if isinstance(words, np.ndarray) else np.from_dlpack(words)
        if array.dtype != dtype or len(array.shape) == 0 or array.shape[-1] != last:
            raise ShapeError(
                f"words: expected {dtype} of shape [.., {last}] for parameter set '{parameters.name}', "
                f"got {array.dtype} of shape {list(array.shape)}; check which set the ciphertexts belong to"
            )
        shape = tuple(array.shape[:-1])
        held: Words | DeviceWords = array if isinstance(array, np.ndarray) else DeviceWords.of(parameters, array)
        if held.size and not _all_below(held, parameters.modulus):
            raise ParameterError(
                f"words: expected every word below Q = {parameters.modulus}, found one above; reduce them modulo Q"
            )
        return cls(parameters, held, shape, encoding=encoding, weight_norm=weight_norm, key_id=key_id)

    @classmethod
    def _from_sections(cls, header: wire.Header, sections: list[wire.Section]) -> Ciphertexts:
        words = sections[0]
        assert isinstance(words, np.ndarray)
        return cls(header.parameters, words, header.shape, **header.metadata())

    def _like(self, words: Words | DeviceWords, noise: NoiseTerms, bounds: Bounds | None) -> Ciphertexts:
        result = copy(self)
        result._words, result._shape = words, words.shape[:-1]
        result._noise, result._bounds = noise, bounds
        return result

    def _moved(self, words: Words | DeviceWords) -> Ciphertexts:
        """Returns the same ciphertexts in another place."""
        return self._like(words, self._noise.moved(self._parameters, words), self._bounds)

    def _rearranged(self, words: Words | DeviceWords, change: noise_terms.Rearrangement) -> Ciphertexts:
        """Returns some of them, or in another order; `change` does it to an array with one more axis."""
        noise = self._noise.rearranged(self._parameters, words, change)
        return self._like(words, noise, None if self._bounds is None else change(self._bounds))

    def with_encoding(self, encoding: Encoding) -> Ciphertexts:
        """Returns the same words read in another encoding."""
        if encoding in (Encoding.MESSAGE, Encoding.FULL_DOMAIN):
            slot_bits(self._parameters, encoding)
        if encoding is self._encoding:
            return self
        result = self._moved(self._words)
        result._encoding = encoding
        widest = message_bounds.widest_range(self._parameters)
        result._bounds = message_bounds.initial(self._parameters, encoding, self._shape, 1.0, widest)
        return result

    # --- as an array ---

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a single ciphertext has no length")
        return self._shape[0]

    def __iter__(self) -> Iterator[Ciphertexts]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Ciphertexts:
        parts = index if isinstance(index, tuple) else (index,)
        if not any(part is Ellipsis for part in parts):
            parts = (*parts, Ellipsis)
        chosen = (*parts, slice(None))
        return self._rearranged(self._words[chosen], lambda array: array[chosen])

    def reshape(self, *shape: int | Sequence[int]) -> Ciphertexts:
        """Returns the same ciphertexts in another shape; one extent may be -1."""
        extents: list[int] = []
        for part in shape:
            extents += part if isinstance(part, Sequence) else [operator.index(part)]
        known = math.prod(extent for extent in extents if extent != -1)
        full = [self.size // max(known, 1) if extent == -1 else extent for extent in extents]
        if extents.count(-1) > 1 or min(full, default=1) < 0 or math.prod(full) != self.size:
            raise ShapeError(f"reshape: {self.size} ciphertexts of shape {list(self.shape)} do not fit shape {extents}")
        return self._rearranged(
            self._words.reshape((*full, self._words.shape[-1])), lambda array: array.reshape((*full, array.shape[-1]))
        )

    def _broadcast(self, shape: tuple[int, ...]) -> Ciphertexts:
        full = (*shape, self._words.shape[-1])
        on_device = isinstance(self._words, DeviceWords)
        words = self._words.broadcast_to(full) if on_device else np.broadcast_to(self._words, full)
        return self._rearranged(words, lambda array: np.broadcast_to(array, (*shape, array.shape[-1])))

    def copy(self) -> Ciphertexts:
        """Copies ciphertexts with words of their own."""
        return self._moved(self._words.copy())

    # --- places ---

    def to_device(self, device: str = "cuda") -> Ciphertexts:
        """Copies to the device: on a GPU (`cuda:N`), or contiguous shares of the first axis on several (`cuda:N,M,..`); itself when it is there
        already."""
        if isinstance(self._words, DeviceWords):
            return self._moved(self._words.to_device(device))
        return self._moved(DeviceWords.upload(self._parameters, self._words, device))

    def to_host(self) -> Ciphertexts:
        """Copies to host memory; waits for the device. Itself when it is there already."""
        return self._moved(self._words.to_host()) if isinstance(self._words, DeviceWords) else self

    def to(self, device: str) -> Ciphertexts:
        """Copies with `to_host` for "cpu", `to_device` for the others."""
        return self.to_host() if device == "cpu" else self.to_device(device)

    def _interface(self) -> Any:
        return self._words.array() if isinstance(self._words, DeviceWords) else self._words

    def __dlpack__(self, **options: Any) -> Any:
        return self._interface().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        place: tuple[Any, int] = self._interface().__dlpack_device__()
        return place

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not isinstance(self._words, DeviceWords):
            raise AttributeError("these ciphertexts are in host memory; to_device() moves them")
        description: dict[str, Any] = self._interface().__cuda_array_interface__
        return description

    # --- arithmetic on the phases, word by word modulo Q ---

    def __neg__(self) -> Ciphertexts:
        words = negate_words(self._parameters, self._words)
        bounds = None if self._bounds is None else message_bounds.negated(self._bounds)
        return self._like(words, self._noise.negated(self._parameters, words), bounds)

    def __add__(self, other: Any) -> Ciphertexts:
        if isinstance(other, Ciphertexts):
            check_compatible(self, other)
            words = add(self._parameters, self._words, other._words)
            both = self._bounds is not None and other._bounds is not None
            bounds = message_bounds.added(self._bounds, other._bounds) if both else None  # type: ignore[arg-type]
            result = self._like(words, self._noise.plus(other._noise, self._parameters, words), bounds)
            return result if self._purpose == other._purpose else result.with_purpose(None)
        return self._add_constants(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Ciphertexts:
        if isinstance(other, Ciphertexts):
            check_compatible(self, other)
            return self + (-other)
        return self._add_constants(np.negative(np.asarray(other)))

    def __rsub__(self, other: Any) -> Ciphertexts:
        return (-self)._add_constants(other)

    def __mul__(self, factor: Any) -> Ciphertexts:
        """Times integers (broadcast over `shape`), each below 2^31 in magnitude; the noise grows by the factor."""
        factors = np.asarray(factor)
        if factors.dtype.kind not in "iu" or factors.size == 0:
            raise ShapeError(
                f"multiplication: expected integers, got dtype {factors.dtype}; a product with a real number needs a look-up table"
            )
        largest = max(int(factors.max()), -int(factors.min()))
        if largest >= MAX_SCALAR:
            raise ParameterError(f"multiplication: expected factors below 2^31 in magnitude, got {largest}")
        words = multiply(self._parameters, self._words, factors.astype(np.int64)[..., None])
        bounds = None if self._bounds is None else message_bounds.scaled(self._bounds, factors)
        return self._like(words, self._noise.scaled(factors.astype(np.float64)), bounds)

    __rmul__ = __mul__

    def add_torus_constant(self, numerator: int, denominator: int) -> Ciphertexts:
        """Adds numerator / denominator of the torus, rounded down to a word, to every phase."""
        result = self._add_words(
            np.uint64(numerator * self._parameters.modulus // denominator % self._parameters.modulus)
        )
        if result._bounds is not None:
            slots = numerator * (2 << self._parameters.message_bits)
            steps = np.array([slots // denominator, -(-slots // denominator)], dtype=np.float64)
            result._bounds = message_bounds.added(result._bounds, steps)
        return result

    def _halved(self) -> Ciphertexts:
        """Times the inverse of 2 modulo Q. Noise: half, up to half a turn."""
        return self._like(halve(self._parameters, self._words), self._noise.scaled(np.array(0.5)), None)

    def _add_constants(self, constants: Any) -> Ciphertexts:
        result = self._add_words(constant_words(self._parameters, constants, self._encoding))
        if self._bounds is not None:
            result._bounds = message_bounds.shifted(self._bounds, np.asarray(constants))
        return result

    def _add_words(self, constants: NDArray[np.uint64] | np.uint64) -> Ciphertexts:
        words = add_to_bodies(self._parameters, self._words, constants)
        if words.shape == self._words.shape:
            return self._moved(words)
        shape = words.shape[:-1]
        return self._rearranged(words, lambda array: np.broadcast_to(array, (*shape, array.shape[-1])))


class SeededCiphertexts(_Seeded):
    """LWE ciphertexts as a seed and one body word for each value; `expand` gives `Ciphertexts`."""

    kind = wire.Kind.CIPHERTEXTS

    def expand(self, device: str = "cpu") -> Ciphertexts:
        """Expands on the host, or on a GPU, where only seed and bodies travel."""
        bodies = self._words.reshape(-1, *lane_axis(self._parameters))
        if device != "cpu":
            array = device_words.expand_seeded(self._parameters, "lwe", self._seed, bodies, device)
            return Ciphertexts(
                self._parameters, DeviceWords(self._parameters, array, self._shape), self._shape, **self._metadata()
            )
        words = _engine.expand_lwe(self._parameters, self._seed, bodies)
        return Ciphertexts(self._parameters, words.reshape((*self._shape, -1)), self._shape, **self._metadata())


class PackedCiphertexts(_CiphertextArray):
    """LWE ciphertexts of logical shape `shape`, N to a GLWE ciphertext in C order: `words` [G, k + r, N]. `Session.extract` makes them."""

    kind = wire.Kind.PACKED_CIPHERTEXTS
    seeded = False

    @classmethod
    def _from_sections(cls, header: wire.Header, sections: list[wire.Section]) -> PackedCiphertexts:
        words = sections[0]
        assert isinstance(words, np.ndarray)
        return cls(header.parameters, words, header.shape, **header.metadata())

    def to_device(self, device: str = "cuda") -> PackedCiphertexts:
        """Copies to the device: on one GPU."""
        ordinals = device_words.cuda_ordinals(device)
        if len(ordinals) > 1:
            raise DeviceError(f"packed ciphertexts: expected one GPU, got '{device}'; a session spreads them by itself")
        held, ordinal = self._words, ordinals[0]
        words = engine.upload(held, ordinal) if isinstance(held, np.ndarray) else held.to_device(ordinal)
        return PackedCiphertexts(self._parameters, words, self._shape, **self._metadata())

    def to_host(self) -> PackedCiphertexts:
        """Copies to host memory; those that are there already are returned as they are."""
        if isinstance(self._words, np.ndarray):
            return self
        return PackedCiphertexts(self._parameters, self._words.to_host(), self._shape, **self._metadata())


class SeededPackedCiphertexts(_Seeded):
    """GLWE ciphertexts as a seed and their bodies, [G, N] or with lanes [G, r, N]; `expand` gives `PackedCiphertexts`."""

    kind = wire.Kind.PACKED_CIPHERTEXTS

    def expand(self, device: str = "cpu") -> PackedCiphertexts:
        """Expands on the host, or on a GPU, where only seed and bodies travel."""
        words: Any
        if device != "cpu":
            words = device_words.expand_seeded(self._parameters, "glwe", self._seed, self._words, device)
        else:
            words = _engine.expand_glwe(self._parameters, self._seed, self._words)
        return PackedCiphertexts(self._parameters, words, self._shape, **self._metadata())


def concatenate(parts: Sequence[Ciphertexts], axis: int = 0) -> Ciphertexts:
    """Joins arrays of one parameter set, key and encoding along an existing axis of their shapes."""
    if not parts:
        raise ShapeError("concatenate: expected at least one array of ciphertexts, got none")
    first = parts[0]
    for part in parts[1:]:
        check_compatible(first, part)
    if not -first.ndim <= axis < first.ndim:
        raise ShapeError(f"concatenate: axis {axis} does not exist in shape {first.shape}")
    try:
        words = _joined(first.parameters, [part._words for part in parts], axis % first.ndim)
    except ValueError:
        raise ShapeError(
            f"concatenate: the shapes {[part.shape for part in parts]} do not fit along axis {axis}"
        ) from None
    noise = NoiseTerms.of_concatenation([part.noise for part in parts], first.parameters, words, axis % first.ndim)
    bounds = [part._bounds for part in parts if part._bounds is not None]
    result = first._like(words, noise, np.concatenate(bounds, axis % first.ndim) if bounds else None)
    return result if all(part.purpose == first.purpose for part in parts) else result.with_purpose(None)


def _joined(params: ParameterSet, parts: list[Any], axis: int) -> Words | DeviceWords:
    on_device = [isinstance(part, DeviceWords) for part in parts]
    if all(on_device):
        return device_words.concatenate(params, parts, axis)
    if any(on_device):
        raise DeviceError(
            "concatenate: expected all parts on the host or all on one device; move some with to_device or to_host"
        )
    return np.concatenate(parts, axis=axis)


def _all_below(words: Words | DeviceWords, bound: int) -> bool:
    return words.all_below(bound) if isinstance(words, DeviceWords) else int(words.max()) < bound


def require_ciphertexts(value: object, what: str) -> None:
    """Raises ShapeError unless the value is an array of LWE ciphertexts, which sessions compute with."""
    require_kind(value, Ciphertexts, what, "encrypt values, expand seeded ones, extract packed ones")


def check_compatible(x: _CiphertextArray, y: _CiphertextArray) -> None:
    """Checks for the parameter set, key (where known) and encoding."""
    check_same_key(x.parameters, x.key_id, y.parameters, y.key_id, "ciphertexts")
    if x.encoding is not y.encoding:
        raise ParameterError(
            f"ciphertexts: expected one encoding, got {x.encoding.label} and {y.encoding.label}; bootstrap one to the other's"
        )


def check_same_key(
    params: ParameterSet, key_id: bytes | None, other: ParameterSet, other_id: bytes | None, what: str
) -> None:
    """Raises KeyMismatchError unless the sets are equal and the keys are equal or one of them is not known."""
    if params != other:
        raise KeyMismatchError(
            f"{what}: expected parameter set '{params.name}', got '{other.name}'; encrypt with the set of the evaluation keys"
        )
    if key_id is not None and other_id is not None and key_id != other_id:
        raise KeyMismatchError(
            f"{what}: expected key {key_id.hex()[:8]}.., got key {other_id.hex()[:8]}..; they belong to different secret keys"
        )


def total_norm(*parts: Ciphertexts) -> float:
    """Returns weight norm of a sum of the parts."""
    return noise_terms.joint_norm([part.noise for part in parts])
