"""The TFHE engine: exact, batched bootstrapping with the same integers on every back end.

`parameters` the shipped sets · `client` keys, encryption, decryption (secret side) · `server` sessions on evaluation keys (public side) ·
`ciphertexts` arrays of ciphertexts · `gates` Boolean gates · `errors` the error tree. The formats are in docs/reference/wire_format.md.

This file imports nothing of the package: the evaluating side must be loadable without the secret side.
"""

import os
import sys


def _has_engine(folder: str) -> bool:
    return os.path.isdir(folder) and any(  # noqa: PTH112 (pathlib is not imported for this)
        name.startswith("_engine.") and not name.endswith(".pyi")
        for name in os.listdir(folder)  # noqa: PTH208
    )


# A checkout has no compiled engine; it takes the installed package's.
if not _has_engine(__path__[0]):
    __path__.extend(filter(_has_engine, (os.path.join(each, "cloakwork", "fhe_core") for each in sys.path)))  # noqa: PTH118
