"""Data sets of ciphertexts scored on a Ray cluster, or on all of this machine. Public side only: no secret key takes part."""

from __future__ import annotations

from cloakwork.app.batch import BatchOptions, score_batch

__all__ = ["BatchOptions", "score_batch"]
