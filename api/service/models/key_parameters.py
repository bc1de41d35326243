"""Parameters of evaluation keys: a set of look-ups, or levelled keys of one shape."""

from __future__ import annotations

from dataclasses import dataclass

from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, upload_bytes


@dataclass(frozen=True)
class KeyParameters:
    """Keys of one digest serve every model that names it.

    Attributes:
        name: of the parameter set.
        digest: hexadecimal; of the set, and of what else levelled keys depend on (`ExpansionKeyShape`).
        bytes: the only size that such keys have.
    """

    name: str
    digest: str
    bytes: int

    @classmethod
    def of_set(cls, params: ParameterSet) -> KeyParameters:
        return cls(params.name, parameter_digest(params).hex(), upload_bytes(params))
