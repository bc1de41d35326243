"""The install: CMake as the build needs it, CUDA left out where it cannot be built, and no promise of a package that is not published."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from tests.cmake_builds import configure

pytest.importorskip("scikit_build_core")  # `make` installs it, with CMake, Ninja and pybind11

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
LEFT_OUT = "CUDA back end left out, only the CPU's is built: "
A_CARD = f"-DCLOAKWORK_CARD_PATHS={REPOSITORY}"  # a path that is there
FIRST_CMAKE_WITH_CUDA_20 = (
    3,
    25,
    2,
)  # its Modules/Compiler/NVIDIA-CUDA.cmake; 3.25.1, of Debian 12, has no option for C++20


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# --- CMake -----------------------------------------------------------------------------------------------------------------------


def test_one_version_of_cmake_is_asked_for() -> None:
    lists = [
        REPOSITORY / "fhe_core" / "CMakeLists.txt",
        REPOSITORY / "fhe_core" / "cmake" / "cuda_probe" / "CMakeLists.txt",
    ]
    versions = {
        re.search(r"cmake_minimum_required\(VERSION ([\d.]+)\)", path.read_text(encoding="utf-8"))[1] for path in lists
    }
    (version,) = versions
    assert PROJECT["tool"]["scikit-build"]["cmake"]["version"] == f">={version}"
    assert tuple(map(int, version.split("."))) >= FIRST_CMAKE_WITH_CUDA_20


@pytest.mark.os_entropy
def test_pip_fetches_cmake_where_the_systems_has_no_cuda_20(tmp_path: Path) -> None:
    """What pip asks the build back end before it makes the build's environment, with Debian 12's CMake alone in PATH."""
    text = """case "$*" in *capabilities*) echo '{"version": {"string": "3.25.1"}}';; *) echo cmake version 3.25.1;; esac"""
    script(tmp_path / "cmake", text)
    # CMake's Python package, which `make` installs beside this, would be taken without a look at the system's.
    hook = (
        "import importlib.util as u; find = u.find_spec; u.find_spec = lambda name, *a: None if name == 'cmake' else find(name, *a)\n"
        "from scikit_build_core.build import get_requires_for_build_wheel as hook; print(hook({}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", hook],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert "cmake>=" in result.stdout


@pytest.mark.tier("all")  # compresses all of it
@pytest.mark.os_entropy
def test_the_source_distribution_holds_what_the_build_needs(tmp_path: Path) -> None:
    hook = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    result = subprocess.run(
        [sys.executable, "-c", hook, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "NOTICE"}
    for package in PROJECT["tool"]["scikit-build"]["wheel"]["packages"].values():
        paths = (path for path in (REPOSITORY / package).rglob("*") if path.is_file())
        needed |= {str(path.relative_to(REPOSITORY)) for path in paths if path.suffix not in (".pyc", ".so")}
    assert needed <= held, sorted(needed - held)
    assert not [name for name in held if name.startswith((".venv/", "build/")) or name.endswith(".so")]


# --- Kernels of this machine alone (`make demo`) ---------------------------------------------------------------------------------


def kernels_of(folder: Path) -> set[str]:
    """Instruction sets that a configured build compiles kernels for."""
    return set(re.findall(r"cpu_kernels_(\w+)\.dir", (folder / "build.ninja").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the configurations share: C++ is looked at once."""
    return tmp_path_factory.mktemp("build")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have one set of kernels")
def test_native_builds_have_the_kernels_that_this_machine_takes(build: Path) -> None:
    engine = pytest.importorskip("cloakwork.fhe_core._engine")
    result = configure(build, "-DCLOAKWORK_CUDA=OFF", "-DCLOAKWORK_KERNELS=native")
    assert result.returncode == 0, result.stdout
    if not os.environ.get("CLOAKWORK_CPU"):
        assert kernels_of(build) == {engine.cpu_features()}
    again = configure(build, "-DCLOAKWORK_CUDA=OFF", "-DCLOAKWORK_KERNELS=all")
    assert again.returncode == 0, again.stdout
    assert kernels_of(build) == {"baseline", "avx2", "avx512"}


def test_another_choice_of_kernels_is_refused(build: Path) -> None:
    result = configure(build, "-DCLOAKWORK_KERNELS=some")
    assert result.returncode != 0
    assert "CLOAKWORK_KERNELS is 'some'; expected all or native" in result.stdout


# --- CUDA that cannot be built ---------------------------------------------------------------------------------------------------


BROKEN = {  # what nvcc does -> what the line says
    "an error of its own": (
        "echo \"nvcc fatal   : Unsupported gpu architecture 'compute_90'\" >&2; exit 1",
        "Unsupported gpu architecture",
    ),
    "the host compiler": (
        "echo '#error -- unsupported GNU version! gcc versions later than 8 are not supported!'; exit 1",
        "unsupported GNU",
    ),
    "silence": ("exit 0", "nvcc"),
    "a crash": ("kill -SEGV $$", "nvcc"),
}


