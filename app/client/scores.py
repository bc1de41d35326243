"""Scores, and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cloakwork.models.client_steps import joined


@dataclass(frozen=True)
class Scores:
    """Predictions of all samples; bytes and seconds of all requests together."""

    predictions: Any  # an array; of a model of several outputs a dict of arrays by name
    seconds: float  # from encryption to decryption, without making and uploading keys
    compute_seconds: float  # what the server says that it computed
    upload_bytes: int  # evaluation keys sent now; 0 when the server had them
    ciphertext_bytes: int  # encrypted samples sent
    result_bytes: int

    @property
    def samples(self) -> int:
        """The count of scored samples."""
        several = isinstance(self.predictions, dict)
        return len(next(iter(self.predictions.values())) if several else self.predictions)

    @property
    def key_uploaded(self) -> bool:
        """Whether evaluation keys were sent for them."""
        return self.upload_bytes > 0

    @staticmethod
    def joined(parts: list[Scores]) -> Scores:
        """Joins the scores of several requests, in their order; times and bytes are sums."""
        return Scores(
            joined([part.predictions for part in parts]),
            sum(part.seconds for part in parts),
            sum(part.compute_seconds for part in parts),
            sum(part.upload_bytes for part in parts),
            sum(part.ciphertext_bytes for part in parts),
            sum(part.result_bytes for part in parts),
        )
