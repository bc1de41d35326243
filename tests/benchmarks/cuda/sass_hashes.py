"""Hashes the machine code of every kernel in a compiled engine, so that two builds can be compared: `sass_hashes.py ENGINE.so > hashes.txt`.

Kernels whose code must not change (moved files, new names) have the same hashes before and after, under the same compiler and flags. Needs
cuobjdump and nvdisasm: of CUDA, or of the wheels `nvidia-cuda-cuobjdump` and `nvidia-cuda-nvdisasm`.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys

# Names of units in the names of what is local to them change with paths and builds.
_UNIT = re.compile(r"(__|_INTERNAL_)[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}(_\d+)?")


def hashes(engine: str) -> dict[str, str]:
    """Returns {name: hash}, of copies in several units together in any order."""
    text = subprocess.run(["cuobjdump", "-sass", engine], capture_output=True, text=True, check=True).stdout
    codes: dict[str, list[str]] = {}
    for part in text.split("Function : ")[1:]:
        name, _, code = part.partition("\n")
        codes.setdefault(_UNIT.sub(r"\1", name), []).append(hashlib.sha256(code.encode()).hexdigest())
    return {name: hashlib.sha256("".join(sorted(all_of)).encode()).hexdigest()[:16] for name, all_of in codes.items()}


if __name__ == "__main__":
    for kernel, code_hash in sorted(hashes(sys.argv[1]).items()):
        print(code_hash, kernel)