@pytest.mark.parametrize(
    "way",
    [
        "an error of its own",
        *(pytest.param(way, marks=pytest.mark.tier("all")) for way in BROKEN if way != "an error of its own"),
    ],
)
def test_a_broken_cuda_compiler_leaves_cuda_out(build: Path, tmp_path: Path, way: str) -> None:
    text, said = BROKEN[way]
    nvcc = script(tmp_path / "nvcc", text)
    result = configure(build, A_CARD, PATH=f"{tmp_path}:{os.environ['PATH']}")
    lines = [line for line in result.stdout.splitlines() if "CUDA" in line or "nvcc" in line]
    assert result.returncode == 0, result.stdout
    assert len(lines) == 1, result.stdout
    assert LEFT_OUT in lines[0] and str(nvcc) in lines[0] and said in lines[0]


@pytest.mark.tier("all")
def test_without_a_cuda_compiler_the_cpu_is_built(build: Path) -> None:
    folders = ";".join(sorted({str(Path(folder).resolve()) for folder in _folders_with_nvcc()}))
    result = configure(build, A_CARD, f"-DCMAKE_IGNORE_PATH={folders}", PATH=_path_without_nvcc())
    assert result.returncode == 0, result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "CUDA" in line]
    assert LEFT_OUT + "no CUDA compiler was found" in line


def test_cuda_is_left_out_if_no_card_is_visible(build: Path, tmp_path: Path) -> None:
    """Even if the compiler would work: kernels take minutes, and could not run here."""
    result = configure(build, f"-DCLOAKWORK_CARD_PATHS={tmp_path}/nvidia*")
    assert result.returncode == 0, result.stdout
    (line,) = [line for line in result.stdout.splitlines() if "CUDA" in line]
    assert LEFT_OUT + "no NVIDIA card is visible" in line and "CLOAKWORK_CUDA=ON" in line


@pytest.mark.tier("all")
def test_cuda_that_is_insisted_on_fails(build: Path, tmp_path: Path) -> None:
    nvcc = script(tmp_path / "nvcc", "exit 1")
    result = configure(build, "-DCLOAKWORK_CUDA=ON", CUDACXX=str(nvcc))
    assert result.returncode != 0
    assert "CUDA" in result.stdout and LEFT_OUT not in result.stdout


@pytest.mark.tier("all")
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine: CUDA 12.4 or newer runs it")
def test_a_cuda_compiler_without_c20_leaves_cuda_out(build: Path, tmp_path: Path) -> None:
    """It works until C++20 is asked for: CMake's own test of the compiler passes."""
    refuses = """for a in "$@"; do case "$a" in *std=c++20*) echo "nvcc fatal   : Value 'c++20' is not defined" >&2; exit 1;; esac; done"""
    script(tmp_path / "nvcc", f'{refuses}\nexec {shutil.which("nvcc")} "$@"')
    result = configure(build, A_CARD, "-DCMAKE_CUDA_ARCHITECTURES=90-real", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert result.returncode == 0, result.stdout
    (line,) = [line for line in result.stdout.splitlines() if LEFT_OUT in line]
    assert "'c++20' is not defined" in line


def _folders_with_nvcc() -> list[str]:
    known = [*os.environ["PATH"].split(":"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/local/cuda/bin"]
    return [folder for folder in known if (Path(folder) / "nvcc").exists()]


def _path_without_nvcc() -> str:
    return ":".join(folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "nvcc").exists())


# --- What is promised ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts() -> dict[Path, str]:
    """Everything in the repository that a reader or a user of an error sees."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    if listed.returncode != 0:
        pytest.skip("not a git repository")
    ends = (".py", ".md", ".toml", ".ipynb", ".cpp", ".sh", ".html", "Makefile", "Dockerfile")
    paths = [REPOSITORY / name for name in listed.stdout.splitlines() if name.endswith(ends)]
    return {path: path.read_text(encoding="utf-8") for path in paths if path != Path(__file__).resolve()}


def test_no_line_installs_a_package_that_is_not_published(texts: dict[Path, str]) -> None:
    """cloakwork is in no package index: extras are installed from its folder."""
    promised = re.compile(r"cloakwork\[[a-z]|pip install [^\n`;,]*\bcloakwork(?![\w/.'’])")
    found = [
        f"{path.relative_to(REPOSITORY)}: {line.strip()}"
        for path, text in texts.items()
        for line in text.splitlines()
        if promised.search(line)
        and not line.startswith("all = [")  # its own extras, which pip finds in the same folder
    ]
    assert found == []


def test_every_extra_that_is_named_exists(texts: dict[Path, str]) -> None:
    extras = set(PROJECT["project"]["optional-dependencies"])
    named = {
        extra
        for text in texts.values()
        for names in re.findall(r"\.\[([a-z0-9,]+)\]['\"]|how_to_install\(['\"]([a-z0-9,]+)['\"]\)", text)
        for extra in "".join(names).split(",")
    }
    assert named <= extras and {"service", "client", "sklearn", "train"} <= named
