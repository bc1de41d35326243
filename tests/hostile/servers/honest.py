"""What the servers of the cases say where the case says nothing: a model that answers with its input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

SET: Final = "toy"
PROGRAM: Final = "ab" * 32
Changes = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


def specification_of(changes: Changes, set_name: str = SET) -> dict[str, Any]:
    """A client specification with some fields changed; of an index whatever the changes are."""
    from cloakwork.fhe_core.errors import FheError
    from cloakwork.fhe_core.parameters import parameter_digest, parameter_set

    fields = dict(changes() if callable(changes) else changes)
    if "format" in fields:
        return fields
    name = fields.get("parameter_set", set_name)
    try:
        digest = parameter_digest(parameter_set(name)).hex()
    except FheError:
        digest = "00" * 32
    return {
        "cloakwork_client": 2,
        "program_digest": PROGRAM,
        "parameter_set": name,
        "parameter_digest": digest,
        "input_shape": [1],
        "input_range": [-1, 1],
        "input_scale": 0.125,
        "output_scale": [0.125],
        "output_offset": [0.0],
        "client_steps": [],
        "input_steps": [],
        "output_steps": [],
        "output_unit": 0.0,
    } | fields


def metadata_of(fhe: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "m", "versions": ["1"], "platform": "cloakwork", "parameters": {"fhe": dict(fhe)}}


def answer_to(keys: bytes, request: bytes) -> bytes:
    """The first number of each sample as it came; nothing where keys or request are none."""
    from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
    from cloakwork.fhe_core.errors import FheError
    from cloakwork.fhe_core.server import Session
    from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

    try:
        packed = SeededPackedCiphertexts.from_bytes(request)
        session = Session(EvaluationKeys.from_bytes(keys), threads=1)
        return session.extract(packed)[:, :1].with_purpose(packed.purpose).to_bytes()
    except FheError:
        return b""
