"""`make wheels`: the source distribution and the wheels of a release in dist/, with SHA256SUMS, a bill of materials and a list of licences.

Wheels are built from the source distribution, unpacked, so that what it lacks is noticed. A variant for this machine keeps one build folder
for all Pythons: the engine is compiled once, its bindings for each. auditwheel says which systems a wheel runs on, and puts that in its name.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolchain import build_environment, cuda_release
from variants import PYTHONS, Variant, variants

ROOT: Final = Path(__file__).resolve().parents[2]
_BUILD_TOOLS: Final = ("scikit-build-core", "pybind11", "cmake", "ninja")
_PAGE: Final = (  # as web/backend.py has it
    *("index.html", "page.css", "page.js", "worker.js", "docs.html", "docs.js", "admin.html", "admin.css", "admin.js"),
    *("hash-wasm.txt", "client.wasm"),
)
_NOT_IN_WHEELS: Final = re.compile(
    r"(^|/)tests?/|\.(cpp|hpp|cu|cuh|def|h)$|CMakeLists\.txt$|(^|/)(build|\.venv|node_modules)/"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns: 0 where all that was asked for is in `--output`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument("--pythons", nargs="+", default=PYTHONS)
    parser.add_argument("--only", nargs="*", default=(), help="names of variants; default all that can be built here")
    parser.add_argument("--cuda-architectures", default="80-real;89-real;90", help="as CMAKE_CUDA_ARCHITECTURES")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    release = cuda_release()
    buildable, left_out = variants(release)
    chosen = [variant for variant in buildable if not options.only or variant.name in options.only]
    if unknown := set(options.only) - {variant.name for variant in buildable}:
        parser.error(
            f"--only: {', '.join(sorted(unknown))} cannot be built here; there are {', '.join(v.name for v in buildable)}"
        )
    shutil.rmtree(options.output, ignore_errors=True)
    options.output.mkdir(parents=True)
    if not (ROOT / "api" / "page" / "client.wasm").is_file():
        parser.error("the page is not built, and every wheel has it: `make web` builds it, with Node 20.19 or newer")
    archive = source_distribution(options.output)
    built: dict[str, Variant] = {}
    pythons: dict[str, Path] = {}
    for python in options.pythons:
        if (interpreter := find_python(python)) is None:
            left_out.append(f"Python {python}: neither in PATH nor in ~/.pyenv/versions")
        else:
            pythons[python] = environment_of(interpreter, options.build / f"python-{python}")
    if pythons:
        build_tools(next(iter(pythons.values())), options.build / "tools")
    for variant in chosen:
        # Files of the archive have one time whatever is in them, so that nothing of an earlier run may be kept.
        shutil.rmtree(options.build / "engine" / variant.name, ignore_errors=True)
        source = unpacked(archive, options.build / "source" / variant.name, variant.local)
        for python, interpreter in pythons.items():
            wheel = build_wheel(variant, python, interpreter, source, options)
            if wheel.name in built:  # in an old system's image this machine's compiler needs as little as zig does
                left_out.append(
                    f"{variant.name}, Python {python}: its name is that of {built[wheel.name].name}, the faster one"
                )
                continue
            built[wheel.name] = variant
            shutil.move(wheel, options.output / wheel.name)
            print(f"{variant.name}: {wheel.name}", flush=True)
    from bill import write_bill  # needs what is installed for releases alone

    write_bill(options.output, ROOT, built, release)
    write_sums(options.output)
    for line in left_out:
        print(f"left out: {line}", file=sys.stderr)
    return 0


def source_distribution(output: Path) -> Path:
    """The archive, from this checkout."""
    hook = "import sys; from scikit_build_core.build import build_sdist; print(build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", hook, str(output)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (archive,) = output.glob("*.tar.gz")
    return archive


def unpacked(archive: Path, folder: Path, local: str) -> Path:
    """The sources of the archive, in a folder that keeps its name between builds; `local` is added to the version."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    named = folder / "cloakwork"
    source.rename(named)
    if local:
        project = named / "pyproject.toml"
        text, count = re.subn(
            r'^(version = "[^"+]+)"$', rf'\1+{local}"', project.read_text(encoding="utf-8"), count=1, flags=re.M
        )
        assert count == 1, project
        project.write_text(text, encoding="utf-8")
    return named


def find_python(version: str) -> Path | None:
    """An interpreter of that version that runs: in PATH, or of pyenv."""
    places = [
        shutil.which(f"python{version}"),
        *sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")),
    ]
    for place in places:
        if place is None:
            continue
        check = [str(place), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        process = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
        if process.stdout.strip() == version:
            return Path(place)
    return None


def environment_of(interpreter: Path, folder: Path) -> Path:
    """An empty environment. Returns its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([str(interpreter), "-m", "venv", str(folder)], check=True)
    return python


def build_tools(python: Path, folder: Path) -> None:
    """Fills a folder for PYTHONPATH with what a build needs, one for all Pythons: scikit-build-core in another place begins a build folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    install = ["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", str(folder)]
    subprocess.run([str(python), *install, "--constraint", str(ROOT / "constraints.txt"), *_BUILD_TOOLS], check=True)


def build_wheel(variant: Variant, python: str, interpreter: Path, source: Path, options: argparse.Namespace) -> Path:
    """Builds, names and checks one wheel. Returns: where it lies."""
    environment = build_environment(variant, python, options.build / "toolchain", options.cuda_architectures)
    environment |= {"CMAKE_BUILD_PARALLEL_LEVEL": str(options.jobs), "PYTHONPATH": str(options.build / "tools")}
    raw = options.build / "raw" / f"{variant.name}-{python}"
    shutil.rmtree(raw, ignore_errors=True)
    command = [
        str(interpreter),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--verbose",
    ]
    folder = options.build / "engine" / variant.name
    if variant.is_crossed:  # pybind11 forgets the other machine's suffix of modules when the Python of a folder changes
        folder /= python
    command += [f"--config-settings=build-dir={folder}", "--wheel-dir", str(raw), str(source)]
    log = options.build / f"{variant.name}-{python}.log"
    print(f"{variant.name}, Python {python} ({log})", flush=True)
    building = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / "release" / "progress.py"), str(log)], stdin=building.stdout, check=True
    )
    if building.wait() != 0:
        raise SystemExit("\n".join(log.read_text(encoding="utf-8").splitlines()[-60:]))
    (built,) = raw.glob("*.whl")
    repaired = raw / "repaired"
    audit = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(repaired), str(built)]
    subprocess.run(audit, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wheel: Path
    (wheel,) = repaired.glob("*.whl")
    check_contents(wheel, python, variant)
    return wheel


def check_contents(wheel: Path, python: str, variant: Variant) -> None:
    """Raises: SystemExit where a file is in it that should not be, or the engine is not for that Python and machine."""
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    if wrong := [name for name in names if _NOT_IN_WHEELS.search(name)]:
        raise SystemExit(f"{wheel.name}: not meant for wheels: {', '.join(wrong[:5])}")
    engines = [name for name in names if name.endswith(".so")]
    expected = f"cloakwork/fhe_core/_engine.cpython-{python.replace('.', '')}-{variant.machine}-linux-gnu.so"
    if engines != [expected]:
        raise SystemExit(f"{wheel.name}: expected {expected} as the one library, found {engines}")
    if missing := [name for name in _PAGE if f"cloakwork/api/page/{name}" not in names]:
        raise SystemExit(f"{wheel.name}: the page is not whole: {', '.join(missing)}")


def write_sums(output: Path) -> None:
    """SHA256SUMS, as sha256sum --check reads it."""
    files = sorted(path for path in output.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (output / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
