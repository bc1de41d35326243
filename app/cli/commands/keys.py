"""`cloakwork keygen`, `encrypt`, `decrypt`: keys and ciphertexts as files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from cloakwork.app.cli.shared.answers import by_output, save_answers
from cloakwork.app.cli.shared.client_specification import (
    AnyClient,
    ClientOption,
    ForModelOption,
    check_key,
    check_result,
    find_specification,
)
from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError, in_one_line, progress, write_json
from cloakwork.app.cli.shared.data_sets import (
    classes_of,
    count_of,
    load_array,
    load_inputs,
    shaped_for,
)
from cloakwork.app.cli.shared.failures import of_file, reading
from cloakwork.app.cli.shared.key_files import CLIENT_KEY, EVALUATION_KEYS, KeyOption, load_any_key, load_key
from cloakwork.app.cli.shared.levelled_models import (
    LevelledClient,
    check_samples,
    decrypted,
    is_classifier,
    levelled_of,
    lookups_of,
    read_messages,
    requests,
)
from cloakwork.app.cli.shared.output_files import ForceOption, refuse_overwriting
from cloakwork.app.cli.shared.parameter_sets import StructuredOption, find_agreed_set, find_set
from cloakwork.app.cli.shared.passphrase import PassphraseFileOption, WeakPassphraseOption, read_passphrase
from cloakwork.app.cli.shared.tables import emit
from cloakwork.fhe_core.arrays.encoding import Encoding, default_encoding
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.switched_ciphertexts import load_ciphertexts
from cloakwork.fhe_core.wire.files import locked_folder
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.client_steps.running import FROM_SCORES
from cloakwork.models.graph.last_steps import LogSoftmax, Softmax
from cloakwork.models.key import Key
from cloakwork.models.messages import MessageKind
from cloakwork.models.program.client_specification import ClientSpecification

_FOREIGN = "note: whoever made these ciphertexts learns parts of your secret key if told what they decrypt to; keep values and noise to yourself"


def keygen(
    set_name: Annotated[
        str | None,
        typer.Option(
            "--set", metavar="SET", help="Use this parameter set, of 'cloakwork params'; a model has its own."
        ),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Write the two files here; the folder is made if needed."),
    ] = Path(),
    client: ClientOption = None,
    model: ForModelOption = None,
    existing: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="Make only new evaluation keys, for this secret key; of a model for batches or an index name the model too.",
        ),
    ] = None,
    structured: StructuredOption = False,
    passphrase_file: PassphraseFileOption = None,
    weak_passphrase: WeakPassphraseOption = False,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Make a secret key, and the evaluation keys for the server.

    client.key is the secret; a passphrase protects it. evaluation.keys is for the server.
    """
    client_path, evaluation_path = existing or folder / CLIENT_KEY, folder / EVALUATION_KEYS
    key_paths = [evaluation_path] if existing else [client_path, evaluation_path]
    specification = find_specification(client, model)
    if existing is None:
        generate = _generator(set_name, specification, structured)
        refuse_overwriting(force, *key_paths, makes_folder=True)
        passphrase = read_passphrase(passphrase_file, confirm=True, weak=weak_passphrase)
    elif set_name:
        raise WrongCallError("expected --key or --set, not both: the key has its parameter set")
    else:
        refuse_overwriting(force, *key_paths, makes_folder=True)
        key = load_any_key(existing, passphrase_file)
        if specification is not None:
            check_key(key, specification, existing)
        elif not isinstance(key.parts[0], ClientKey):
            raise WrongCallError(
                f"{existing}: the key is for a model for batches or an index; name it by --model or --client"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with locked_folder(folder):
        refuse_overwriting(force, *key_paths)  # another process may have been first
        if existing is None:
            key = generate()
        with progress("evaluation keys") as update:
            key.save_public(evaluation_path, specification, update)
        if existing is None:
            key.save(client_path, passphrase)
    record = {
        "set": set_of(key),
        "client_key": str(client_path),
        "evaluation_keys": str(evaluation_path),
        "upload_bytes": evaluation_path.stat().st_size,
    }
    emit(record, json_path, "Keys")


def encrypt(
    values: Annotated[
        list[str] | None,
        typer.Argument(
            help="Values, with -- before negative ones; for a model a .npy or .csv file of samples (.npz for several inputs)."
        ),
    ] = None,
    key_path: KeyOption = Path(CLIENT_KEY),
    output: Annotated[Path, typer.Option("--out", "-o", help="Write the ciphertexts to this file.")] = Path(
        "ciphertexts.bin"
    ),
    client: ClientOption = None,
    model: ForModelOption = None,
    input_path: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILE|-",
            help="Read the values from a .npy file, from text (spaces or commas), or from standard input.",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Write the masks instead of their seed: the file is larger, and ready to compute on."
        ),
    ] = False,
    passphrase_file: PassphraseFileOption = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Encrypt values, or samples for a model.

    Values are booleans, integers or real numbers, by the parameter set of the key. With --client or --model they are samples for that model.
    """
    specification = find_specification(client, model)
    if specification is not None:
        _encrypt_samples(
            specification, values or [], key_path, output, input_path, full, passphrase_file, force, json_path
        )
        return
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
    path: Annotated[Path, typer.Argument(help="Read the ciphertexts from this file.")],
    key_path: KeyOption = Path(CLIENT_KEY),
    output: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write the values to a .npy file (.npz for several outputs) instead of standard output."
        ),
    ] = None,
    client: ClientOption = None,
    model: ForModelOption = None,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            min=1,
            help="Say how many samples were encrypted, for a model with two in a ciphertext; otherwise the last may be a copy.",
        ),
    ] = None,
    input_path: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Read the samples that were encrypted: a model for batches or an index decides by them and the answers.",
        ),
    ] = None,
    with_scores: Annotated[
        bool, typer.Option("--scores", help="Print the scores of a classifier, not only its classes.")
    ] = False,
    noise: Annotated[
        bool,
        typer.Option("--noise", help="Report the measured noise too; only the owner of the key should see it."),
    ] = False,
    passphrase_file: PassphraseFileOption = None,
    force: ForceOption = False,
    json_path: JsonOption = None,
) -> None:
    """Decrypt a file of ciphertexts.

    With --client or --model the values are the answers of that model, a line for each sample: the class that a classifier decides for, or numbers.
    A network without Softmax may be a regression: its numbers are printed.

    Whoever made ciphertexts and then learns what they decrypt to, or whether they decrypt at all, learns parts of your secret key. Decrypt the
    ciphertexts of somebody else only if they never hear of the result.
    """
    specification = find_specification(client, model)
    if specification is not None and (levelled := levelled_of(specification)) is not None:
        if noise or samples is not None:
            raise WrongCallError("--noise and --samples do not go with a model for batches or an index; leave them out")
        _decrypt_answers(levelled, path, key_path, input_path, output, with_scores, passphrase_file, force, json_path)
        return
    if input_path is not None:
        if not isinstance(specification, BatchClient):
            raise WrongCallError(
                "--input goes with --model or --client of a model for batches or an index; leave it out"
            )
        samples = count_of(load_inputs(input_path))
    with reading(path, "a file of ciphertexts"):
        ciphertexts = load_ciphertexts(path.read_bytes())
    if noise and specification is not None:
        raise WrongCallError("--noise does not go with --client or --model: a model's outputs are real numbers")
    if noise and ciphertexts.encoding is Encoding.TORUS:
        raise WrongCallError("--noise needs messages or bits; real numbers have no nearest legal value to measure from")
    if output is not None:
        refuse_overwriting(force, output)
    lookups = None if specification is None else lookups_of(specification)
    if specification is None:
        key = load_key(key_path, passphrase_file)
    else:
        any_key = load_any_key(key_path, passphrase_file)
        check_key(any_key, specification, key_path)
        key = any_key.only
    result: _ModelAnswer | None = None
    record: dict[str, Any] = {
        "set": key.parameters.name,
        "encoding": ciphertexts.encoding.label,
        "shape": list(ciphertexts.shape),
    }
    if noise:
        with reading(path, _of_key(key_path)):
            values, errors = key.decrypt(ciphertexts, return_noise=True)
        record["noise_sd"] = float(np.std(errors))
        record["noise_max"] = float(np.max(np.abs(errors)))
    elif lookups is not None:
        encrypted = check_result(ciphertexts, lookups, path)
        if input_path is not None and -(-(samples or 0) // key.parameters.lane_count) != len(encrypted):
            raise FailureError(
                f"{input_path}: expected the {len(encrypted)} samples that were encrypted, got {samples}"
            )
        with progress("decryption"), reading(path, _of_key(key_path)):
            values = lookups.decrypt(key, encrypted, samples=samples)
        if isinstance(specification, BatchClient):
            result = _batch_answer(specification, np.asarray(values))
            values = result.values
        else:
            result = _model_answer(
                values, lambda: lookups.decrypt(key, encrypted, output="scores", samples=samples), lookups
            )
        record["shape"] = by_output(values, lambda array: list(array.shape))
        record |= result.fields()
    else:
        with reading(path, _of_key(key_path)):
            values = key.decrypt(ciphertexts)
    if specification is None or noise:
        typer.echo(_FOREIGN, err=True)
    _tell(values, result, record, output, with_scores, json_path)
    if noise and json_path is None:
        typer.echo(f"noise: sd {record['noise_sd']:.3g}, largest {record['noise_max']:.3g} of the torus", err=True)


def _of_key(key_path: Path) -> str:
    return f"ciphertexts of the secret key {key_path}"


@dataclass(frozen=True)
class _ModelAnswer:
    """Answers of a model, a line for each sample. `classes`: of a classifier; `scores`: [samples, classes], if it tells any."""

    values: Any
    classes: NDArray[Any] | None
    scores: NDArray[Any] | None

    def fields(self) -> dict[str, Any]:
        """Returns the fields of the JSON object, beside the values."""
        known = {"classes": self.classes, "scores": self.scores}
        return {name: array.tolist() for name, array in known.items() if array is not None}

    def show(self, with_scores: bool) -> None:
        if self.classes is None:
            for name, array in self.values.items() if isinstance(self.values, dict) else (("", self.values),):
                typer.echo(f"{name}:") if name else None
                print_values(array.reshape(-1, 1) if array.ndim == 1 else array)
            return
        for i, each in enumerate(self.classes):
            scores = "" if self.scores is None or not with_scores else " ".join(map(_text, self.scores[i].reshape(-1)))
            typer.echo(f"{in_one_line(_text(each))}{'  ' if scores else ''}{scores}")


def _tell(
    values: Any, result: _ModelAnswer | None, record: dict[str, Any], output: Path | None, with_scores: bool, json_path: str | None
) -> None:  # fmt: skip
    if output is not None:
        save_answers(output, values)
    elif json_path != "-":
        if result is not None:
            result.show(with_scores)
        else:
            print_values(values)
    if json_path is not None:
        write_json({**record, "values": by_output(values, lambda array: array.tolist())}, json_path)


def _decrypt_answers(
    client: LevelledClient, path: Path, key_path: Path, input_path: Path | None, output: Path | None, with_scores: bool,
    passphrase_file: Path | None, force: bool, json_path: str | None,
) -> None:  # fmt: skip
    """Of a model for batches, or an index."""
    if input_path is None:
        raise WrongCallError(
            "expected --input with the samples that were encrypted: answers of this model are read beside them"
        )
    if with_scores and not isinstance(client, BatchClient):
        raise WrongCallError("--scores: an index answers with labels or values alone; leave the option out")
    answered = read_messages(path, MessageKind.ANSWERS, client, "results of 'cloakwork run' for this model")
    samples = load_inputs(input_path)
    check_samples(client, answered, samples, input_path)
    if output is not None:
        refuse_overwriting(force, output)
    key = load_any_key(key_path, passphrase_file)
    check_key(key, client, key_path)
    with progress("decryption") as update, of_file(input_path, "samples"), reading(path, _of_key(key_path)):
        values = decrypted(client, key, answered, samples, update)
        tells = isinstance(client, BatchClient) and is_classifier(client)
        scores = decrypted(client, key, answered, samples, update, "scores") if tells else None
    result = _ModelAnswer(values, values if is_classifier(client) else None, scores)
    record = {"set": set_of(key), "shape": list(result.values.shape), **result.fields()}
    _tell(result.values, result, record, output, with_scores, json_path)


def _batch_answer(client: BatchClient, scores: NDArray[Any]) -> _ModelAnswer:
    """Decisions by scores before them."""
    values = client.decide(scores)
    if not is_classifier(client):
        return _ModelAnswer(values, None, None)
    return _ModelAnswer(values, values, client.decide(scores, "scores"))


def _model_answer(values: Any, scores: Callable[[], Any], specification: ClientSpecification) -> _ModelAnswer:
    """Returns labels as the model has them; the number of the largest after a Softmax. Other networks may be regressions, and answer numbers."""
    if isinstance(values, dict):
        return _ModelAnswer(values, None, None)
    if values.ndim == 1 and any(isinstance(step, FROM_SCORES) for step in specification.output_steps):
        return _ModelAnswer(values, values, scores())
    if values.ndim == 2 and any(isinstance(step, Softmax | LogSoftmax) for step in specification.output_steps):
        return _ModelAnswer(values, classes_of(values), values)
    return _ModelAnswer(values, None, None)


def _generator(set_name: str | None, specification: AnyClient | None, structured: bool) -> Callable[[], Key]:
    """Of a key of a set by its own name, which is asking for it, or of a model's."""
    if (set_name is None) == (specification is None):
        raise WrongCallError("expected --set, or a model by --client or --model, one of the two")
    if specification is None:
        assert set_name is not None
        parameters = find_set(set_name)
    elif (lookups := lookups_of(specification)) is not None:
        parameters = find_agreed_set(lookups.parameters, structured)
    else:
        return lambda: Key.generate(specification)
    return lambda: Key((ClientKey.generate(parameters),))


