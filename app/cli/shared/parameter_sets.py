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
    require_structured_keys,
    upload_bytes,
)

SetOption = Annotated[str, typer.Option("--set", help="Parameter set; 'cloakwork params' lists them.")]

StructuredKeysOption = Annotated[
    bool,
    typer.Option(
        "--structured-keys",
        help="Sets whose small key is block-binary (.._block) may be taken: faster, and resting on more than LWE.",
    ),
]


def find_set(name: str) -> ParameterSet:
    """The set of this name, or a wrong call that names the others."""
    try:
        return parameter_set(name)
    except ParameterError as error:
        raise WrongCallError(str(error)) from error


def find_agreed_set(name: str, structured_keys: bool) -> ParameterSet:
    """The set that a model names, which has a structured secret only where that was asked for."""
    found = find_set(name)
    require_structured_keys(found, structured_keys, "--structured-keys")
    return found


def key_sizes(parameters: ParameterSet) -> dict[str, int]:
    """Bytes of the evaluation keys: expanded in memory (masks included), and as uploaded (seeded, one file)."""
    return {
        "bootstrap_key_bytes": expanded_bootstrap_key_bytes(parameters),
        "keyswitch_key_bytes": expanded_keyswitch_key_bytes(parameters),
        "upload_bytes": upload_bytes(parameters),
    }
