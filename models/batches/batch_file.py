"""Reading the file of a model for batches."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.levelled.evaluator import MOST_WEIGHT
from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.models import fields as typed
from cloakwork.models.arrays import Indices
from cloakwork.models.batches.batch_format import (
    CHECKSUM_BYTES,
    MAGIC,
    VERSION,
    Alternative,
    BatchContents,
    SamplePacking,
)
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.costs import Cost
from cloakwork.models.batches.formula import Formula
from cloakwork.models.batches.kernels import MOST_DEGREE
from cloakwork.models.batches.plan import BatchPlan, answer_noise
from cloakwork.models.program.artefact import ArrayReader, program_from_bytes
from cloakwork.models.program.artefact_writer import PREFIX
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.facts import OriginalFacts
from cloakwork.models.program.specification_limits import check_text

DEFAULT_MAX_BYTES: Final = 1 << 32
_MOST_ALTERNATIVES: Final = 64
_MOST_DIGITS: Final = (
    80  # of a number that is added to a sum of powers: the plaintext moduli together have fewer bits than 80
)


def is_batch_file(path: PathLike) -> bool:
    """Whether bytes are the file of a model for batches, by its first bytes."""
    with Path(path).open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def read_batch(path: PathLike, max_bytes: int = DEFAULT_MAX_BYTES) -> BatchContents:
    """Read the file of a model for batches.

    Raises:
        SerializationError: another kind of file, damaged, or larger than `max_bytes`; its message names the file.
        KeyMismatchError: made for another version of a parameter set.
    """
    file = Path(path)
    size = file.stat().st_size
    if size > max_bytes:
        raise SerializationError(f"{file}: expected at most {max_bytes} bytes, got {size}")
    try:
        with file.open("rb") as stream:
            return batch_from_bytes(stream.read(size))
    except (SerializationError, KeyMismatchError) as error:
        raise type(error)(f"{file}: {error}") from None


def batch_from_bytes(data: bytes) -> BatchContents:
    """Returns a model of the bytes of its file. Raises: SerializationError, KeyMismatchError: as `read_batch`."""
    header, arrays, program = _opened(data)
    try:
        return _model(header, ArrayReader(arrays), bytes(program))
    except KeyMismatchError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, FheError) as error:
        line = " ".join(str(error).split())[:200]
        raise SerializationError(
            f"batch: expected the fields of version {VERSION}; the file is not a valid model ({line})"
        ) from None


def embedded_program(data: bytes) -> bytes:
    """Returns the bytes of the program in a file; none if its packing is another. Raises: SerializationError."""
    return bytes(_opened(data)[2])


def _opened(data: bytes) -> tuple[dict[str, Any], memoryview, memoryview]:
    """Returns header, arrays and program, after every check that needs no knowledge of the model."""
    if len(data) < PREFIX.size + CHECKSUM_BYTES or data[: len(MAGIC)] != MAGIC:
        raise SerializationError(
            "batch: expected the file of a model for batches; this is another kind of file, or cut off"
        )
    _, version, reserved, length = PREFIX.unpack_from(data)
    if version != VERSION or reserved:
        raise SerializationError(
            f"batch: expected version {VERSION}, got {version}; compile the model again with this release"
        )
    view = memoryview(data)[PREFIX.size : -CHECKSUM_BYTES]
    if hashlib.sha256(memoryview(data)[:-CHECKSUM_BYTES]).digest() != data[-CHECKSUM_BYTES:]:
        raise SerializationError(
            "batch: the checksum does not match; the bytes were altered or damaged, transfer the file again"
        )
    try:
        if length > len(view):
            raise ValueError("the header is longer than the file")
        text = bytes(view[:length]).decode()
        check_text(text)
        header = typed.parsed_object(text, unique=True)
        program_bytes = typed.integer(header["program_bytes"], 0, len(view) - length)
    except (KeyError, ValueError) as error:
        raise SerializationError(f"batch: expected a header in JSON; the file is not a valid model ({error})") from None
    end = len(view) - program_bytes
    return header, view[length:end], view[end:]


def _model(header: dict[str, Any], arrays: ArrayReader, program: bytes) -> BatchContents:
    client = BatchClient.from_json(json.dumps(header["client"]))
    formula = _formula(header["formula"], arrays)
    failure = -math.inf if header["failure_log2"] is None else typed.real(header["failure_log2"])
    plan = BatchPlan(
        client.parameters, client.packing, client.level, client.answer_level, failure, _cost(header["cost"])
    )
    original = header["original"]
    model = BatchContents(
        client=client,
        formula=formula,
        plan=plan,
        program=program_from_bytes(program) if program else None,
        batch=typed.integer(header["batch"], 1),
        considered=tuple(map(_alternative, typed.entries(header["considered"], _MOST_ALTERNATIVES))),
        reason=_line(header["reason"]),
        original=None if original is None else OriginalFacts.taken(dict(original)),
    )
    _check(model)
    return model


def _formula(fields: dict[str, Any], arrays: ArrayReader) -> Formula:
    outer, added = fields["outer"], fields["added"]
    return Formula(
        _integers(arrays.get(fields["inner"])),
        _integers(arrays.get(fields["constant"])),
        typed.integer(fields["degree"], 1, MOST_DEGREE),
        None if outer is None else _integers(arrays.get(outer)),
        None if added is None else np.array(list(map(_large, typed.entries(added))), dtype=object),
    )


def _integers(array: NDArray[Any]) -> Indices:
    if array.dtype != np.int64:
        raise ValueError("expected integers")
    return array


def _large(value: Any) -> int:
    if len(typed.text(value)) > _MOST_DIGITS:
        raise ValueError("expected a smaller integer")
    return int(value)


def _alternative(fields: dict[str, Any]) -> Alternative:
    packing = fields["packing"]
    if packing not in get_args(SamplePacking):
        raise ValueError("expected a packing")
    return Alternative(packing, _line(fields["kind"]), _cost(fields["cost"]), typed.real(fields["agreement"]))


def _cost(fields: dict[str, Any]) -> Cost:
    cost = Cost(**{name: typed.real(value) for name, value in fields.items()})
    if min(vars(cost).values()) < 0:
        raise ValueError("expected costs of 0 or more")
    return cost


def _line(value: Any) -> str:
    """Returns a text that a terminal may show."""
    if not typed.text(value).isprintable():
        raise ValueError("expected a line of text")
    return str(value)


def _check(model: BatchContents) -> None:
    """Raises ValueError, ParameterError: parts that do not fit each other, sums that would wrap, levels that leave too little room for noise."""
    client, formula = model.client, model.formula
    program_specification = None if model.program is None else ClientSpecification.of(model.program).to_json()
    client_specification = None if client.program is None else client.program.to_json()
    by_query = model.program is not None or client.packing == "query"
    fits = (
        (formula.features, formula.outputs) == (client.features, len(client.unit))
        and client.products == (formula.degree > 1)
        and not (client.packing == "query" and formula.outer is not None)
        and program_specification == client_specification
        and bool(model.considered)
        and model.packing == ("ciphertexts" if by_query else "slots")
    )
    if not fits:
        raise ValueError("parts that do not fit each other")
    weights = [formula.inner] if formula.outer is None else [formula.inner, formula.outer]
    if any(np.abs(each.astype(np.float64)).sum(axis=1).max() >= MOST_WEIGHT for each in weights):
        raise ValueError("weights that are too large")
    if 2 * formula.largest(client.limit) + 1 > math.prod(each.plaintext_modulus for each in client.parameters):
        raise ValueError("sums that would wrap")
    answer_noise(formula, client.parameters[0], client.packing, (client.level, client.answer_level))
