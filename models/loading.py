"""`cloakwork.load` and `load_client`: compiled models from files and from the zoo, and what a client knows of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.models import fields as typed
from cloakwork.models import zoo
from cloakwork.models.batches.batch_file import is_batch_file
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import is_index_file, load_index
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.specification_limits import check_text

_ZOO: Final = "zoo:"


def load(source: PathLike) -> CompiledModel | BatchModel | NeighbourIndex:
    """Load a compiled model.

    Args:
        source: a file that `model.save` wrote, or "zoo:NAME" for a trained model that comes with the package (`cloakwork zoo` lists them).

    Raises:
        CompileError: no such model in the zoo; an index that is damaged.
        SerializationError: another kind of file, or a damaged one.
        KeyMismatchError: made for another version of its parameter set.
        OSError: the file cannot be read.
    """
    name = str(source)
    if name.startswith(_ZOO):
        return zoo.load_model(name.removeprefix(_ZOO))
    path = Path(source)
    if is_batch_file(path):
        return BatchModel.load(path)
    return load_index(path) if is_index_file(path) else CompiledModel.load(path)


def load_client(text: str | bytes) -> ClientSpecification | BatchClient | NeighbourClient:
    """Read what a client needs of a model beside its key: `encrypt`, `decrypt`, no weights.

    Args:
        text: JSON of `model.client.to_json()`, of `cloakwork inspect MODEL --client FILE`, or of a service's `/v2/models/NAME/client`.

    Raises:
        SerializationError: not such a text, or of another version.
        CompileError: the same, for an index or a model for batches.
        KeyMismatchError: made for another version of its parameter set.
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        check_text(text)
        fields = typed.parsed_object(text)
    except ValueError as error:
        raise SerializationError(f"client: expected the JSON that a model's client writes ({error})") from error
    if "packing" in fields:
        return BatchClient.from_json(text)
    return NeighbourClient.from_json(text) if "n_neighbors" in fields else ClientSpecification.from_json(text)
