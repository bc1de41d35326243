"""`python -m cloakwork.api`: the service, configured by environment and file alone. `cloakwork serve` ends up here."""

from __future__ import annotations

import sys

from cloakwork.api.settings import load_settings
from cloakwork.api.start_checks import reason_of
from cloakwork.api.web_process import serve
from cloakwork.fhe_core.errors import FheError

FAILURE, WRONG_CALL = 1, 2


def main() -> int:
    try:
        return serve(load_settings())
    except KeyboardInterrupt:  # Uvicorn's last word after Ctrl-C: all has ended, and the log says so
        return 0
    except FheError as error:
        text = str(error)
    except OSError as error:
        text = reason_of(error)
    print(f"cloakwork: {' '.join(text.split())}", file=sys.stderr)  # noqa: T201
    return WRONG_CALL


if __name__ == "__main__":
    sys.exit(main())
