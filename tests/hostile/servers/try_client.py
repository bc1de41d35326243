"""Asks the servers of all cases, or of those that are named, with a client and prints how each ended.

CLOAKWORK_ALLOW_TOY=1 python tests/hostile/servers/try_client.py python [--old] [NAME ..]
CLOAKWORK_ALLOW_TOY=1 python tests/hostile/servers/try_client.py web [--dist=FOLDER] [--old] [NAME ..]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from servers.cases import CASES
from servers.clients import PythonClient, WebClient

CLIENTS = {"python": PythonClient, "web": WebClient}


def main() -> None:
    kind, *arguments = sys.argv[1:]
    options = [name for name in arguments if name.startswith("--")]
    with CLIENTS[kind](*options) as client:
        for name in [name for name in arguments if name not in options] or CASES:
            result = client.result(name)
            print(  # noqa: T201
                f"{name:42s} {result.seconds:6.1f} s {result.peak_mib:6.0f} MiB  {result.ended} {result.error}: {result.message[:160]!r}",
                flush=True,
            )


if __name__ == "__main__":
    main()
