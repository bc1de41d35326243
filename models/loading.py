"""`cloakwork.load`: compiled models from files and from the zoo."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cloakwork.fhe_core.files import PathLike
from cloakwork.models import zoo
from cloakwork.models.batches.batch_file import is_batch_file
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import is_index_file, load_index

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
