"""Ciphertexts from bytes of whichever kind: LWE or packed, seeded or not, in full words or switched."""

from __future__ import annotations

from typing import Any

from cloakwork.fhe_core import wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.switched_ciphertexts import load_results


def load_ciphertexts(
    data: wire.Buffer, *, parameters: ParameterSet | None = None, max_bytes: int = wire.DEFAULT_MAX_BYTES
) -> Ciphertexts | PackedCiphertexts:
    """Loads any kind from bytes, seeded and switched ones expanded (after `max_bytes` has been checked for the expanded size too)."""
    header = wire.peek(data)
    if header.kind is wire.Kind.SWITCHED_CIPHERTEXTS:
        return load_results(data, parameters=parameters, max_bytes=max_bytes)
    if header.kind not in (wire.Kind.CIPHERTEXTS, wire.Kind.PACKED_CIPHERTEXTS):
        raise wire.wrong_kind(header.kind, wire.Kind.CIPHERTEXTS)
    if header.seeded:
        full = wire.object_bytes(
            header.kind, header.parameters, False, header.shape, purpose=header.purpose is not None
        )
        wire.check_size(full, max_bytes)
    options: dict[str, Any] = {"parameters": parameters, "max_bytes": max_bytes}
    if header.kind is wire.Kind.CIPHERTEXTS:
        return (
            SeededCiphertexts.from_bytes(data, **options).expand()
            if header.seeded
            else Ciphertexts.from_bytes(data, **options)
        )
    return (
        SeededPackedCiphertexts.from_bytes(data, **options).expand()
        if header.seeded
        else PackedCiphertexts.from_bytes(data, **options)
    )
