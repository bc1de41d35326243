"""The format of the file of a model for batches: a header in JSON, the formula's integers, the program of look-ups if there is one, SHA-256.

    magic 'CLKB' | version u16 | reserved u16 | JSON bytes u64 | JSON (UTF-8) | arrays | program | SHA-256 of all that

little-endian, arrays as in the file of a program (`models/program/artefact.py`).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from cloakwork.fhe_core.wire.files import PathLike, atomic_writer
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.costs import Cost
from cloakwork.models.batches.formula import Formula
from cloakwork.models.batches.plan import BatchPlan
from cloakwork.models.program import Program
from cloakwork.models.program.artefact_writer import PREFIX, ArrayWriter, program_to_bytes
from cloakwork.models.program.facts import OriginalFacts

# The content of a model for batches: its file, and all that its server needs.

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


MAGIC: Final = b"CLKB"
VERSION: Final = 1
CHECKSUM_BYTES: Final = 32


def write_batch(path: PathLike, model: BatchContents) -> None:
    """Write a file that appears under its name when it is complete."""
    writer = ArrayWriter()
    program = b"" if model.program is None else program_to_bytes(model.program)
    header = {
        "client": json.loads(model.client.to_json()),
        "formula": _formula_fields(model.formula, writer),
        "failure_log2": model.plan.failure_log2 if math.isfinite(model.plan.failure_log2) else None,
        "cost": _cost_fields(model.plan.cost),
        "batch": model.batch,
        "considered": [_alternative_fields(each) for each in model.considered],
        "reason": model.reason,
        "original": None if model.original is None else model.original.to_fields(),
        "program_bytes": len(program),
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = PREFIX.pack(MAGIC, VERSION, 0, len(text)) + text + b"".join(writer.parts) + program
    with atomic_writer(path) as stream:
        stream.write(body + hashlib.sha256(body).digest())


def _formula_fields(formula: Formula, writer: ArrayWriter) -> dict[str, Any]:
    """Returns `added` as decimal texts: 64 bits may be too few."""
    return {
        "degree": formula.degree,
        "inner": writer.add(formula.inner),
        "constant": writer.add(formula.constant),
        "outer": None if formula.outer is None else writer.add(formula.outer),
        "added": None if formula.added is None else [str(int(each)) for each in formula.added],
    }


def _alternative_fields(each: Alternative) -> dict[str, Any]:
    return {
        "packing": each.packing,
        "kind": each.kind,
        "cost": _cost_fields(each.cost),
        "agreement": float(each.agreement),
    }


def _cost_fields(cost: Cost) -> dict[str, float]:
    return {name: float(value) for name, value in vars(cost).items()}
