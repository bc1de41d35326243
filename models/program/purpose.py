"""Ciphertexts say which program they are for: an input or result of another model is refused, not computed with.

The digest of the program (models/program/artefact.py) is the purpose of every input that a client specification encrypts and of every result. It
catches mix-ups; it is no proof, because who makes ciphertexts can write any purpose.
"""

from __future__ import annotations

from cloakwork.fhe_core.errors import KeyMismatchError


def check_purpose(purpose: bytes | None, digest: bytes, what: str, remedy: str) -> None:
    """Checks that ciphertexts are for the program of this digest.

    Args:
        what, remedy: of the message: which ciphertexts, and how to get right ones.

    Raises:
        KeyMismatchError: they are for another program, or do not say for which.
    """
    if purpose is None:
        raise KeyMismatchError(
            f"{what}: expected ciphertexts for program {digest.hex()[:16]}, got some that do not say which program they are for: made without a "
            f"client specification, or by an earlier release; {remedy}"
        )
    if purpose != digest:
        raise KeyMismatchError(
            f"{what}: expected ciphertexts for program {digest.hex()[:16]}, got some for program {purpose.hex()[:16]}, another model; {remedy}"
        )
