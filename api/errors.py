"""Errors of the service, beside the engine's: the same tree, the same two fields, one handler (`http/error_answers.py`)."""

from __future__ import annotations

import errno
from typing import ClassVar, Final

from cloakwork.fhe_core.errors import FheError

NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
"""`OSError.errno` of a full disk."""


AWAY: Final = "the database or the storage does not answer; try again"
AWAY_SECONDS: Final = 5.0
"""After which to try."""


class ServiceError(FheError):
    """A request that cannot be served; `retry_after` in seconds where trying again makes sense."""

    code: ClassVar[str] = "service_error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BadRequestError(ServiceError):
    """A request whose framing or header does not say one thing."""

    code = "bad_request"
    http_status = 400


class UnauthorisedError(ServiceError):
    """The API key is missing, is not known, has expired or was revoked."""

    code = "unauthorised"
    http_status = 401


class ForbiddenError(ServiceError):
    """An API key without the scope that the request needs."""

    code = "forbidden"
    http_status = 403


class SuspendedError(ForbiddenError):
    """The API key is valid, its tenant is suspended."""

    code = "suspended"


class ForeignPageError(ForbiddenError):
    """A browser asks on behalf of another site's page."""

    code = "foreign_page"


class UnknownModelError(ServiceError):
    code = "unknown_model"
    http_status = 404


class UnknownKeyError(ServiceError):
    code = "unknown_key"
    http_status = 404


class UnknownJobError(ServiceError):
    code = "unknown_job"
    http_status = 404


class UnknownTenantError(ServiceError):
    code = "unknown_tenant"
    http_status = 404


class UnknownApiKeyError(ServiceError):
    """There is no valid API key of that name."""

    code = "unknown_api_key"
    http_status = 404


class SlowBodyError(ServiceError):
    """The body of a request stopped coming."""

    code = "slow_body"
    http_status = 408


class ConflictError(ServiceError):
    """The object is in a state that does not allow the request."""

    code = "conflict"
    http_status = 409


class WrongOffsetError(ConflictError):
    """Upload-Offset is not where the upload stands."""

    code = "wrong_offset"


class WrongParametersError(ConflictError):
    """Keys or ciphertexts of another parameter set than the model's."""

    code = "wrong_parameters"


class StructuredKeysError(WrongParametersError):
    """Keys or a model of a set with a structured secret, which this service does not take."""

    code = "structured_refused"

    @classmethod
    def of(cls, what: str, set_name: str) -> StructuredKeysError:
        return cls(
            f"{what}: parameter set '{set_name}' has a structured secret (block-binary small key), which this service does not take; its operator "
            "allows it with the setting 'structured'"
        )


class WrongModelError(ConflictError):
    """Ciphertexts that were encrypted for another model, or do not say for which."""

    code = "wrong_model"


class NotReadyError(ConflictError):
    """A result that is not there yet, or a key whose upload is not complete."""

    code = "not_ready"


class GoneError(ServiceError):
    """A retired version of a model, or a result past its retention."""

    code = "gone"
    http_status = 410


class LengthRequiredError(ServiceError):
    code = "length_required"
    http_status = 411


class TooLargeError(ServiceError):
    code = "too_large"
    http_status = 413


class UnsupportedMediaError(ServiceError):
    """A body in a form or coding that the route does not take, or an answer that is wanted in such."""

    code = "unsupported_media"
    http_status = 415


class MalformedError(ServiceError):
    """Bytes that are not what the route takes."""

    code = "malformed"
    http_status = 422


class SecretKeyError(MalformedError):
    """A secret key, which must never leave its owner."""

    code = "secret_key_refused"


class ChecksumError(MalformedError):
    """An upload whose bytes are not those that were announced."""

    code = "checksum_mismatch"


class TooLongError(ServiceError):
    """A run that takes longer than a client waits who cannot ask for a job."""

    code = "too_long"
    http_status = 422


class KeyRequiredError(ServiceError):
    """The tenant has no evaluation keys for the model's parameter set."""

    code = "key_required"
    http_status = 428


class DamagedKeyError(KeyRequiredError):
    """The storage has changed the tenant's keys: they can be uploaded again."""


class QuotaError(ServiceError):
    """The request exceeds a limit of the tenant."""

    code = "quota_exceeded"
    http_status = 429


class BusyError(ServiceError):
    """The queue is full."""

    code = "busy"
    http_status = 429


class HeaderTooLargeError(ServiceError):
    code = "header_too_large"
    http_status = 431


class TooManyConnectionsError(ServiceError):
    """There are more connections than all, one address or one tenant may have."""

    code = "too_many_connections"
    http_status = 503


class UnavailableError(ServiceError):
    """The engine or the database does not answer."""

    code = "unavailable"
    http_status = 503


class DamagedModelError(UnavailableError):
    """The file of a model is not what it was when it was described."""


class DamagedObjectError(ServiceError):
    """The storage has lost or changed what the service keeps there."""

    code = "damaged_object"
    http_status = 500


class DeadlineError(ServiceError):
    """A job whose deadline passed before it was done."""

    code = "deadline_exceeded"
    http_status = 422


class StorageFullError(ServiceError):
    """There is no room left where keys, inputs and results are kept."""

    code = "storage_full"
    http_status = 507


class EngineLostError(ServiceError):
    """The engine process died each time it ran the request."""

    code = "engine_lost"
    http_status = 503
