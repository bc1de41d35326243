"""`python -m cloakwork.api.health_check`: exit status 0 when the service of these settings, on this machine, is ready. For containers."""

from __future__ import annotations

import http.client
import ssl
import sys
from typing import Final

from cloakwork.api.settings import Settings, load_settings
from cloakwork.fhe_core.errors import FheError

_PATH: Final = "/v2/health/ready"
_SECONDS: Final = 12.0  # the service gives its database and its engine five each
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def status(settings: Settings) -> int:
    """Returns the status of GET /v2/health/ready, in HTTP's numbers.

    Raises:
        OSError: nothing answers.
    """
    connection = _connection(settings)
    try:
        connection.request("GET", _PATH)
        return connection.getresponse().status
    finally:
        connection.close()


def _connection(settings: Settings) -> http.client.HTTPConnection:
    host = _ANY_ADDRESS.get(settings.host, settings.host)
    if settings.tls_certificate is None:
        return http.client.HTTPConnection(host, settings.port, timeout=_SECONDS)
    context = ssl.create_default_context()
    context.check_hostname = False  # the certificate is for the name that clients use
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, settings.port, timeout=_SECONDS, context=context)


def main() -> int:
    try:
        return 0 if status(load_settings()) == http.client.OK else 1
    except FheError as error:
        text = str(error)
    except (OSError, http.client.HTTPException) as error:
        text = f"the service does not answer ({getattr(error, 'strerror', None) or type(error).__name__})"
    print(f"cloakwork: {text}", file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main())
