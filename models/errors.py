"""The compiler's errors are those of the engine's tree: see `cloakwork.fhe_core.errors`."""

from __future__ import annotations

import contextlib
import difflib
import platform
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from cloakwork.fhe_core.errors import (
    CompileError,
    NoParameterSetError,
    PrecisionOverflowError,
    ShapeError,
    UnsupportedOperatorError,
)

__all__ = [
    "AccuracyError",
    "AccuracyWarning",
    "CalibratedRangeWarning",
    "CompileError",
    "ImportFaultError",
    "NoParameterSetError",
    "PrecisionOverflowError",
    "Problem",
    "ReplacedValuesWarning",
    "ShapeError",
    "UnsupportedModuleError",
    "UnsupportedNode",
    "UnsupportedOperatorError",
    "closest_first",
    "fault_report",
    "printable",
    "some",
    "unsupported",
]

_MOST_NAMED = 8
_MOST_LINES = 30


def printable(text: str) -> str:
    """Returns a text without control characters: names in files and answers of others command no terminal and break no XML."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class CalibratedRangeWarning(UserWarning):
    """Samples hold values beyond the range of the calibration data; they count as its end. Or a program had to be narrowed to that range."""


class ReplacedValuesWarning(UserWarning):
    """Samples for a server hold values that a step does not take: the nearest that it takes were sent in their place, because a request that is
    refused for its values tells the server of them."""


class RoundedIntegersWarning(UserWarning):
    """No set serves a program of the profile exact that keeps the integers of its model, or the model has functions it does not quantise: results
    of look-ups are rounded. Or ONNX Runtime's kernel rounds some integers of a node as no function of one integer does."""


class AccuracyWarning(UserWarning):
    """An encrypted model was compiled that is less accurate than was asked for, because that was allowed; or the samples do not show that it is as
    accurate, or the model does not say what its output is for."""


class AccuracyError(CompileError):
    """The encrypted model would decide differently from the clear one more often than was asked for."""


class ImportFaultError(CompileError):
    """An import that fails at a valid model, or whose answers differ from the user's own: a fault of this package, found before compiling."""


class UnsupportedModuleError(CompileError):
    """Steps of a PyTorch module that training for encryption cannot simulate; names each and what to do."""


class UnsupportedNode(Exception):  # noqa: N818 (never leaves the importer)
    """Raised by an operator's function; the importer collects them and raises one UnsupportedOperatorError."""


@dataclass(frozen=True)
class Problem:
    """One node of the user's model that cannot be compiled."""

    node: str
    operator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator} '{self.node}': {self.reason}"


def unsupported(problems: list[Problem]) -> UnsupportedOperatorError:
    """Returns one error that lists every problem, of many the first ones."""
    lines = "\n".join(f"  {problem}" for problem in problems[:_MOST_LINES])
    if len(problems) > _MOST_LINES:
        lines += f"\n  and {len(problems) - _MOST_LINES} more"
    return UnsupportedOperatorError(f"{len(problems)} node(s) of the model cannot run on encrypted data:\n{lines}")


def closest_first(name: str, known: Iterable[str]) -> list[str]:
    """Sorts for `some`: names in the order of their likeness to one that is wrong."""
    return sorted(known, key=lambda other: -difflib.SequenceMatcher(None, name, other).ratio())


def some(names: Iterable[object]) -> str:
    """Names for a message: all of a few, the first of many with how many more there are."""
    texts = [str(name) for name in names]
    more = [f"and {len(texts) - _MOST_NAMED} more"] if len(texts) > _MOST_NAMED else []
    return ", ".join(texts[:_MOST_NAMED] + more)


def fault_report(error: BaseException, facts: Iterable[str] = ()) -> str:
    """Writes a file about an error that nobody foresaw, and returns its path.

    It has versions, the error's class, and places in source code; neither the error's text nor any name or value of the user's.
    """
    frames = traceback.extract_tb(error.__traceback__)
    names = ("cloakwork", "numpy", "onnx", "onnxruntime", "scikit-learn", "torch")
    with tempfile.NamedTemporaryFile(
        "w", prefix="cloakwork-error-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        print(f"Python {platform.python_version()}, {platform.machine()}", file=file)
        for name in names:
            with contextlib.suppress(PackageNotFoundError):
                print(f"{name} {version(name)}", file=file)
        print(*facts, type(error).__name__, sep="\n", file=file)
        for frame in frames:
            print(f"  {'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno} {frame.name}", file=file)
    return file.name


_PACKAGE: Final = __name__.partition(".")[0] + "."


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Gives a warning at the user's line: the nearest one outside of this package."""
    frame: Any = sys._getframe(1)
    level = 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
