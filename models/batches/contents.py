"""The content of a model for batches: its file, and all that its server needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.costs import Cost
from cloakwork.models.batches.formula import Formula
from cloakwork.models.batches.plan import BatchPlan
from cloakwork.models.program import Program
from cloakwork.models.program.facts import OriginalFacts

SamplePacking: TypeAlias = Literal[
    "slots", "ciphertexts"
]  # one sample a slot (or coefficient), one ciphertext a sample


@dataclass(frozen=True)
class Alternative:
    """A way of computing the model that was considered.

    Attributes:
        kind: what the server computes, in words.
        agreement: share of the given samples decided as by the model in clear; of values, of their deviation that is kept.
    """

    packing: SamplePacking
    kind: str
    cost: Cost
    agreement: float


@dataclass(frozen=True, eq=False)
class BatchContents:
    """Content of a model's file; attributes as of `BatchModel`.

    Attributes:
        program: of one ciphertext a sample by look-ups' arithmetic; None if another packing was chosen.
    """

    client: BatchClient
    formula: Formula
    plan: BatchPlan
    program: Program | None
    batch: int
    considered: tuple[Alternative, ...]
    reason: str
    original: OriginalFacts | None = None

    @property
    def packing(self) -> SamplePacking:
        """Returns how samples are packed: as the chosen alternative, the first of `considered`."""
        return self.considered[0].packing
