"""Errors as a person reads them: which file, what was expected, what to do; never the name of an exception."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from cloakwork.app.cli.shared.console import FailureError, WrongCallError, in_one_line, report_error
from cloakwork.fhe_core.errors import DeviceError, FheError
from cloakwork.models.errors import fault_report

# What the libraries that parse files raise for damaged ones.
_DAMAGED: Final = (ValueError, EOFError, KeyError, OverflowError, MemoryError, zipfile.BadZipFile, zlib.error)
_TEMPORARY: Final = re.compile(r"^\.(.+)\.[0-9a-f]{16}\.tmp$")  # of `atomic_writer`

_REASONS: Final = {
    errno.ENOENT: "there is no such file or folder; check the name",
    errno.EISDIR: "expected a file, got a folder",
    errno.ENOTDIR: "a part of this path is a file; expected a folder",
    errno.EACCES: "permission denied; change the permissions, or choose another place",
    errno.EPERM: "permission denied; change the permissions, or choose another place",
    errno.EROFS: "this file system cannot be written; choose another place",
    errno.ENOSPC: "the disk is full; make room, or choose another place",
    errno.EDQUOT: "the disk quota is used up; make room, or choose another place",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EEXIST: "it exists already; choose another name",
}


@contextmanager
def reading(path: Path | str, expected: str, remedy: str = "") -> Iterator[None]:
    """Makes errors of a reader name the file and what it should be. Args: expected: "evaluation keys", for example."""
    advice = f"; {remedy}" if remedy else ""
    try:
        yield
    except (FheError, FailureError, WrongCallError) as error:
        if isinstance(error, DeviceError) or str(path) in str(error):
            raise
        raise FailureError(f"{path}: expected {expected}: {error}{advice}") from error
    except UnicodeDecodeError as error:
        raise FailureError(f"{path}: expected {expected}, got a file that is not text{advice}") from error
    except json.JSONDecodeError as error:
        raise FailureError(
            f"{path}: expected {expected}, got text that is not JSON (line {error.lineno}){advice}"
        ) from error
    except _DAMAGED as error:
        raise FailureError(
            f"{path}: expected {expected}, got another kind of file, or a damaged one{advice}"
        ) from error


@contextmanager
def warnings_in_words() -> Iterator[None]:
    """Warnings inside are lines on standard error, without the name of their class and the place in the code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: print(  # noqa: T201
            f"warning: {in_one_line(str(message))}", file=sys.stderr
        )
        yield


@contextmanager
def of_file(path: Path | str, argument: str = "model") -> Iterator[None]:
    """Makes errors about this argument name its file, whose content may be at fault; all others stay as they are."""
    try:
        yield
    except FheError as error:
        begin = re.match(rf"{re.escape(argument)}(?: '[^']*')?: ", str(error))
        if begin is None:
            raise
        raise FailureError(f"{path}: {str(error).removeprefix(f'{argument}: ')}") from error


def explained(error: BaseException) -> str:
    """Returns one sentence about an error that ends a command."""
    if isinstance(error, MemoryError):
        return (
            str(error) or "the memory of this machine is used up; close other programs, or take fewer samples at once"
        )
    if getattr(error, "service_code", "") == "unauthorised":  # what the server says is for those who write headers
        return f"{error}; commands read the API key from --api-key-file or CLOAKWORK_API_KEY"
    if not isinstance(error, OSError) or error.errno is None:
        return str(error) or "the command failed without a reason; please report what you did"
    reason = _REASONS.get(error.errno) or os.strerror(error.errno).lower()
    name = error.filename if error.filename2 is None else error.filename2
    if not isinstance(name, str | bytes | os.PathLike):
        return reason
    path = Path(os.fsdecode(name))
    written = _TEMPORARY.match(path.name)
    return f"{path.with_name(written[1]) if written else path}: {reason}"


def explained_usage(error: Any) -> str:
    """Explains what is wrong with the arguments, and whose help says more."""
    text = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = "cloakwork" if context is None else context.command_path
    end = "" if text.endswith("?") else "."
    return f"{text[:1].lower()}{text[1:]}{end} See '{command} --help'."


def report_defect(error: Exception) -> None:
    """Reports an error that nobody foresaw: one line, and a file with what a developer needs, without values of the user's."""
    report_error(f"a defect of cloakwork ended the command; please report it, with the file {fault_report(error)}")
