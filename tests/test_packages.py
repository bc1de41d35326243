"""Wheels and the source distribution: their metadata, versions and licences, and what `make wheels` decides before it builds."""

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import progress
import pytest
import toolchain
import version
import wheels
from try_wheels import parsed
from variants import Variant, variants

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NATIVE, ARM = Variant("x86_64-native", "x86_64", "native"), Variant("aarch64-zig", "aarch64", "zig")


# --- Metadata --------------------------------------------------------------------------------------------------------------------


def test_the_version_stands_in_one_place_and_its_copies_agree() -> None:
    assert set(version.found().values()) == {PROJECT["version"]}


def test_a_new_version_is_written_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in version.REPEATED:
        copy = tmp_path / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((REPOSITORY / name).read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(version, "ROOT", tmp_path)
    version.write("12.3.45")
    assert set(version.found().values()) == {"12.3.45"}
    for name in version.REPEATED:
        old, new = ((root / name).read_text(encoding="utf-8").splitlines() for root in (REPOSITORY, tmp_path))
        changed = [line for line, other in zip(old, new, strict=True) if line != other]
        assert len(changed) == len(version.REPEATED[name]) and all("ersion" in line for line in changed), changed
    with pytest.raises(SystemExit, match="expected one like"):
        version.write("next")


@pytest.mark.os_entropy
def test_the_metadata_is_what_an_index_takes(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    hook = "import sys; from scikit_build_core.build import prepare_metadata_for_build_wheel as hook; print(hook(sys.argv[1]))"
    result = subprocess.run(
        [sys.executable, "-c", hook, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    (folder,) = tmp_path.glob("cloakwork-*.dist-info")
    metadata = message_from_string((folder / "METADATA").read_text(encoding="utf-8"))
    assert metadata["Name"] == "cloakwork" and metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "Apache-2.0" and metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert set(metadata.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
    texts = {path.name for path in (REPOSITORY / "licenses").iterdir()}
    assert {Path(name).name for name in metadata.get_all("License-File") or ()} == texts | {"LICENSE", "NOTICE"}


def test_texts_of_licences_are_those_of_what_is_installed() -> None:
    """pybind11's and hash-wasm's have to go along with binaries."""
    distribution = pytest.importorskip("importlib.metadata").distribution("pybind11")
    (theirs,) = [file for file in distribution.files or () if file.name == "LICENSE"]
    ours = (REPOSITORY / "licenses" / "pybind11.txt").read_text(encoding="utf-8")
    assert theirs.read_text() == ours
    locked = REPOSITORY / "web" / "node_modules" / "hash-wasm" / "LICENSE"
    if locked.is_file():
        assert locked.read_bytes() == (REPOSITORY / "licenses" / "hash-wasm.txt").read_bytes()


# --- What is built ---------------------------------------------------------------------------------------------------------------


def test_variants_and_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    found, left_out = variants("13.0")
    assert [variant.name for variant in found] == ["x86_64-native", "x86_64-zig", "aarch64-zig", "x86_64-cuda"]
    assert found[-1].cuda and found[-1].local == "cu13" and found[2].is_crossed and not found[0].is_crossed
    assert len(left_out) == 1 and "CUDA for aarch64" in left_out[0]
    monkeypatch.setattr("shutil.which", lambda name: None)
    found, left_out = variants(None)
    assert [variant.compiler for variant in found] == ["zig", "zig"]
    assert any("no c++" in line for line in left_out) and any("no nvcc" in line for line in left_out)


def test_a_crossed_build_names_the_other_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(toolchain, "zig_toolchain", lambda folder, machine: folder / f"{machine}.cmake")
    environment = toolchain.build_environment(ARM, "3.12", tmp_path, "90-real")
    assert environment["_PYTHON_HOST_PLATFORM"] == "linux-aarch64"
    defines = dict(define.split("=", 1) for define in environment["SKBUILD_CMAKE_DEFINE"].split(";"))
    assert defines["PYTHON_MODULE_EXTENSION"] == ".cpython-312-aarch64-linux-gnu.so"
    assert defines["CLOAKWORK_CUDA"] == "OFF" and defines["CLOAKWORK_KERNELS"] == "all"
    cuda = toolchain.build_environment(Variant("c", "x86_64", "native", cuda=True), "3.12", tmp_path, "80-real;90")
    assert cuda["CUDAARCHS"] == "80-real;90" and "ARCHITECTURES" not in cuda["SKBUILD_CMAKE_DEFINE"]
    assert all(define.count("=") == 1 for define in cuda["SKBUILD_CMAKE_DEFINE"].split(";"))


def archive_of(folder: Path, text: str) -> Path:
    path = folder / "cloakwork-0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("cloakwork-0/pyproject.toml")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_a_local_version_is_added_to_the_sources_of_the_wheel_alone(tmp_path: Path) -> None:
    archive = archive_of(tmp_path, '[project]\nversion = "1.2.3"\nother = "1.2.3"\n')
    source = wheels.unpacked(archive, tmp_path / "source", "cu13")
    assert tomllib.loads((source / "pyproject.toml").read_text())["project"] == {
        "version": "1.2.3+cu13",
        "other": "1.2.3",
    }
    again = wheels.unpacked(archive, tmp_path / "source", "")
    assert tomllib.loads((again / "pyproject.toml").read_text())["project"]["version"] == "1.2.3"


ENGINE = "cloakwork/fhe_core/_engine.cpython-312-x86_64-linux-gnu.so"
PAGE = [f"cloakwork/api/page/{name}" for name in wheels._PAGE]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([ENGINE, "cloakwork/models/ir.py", *PAGE], None),
        ([ENGINE, "cloakwork/models/ir.py", *PAGE[1:]], "the page is not whole: index.html"),
        ([ENGINE, "cloakwork/models/ir.py"], "the page is not whole"),
        ([ENGINE, "cloakwork/fhe_core/src/cpu/kernels.cpp"], "not meant for wheels"),
        ([ENGINE, "cloakwork/tests/test_x.py"], "not meant for wheels"),
        (["cloakwork/models/ir.py"], "found \\[\\]"),
        ([ENGINE.replace("312", "311")], "expected cloakwork/fhe_core/_engine.cpython-312"),
        ([ENGINE, "cloakwork.libs/libother.so"], "as the one library"),
    ],
)
def test_the_contents_of_a_wheel_are_checked(tmp_path: Path, names: list[str], said: str | None) -> None:
    path = tmp_path / "cloakwork-1-cp312-cp312-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as opened:
        for name in names:
            opened.writestr(name, "")
    if said is None:
        wheels.check_contents(path, "3.12", NATIVE)
    else:
        with pytest.raises(SystemExit, match=said):
            wheels.check_contents(path, "3.12", NATIVE)


def test_names_of_wheels_are_read() -> None:
    wheel = parsed(Path("cloakwork-0.2.0+cu13-cp313-cp313-manylinux_2_34_x86_64.manylinux_2_35_x86_64.whl"))
    assert (wheel.version, wheel.python, wheel.machine) == ("0.2.0+cu13", "3.13", "x86_64")
    sources = parsed(Path("cloakwork-0.2.0.tar.gz"))
    assert (sources.version, sources.python, sources.machine) == ("0.2.0", "3.11", platform.machine())
    with pytest.raises(SystemExit, match="expected the name of a wheel"):
        parsed(Path("other-1-py3-none-any.whl"))


def test_sums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"two")
    (tmp_path / "a").write_bytes(b"one")
    wheels.write_sums(tmp_path)
    result = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0 and result.stdout == "a: OK\nb: OK\n"


# --- Progress --------------------------------------------------------------------------------------------------------------------

LINES = "".join(f"  [{i}/40] Building CXX object {i}\n" for i in range(1, 41))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_at_every_tenth_and_all_is_kept() -> None:
    log, out = io.StringIO(), io.StringIO()
    progress.show(io.StringIO("before\n" + LINES + "after\n"), log, out)
    assert log.getvalue() == "before\n" + LINES + "after\n"
    lines = out.getvalue().splitlines()
    assert len(lines) == 10 and lines[0].startswith("compiling [4/40]") and lines[-1].startswith("compiling [40/40]")


def test_progress_on_a_terminal_is_one_line() -> None:
    out = Terminal()
    progress.show(io.StringIO(LINES), io.StringIO(), out)
    assert out.getvalue().count("\n") == 1 and out.getvalue().count("\r") == 40


def test_progress_says_why_cuda_is_left_out() -> None:
    out = io.StringIO()
    progress.show(io.StringIO("  -- CUDA back end left out, for a reason\n"), io.StringIO(), out)
    assert out.getvalue() == "CUDA back end left out, for a reason\n"


def test_without_compilation_nothing_is_shown() -> None:
    out = Terminal()
    progress.show(io.StringIO("Processing .\n[no counter]\n"), io.StringIO(), out)
    assert out.getvalue() == ""
