"""A compiled program in one file.

    magic 'CLKM' | version u16 | reserved u16 | JSON bytes u64 | JSON (UTF-8) | arrays | SHA-256 of all that

little-endian. The JSON names each array's type, shape and place, so that the file can be read without this project; the arrays follow each
other without gaps. It depends on no version of Python, machine or device. A changed byte or parameter row is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError
from cloakwork.fhe_core.files import PathLike, atomic_writer
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.models.client_steps import input_steps_from_fields, output_steps_from_fields, steps_to_fields
from cloakwork.models.ir import ClientStep, Graph, Input, Linear, Lookup, Node, check_levelled
from cloakwork.models.program import Program
from cloakwork.models.steps import Step, apply_steps

MAGIC: Final = b"CLKM"
VERSION: Final = 1
_PREFIX: Final = struct.Struct("<4sHHQ")
_DIGEST_BYTES: Final = 32
_INTEGERS: Final = ("<i1", "<i2", "<i4", "<i8")
_TYPES: Final = (*_INTEGERS, "<f8")
_FACTS: Final = ("lower", "upper", "scale", "offset")


def program_to_bytes(program: Program) -> bytes:
    writer = _ArrayWriter()
    header = {
        "parameter_set": program.parameters.name,
        "parameter_digest": parameter_digest(program.parameters).hex(),
        "noise_percent": program.noise_percent,
        "layer_noise": dict(program.layer_noise),
        "nodes": [_describe(node, writer) for node in program.graph.nodes],
        "output": writer.add(program.graph.output),
        "client_steps": [
            {"operator": s.operator, "axis": s.axis, "keepdims": s.keepdims, "count": s.count, "largest": s.largest}
            for s in program.graph.client_steps
        ],
        "input_steps": steps_to_fields(program.input_steps),
        "output_steps": steps_to_fields(program.output_steps),
        "output_unit": program.output_unit,
        "facts": dict(program.facts),
        **{name: writer.add(getattr(program.graph, name)) for name in _FACTS},
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = _PREFIX.pack(MAGIC, VERSION, 0, len(text)) + text + b"".join(writer.parts)
    return body + hashlib.sha256(body).digest()


def program_from_bytes(data: bytes) -> Program:
    """Raises:
    SerializationError: another kind of file, truncated, or altered.
    KeyMismatchError: compiled for another version of its parameter set.
    """
    header, arrays = _open(data)
    try:
        return _program(header, _ArrayReader(arrays))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, AssertionError) as error:
        raise SerializationError(
            f"program: expected the fields of version {VERSION}; the file is made up ({error})"
        ) from error


def save_program(path: PathLike, program: Program) -> None:
    """Writes a file that appears under its name when it is complete."""
    with atomic_writer(path) as stream:
        stream.write(program_to_bytes(program))


def load_program(path: PathLike) -> Program:
    return program_from_bytes(Path(path).read_bytes())


# --- writing ---------------------------------------------------------------------------------------------------------------------


class _ArrayWriter:
    """Arrays one after the other; integers in the smallest type that holds them."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._offset = 0

    def add(self, array: NDArray[Any]) -> dict[str, Any]:
        stored = _smallest(array)
        data = np.ascontiguousarray(stored).tobytes()
        place = {
            "type": stored.dtype.newbyteorder("<").str.replace("|", "<"),
            "shape": list(array.shape),
            "offset": self._offset,
        }
        self.parts.append(data)
        self._offset += len(data)
        return place


