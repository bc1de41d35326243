"""The wheels of a release: for which machine, made by which compiler, with CUDA or without."""

from __future__ import annotations

import platform
import shutil
from dataclasses import dataclass
from typing import Final

PYTHONS: Final = ("3.11", "3.12", "3.13")
OLDEST_GLIBC: Final = "2.28"  # what zig links against; auditwheel says what the wheel then needs
MACHINES: Final = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Variant:
    """`local` is the part of the version behind the plus: such wheels are files of a release, an index like PyPI takes none."""

    name: str
    machine: str
    compiler: str  # native: the C++ compiler of this machine; zig: clang of the wheel `ziglang`
    cuda: bool = False
    local: str = ""

    @property
    def is_crossed(self) -> bool:
        return self.machine != platform.machine()


def variants(cuda_release: str | None) -> tuple[list[Variant], list[str]]:
    """Lists what can be built here, and a line for each that cannot. Args: cuda_release: of nvcc, such as "13.0"; None without one."""
    here = platform.machine()
    buildable, left_out = [], []
    if shutil.which("c++") is None:
        left_out.append(f"{here} by this machine's compiler, the faster wheel: there is no c++")
    else:
        buildable.append(Variant(f"{here}-native", here, "native"))
    buildable += [Variant(f"{machine}-zig", machine, "zig") for machine in MACHINES]
    if cuda_release is None:
        left_out.append("CUDA: there is no nvcc")
    elif shutil.which("c++") is not None:
        buildable.append(
            Variant(f"{here}-cuda", here, "native", cuda=True, local=f"cu{cuda_release.partition('.')[0]}")
        )
    other = next(machine for machine in MACHINES if machine != here) if here in MACHINES else "other machines"
    left_out.append(f"CUDA for {other}: nvcc compiles for the machine that it runs on; run `make wheels` there")
    return buildable, left_out