def set_of(key: Key) -> str:
    """Returns the name of the parameter set."""
    parameters = key.parts[0].parameters
    return parameters.set.name if isinstance(parameters, LevelledParameters) else parameters.name


def _encrypt_samples(
    specification: AnyClient, arguments: list[str], key_path: Path, output: Path, input_path: str | None, full: bool,
    passphrase_file: Path | None, force: bool, json_path: str | None,
) -> None:  # fmt: skip
    """A .npy or .csv file of samples for a model, of several inputs a .npz file."""
    sources = [*arguments, *([] if input_path is None else [input_path])]
    if len(sources) != 1 or full:
        raise WrongCallError(
            "for a model expected one .npy or .csv (of several inputs .npz) file of samples and no --full; for example "
            "'cloakwork encrypt images.npy --model mnist-mlp-1x30'"
        )
    refuse_overwriting(force, output)
    source, lookups, levelled = Path(sources[0]), lookups_of(specification), levelled_of(specification)
    samples = shaped_for(specification if lookups is None else lookups, load_inputs(source), source)
    key = load_any_key(key_path, passphrase_file)
    check_key(key, specification, key_path)
    with of_file(source, "samples"), of_file(source, "input"), progress("encryption") as update:
        if levelled is not None:
            requests(levelled, key, samples, update).save(output)
        else:
            assert lookups is not None
            lookups.encrypt(key.only, samples).save(output)
    record = {
        "set": set_of(key),
        "ciphertexts": str(output),
        "samples": count_of(samples),
        "bytes": output.stat().st_size,
    }
    emit(record, json_path, "Ciphertexts")