def _smallest(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        return array.astype("<f8")
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    fitting = next(t for t in _INTEGERS if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return array.astype(fitting)


def _describe(node: Node, writer: _ArrayWriter) -> dict[str, Any]:
    common = {"kind": type(node).__name__, "first_wire": node.first_wire, "origin": node.origin}
    if isinstance(node, Input):
        return {**common, "shape": list(node.shape)}
    common["gather"] = writer.add(node.gather)
    if isinstance(node, Linear):
        return {**common, **{name: writer.add(getattr(node, name)) for name in ("block", "weights", "bias")}}
    steps = [{"operator": s.operator, "parameters": [writer.add(p) for p in s.parameters]} for s in node.steps]
    shifts = {} if node.shifts is None else {"shifts": writer.add(node.shifts)}
    return {**common, "function": writer.add(node.function), "steps": steps, **shifts}


# --- reading ---------------------------------------------------------------------------------------------------------------------


def _open(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Header and arrays after every check that needs no knowledge of the header's fields."""
    if len(data) < _PREFIX.size + _DIGEST_BYTES:
        raise SerializationError(
            f"program: expected at least {_PREFIX.size + _DIGEST_BYTES} bytes, got {len(data)}; it is truncated"
        )
    magic, version, reserved, length = _PREFIX.unpack_from(data)
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
    if length > len(data) - _PREFIX.size - _DIGEST_BYTES:
        raise SerializationError("program: its header is longer than the file; it is made up")
    try:
        header = json.loads(data[_PREFIX.size : _PREFIX.size + length])
    except (ValueError, RecursionError) as error:
        raise SerializationError("program: expected a header in JSON; the file is made up") from error
    if not isinstance(header, dict):
        raise SerializationError("program: expected a JSON object as header; the file is made up")
    return header, memoryview(data)[_PREFIX.size + length : -_DIGEST_BYTES]


class _ArrayReader:
    """Arrays in the order in which they were written, without gaps."""

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def get(self, place: dict[str, Any]) -> NDArray[Any]:
        kind, shape, offset = place["type"], [int(extent) for extent in place["shape"]], int(place["offset"])
        if kind not in _TYPES or min(shape, default=0) < 0 or offset < 0:
            raise ValueError("an array's description is out of range")
        count = math.prod(shape)
        if offset + count * np.dtype(kind).itemsize > len(self._data):
            raise ValueError("an array reaches beyond the file")
        flat = np.frombuffer(self._data, dtype=kind, count=count, offset=offset)
        return flat.reshape(shape).astype(np.float64 if kind == "<f8" else np.int64)


def _program(header: dict[str, Any], arrays: _ArrayReader) -> Program:
    params = parameter_set(header["parameter_set"])
    if header["parameter_digest"] != parameter_digest(params).hex():
        raise KeyMismatchError(
            f"program: it was compiled for another version of parameter set '{params.name}'; compile the model again with this release"
        )
    steps = tuple(
        ClientStep(
            s["operator"], int(s["axis"]), bool(s["keepdims"]), int(s.get("count", 0)), bool(s.get("largest", True))
        )
        for s in header["client_steps"]
    )
    graph = Graph(
        tuple(_node(description, arrays) for description in header["nodes"]),
        arrays.get(header["output"]),
        steps,
        **{name: arrays.get(header[name]) for name in _FACTS},
    )
    layer_noise = {str(name): float(percent) for name, percent in header.get("layer_noise", {}).items()}
    return Program(
        check_levelled(graph),
        params,
        float(header["noise_percent"]),
        layer_noise,
        input_steps_from_fields(header.get("input_steps", [])),
        output_steps_from_fields(header.get("output_steps", [])),
        float(header.get("output_unit", 0.0)),
        dict(header.get("facts", {})),
    )


def _node(description: dict[str, Any], arrays: _ArrayReader) -> Node:
    first, origin, kind = int(description["first_wire"]), str(description["origin"]), description["kind"]
    if kind == "Input":
        return Input(first, tuple(int(extent) for extent in description["shape"]), origin)
    gather = arrays.get(description["gather"])
    if kind == "Linear":
        block, weights, bias = (arrays.get(description[name]) for name in ("block", "weights", "bias"))
        return Linear(first, gather, block, weights, bias, origin)
    if kind != "Lookup":
        raise ValueError("a node is of an unknown kind")
    steps = tuple(
        Step(str(step["operator"]), tuple(arrays.get(p) for p in step["parameters"])) for step in description["steps"]
    )
    shifts = arrays.get(description["shifts"]) if "shifts" in description else None
    node = Lookup(first, gather, steps, arrays.get(description["function"]), origin, shifts)
    apply_steps(steps, np.zeros(1), node.function[:1])  # as many parameters as the functions take
    return node
