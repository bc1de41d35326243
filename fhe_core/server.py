"""The public side: a session computes on ciphertexts with evaluation keys and never sees a secret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core import engine, gates
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays import message_bounds
from cloakwork.fhe_core.arrays.device_words import Base, DeviceWords, ShardedArray, cuda_ordinals
from cloakwork.fhe_core.arrays.encoding import Encoding, slot_bits, torus_constant
from cloakwork.fhe_core.arrays.noise_terms import MASK_WORDS, NoiseTerms
from cloakwork.fhe_core.arrays.phase_arithmetic import reduce_once
from cloakwork.fhe_core.ciphertexts import Ciphertexts, check_same_key, require_ciphertexts
from cloakwork.fhe_core.errors import DeviceError, ParameterError, ShapeError, require_kind
from cloakwork.fhe_core.machine import usable_cores
from cloakwork.fhe_core.noise import blind_rotation_variance, rerandomisation_variance
from cloakwork.fhe_core.session.arguments import (
    checked_coefficients,
    checked_columns,
    checked_weights,
    shift_coefficients,
    table_numbers,
)
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys, ExpandedKey, device_memory
from cloakwork.fhe_core.session.extraction import (
    Packed,
    expanded_on_host,
    extract_columns_on_host,
    extract_on_devices,
    extract_on_host,
)
from cloakwork.fhe_core.session.lookup_tables import LookupTables, RealFunction, TableLike
from cloakwork.fhe_core.session.sharding import device_sessions, session_over
from cloakwork.fhe_core.words import Progress, Small, Words

if TYPE_CHECKING:
    from cloakwork.fhe_core._engine import CpuSession, CudaSession, CudaWeights, EngineSession

__all__ = ["EvaluationKeys", "ExpandedKey", "LinearWeights", "LookupTables", "Session"]

Batch: TypeAlias = Words | Base

_NORM_TOLERANCE = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """An integer matrix [R, C], checked and in the form of a session's device; `Session.weights` makes it."""

    matrix: NDArray[np.int32]
    device: str
    resident: CudaWeights | None = None  # on one GPU

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.matrix.shape
        return rows, columns


