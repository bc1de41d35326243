"""What every command says of files that are not what it wants: one line that names the file, without an exception's name."""

from __future__ import annotations

import builtins
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from cloakwork.app.cli.commands.samples import ONNX
from cloakwork.app.cli.shared.failures import explained
from cloakwork.app.client.errors import ServiceError
from cloakwork.fhe_core.client import ClientKey
from cloakwork.models import zoo
from cloakwork.models.neighbours.index import NeighbourIndex

MODEL = "iris-tree"
PASSPHRASE = {"CLOAKWORK_PASSPHRASE": "x", "CLOAKWORK_API_KEY": ""}
# Where a command reads a file, as `@`; what else it needs is right.
READERS = {
    "models": ["compile @ -o out.clkm", "compile good.onnx --samples @ -o out.clkm", "inspect @", "models add @ --data ."],
    "tables": ["simulate iris-tree --data @.npy", "simulate iris-tree --data iris.npy --labels @", "index build @ -o out.clkn",
               "index query iris.npy --index @", "index query @ --index good.clkn"],
    "keys": ["keygen --client @", "keygen --key @ --out new --force", "encrypt --input @ --key good.key", "encrypt 1 --key @",
             "keygen --set toy --passphrase-file @ --out new --force"],
    "ciphertexts": ["decrypt @ --key good.key", "decrypt good.bin --key good.key --client @", "run iris-tree @", "run iris-tree good.bin --keys @",
                    "encrypt @ --model iris-tree --key good.key", "score @ --model m --url http://127.0.0.1:1", "replay @ --data ."],
}  # fmt: skip
# Where a command writes one.
WRITERS = [
    "compile iris-tree -o @",
    "inspect iris-tree --client @",
    "samples iris --out @.csv",
    "encrypt 1 -o @ --key good.key",
    "zoo --json @",
    "index build iris.npy -o @",
]
NAMES = {name for name in vars(builtins) if name.endswith(("Error", "Exception"))} | {
    "BadZipFile",
    "Errno",
    "Traceback",
}


def bad_files(folder: Path) -> Iterator[str]:
    """Every kind of file that is none of the wanted kinds."""
    rng = np.random.default_rng(5)
    good = {
        "key": (folder / "good.key").read_bytes(),
        "bin": (folder / "good.bin").read_bytes(),
        "clkm": zoo.card(MODEL).path.read_bytes(),
        "npy": (folder / "iris.npy").read_bytes(),
    }
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    contents = {
        "empty": b"",
        "text.json": b'{"a": [1, 2}',
        "object.json": b"{}",
        "words.csv": b"a,b\n1,x\n2",
        "noise.npz": rng.bytes(300),
        "utf16.txt": "passphrase\n".encode("utf-16"),
        "graph.onnx": onnx.helper.make_model(graph).SerializeToString(),
        "huge.npy": b"\x93NUMPY\x01\x00v\x00" + b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }".ljust(117) + b"\n",
    }  # fmt: skip
    for kind, data in good.items():
        contents[f"cut.{kind}"] = data[: len(data) // 3]
        flipped = bytearray(data)
        flipped[len(data) // 2 if kind != "npy" else 12] ^= 0x55
        contents[f"flipped.{kind}"] = bytes(flipped)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    (folder / "folder").mkdir()
    yield from ("missing", "folder", *contents)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With right files for what else a command reads."""
    key, x = ClientKey.generate("lut3"), zoo.held_out(MODEL).x
    key.save(tmp_path / "good.key", "x")
    zoo.load_model(MODEL).client.encrypt(key, x[:2]).save(tmp_path / "good.bin")
    np.save(tmp_path / "iris.npy", x)
    shutil.copy(ONNX, tmp_path / "good.onnx")
    NeighbourIndex.build(x[:9], np.arange(9), n_neighbors=1).save(tmp_path / "good.clkn")
    return tmp_path


def check(result, arguments: list[str], error_line) -> str:
    assert result.returncode in (1, 2), (arguments, result.stdout, result.stderr)
    notes = [line for line in result.stderr.splitlines() if line.startswith(("there is no passphrase", "note:"))]
    line = error_line("\n".join(line for line in result.stderr.splitlines() if line not in notes))
    assert not NAMES.intersection(re.findall(r"\w+", line)), (arguments, line)
    return line


@pytest.mark.parametrize("commands", READERS.values(), ids=READERS)
def test_files_of_another_kind_are_named_in_one_line(call, folder, error_line, commands):
    refused = 0
    for name in bad_files(folder):
        if (folder / name).is_file():
            (folder / f"{name}.npy").write_bytes((folder / name).read_bytes())
        for command in commands:
            arguments = command.replace("@", name).split()
            result = call(*arguments, folder=folder, environment=PASSPHRASE)
            if result.returncode != 0:  # a text is a passphrase, for example
                refused += 1
                assert name in check(result, arguments, error_line), arguments
    assert refused > 12 * len(commands)


def test_what_cannot_be_written_is_said_before_the_work(call, folder, error_line):
    (folder / "file").write_bytes(b"")
    (folder / "there.csv").mkdir()
    for command in WRITERS:
        for place in ("no/folder/out", "file/out", "there.csv" if ".csv" in command else "there.csv/."):
            arguments = (
                command.replace("@.csv", place if place.endswith(".csv") else f"{place}.csv")
                .replace("@", place)
                .split()
            )
            line = check(call(*arguments, folder=folder, environment=PASSPHRASE), arguments, error_line)
            assert place.split("/")[0] in line, (arguments, line)


def test_who_has_no_api_key_reads_where_commands_take_it_from():
    error = ServiceError("an API key is needed", 401, "unauthorised")
    assert (
        explained(error) == "an API key is needed; commands read the API key from --api-key-file or CLOAKWORK_API_KEY"
    )
