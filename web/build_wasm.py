"""Compiles the client's C++ sources to WebAssembly with the clang of the wheel `ziglang`: `python web/build_wasm.py OUTPUT`.

That wheel has the C++ library without exceptions; the part of its sources that throws and catches is compiled here, beside ours. Engines
of 2022 and newer run the result: 128-bit vectors, exceptions, bulk memory.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ENGINE: Final = ROOT / "fhe_core"
SOURCES: Final = (
    "client/evaluation_keys",
    "client/ntt",
    "client/public_key",
    "client/random",
    "client/secret_key",
    "core/chacha20",
    "core/expand",
)
FEATURES: Final = "generic+simd128+exception_handling+bulk_memory+sign_ext+nontrapping_fptoint+mutable_globals"
SHARED: Final = (
    "-target",
    "wasm32-wasi",
    f"-mcpu={FEATURES}",
    "-O3",
    "-DNDEBUG",
    "-fwasm-exceptions",
    "-mllvm",
    "-wasm-enable-eh",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fno-sanitize=all",
)
STACK_BYTES: Final = 1 << 20  # of 16 MiB, the compiler's choice
OURS: Final = ("-std=c++20", "-Wall", "-Wextra", f"-I{ENGINE}/src")


def build(output: Path) -> None:
    """Raises: SystemExit with the compiler's status."""
    import ziglang  # type: ignore[import-not-found,unused-ignore]

    library = Path(ziglang.__file__).parent / "lib"
    objects = output.parent / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    sources = [
        *(ENGINE / "src" / f"{name}.cpp" for name in SOURCES),
        *sorted((ENGINE / "src/wasm").glob("*.cpp")),
    ]
    made = [_compile(source, objects, "c++", *SHARED, *OURS) for source in sources]
    made += [_compile(source, objects, kind, *SHARED, *flags) for source, kind, flags in _exception_sources(library)]
    _zig(
        *("c++", "-target", "wasm32-wasi", f"-mcpu={FEATURES}", "-mexec-model=reactor", "-O3"),
        *("-Wl,--strip-all", "-Wl,--gc-sections"),
        f"-Wl,-z,stack-size={STACK_BYTES}",
        *(str(path) for path in made),
        *("-o", str(output)),
    )


def _exception_sources(library: Path) -> list[tuple[Path, str, tuple[str, ...]]]:
    """Files of the wheel that its own build for WebAssembly leaves out."""
    folders = ("libcxxabi/include", "libcxxabi/src", "libcxx/src", "libunwind/include")
    flags = ("-D__WASM_EXCEPTIONS__", "-D_LIBCPP_BUILDING_LIBRARY", *(f"-I{library / folder}" for folder in folders))
    return [
        (library / "libcxxabi/src/cxa_exception.cpp", "c++", ("-std=c++23", *flags)),
        (library / "libcxxabi/src/cxa_personality.cpp", "c++", ("-std=c++23", *flags)),
        (library / "libunwind/src/Unwind-wasm.c", "cc", ("-fdeclspec", "-w", *flags)),
    ]


def _compile(source: Path, objects: Path, *arguments: str) -> Path:
    made = objects / f"{source.parent.name}-{source.stem}.o"
    _zig(*arguments, "-c", str(source), "-o", str(made))
    return made


def _zig(*arguments: str) -> None:
    status = subprocess.run([sys.executable, "-m", "ziglang", *arguments], check=False).returncode
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
