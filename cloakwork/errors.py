"""The exceptions and warnings of cloakwork. Exceptions extend `FheError`; messages say what was expected, what was found and what to do."""

from __future__ import annotations

from cloakwork.app.client.errors import (
    ChangedModelError,
    ConnectionLostError,
    MisbehavingServerError,
    OverQuotaError,
    ServiceError,
    UntrustedError,
    WeakPassphraseError,
)
from cloakwork.fhe_core.errors import (
    CancelledError,
    CompileError,
    DeviceError,
    FheError,
    KeyMismatchError,
    NoParameterSetError,
    OutOfDeviceMemory,
    ParameterError,
    PrecisionOverflowError,
    SerializationError,
    ShapeError,
    UnsupportedError,
    UnsupportedOperatorError,
)
from cloakwork.models.errors import (
    AccuracyError,
    AccuracyWarning,
    CalibratedRangeWarning,
    ImportFaultError,
    ReplacedValuesWarning,
    RoundedIntegersWarning,
    UnsupportedModuleError,
)

__all__ = [
    "AccuracyError",
    "AccuracyWarning",
    "CalibratedRangeWarning",
    "CancelledError",
    "ChangedModelError",
    "CompileError",
    "ConnectionLostError",
    "DeviceError",
    "FheError",
    "ImportFaultError",
    "KeyMismatchError",
    "MisbehavingServerError",
    "NoParameterSetError",
    "OutOfDeviceMemory",
    "OverQuotaError",
    "ParameterError",
    "PrecisionOverflowError",
    "ReplacedValuesWarning",
    "RoundedIntegersWarning",
    "SerializationError",
    "ServiceError",
    "ShapeError",
    "UnsupportedError",
    "UnsupportedModuleError",
    "UnsupportedOperatorError",
    "UntrustedError",
    "WeakPassphraseError",
]
