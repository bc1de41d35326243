"""A compiled program in one file.

    magic 'CLKM' | version u16 | reserved u16 | JSON bytes u64 | JSON (UTF-8) | arrays | SHA-256 of all that

little-endian. The JSON names each array's type, shape and place, so that the file can be read without this project; the arrays follow each
other without gaps. It depends on no version of Python, machine or device. A changed byte or parameter row is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_set
from cloakwork.fhe_core.wire.files import PathLike, atomic_writer
from cloakwork.models import fields as typed
from cloakwork.models.client_steps import input_steps_from_fields, last_step_from_record, split_tail, tail_from_fields
from cloakwork.models.graph.ir import TABLES, Graph, Input, Linear, Lookup, Node, check_levelled
from cloakwork.models.graph.steps import Step, apply_steps, broken_rule
from cloakwork.models.program.artefact_writer import FACTS, INTEGERS, MAGIC, PREFIX, VERSION, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.facts import Facts
from cloakwork.models.program.program import Program

__all__ = ["MAGIC", "load_program", "program_from_bytes", "program_to_bytes", "save_program"]

_DIGEST_BYTES: Final = 32
_TYPES: Final = (*INTEGERS, "<f8")
_MOST_DIMENSIONS: Final = 32
_MOST_STEPS: Final = 1 << 16  # of a look-up
_OF_VECTORS: Final = (*TABLES, "Staircase")  # steps whose first parameter is a vector for each function


def program_from_bytes(data: bytes) -> Program:
    """Parses a program's file.

    Raises:
        SerializationError: another kind of file, truncated, or altered.
        KeyMismatchError: compiled for another version of its parameter set.
    """
    header, arrays = _open(data)
    try:
        program = _program(header, ArrayReader(arrays))
        vars(program)["file"] = bytes(
            data
        )  # not a field: a program that is made of this one by `replace` has other bytes
        ClientSpecification.of(program).checked()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError, ArithmeticError) as error:
        line = " ".join(str(error).split())[:200]
        raise SerializationError(
            f"program: expected the fields of version {VERSION}; the file is not a valid program ({line})"
        ) from error
    return program


def save_program(path: PathLike, program: Program) -> None:
    """Writes a file that appears under its name when it is complete."""
    with atomic_writer(path) as stream:
        stream.write(program_to_bytes(program))


def load_program(path: PathLike) -> Program:
    """Loads a compiled program from its file; errors as `program_from_bytes`."""
    return program_from_bytes(Path(path).read_bytes())


# --- reading ---------------------------------------------------------------------------------------------------------------------


def _open(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Returns header and arrays after every check that needs no knowledge of the header's fields."""
    if len(data) < PREFIX.size + _DIGEST_BYTES:
        raise SerializationError(
            f"program: expected at least {PREFIX.size + _DIGEST_BYTES} bytes, got {len(data)}; it is truncated"
        )
    magic, version, reserved, length = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise SerializationError("program: expected the magic bytes 'CLKM' at its start; this is another kind of file")
    if version != VERSION or reserved:
        raise SerializationError(
            f"program: expected version {VERSION}, got {version}; compile the model again with this release"
        )
    if hashlib.sha256(memoryview(data)[:-_DIGEST_BYTES]).digest() != data[-_DIGEST_BYTES:]:
        raise SerializationError(
            "program: the checksum does not match; the bytes were altered or damaged, transfer the file again"
        )
    if length > len(data) - PREFIX.size - _DIGEST_BYTES:
        raise SerializationError("program: its header is longer than the file; the file is not a valid program")
    try:
        header = json.loads(data[PREFIX.size : PREFIX.size + length])
    except (ValueError, RecursionError) as error:
        raise SerializationError("program: expected a header in JSON; the file is not a valid program") from error
    if not isinstance(header, dict):
        raise SerializationError("program: expected a JSON object as header; the file is not a valid program")
    return header, memoryview(data)[PREFIX.size + length : -_DIGEST_BYTES]


