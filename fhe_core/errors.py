"""The error tree of the engine. The classes are API (`code` and `http_status` are stable), their texts are not.

A message says what was expected, what came and what to do; never key bytes or plaintext. The extension module raises these same classes.
"""

from __future__ import annotations

from typing import ClassVar


class FheError(Exception):
    """The base of all errors that the engine raises on purpose."""

    code: ClassVar[str] = "fhe_error"
    http_status: ClassVar[int] = 500


class ParameterError(FheError):
    """A value outside its domain, or a parameter set that does not exist or does not fit."""

    code = "parameter_error"
    http_status = 422


class ShapeError(FheError):
    """An array of the wrong shape, dtype or layout."""

    code = "shape_error"
    http_status = 422


class KeyMismatchError(FheError):
    """Objects that belong to different keys, parameter sets or versions of a parameter set."""

    code = "key_mismatch"
    http_status = 409


class SerializationError(FheError):
    """Bytes that are not a valid object of the wire format."""

    code = "serialization_error"
    http_status = 422


class DeviceError(FheError):
    """A device that is missing, not usable or failing."""

    code = "device_error"
    http_status = 503


class OutOfDeviceMemory(DeviceError):  # noqa: N818 (the name CUDA users look for)
    """The batch or the key does not fit into the memory of the device."""

    code = "out_of_device_memory"
    http_status = 507


class UnsupportedError(FheError):
    """A valid request that this build, back end or parameter set cannot do."""

    code = "unsupported"
    http_status = 501


class CancelledError(FheError):
    """A long call stopped on request: a progress callback returned False."""

    code = "cancelled"
    http_status = 499


class CompileError(FheError):
    """A model that cannot be compiled."""

    code = "compile_error"
    http_status = 422


class UnsupportedOperatorError(CompileError):
    """Operators of the model that the compiler does not know."""

    code = "unsupported_operator"


class PrecisionOverflowError(CompileError):
    """A value that needs more bits than its encoding has: of a model, or of messages that a look-up's table may have no entry for."""

    code = "precision_overflow"


class NoParameterSetError(CompileError):
    """No shipped parameter set satisfies the precision, noise and failure constraints."""

    code = "no_parameter_set"


def require_kind(value: object, kinds: type | tuple[type, ...], what: str, advice: str) -> None:
    """Raises ShapeError unless the value is of one of these classes, of which the message names the first; `advice` says what to do."""
    if not isinstance(value, kinds):
        expected = kinds[0] if isinstance(kinds, tuple) else kinds
        raise ShapeError(f"{what}: expected {expected.__name__}, got {type(value).__name__}; {advice}")


def how_to_install(extra: str) -> str:
    """Says how to install a missing extra. cloakwork comes as a repository and as files of wheels, and is in no package index."""
    return f"install the extra with pip install '.[{extra}]' in the folder of cloakwork's repository, or 'WHEEL[{extra}]' with the wheel's file"
