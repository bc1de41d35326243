"""Finding the client specification of a model, from its file or from the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cloakwork.app.cli.shared.console import FailureError, WrongCallError
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.model_files import find_model
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.purpose import check_purpose

ClientOption = Annotated[
    Path | None,
    typer.Option("--client", help="Use the client specification that 'cloakwork inspect --client' wrote."),
]
ForModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Use the model itself instead of its client specification: a name of the zoo or a compiled file.",
    ),
]


def find_specification(client: Path | None, model: str | None) -> ClientSpecification | None:
    """Finds the specification from --client or --model; None where neither was given."""
    if client is not None and model is not None:
        raise WrongCallError("expected --client or --model, got both")
    if model is not None:
        return find_model(model).client
    if client is None:
        return None
    with reading(client, "a client specification", "write one with 'cloakwork inspect MODEL --client FILE'"):
        return ClientSpecification.from_json(client.read_text(encoding="utf-8"))


def check_key(key: ClientKey, specification: ClientSpecification) -> None:
    if key.parameters.name != specification.parameters:
        raise FailureError(
            f"the model needs a key of parameter set '{specification.parameters}', got one of '{key.parameters.name}'; "
            f"make one with 'cloakwork keygen --set {specification.parameters}'"
        )


def check_result(ciphertexts: object, specification: ClientSpecification, path: Path) -> Ciphertexts:
    """Returns ciphertexts of the model's output, as `cloakwork run` writes them."""
    if isinstance(ciphertexts, Ciphertexts):
        remedy = "name the model that made it with --client or --model"
        check_purpose(ciphertexts.purpose, specification.program, str(path), remedy)
    count = specification.output_scale.size
    if not isinstance(ciphertexts, Ciphertexts) or ciphertexts.ndim != 2 or ciphertexts.shape[1] != count:
        raise FailureError(
            f"{path}: expected the result of this model ({count} numbers a sample), got other ciphertexts"
        )
    return ciphertexts