class ArrayReader:
    """Arrays as they were written: no byte belongs to two of them, so that a small file cannot ask for much memory."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._unread = len(data)

    def get(self, place: Any) -> NDArray[Any]:
        """Returns integers as int64, others as float64; infinities, but no NaN."""
        extents = [typed.integer(extent) for extent in typed.entries(place["shape"], _MOST_DIMENSIONS)]
        kind, offset = typed.text(place["type"]), typed.integer(place["offset"])
        if kind not in _TYPES:
            raise ValueError("an array is of an unknown type")
        count = math.prod(extents)
        size = count * np.dtype(kind).itemsize
        if offset + size > len(self._data) or size > self._unread:
            raise ValueError("an array reaches beyond the file, or into another")
        self._unread -= size
        flat = np.frombuffer(self._data, dtype=kind, count=count, offset=offset)
        if kind == "<f8" and bool(np.isnan(flat).any()):
            raise ValueError("an array holds what is not a number")
        return flat.reshape(extents).astype(np.float64 if kind == "<f8" else np.int64)


def _program(header: dict[str, Any], arrays: ArrayReader) -> Program:
    params = _parameters(typed.text(header["parameter_set"]), typed.text(header["parameter_digest"]))
    nodes = tuple(_node(description, arrays) for description in typed.entries(header["nodes"]))
    output = arrays.get(header["output"])
    lower, upper, scale, offset = (arrays.get(header[name]) for name in FACTS)
    last, others = split_tail(tail_from_fields(header, last_step_from_record))
    graph = Graph(nodes, output, last, lower, upper, scale, offset)
    layer_noise = {name: typed.real(percent) for name, percent in dict(header.get("layer_noise", {})).items()}
    return Program(
        _with_sound_numbers(check_levelled(graph)),
        params,
        typed.real(header["noise_percent"]),
        layer_noise,
        input_steps_from_fields(header.get("input_steps", [])),
        others,
        typed.real(header.get("output_unit", 0.0)),
        Facts.from_fields(dict(header.get("facts", {}))),
        bytes.fromhex(typed.text(header.get("salt", ""))),
    )


def _parameters(name: str, digest: str) -> ParameterSet:
    try:
        params = parameter_set(name)
    except ParameterError as error:
        raise KeyMismatchError(f"program: its parameter set cannot be used here ({error})") from error
    if digest != parameter_digest(params).hex():
        raise KeyMismatchError(
            f"program: it was compiled for another version of parameter set '{params.name}'; compile the model again with this release"
        )
    return params


def _node(description: dict[str, Any], arrays: ArrayReader) -> Node:
    first, origin = typed.integer(description["first_wire"]), typed.text(description["origin"])
    kind = typed.text(description["kind"])
    if kind == "Input":
        return Input(first, typed.shape(description["shape"]), origin)
    gather = arrays.get(description["gather"])
    if kind == "Linear":
        block, weights, bias = (arrays.get(description[name]) for name in ("block", "weights", "bias"))
        return Linear(first, gather, block, weights, bias, origin)
    if kind != "Lookup":
        raise ValueError("a node is of an unknown kind")
    steps = tuple(_step(step, arrays) for step in typed.entries(description["steps"], _MOST_STEPS))
    shifts = arrays.get(description["shifts"]) if "shifts" in description else None
    node = Lookup(first, gather, steps, arrays.get(description["function"]), origin, shifts)
    broken = broken_rule(steps)
    if broken is not None:
        raise ValueError(f"look-up '{origin}': {broken}")
    apply_steps(steps, np.zeros(1), node.function[:1])  # as many parameters as the functions take
    return node


def _step(step: dict[str, Any], arrays: ArrayReader) -> Step:
    """Returns a number for each function; a table has a vector for each."""
    operator = typed.text(step["operator"])
    parameters = tuple(arrays.get(place) for place in typed.entries(step["parameters"], _MOST_STEPS))
    for i, parameter in enumerate(parameters):
        if parameter.ndim != (2 if operator in _OF_VECTORS and i == 0 else 1) or parameter.size > typed.MOST_NUMBERS:
            raise ValueError(f"step {operator}: expected a number, or a table, for each function")
    reads = tuple(typed.integer(back, 1, _MOST_STEPS) for back in typed.entries(step.get("reads", [1]), _MOST_STEPS))
    return Step(operator, parameters, reads)


def _with_sound_numbers(graph: Graph) -> Graph:
    """Scales that are some, and ranges that have their ends in order."""
    assert graph.lower is not None and graph.upper is not None and graph.scale is not None
    used = graph.owners()[:-1] >= 0
    if not (bool((graph.scale[used] > 0).all()) and bool((graph.lower <= graph.upper).all())):
        raise ValueError("a wire's range or scale is none")
    return graph