class Session:
    """Batched operations with one evaluation key on one device.

    Args:
        keys: of a client, `ClientKey.evaluation_keys()`; or what `EvaluationKeys.expand` made of them.
        device: "cpu" (where the keys are not expanded already), "cuda", "cuda:N", or several GPUs as in "cuda:0,1".
        threads: of the CPU, 1 to 1,024.
        progress: told how far the expansion of the keys is.

    Raises:
        ShapeError: keys of another class, such as the client's secret.
        DeviceError: a device that is missing, or another one than the keys were expanded for.

    Ciphertexts in host memory give results in host memory. On a GPU, ciphertexts that lie there (`to_device`) give results that stay
    there; such calls return when their work is enqueued. `stream` is an integer cudaStream_t or an object with `__cuda_stream__` (torch,
    CuPy) on which the session works then; without one it has its own, which waits for whoever wrote its operands.

    Ciphertexts of another key or set are a KeyMismatchError; other objects and empty batches a ShapeError.

    Thread-safe. Sessions made by `share` (or from one `ExpandedKey`) hold the expanded key once. Every call releases the GIL, can be
    interrupted with Ctrl-C, and reports to `progress(done, total)` where it takes one; a progress that returns False cancels the call.
    """

    def __init__(
        self,
        keys: EvaluationKeys | ExpandedKey,
        device: str | None = None,
        threads: int = 1,
        progress: Progress = None,
        *,
        stream: Any = None,
    ) -> None:
        advice = "a session has no secret: pass ClientKey.evaluation_keys(), or EvaluationKeys.from_bytes(..) of what a client sent"
        require_kind(keys, (EvaluationKeys, ExpandedKey), "session", advice)
        if isinstance(keys, EvaluationKeys):
            keys = keys.expand(device or "cpu", progress)
        elif device is not None and device != keys.device:
            raise DeviceError(
                f"session: the key was expanded for '{keys.device}', not '{device}'; expand the evaluation keys for that device"
            )
        self._key = keys
        self._threads = threads
        if keys.device == "cpu" and stream is not None:
            raise DeviceError("stream: expected a session on a GPU, got one on 'cpu'; leave the stream out")
        self._host: CpuSession | None = None
        self._devices: tuple[CudaSession, ...] = ()
        # Of either kind; `_batch` makes sure that it gets no batch that lies elsewhere.
        self._engine: EngineSession[Batch]
        if keys.device == "cpu":
            self._host = engine.host_session(keys.engine_keys[0], threads)
            self._engine = cast("EngineSession[Batch]", self._host)
        else:
            self._devices = device_sessions(keys.engine_keys, keys.device, stream)
            self._engine = cast("EngineSession[Batch]", session_over(self._devices))

    @property
    def parameters(self) -> ParameterSet:
        """Returns the parameter set of the keys."""
        return self._key.parameters

    @property
    def device(self) -> str:
        """One of "cpu", "cuda" or "cuda:N"."""
        return self._key.device

    @property
    def threads(self) -> int:
        """Counts the threads of the CPU that calls use."""
        return self._threads

    @property
    def host_threads(self) -> int:
        """Counts the threads of what is computed on CPUs: the session's own, beside a GPU all that there are."""
        return self._threads if self.device == "cpu" else usable_cores()

    @property
    def expanded_key(self) -> ExpandedKey:
        """The evaluation keys as the device has them; sessions may share them."""
        return self._key

    @property
    def device_sessions(self) -> tuple[CudaSession, ...]:
        """The engine's session on each GPU; none on the CPU."""
        return self._devices

    def share(self, threads: int | None = None, *, stream: Any = None) -> Session:
        """Opens another session on the same expanded key, for another thread, number of threads or stream."""
        return Session(self._key, threads=self._threads if threads is None else threads, stream=stream)

    def synchronize(self) -> None:
        """Waits until all work of the session is done; nothing to wait for on the CPU."""
        for session in self._devices:
            session.synchronize()

    def __repr__(self) -> str:
        return f"<Session {self.parameters.name} on {self.device}>"

    # --- bootstraps ---

    def bootstrap(
        self,
        ciphertexts: Ciphertexts,
        table: TableLike | LookupTables,
        *,
        table_index: ArrayLike | None = None,
        shifts: ArrayLike | None = None,
        allow_noise: bool = False,
        progress: Progress = None,
    ) -> Ciphertexts:
        """Computes f(m) for every message m (with padding bit), with fresh noise.

        Args:
            table: 2^p integers, a function of one integer, several of either with `table_index`, or one per ciphertext
                (an array `shape + (2^p,)`); or `LookupTables`.
            table_index: integers that broadcast to the ciphertexts' shape: which table each uses.
            shifts: integers s in [0, 2^p); adds an axis with f(m + s) for each, from one rotation.
            allow_noise: accept sums whose weight norm is above the set's, at a higher failure probability.

        Raises:
            ParameterError: table entries out of range, or too large a weight norm.
            PrecisionOverflowError: by their `message_bound`, messages (plus shifts) may lie outside of [0, 2^p). There the output would be
                that of m + 2^p or m - 2^p, negated; `with_message_bound` tells a narrower range than the one that follows from the sums.
        """
        tables = table if isinstance(table, LookupTables) else LookupTables.of_messages(self.parameters, table)
        self._check_encoding(ciphertexts, Encoding.MESSAGE, None if isinstance(table, LookupTables) else "bootstrap")
        self._check_norm(ciphertexts, allow_noise)
        coefficients = None if shifts is None else shift_coefficients(self.parameters, shifts)
        message_bounds.check_look_up(
            ciphertexts.parameters, ciphertexts._bounds, 0 if shifts is None else int(np.max(np.asarray(shifts)))
        )
        return self._rotate(ciphertexts, tables, table_index, coefficients, progress)

    def bootstrap_negacyclic(
        self,
        ciphertexts: Ciphertexts,
        table: TableLike | LookupTables,
        *,
        table_index: ArrayLike | None = None,
        allow_noise: bool = False,
        progress: Progress = None,
    ) -> Ciphertexts:
        """Computes a function with f(x + half a turn) = -f(x), such as sign, on the whole torus: one bootstrap, no padding.

        Messages of the `full_domain` encoding take a table of 2^(p-1) integers for the lower half; fractions of the torus take a real
        function on [0, 1/2) (sign is `lambda x: 0.125 + 0 * x`).
        """
        require_ciphertexts(ciphertexts, "bootstrap_negacyclic")
        if not isinstance(table, LookupTables):
            if ciphertexts.encoding is Encoding.TORUS:
                table = LookupTables.of_negacyclic(self.parameters, table)  # type: ignore[arg-type]
            else:
                self._check_encoding(ciphertexts, Encoding.FULL_DOMAIN, "bootstrap_negacyclic")
                table = LookupTables.of_half_domain(self.parameters, table)
        self._check_norm(ciphertexts, allow_noise)
        return self._rotate(ciphertexts, table, table_index, None, progress)

    def bootstrap_full_domain(
        self,
        ciphertexts: Ciphertexts,
        table: TableLike | LookupTables,
        *,
        table_index: ArrayLike | None = None,
        output: Encoding = Encoding.FULL_DOMAIN,
        allow_noise: bool = False,
        progress: Progress = None,
    ) -> Ciphertexts:
        """Computes f(m) for any function of messages without padding (`full_domain`), in two bootstraps.

        Noise: the second one sees sqrt(norm^2 / 4 + 1) fresh outputs.
        Source: [LMP21] evaluation of arbitrary functions; ours halves the phase by the inverse of 2 modulo the odd Q (specification, section 8).
        """
        params = self.parameters
        self._check_encoding(ciphertexts, Encoding.FULL_DOMAIN, "bootstrap_full_domain")
        tables = table if isinstance(table, LookupTables) else LookupTables.of_messages(params, table, output)
        slots = 1 << slot_bits(params, Encoding.FULL_DOMAIN)
        halved = ciphertexts.add_torus_constant(1, 2 * slots)._halved()  # m in [0, 1/2), or the same plus half a turn
        self._check_norm(halved, allow_noise)
        quarter = torus_constant(params, 1, 4)
        sign = LookupTables.of_sign(params, quarter, Encoding.FULL_DOMAIN)
        half_turn = self._rotate(halved, sign, None, None, progress).add_torus_constant(-1, 4)  # 0 or -1/2
        lower = (halved + half_turn).add_torus_constant(-1, 4 * slots)  # m / 2^(p+1): a padded message
        self._check_norm(lower, allow_noise)
        return self._rotate(lower, tables, table_index, None, progress)

    def activation(
        self,
        ciphertexts: Ciphertexts,
        function: RealFunction | Sequence[RealFunction] | LookupTables,
        *,
        table_index: ArrayLike | None = None,
        coefficients: ArrayLike | None = None,
        allow_noise: bool = False,
        progress: Progress = None,
    ) -> Ciphertexts:
        """Computes f(x) for fractions of the torus x in [-1/4, 1/4), with fresh noise; f maps a numpy array to values in [-1/2, 1/2].

        The look-up sees x with the noise of the set (`parameters.noise`) and rounded to 1 / 2S, S = `parameters.table_size`.

        Args:
            coefficients: integers c in [0, S); adds an axis with f(x + c / 2S) for each, from one rotation. Beyond 1/4 that is
                -f(x + c / 2S - 1/2).
        """
        self._check_encoding(ciphertexts, Encoding.TORUS, "activation")
        tables = (
            function if isinstance(function, LookupTables) else LookupTables.of_activations(self.parameters, function)
        )
        self._check_norm(ciphertexts, allow_noise)
        extracted = None if coefficients is None else checked_coefficients(self.parameters, coefficients)
        return self._rotate(ciphertexts, tables, table_index, extracted, progress)

    def gate(self, gate: str | ArrayLike, *inputs: Ciphertexts, progress: Progress = None) -> Ciphertexts:
        """Computes a Boolean gate on batches of bits (encoding `boolean`: `ClientKey.encrypt_bits`), which broadcast; the outputs are fresh.

        Args:
            gate: AND, OR, NAND, NOR, XOR, XNOR, ANDNY, ANDYN, ORNY or ORYN of two inputs (NY: of NOT a and b), NOT of one, MAJORITY, AND3 or
                OR3 of three, MUX(select, a, b); or an array of names of gates of two inputs, which broadcasts with them.

        Raises:
            ParameterError: an unknown gate, a wrong number of inputs, no bits, or inputs too noisy for the set, as the same one twice.

        Cost: one bootstrap; none for NOT, two for MUX, AND3 and OR3, and for MAJORITY where a set allows no sums of three.
        """
        return gates.evaluate(self, gate, *inputs, progress=progress)

    # --- before ciphertexts leave the server ---

    def rerandomise(self, ciphertexts: Ciphertexts, seed: bytes | None = None) -> Ciphertexts:
        """Puts the same values under new masks, in host memory: an encryption of zero under the client's public key is added to each.

        The last step before a result goes to the client. Everything else here is deterministic, so that the client, who knows the
        ciphertexts that went in, finds the integer weights of the last linear layer in the masks that come out. Entropy of the
        operating system; the words differ from call to call.

        Args:
            seed: 32 secret bytes in place of that entropy: the same seed, key and ciphertexts give the same words. Who knows it takes the
                encryption of zero off again, and two results under one seed differ as they did before: a seed for each result
                (`models.audit.AuditKey` derives them).

        On the session's threads, for a GPU on all CPUs.

        Noise: plus `noise.rerandomisation_variance`. It hides masks, not noise (docs/decisions/rerandomised-answers.md).
        """
        require_ciphertexts(ciphertexts, "rerandomise")
        check_same_key(self.parameters, self._key.key_id, ciphertexts.parameters, ciphertexts.key_id, "ciphertexts")
        held = ciphertexts.to_host()
        before = np.ascontiguousarray(held.words).reshape(-1, self.parameters.large_words)
        after = self._key.public_key.add_zeros(before, self.host_threads, seed)
        heads = after[:, :MASK_WORDS] + (self.parameters.modulus - before[:, :MASK_WORDS])
        zeros = reduce_once(heads, self.parameters.modulus).reshape(*held.shape, MASK_WORDS)
        words = after.reshape(held.words.shape)
        norm = math.sqrt(rerandomisation_variance(self.parameters) / blind_rotation_variance(self.parameters))
        terms = held.noise.plus(NoiseTerms.of_words(self.parameters, zeros, norm), self.parameters, words)
        return held._like(words, terms, held._bounds)

    # --- linear operations ---

    def linear(self, weights: ArrayLike | LinearWeights, ciphertexts: Ciphertexts) -> Ciphertexts:
        """Multiplies integer matrix [R, C] by ciphertexts [.., C], exact modulo Q: [.., R].

        Raises:
            ShapeError: weights that are no integer matrix (convert real ones first), or another number of ciphertexts than it has columns.
            ParameterError: weights of 2^31 and more in magnitude.
            KeyMismatchError: ciphertexts of another key.

        Noise: the L2 norm of the rows, where weights of columns with equal ciphertexts are added first.
        """
        require_ciphertexts(ciphertexts, "linear")
        prepared = weights if isinstance(weights, LinearWeights) else self._prepared(weights)
        if prepared.device != self.device:
            raise DeviceError(
                f"linear: expected weights made for '{self.device}', got weights for '{prepared.device}'; make them with this session"
            )
        rows, columns = prepared.shape
        if ciphertexts.ndim == 0 or ciphertexts.shape[-1] != columns:
            raise ShapeError(
                f"linear: expected ciphertexts of shape [.., {columns}] for weights of shape {list(prepared.shape)}, "
                f"got {list(ciphertexts.shape)}"
            )
        with device_memory(self.device, "linear"):
            words = self._batch(ciphertexts)
            words = words.reshape((words.shape[0] // columns, columns, self._lwe_size))
            if prepared.resident is not None:
                assert not isinstance(words, ShardedArray), "matrices are kept by sessions of one GPU"
                out: Batch = self._devices[0].gathered_linear(prepared.resident, words)
            else:
                out = self._engine.linear(prepared.matrix, words)
        return self._combined(out, (*ciphertexts.shape[:-1], rows), prepared.matrix, ciphertexts, ciphertexts.noise)

    def weights(self, weights: ArrayLike) -> LinearWeights:
        """Prepares a matrix for many calls of `linear`: checked once, and on one GPU kept there in the linear layer's form."""
        prepared = self._prepared(weights)
        if len(self._devices) != 1:
            return prepared
        with device_memory(self.device, "weights"):
            resident = self._devices[0].upload_weights(prepared.matrix)
        return LinearWeights(prepared.matrix, prepared.device, resident)

    def _prepared(self, weights: ArrayLike) -> LinearWeights:
        matrix = checked_weights(weights)
        return LinearWeights(np.ascontiguousarray(matrix, dtype=np.int32), self.device)

    def linear_packed(self, weights: ArrayLike, packed: Packed, *, resident: bool = False) -> Ciphertexts:
        """Multiplies integer matrix [R, C] by packed values [.., C]: [.., R]. The words of `linear(weights, extract(packed))`.

        Cost: on the CPU one polynomial product for a row and component, whatever C is; the C ciphertexts of a sample are never made.
        """
        matrix = checked_weights(weights)
        check_same_key(self.parameters, self._key.key_id, packed.parameters, packed.key_id, "packed ciphertexts")
        if len(packed.shape) == 0 or packed.shape[-1] != matrix.shape[1] or packed.size == 0:
            raise ShapeError(
                f"linear_packed: expected packed values of shape [.., {matrix.shape[1]}] for weights of shape {list(matrix.shape)}, "
                f"got {list(packed.shape)}"
            )
        if self._host is None:
            stays = resident or packed.device != "cpu"
            result = self.linear(matrix, self.extract(packed, resident=True))
            return result if stays else result.to_host()
        packed = expanded_on_host(packed, resident)
        samples = packed.size // matrix.shape[1]
        words = np.ascontiguousarray(packed.words)
        out = self._host.linear_packed(np.ascontiguousarray(matrix, dtype=np.int32), words, samples)
        noise = NoiseTerms.of_packed(self.parameters, words, packed.shape, packed.weight_norm)
        return self._combined(out, (*packed.shape[:-1], matrix.shape[0]), matrix, packed, noise)

    def extract(self, packed: Packed, *, resident: bool = False) -> Ciphertexts:
        """Extracts one LWE ciphertext per packed value, of the values' shape.

        Seeded ones are expanded on the session's device. `resident` leaves the result of host words on the GPU; of words on a GPU it
        stays there anyway.
        """
        check_same_key(self.parameters, self._key.key_id, packed.parameters, packed.key_id, "packed ciphertexts")
        if packed.size == 0:
            raise ShapeError(f"packed ciphertexts: expected at least one value, got shape {list(packed.shape)}")
        metadata: dict[str, Any] = packed._metadata()
        with device_memory(self.device, "extract"):
            if self._host is not None:
                rows = extract_on_host(self._host, expanded_on_host(packed, resident))
                return self._wrap(rows, packed.shape, **metadata)
            result = self._wrap(extract_on_devices(self._devices, packed), packed.shape, **metadata)
            return result if resident or packed.device != "cpu" else result.to_host()

    def extract_columns(self, packed: Packed, columns: ArrayLike) -> Ciphertexts:
        """Extracts some positions of the last axis alone, ascending: [.., columns], in host memory.

        Cost: on the CPU the other values are never made.
        """
        chosen = checked_columns(columns, packed.shape[-1] if packed.shape else 0)
        if self._host is None:
            every = self.extract(packed)
            words = np.ascontiguousarray((every if every.device == "cpu" else every.to_host()).words[..., chosen, :])
        else:
            check_same_key(self.parameters, self._key.key_id, packed.parameters, packed.key_id, "packed ciphertexts")
            words = extract_columns_on_host(self._host, expanded_on_host(packed, False), chosen)
        return self._wrap(words, (*packed.shape[:-1], len(chosen)), **packed._metadata())

    # --- the stages of a bootstrap, on raw words (docs/reference/specification.md, sections 2, 3, 6, 7), numpy's or of arrays on a device ---

    def keyswitch(self, ciphertexts: Ciphertexts) -> Small:
        """Switches LWE under the large key modulo Q -> uint32 [.., n + r] under the small key modulo 2^w."""
        small = cast(Small, self._engine.keyswitch(self._batch(ciphertexts)))
        return small.reshape((*ciphertexts.shape, small.shape[-1]))

    def modulus_switch(self, small_lwe: Small) -> Small:
        """Switches uint32 [.., n + r] modulo 2^w -> the same shape modulo 2 nu N."""
        switched = cast(Small, self._engine.modulus_switch(_rows(small_lwe)))
        return switched.reshape(small_lwe.shape)

    def blind_rotate(
        self,
        switched: Small,
        tables: LookupTables,
        *,
        table_index: ArrayLike | None = None,
        progress: Progress = None,
    ) -> Words:
        """Rotates: uint32 [.., n + r] modulo 2 nu N -> GLWE words [.., k + r, N] of phase X^(-phase) * LUT.

        Where `extension_factor` nu is not 1: [.., nu, k + r, N], entry c of the rotated table is coefficient c // nu of ciphertext c % nu.
        """
        shape = switched.shape[:-1]
        index = table_numbers(table_index, len(tables), shape)
        glwe = cast(Words, self._engine.blind_rotate(_rows(switched), tables.polynomials, index, progress))
        return glwe.reshape((*shape, *glwe.shape[1:]))

    def sample_extract(
        self, glwe: Words, coefficients: ArrayLike = (0,), *, encoding: Encoding | None = None
    ) -> Ciphertexts:
        """Extracts GLWE words [.., k + r, N] -> LWE ciphertexts [.., J] of the given coefficients."""
        rows = _contiguous(glwe).reshape((math.prod(glwe.shape[:-2]), *glwe.shape[-2:]))
        chosen = np.ascontiguousarray(coefficients, dtype=np.uint32)
        out = self._engine.sample_extract(rows, chosen)
        return self._wrap(out, (*glwe.shape[:-2], len(chosen)), encoding=encoding)

    # --- inside ---

    @property
    def _lwe_size(self) -> int:
        return self.parameters.large_words

    def _rotate(
        self,
        ciphertexts: Ciphertexts,
        tables: LookupTables,
        table_index: ArrayLike | None,
        coefficients: Small | None,
        progress: Progress,
    ) -> Ciphertexts:
        """Returns all four stages; several coefficients add an axis."""
        if tables.parameters != self.parameters:
            raise ParameterError(
                f"table: expected one of parameter set '{self.parameters.name}', got '{tables.parameters.name}'; build it for this set"
            )
        index = table_numbers(table_index, len(tables), ciphertexts.shape)
        with device_memory(self.device, "bootstrap"):
            words = self._batch(ciphertexts)
            out = self._engine.bootstrap(words, tables.polynomials, index, coefficients, progress)
        shape = ciphertexts.shape if coefficients is None else (*ciphertexts.shape, len(coefficients))
        result = self._wrap(out, shape, encoding=tables.output)
        if tables.bounds is not None:
            chosen = tables.bounds[0] if index is None else tables.bounds[index].reshape((*ciphertexts.shape, 2))
            spread = chosen if coefficients is None or index is None else chosen[..., None, :]
            result._bounds = np.broadcast_to(spread, (*shape, 2))
        return result

    def _combined(
        self,
        words: Batch,
        shape: tuple[int, ...],
        matrix: NDArray[Any],
        operand: Ciphertexts | Packed,
        noise: NoiseTerms,
    ) -> Ciphertexts:
        """Returns words of a matrix times an operand whose noise is made of `noise`."""
        result = self._wrap(words, shape, encoding=operand.encoding, key_id=operand.key_id)
        result._noise = noise.weighted(matrix, self.parameters, result._words)
        if operand._bounds is not None:
            result._bounds = message_bounds.weighted(operand._bounds, matrix)
        return result

    def _wrap(
        self, words: Batch, shape: tuple[int, ...], *, key_id: bytes | None = None, **metadata: Any
    ) -> Ciphertexts:
        if isinstance(words, np.ndarray):
            held: Words | DeviceWords = words.reshape((*shape, self._lwe_size))
        else:
            held = DeviceWords(self.parameters, words.reshape((math.prod(shape), self._lwe_size)), shape)
        return Ciphertexts(self.parameters, held, shape, key_id=key_id or self._key.key_id, **metadata)

    def _batch(self, ciphertexts: Ciphertexts) -> Batch:
        """Returns checked words [B, kN + r], C-contiguous, on the host or on the session's devices."""
        require_ciphertexts(ciphertexts, "ciphertexts")
        check_same_key(self.parameters, self._key.key_id, ciphertexts.parameters, ciphertexts.key_id, "ciphertexts")
        if ciphertexts.size == 0:
            raise ShapeError(
                f"ciphertexts: expected a batch of at least one, got shape {list(ciphertexts.shape)}; skip the call for empty batches"
            )
        words: Words | DeviceWords = ciphertexts._words
        if isinstance(words, np.ndarray):
            return np.ascontiguousarray(words).reshape(-1, self._lwe_size)
        if self.device == "cpu" or cuda_ordinals(self.device) != cuda_ordinals(words.device):
            raise DeviceError(
                f"ciphertexts: expected them on the host or on the session's device '{self.device}', got them on {words.device}; "
                f"move them with .to('{self.device}')"
            )
        return words.contiguous()

    def _check_norm(self, ciphertexts: Ciphertexts, allow_noise: bool) -> None:
        if allow_noise:
            return
        norm, limit = ciphertexts.weight_norm, self.parameters.max_weight_norm
        if norm > limit * _NORM_TOLERANCE:
            raise ParameterError(
                f"bootstrap: expected a weight norm of at most {limit:.4g} for parameter set '{self.parameters.name}', got {norm:.4g}; "
                "bootstrap earlier, use smaller weights or a set with a larger norm, or pass allow_noise=True and accept more failures "
                "(equal ciphertexts have one noise, which adds up)"
            )

    def _check_encoding(self, ciphertexts: Ciphertexts, expected: Encoding, operation: str | None) -> None:
        require_ciphertexts(ciphertexts, operation or "ciphertexts")
        if operation is not None and ciphertexts.encoding is not expected:
            raise ParameterError(
                f"{operation}: expected ciphertexts of encoding {expected.label}, got {ciphertexts.encoding.label}; "
                "use the bootstrap for that encoding, or with_encoding to read the words differently"
            )


def _contiguous(words: Any) -> Any:
    """numpy arrays in C order; device arrays are."""
    return np.ascontiguousarray(words) if isinstance(words, np.ndarray) else words


def _rows(words: Small) -> Small:
    rows: Small = _contiguous(words).reshape((math.prod(words.shape[:-1]), words.shape[-1]))
    return rows
