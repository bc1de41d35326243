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
    require_common_mask,
    require_structured,
    upload_bytes,
)

SetOption = Annotated[
    str, typer.Option("--set", metavar="SET", help="Use this parameter set; 'cloakwork params' lists them.")
]

STRUCTURED_HELP = (
    "Allow sets with a structured secret (.._block): they are faster, and their security rests on more than LWE."
)
StructuredOption = Annotated[bool, typer.Option("--structured", help=STRUCTURED_HELP)]


def find_set(name: str) -> ParameterSet:
    """Find a set by its name. WrongCallError: names those like it."""
    try:
        return parameter_set(name)
    except ParameterError as error:
        raise WrongCallError(str(error)) from error


def find_agreed_set(name: str, structured: bool, two_bodies: bool | None = None) -> ParameterSet:
    """Find the set that a model names; one with a structured secret only if that was asked for.

    Args:
        two_bodies: whether a compiler was asked for two samples in a ciphertext; None: whoever encrypts takes it as it is.
    """
    parameters = find_set(name)
    require_structured(parameters, structured, "--structured")
    if two_bodies is not None:
        require_common_mask(parameters, two_bodies, "--bodies 2")
    return parameters


def key_sizes(parameters: ParameterSet) -> dict[str, int]:
    """Returns bytes of the evaluation keys: expanded in memory (masks included), and as uploaded (seeded, one file)."""
    return {
        "bootstrap_key_bytes": expanded_bootstrap_key_bytes(parameters),
        "keyswitch_key_bytes": expanded_keyswitch_key_bytes(parameters),
        "upload_bytes": upload_bytes(parameters),
    }
