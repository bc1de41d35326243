"""`cloakwork keygen`, `encrypt`, `decrypt`: keys and ciphertexts as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from cloakwork.app.cli.console import FailureError, JsonOption, WrongCallError, emit, progress, write_json
from cloakwork.app.cli.params import find_set
from cloakwork.app.cli.passphrase import PassphraseFileOption, read_passphrase
from cloakwork.fhe_core.ciphertexts import load_ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.encoding import Encoding, default_encoding
from cloakwork.fhe_core.parameters import ParameterSet

CLIENT_KEY = "client.key"
EVALUATION_KEYS = "evaluation.keys"

SetOption = Annotated[str, typer.Option("--set", help="Parameter set; 'cloakwork params' lists them.")]
KeyOption = Annotated[Path, typer.Option("--key", help="The secret key that keygen wrote.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]


def keygen(
    set_name: SetOption,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the two files; it is made if needed.")] = Path(),
    passphrase_file: PassphraseFileOption = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Make a key: client.key (secret, encrypted with a passphrase) and evaluation.keys (for the server)."""
    parameters = find_set(set_name)
    client_path, evaluation_path = folder / CLIENT_KEY, folder / EVALUATION_KEYS
    refuse_overwriting(force, client_path, evaluation_path)
    passphrase = read_passphrase(passphrase_file, confirm=True)
    folder.mkdir(parents=True, exist_ok=True)
    key = ClientKey.generate(parameters)
    with progress("evaluation keys") as update:
        evaluation_keys = key.evaluation_keys(progress=update)
    key.save(client_path, passphrase)
    evaluation_keys.save(evaluation_path)
    record = {
        "set": parameters.name,
        "client_key": str(client_path),
        "evaluation_keys": str(evaluation_path),
        "upload_bytes": evaluation_path.stat().st_size,
    }
    emit(record, json_path, "Keys")


def encrypt(
    values: Annotated[list[str] | None, typer.Argument(help="Values; put -- before negative ones.")] = None,
    key_path: KeyOption = Path(CLIENT_KEY),
    output: Annotated[Path, typer.Option("--out", help="Where the ciphertexts go.")] = Path("ciphertexts.bin"),
    input_path: Annotated[
        str | None,
        typer.Option(
            "--input", help="Read values from a .npy file, from text (spaces or commas), or from - (standard input)."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Write masks too instead of their seed: larger, ready to compute on.")
    ] = False,
    passphrase_file: PassphraseFileOption = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Encrypt booleans, integers or real numbers, as the key's parameter set has it."""
    if bool(values) == (input_path is not None):
        raise WrongCallError(
            "expected values as arguments or --input, one of the two; for example 'cloakwork encrypt 3 1 2'"
        )
    refuse_overwriting(force, output)
    key = load_key(key_path, passphrase_file)
    array = parse_values(values, key.parameters) if values else read_values(str(input_path), key.parameters)
    ciphertexts = key.encrypt(array) if full else key.encrypt(array, seeded=True)
    ciphertexts.save(output)
    record = {
        "set": key.parameters.name,
        "ciphertexts": str(output),
        "shape": list(array.shape),
        "bytes": output.stat().st_size,
    }
    emit(record, json_path, "Ciphertexts")


def decrypt(
    path: Annotated[Path, typer.Argument(help="A file of ciphertexts.")],
    key_path: KeyOption = Path(CLIENT_KEY),
    output: Annotated[
        Path | None, typer.Option("--out", help="Write the values to a .npy file instead of standard output.")
    ] = None,
    noise: Annotated[
        bool,
        typer.Option("--noise", help="Report the measured noise too. It is the key owner's to see, nobody else's."),
    ] = False,
    passphrase_file: PassphraseFileOption = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Decrypt a file of ciphertexts."""
    ciphertexts = load_ciphertexts(path.read_bytes())
    if noise and ciphertexts.encoding is Encoding.TORUS:
        raise WrongCallError("--noise needs messages or bits; real numbers have no nearest legal value to measure from")
    if output is not None:
        refuse_overwriting(force, output)
    key = load_key(key_path, passphrase_file)
    record: dict[str, Any] = {
        "set": key.parameters.name,
        "encoding": ciphertexts.encoding.label,
        "shape": list(ciphertexts.shape),
    }
    if noise:
        values, errors = key.decrypt(ciphertexts, return_noise=True)
        record["noise_sd"] = float(np.std(errors))
        record["noise_max"] = float(np.max(np.abs(errors)))
    else:
        values = key.decrypt(ciphertexts)
    if output is not None:
        with output.open("wb") as stream:
            np.save(stream, values, allow_pickle=False)
    elif json_path != "-":
        print_values(values)
    if json_path is not None:
        write_json({**record, "values": values.tolist()}, json_path)
    elif noise:
        typer.echo(f"noise: sd {record['noise_sd']:.3g}, largest {record['noise_max']:.3g} of the torus", err=True)


def load_key(path: Path, passphrase_file: Path | None) -> ClientKey:
    if not path.exists():
        raise FailureError(f"there is no key at {path}; make one with 'cloakwork keygen' or name it with --key")
    return ClientKey.load(path, read_passphrase(passphrase_file, confirm=False))


def refuse_overwriting(force: bool, *paths: Path) -> None:
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        raise FailureError(f"{' and '.join(existing)} would be overwritten; choose another --out, or pass --force")


def parse_values(texts: list[str], parameters: ParameterSet) -> NDArray[Any]:
    """Booleans (0, 1, true, false), integers or real numbers, by the default encoding of the set."""
    encoding = default_encoding(parameters)
    try:
        if encoding is Encoding.BOOLEAN:
            return np.array(
                [{"0": False, "1": True, "false": False, "true": True}[text.lower()] for text in texts], dtype=np.bool_
            )
        if encoding is Encoding.TORUS:
            return np.array([float(text) for text in texts], dtype=np.float64)
        return np.array([int(text) for text in texts], dtype=np.int64)
    except (KeyError, ValueError, OverflowError):
        wanted = {Encoding.BOOLEAN: "0, 1, true or false", Encoding.TORUS: "real numbers"}.get(encoding, "integers")
        raise WrongCallError(f"values: expected {wanted} for parameter set '{parameters.name}'") from None


def read_values(source: str, parameters: ParameterSet) -> NDArray[Any]:
    if source != "-" and source.endswith(".npy"):
        try:
            return np.asarray(np.load(source, allow_pickle=False))
        except ValueError as error:
            raise FailureError(f"{source}: expected a .npy file of numbers: {error}") from error
    text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    return parse_values(text.replace(",", " ").split(), parameters)


def print_values(values: NDArray[Any]) -> None:
    """One row of the last axis a line."""
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(1, -1)
    for row in rows:
        typer.echo(" ".join(str(int(value)) if isinstance(value, np.bool_) else str(value) for value in row))
