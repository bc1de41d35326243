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
    require_structured_keys,
    upload_bytes,
)

SetOption = Annotated[
    str, typer.Option("--set", metavar="SET", help="Use this parameter set; 'cloakwork params' lists them.")
]

StructuredKeysOption = Annotated[
    bool,
    typer.Option(
        "--structured-keys",
        help="Allow sets with a structured secret (.._block): they are faster, and their security rests on more than LWE.",
    ),
]

CommonMaskOption = Annotated[
    bool,
    typer.Option(
        "--common-mask",
        help="Use only sets that hold two samples in a ciphertext (.._cm2): batches take less time, a single sample costs as much as two.",
    ),
]


def find_set(name: str) -> ParameterSet:
    """The set of this name, or a wrong call that names the others."""
    try:
        return parameter_set(name)
    except ParameterError as error:
        raise WrongCallError(str(error)) from error


def find_agreed_set(name: str, structured_keys: bool, common_mask: bool | None = None) -> ParameterSet:
    """The set that a model names, which has a structured secret only where that was asked for.

    Args:
        common_mask: whether a compiler was asked for several samples to a ciphertext; None: whoever encrypts takes it as it is.
    """
    found = find_set(name)
    require_structured_keys(found, structured_keys, "--structured-keys")
    if common_mask is not None:
        require_common_mask(found, common_mask, "--common-mask")
    return found


def key_sizes(parameters: ParameterSet) -> dict[str, int]:
    """Bytes of the evaluation keys: expanded in memory (masks included), and as uploaded (seeded, one file)."""
    return {
        "bootstrap_key_bytes": expanded_bootstrap_key_bytes(parameters),
        "keyswitch_key_bytes": expanded_keyswitch_key_bytes(parameters),
        "upload_bytes": upload_bytes(parameters),
    }
