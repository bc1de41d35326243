"""Messages: integers of any width modulo the plaintext modulus."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.errors import ShapeError


def residues(values: NDArray[Any], modulus: int) -> NDArray[np.int64]:
    """Reduces to [0, modulus). Args: values: of any integer dtype: narrow ones do not hold the modulus, and uint64 ones not fit into int64."""
    wide = values if values.dtype == np.uint64 else values.astype(np.int64)
    return (wide % wide.dtype.type(modulus)).astype(np.int64)


def centred(values: NDArray[Any], modulus: int) -> NDArray[np.signedinteger]:
    """Reduces to (-modulus / 2, modulus / 2], of 32 or 64 bits. Args: modulus: below 2^31."""
    if values.size and -(modulus // 2) < int(values.min()) and int(values.max()) <= modulus // 2:
        return values.astype(np.int32)
    reduced = residues(values, modulus)
    return np.where(reduced > modulus // 2, reduced - modulus, reduced)


def polynomials(messages: ArrayLike, size: int, modulus: int) -> NDArray[np.int64]:
    """Integers [batch, N] or [N] as residues [batch, N]. Raises: ShapeError: another shape, or numbers that are no integers."""
    values = np.asarray(messages)
    if values.dtype.kind not in "iu" or values.ndim not in (1, 2) or values.shape[-1] != size:
        raise ShapeError(
            f"messages: expected integers of shape [batch, {size}] or [{size}], got {values.dtype} of shape {list(values.shape)}"
        )
    return residues(values.reshape(-1, size), modulus)
