"""Negacyclic transforms of 2^12 to 2^17 points modulo many primes of 27 and 28 bits: the ground of levelled arithmetic.

Exact: the same residues on every back end. `src/core/large_ntt.hpp` has the algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine, engine
from cloakwork.fhe_core.arrays.device_words import cuda_ordinals, device_ordinals
from cloakwork.fhe_core.engine import DeviceArray
from cloakwork.fhe_core.errors import DeviceError, ParameterError, ShapeError
from cloakwork.fhe_core.words import Progress

Residues = NDArray[np.uint32]


def transform_primes(log_size: int, count: int) -> list[int]:
    """Returns the `count` largest primes below 2^28 for transforms of 2^log_size points, decreasing.

    Raises:
        ParameterError: log_size outside 12 to 17, or more primes than there are above 2^26 (for 2^17 points 93).
    """
    if count < 1:
        raise ParameterError(f"primes: expected at least one, got {count}")
    return _engine.large_ntt_primes(log_size, count)


class LargeNtt:
    """Transforms of polynomials modulo X^N + 1 and each of some primes q, N = 2^log_size.

    Position i of a transformed polynomial is its value at psi^(2 brv(i) + 1), brv the reversal of log_size bits and psi of order 2N
    (`roots`), so that products are pointwise.

    Args:
        log_size: 12 to 17.
        primes: each once, between 2^26 and 2^28, 1 modulo 2N; or how many of `transform_primes`.
        device: "cpu", "cuda" or "cuda:N".
        threads: of the CPU; a polynomial modulo one prime is one thread's.

    Source: [KJPA20], [LN16], [Har14].
    """

    def __init__(self, log_size: int, primes: int | Sequence[int], device: str = "cpu", threads: int = 1) -> None:
        chosen = transform_primes(log_size, primes) if isinstance(primes, int) else list(primes)
        if not all(0 < q < 1 << 28 for q in chosen):
            raise ParameterError("primes: expected primes between 2^26 and 2^28; transform_primes lists some")
        self._tables = _engine.LargeNtt(log_size, chosen)
        self._threads = threads
        self._ordinals = device_ordinals(device) if device == "cpu" else cuda_ordinals(device)
        if len(self._ordinals) > 1:
            raise DeviceError(f"device: expected one device, got '{device}'")
        self._cuda = engine.device_transform(self._tables, self._ordinals[0]) if self._ordinals else None

    @property
    def log_size(self) -> int:
        return self._tables.log_size

    @property
    def primes(self) -> list[int]:
        return self._tables.primes

    @property
    def roots(self) -> list[int]:
        """psi of each prime."""
        return self._tables.roots

    @property
    def table_bytes(self) -> int:
        """Counts the bytes of the tables of one prime."""
        return self._tables.table_bytes

    def forward(self, words: Residues | DeviceArray, progress: Progress = None, *, out: Residues | None = None) -> Any:
        """Transforms coefficients to values.

        Args:
            words: [batch, primes, N] uint32, each below its prime; an array of the host or of this device.
            out: of the host, for the result: another array, or `words` itself. On a CPU.

        Returns:
            The same shape, where the argument lies.

        Raises:
            ShapeError: another shape or dtype, or a word that is not below its prime.
        """
        return self._transform(words, False, progress, out)

    def inverse(self, words: Residues | DeviceArray, progress: Progress = None, *, out: Residues | None = None) -> Any:
        """Transforms values to coefficients, the inverse of `forward`."""
        return self._transform(words, True, progress, out)

    def to_device(self, words: Residues) -> DeviceArray:
        """Copies to the device that this transform runs on."""
        if self._cuda is None:
            raise DeviceError("device: expected a CUDA device, this transform runs on the CPU")
        return engine.upload(words, self._ordinals[0])

    def _transform(self, words: Residues | DeviceArray, inverse: bool, progress: Progress, out: Residues | None) -> Any:
        if self._cuda is None:
            if not isinstance(words, np.ndarray):
                raise ShapeError("words: expected a numpy array on a CPU; use to_host() first")
            return self._tables.transform(words, inverse, self._threads, progress, out)
        if out is not None:
            raise DeviceError("out: expected a transform on a CPU, this one runs on a device")
        if isinstance(words, np.ndarray):
            expected = (len(self.primes), 1 << self.log_size)
            if words.ndim != 3 or words.shape[0] == 0 or words.shape[1:] != expected or words.dtype != np.uint32:
                raise ShapeError(
                    f"words: expected uint32 of shape [batch, {expected[0]}, {expected[1]}], got {words.dtype} of shape {list(words.shape)}"
                )
            return self._cuda.transform(self.to_device(words), inverse).to_host()
        return self._cuda.transform(words, inverse)

    def seconds_on_device(self, words: DeviceArray, *, inverse: bool, calls: int, repeats: int) -> list[float]:
        """Returns seconds of one transform, `repeats` times: the mean of `calls` that follow each other, by the device's clock."""
        if self._cuda is None:
            raise DeviceError("device: expected a CUDA device, this transform runs on the CPU")
        return self._cuda.seconds(words, inverse, calls, repeats)
