"""Errors that end a whole batch; an input that fails does so alone, with its reason in the report."""

from __future__ import annotations

import importlib.util

from cloakwork.fhe_core.errors import FheError, ParameterError, how_to_install

_NEEDED = ("ray", "pyarrow", "obstore")


class BatchError(FheError):
    """A batch that cannot begin or go on: nothing to score, a store or a cluster that does not answer, another run's output."""

    code = "batch_error"
    http_status = 500


class StoreError(BatchError):
    """A folder or bucket that does not answer, or refuses; another try may succeed."""

    code = "store_error"


class BatchCallError(BatchError, ParameterError):
    """A wrong call: no input there, an output of something else, an address that is none."""


class PlaceError(StoreError, ParameterError):
    """A wrong call: a folder or URL that no store can be."""


def require_batch() -> None:
    """Requires the extra `batch`.

    Raises:
        BatchError: a library of the extra is missing; the message says how to install it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise BatchError(f"batch scoring needs {', '.join(missing)}; {how_to_install('batch')}")


def one_line(error: BaseException) -> str:
    """Renders the text of another library's error without its class's dump, for reports."""
    text = str(error).split("\n\nDebug source:")[0]
    return " ".join(text.split())[:300] or "no reason given"
