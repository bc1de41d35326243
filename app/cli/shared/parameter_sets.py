"""Parameter sets as the commands take them: by name; and what their keys weigh."""

from __future__ import annotations

from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import WrongCallError
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.fhe_core.parameters import (
    ParameterSet,
    expanded_bootstrap_key_bytes,
    expanded_keyswitch_key_bytes,
    parameter_set,
    upload_bytes,
)

SetOption = Annotated[str, typer.Option("--set", help="Parameter set; 'cloakwork params' lists them.")]


def find_set(name: str) -> ParameterSet:
    """The set of this name, or a wrong call that names the others."""
    try:
        return parameter_set(name)
    except ParameterError as error:
        raise WrongCallError(str(error)) from error


def key_sizes(parameters: ParameterSet) -> dict[str, int]:
    """Bytes of the evaluation keys: expanded in memory (masks included), and as uploaded (seeded, one file)."""
    return {
        "bootstrap_key_bytes": expanded_bootstrap_key_bytes(parameters),
        "keyswitch_key_bytes": expanded_keyswitch_key_bytes(parameters),
        "upload_bytes": upload_bytes(parameters),
    }
