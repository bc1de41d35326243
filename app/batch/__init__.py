"""Data sets of ciphertexts scored on a Ray cluster, or on all of this machine (docs/howto/batch.md). Public side only: no secret key takes part."""

from cloakwork.app.batch.options import BatchOptions
from cloakwork.app.batch.score import score_batch

__all__ = ["BatchOptions", "score_batch"]
