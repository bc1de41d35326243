"""The error tree: one root, stable codes, and the same classes from the extension module."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from cloakwork.fhe_core import _engine, errors
from cloakwork.fhe_core.errors import FheError, ParameterError, ShapeError

# Codes and statuses are API: a change here breaks clients.
EXPECTED = {
    "FheError": ("fhe_error", 500, "Exception"),
    "ParameterError": ("parameter_error", 422, "FheError"),
    "ShapeError": ("shape_error", 422, "FheError"),
    "KeyMismatchError": ("key_mismatch", 409, "FheError"),
    "SerializationError": ("serialization_error", 422, "FheError"),
    "DeviceError": ("device_error", 503, "FheError"),
    "OutOfDeviceMemory": ("out_of_device_memory", 507, "DeviceError"),
    "UnsupportedError": ("unsupported", 501, "FheError"),
    "CancelledError": ("cancelled", 499, "FheError"),
    "CompileError": ("compile_error", 422, "FheError"),
    "UnsupportedOperatorError": ("unsupported_operator", 422, "CompileError"),
    "PrecisionOverflowError": ("precision_overflow", 422, "CompileError"),
    "NoParameterSetError": ("no_parameter_set", 422, "CompileError"),
}


def test_the_tree_is_what_clients_rely_on() -> None:
    classes = {
        name: cls for name, cls in inspect.getmembers(errors, inspect.isclass) if cls.__module__ == errors.__name__
    }
    found = {name: (cls.code, cls.http_status, cls.__base__.__name__) for name, cls in classes.items()}
    assert found == EXPECTED


def test_a_wrong_class_is_named_with_what_to_do() -> None:
    with pytest.raises(ShapeError, match="^keys: expected bytes, got int; pass what came$"):
        errors.require_kind(1, (bytes, bytearray), "keys", "pass what came")
    errors.require_kind(b"", bytes, "keys", "pass what came")


def test_codes_are_unique() -> None:
    assert len({code for code, _, _ in EXPECTED.values()}) == len(EXPECTED)


def test_the_extension_raises_these_classes() -> None:
    with pytest.raises(ParameterError, match="expected one of .*got 'lut99'"):
        _engine.parameter_set("lut99")
    params = _engine.parameter_set("toy")
    with pytest.raises(ShapeError, match="expected"):
        _engine.expand_lwe(params, bytes(31), np.zeros(1, dtype=np.uint32))
    assert issubclass(ShapeError, FheError)