def parse_values(texts: list[str], parameters: ParameterSet) -> NDArray[Any]:
    """Returns booleans (0, 1, true, false), integers or real numbers, by the default encoding of the set."""
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
        expected = {Encoding.BOOLEAN: "0, 1, true or false", Encoding.TORUS: "real numbers"}.get(encoding, "integers")
        raise WrongCallError(f"values: expected {expected} for parameter set '{parameters.name}'") from None


def read_values(source: str, parameters: ParameterSet) -> NDArray[Any]:
    if source != "-" and source.endswith(".npy"):
        return load_array(Path(source))
    if source == "-":
        return parse_values(sys.stdin.read().replace(",", " ").split(), parameters)
    with reading(source, "values in text, with spaces or commas between them"):
        texts = Path(source).read_text(encoding="utf-8").replace(",", " ").split()
        if not texts:
            raise FailureError("the file has none")
        return parse_values(texts, parameters)


def print_values(values: NDArray[Any]) -> None:
    """Prints one one row of the last axis a line."""
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(1, -1)
    for row in rows:
        typer.echo(" ".join(_text(value) for value in row))


def _text(value: np.generic) -> str:
    if isinstance(value, np.bool_):
        return str(int(value))
    return f"{value:.9g}" if isinstance(value, np.floating) else str(value)
