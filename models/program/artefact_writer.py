"""A program as the bytes of models/program/artefact.py, which reads them again, and the digest that names it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest
from cloakwork.models.client_steps import InputStep, OutputStep, last_step_to_record, steps_to_fields, tail_to_fields
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node
from cloakwork.models.graph.steps import Step
from cloakwork.models.program.facts import Facts

# The content of a compiled program: all that its file holds, and from which everything else about it follows.

SALT_BYTES: Final = 32


@dataclass(frozen=True, eq=False)
class Contents:
    graph: Graph
    parameters: ParameterSet
    noise_percent: float
    layer_noise: Mapping[str, float] = field(default_factory=dict)  # where it is another
    input_steps: tuple[InputStep, ...] = ()  # by the client, from its table to the graph's input
    output_steps: tuple[OutputStep, ...] = ()  # by the client, after those that the graph ends in
    output_unit: float = 0.0  # phase between two values of the output; 0 when they are real numbers
    facts: Facts = field(default_factory=Facts)  # of the model, for the report
    salt: bytes = (
        b""  # random, in files alone: with it the digest, which clients know, does not confirm a guess at the program
    )

    @property
    def tail(self) -> tuple[OutputStep, ...]:
        """All that the client does after decryption."""
        return (*self.graph.client_steps, *self.output_steps)


MAGIC: Final = b"CLKM"
VERSION: Final = 1
PREFIX: Final = struct.Struct("<4sHHQ")
INTEGERS: Final = ("<i1", "<i2", "<i4", "<i8")
FACTS: Final = ("lower", "upper", "scale", "offset")


def program_to_bytes(program: Contents) -> bytes:
    """Returns the bytes of its file for a program that was loaded, whatever release wrote it, so that it keeps its digest."""
    kept: bytes | None = vars(program).get("file")
    if kept is not None:
        return kept
    writer = ArrayWriter()
    header = {
        "parameter_set": program.parameters.name,
        "parameter_digest": parameter_digest(program.parameters).hex(),
        "noise_percent": program.noise_percent,
        "layer_noise": dict(program.layer_noise),
        "nodes": [_describe(node, writer) for node in program.graph.nodes],
        "output": writer.add(program.graph.output),
        "input_steps": steps_to_fields(program.input_steps),
        **tail_to_fields(program.tail, last_step_to_record),
        "output_unit": program.output_unit,
        "facts": program.facts.to_fields(),
        **({"salt": program.salt.hex()} if program.salt else {}),
        **{name: writer.add(getattr(program.graph, name)) for name in FACTS},
    }
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = PREFIX.pack(MAGIC, VERSION, 0, len(text)) + text + b"".join(writer.parts)
    return body + hashlib.sha256(body).digest()


class ArrayWriter:
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
    fitting = next(t for t in INTEGERS if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return array.astype(fitting)


def _describe(node: Node, writer: ArrayWriter) -> dict[str, Any]:
    common = {"kind": type(node).__name__, "first_wire": node.first_wire, "origin": node.origin}
    if isinstance(node, Input):
        return {**common, "shape": list(node.shape)}
    common["gather"] = writer.add(node.gather)
    if isinstance(node, Linear):
        return {**common, **{name: writer.add(getattr(node, name)) for name in ("block", "weights", "bias")}}
    assert isinstance(node, Lookup)  # a program has no products
    steps = [_describe_step(step, writer) for step in node.steps]
    shifts = {} if node.shifts is None else {"shifts": writer.add(node.shifts)}
    return {**common, "function": writer.add(node.function), "steps": steps, **shifts}


def _describe_step(step: Step, writer: ArrayWriter) -> dict[str, Any]:
    """Returns what it reads only where that is not the result before it."""
    reads = {} if step.reads == (1,) else {"reads": list(step.reads)}
    return {"operator": step.operator, "parameters": [writer.add(p) for p in step.parameters], **reads}
