"""Finding the client specification of a model, from its file or from the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from cloakwork.app.cli.shared.console import FailureError, WrongCallError
from cloakwork.app.cli.shared.failures import reading
from cloakwork.app.cli.shared.levelled_models import levelled_of, lookups_of, parameters_of
from cloakwork.app.cli.shared.model_files import find_any_model
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.models.batches.client import FORMAT as BATCH_FORMAT
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.key import Key
from cloakwork.models.neighbours.client import FORMAT, FORMAT_OF_CELLS, NeighbourClient
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.purpose import check_purpose

AnyClient: TypeAlias = ClientSpecification | BatchClient | NeighbourClient
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


def find_specification(client: Path | None, model: str | None) -> AnyClient | None:
    """Finds the specification from --client or --model; None where neither was given."""
    if client is not None and model is not None:
        raise WrongCallError("expected --client or --model, got both")
    if model is not None:
        return find_any_model(model).client
    if client is None:
        return None
    with reading(client, "a client specification", "write one with 'cloakwork inspect MODEL --client FILE'"):
        return _of_text(client.read_text(encoding="utf-8"))


def _of_text(text: str) -> AnyClient:
    """Of whichever kind of model."""
    fields = json.loads(text)
    kind = fields.get("format") if isinstance(fields, dict) else None
    if kind in (FORMAT, FORMAT_OF_CELLS):
        return NeighbourClient.from_json(text)
    return BatchClient.from_json(text) if kind == BATCH_FORMAT else ClientSpecification.from_json(text)


def check_key(key: Key, specification: AnyClient, path: Path) -> None:
    """Refuses a file's key of another set than the model's by a FailureError."""
    levelled, lookups = levelled_of(specification), lookups_of(specification)
    key_parameters = [each.parameters for each in key.parts]
    if levelled is not None:
        fits, expected = key_parameters == parameters_of(levelled), names_of(parameters_of(levelled))
    else:
        assert lookups is not None
        fits, expected = names_of(key_parameters) == f"'{lookups.parameters}'", f"'{lookups.parameters}'"
    if not fits:
        raise FailureError(
            f"{path}: the model needs a key of parameter set {expected}, got one of {names_of(key_parameters)}; make one with 'cloakwork keygen' and "
            "--model or --client of this model"
        )


def names_of(parameters: Sequence[Any]) -> str:
    """Names a set of look-ups, or a levelled set with its plaintext moduli, in words."""
    if not isinstance(parameters[0], LevelledParameters):
        return f"'{parameters[0].name}'"
    moduli = " and ".join(str(each.plaintext_modulus) for each in parameters)
    return f"'{parameters[0].set.name}' modulo {moduli}"


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
