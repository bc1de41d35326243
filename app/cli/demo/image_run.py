"""Images read by a server that cannot see them: what `cloakwork demo mnist` and `demo cifar10` do and show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from cloakwork.app.cli.demo.encrypted_run import EncryptedRun, client_line, costs, run_encrypted
from cloakwork.app.cli.demo.picture import check_picture, has_pillow, save_picture
from cloakwork.app.cli.demo.terminal_image import bar_line, image_lines
from cloakwork.app.cli.shared.console import FailureError, WrongCallError, standard_output, write_json
from cloakwork.app.cli.shared.data_sets import classes_of
from cloakwork.fhe_core.errors import how_to_install
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.report.costs import cpu_estimate

_BAR: Final = 16
_LISTED: Final = 80  # answers, in rows of 40
_SEED: Final = 1  # of the simulated noise


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images that are encrypted. Args: shape: (height, width), or (3, height, width) in colour; the height is even."""

    images: NDArray[np.float64]  # [count, ..] in [0, 1]
    labels: NDArray[np.int64] | None
    shape: tuple[int, ...]
    source: str  # for people
    data: str  # as the record names it
    names: Sequence[str]  # of the classes

    def drawn(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draws [height, width] or [height, width, 3], of one image or of as many words."""
        image = numbers.reshape(self.shape)
        return image if image.ndim == 2 else image.transpose(1, 2, 0)


@dataclass(frozen=True)
class Asked:
    """Options that both commands have."""

    model: str
    device: str
    threads: int
    shown: int
    picture: Path | None
    default_picture: Path
    json_path: str | None


@dataclass(frozen=True, eq=False)
class _Result:
    run: EncryptedRun
    pictures: Pictures
    answers: NDArray[np.int64]
    clear: NDArray[np.int64]
    simulated: NDArray[np.int64]

    def is_right(self, i: int) -> bool | None:
        return None if self.pictures.labels is None else bool(self.answers[i] == self.pictures.labels[i])


def show_encrypted(model: CompiledModel, pictures: Pictures, options: Asked) -> None:
    """Encrypts, evaluates in another process, decrypts, compares; writes what was asked for.

    Raises:
        WrongCallError: the model reads something else than such images.
    """
    check_picture(options.picture)
    expected = int(np.prod(pictures.shape))
    if int(np.prod(model.client.input_shape)) != expected:
        raise WrongCallError(
            f"--model: expected one that reads images of {expected} numbers, got input {list(model.client.input_shape)}"
        )
    quiet = options.json_path == "-"
    console = standard_output()
    if not quiet:
        console.print(f"{len(pictures.images)} {pictures.source}; model {options.model}, {_facts_line(model)}")
        _warn_of_long_runs(console, model, len(pictures.images), options)
    samples = pictures.images.reshape(-1, *model.client.input_shape)
    clear = classes_of(model.predict(samples) if model.float_graph is None else model.predict_float(samples))
    run = run_encrypted(model, samples, options.device, options.threads)
    simulated = classes_of(model.predict(samples, how="simulate", seed=_SEED))
    result = _Result(run, pictures, classes_of(run.outputs), clear, simulated)
    record = _record(model, result, options)
    if not quiet:
        for i in range(min(options.shown, len(result.answers))):
            console.print()
            _show_image(console, result, i)
        _summarise(console, result, record)
    _write_picture(result, options, console, quiet)
    if options.json_path is not None:
        write_json(record, options.json_path)


def _facts_line(model: CompiledModel) -> str:
    params = model.program.parameters
    return f"parameter set {params.name} ({params.security_bits} bits of security), {model.program.bootstraps} bootstraps each"


def _warn_of_long_runs(console: Console, model: CompiledModel, images: int, options: Asked) -> None:
    """Says so where the CPU will take more than a minute, as the report forecasts."""
    estimate = cpu_estimate(model.report()["estimated_seconds"], options.threads)
    if options.device == "cpu" and estimate is not None and (seconds := images * estimate[0]) > 60:
        less = "; --images 2 shows the same in less" if images > 2 else ""
        console.print(f"about {seconds / 60:.0f} minutes on a CPU like the one measured{less}", style="dim")


def _record(model: CompiledModel, result: _Result, options: Asked) -> dict[str, Any]:
    """Uses the names of docs/reference/command-line.md."""
    record: dict[str, Any] = {
        "model": options.model,
        "images": len(result.answers),
        "device": options.device,
        "threads": options.threads,
        "data": result.pictures.data,
    }
    if result.pictures.labels is None:
        record["answers"] = [result.pictures.names[answer] for answer in result.answers]
    else:
        predictions = {"clear": result.clear, "encrypted": result.answers, "simulated": result.simulated}
        record |= {
            f"accuracy_{kind}": float((answers == result.pictures.labels).mean())
            for kind, answers in predictions.items()
        }
    return record | {
        "agreement": float((result.answers == result.clear).mean()),
        "agreement_simulated": float((result.answers == result.simulated).mean()),
        **costs(model, result.run, "image"),
    }


def _show_image(console: Console, result: _Result, i: int) -> None:
    """Side by side: the image, the words that the server gets, and the decrypted scores."""
    pictures = result.pictures
    left, middle = (
        image_lines(pictures.drawn(numbers), console) for numbers in (pictures.images[i], result.run.words[i])
    )
    right = _answer_lines(console, result, i)
    right += [Text()] * (len(left) - len(right))
    console.print(f"image {i + 1:<{pictures.shape[-1] - 4}}what the server sees", style="dim")
    for parts in zip(left, middle, right, strict=True):
        console.print(Text("  ").join(parts))


def _answer_lines(console: Console, result: _Result, i: int) -> list[Text]:
    names, answer, right = result.pictures.names, result.answers[i], result.is_right(i)
    if right is None:
        verdict, style = "", "bold"
    elif right:
        verdict, style = ", right", "bold green"
    else:
        assert result.pictures.labels is not None
        verdict, style = f", wrong: it is {names[result.pictures.labels[i]]}", "bold red"
    lines = [Text(f"answer {names[answer]}{verdict}", style=style)]
    same = result.clear[i] == answer
    lines.append(Text("same in clear" if same else f"in clear {names[result.clear[i]]}", style="dim"))
    scores = np.asarray(result.run.outputs[i], dtype=np.float64).reshape(-1)
    if len(scores) > 1:
        shares = (scores - scores.min()) / max(float(np.ptp(scores)), 1e-12)
        width = max(len(name) for name in names)
        lines += [
            bar_line(f"{names[k]:<{width}}", float(share), _BAR, style if k == answer else "blue", console)
            for k, share in enumerate(shares)
        ]
    return lines


def _summarise(console: Console, result: _Result, record: dict[str, Any]) -> None:
    names, labels, run = result.pictures.names, result.pictures.labels, result.run
    console.print()
    if max(len(name) for name in names) == 1 and labels is not None:
        for start in range(0, min(len(result.answers), _LISTED), 40):
            console.print("labels     " + " ".join(names[x] for x in labels[start : start + 40]))
            console.print("encrypted  " + " ".join(names[x] for x in result.answers[start : start + 40]))
    console.print(client_line(run, "an image"))
    console.print(
        f"server  keys expanded in {run.seconds_expand:.2f} s; first image in {run.seconds_first_sample:.3f} s, "
        f"{run.seconds_per_sample:.3f} s each in batches ({record['device']})"
    )
    same = f"{100 * record['agreement']:.1f} % of the answers are the same"
    if labels is None:
        console.print(f"client  decrypted: {same} as in clear")
        return
    console.print(
        f"client  decrypted: {100 * record['accuracy_encrypted']:.1f} % right, {100 * record['accuracy_clear']:.1f} % in clear; {same}"
    )


def _write_picture(result: _Result, options: Asked, console: Console, quiet: bool) -> None:
    path = options.picture if options.picture is not None or quiet else options.default_picture
    if path is None:
        return
    if not has_pillow():
        if path != options.default_picture:
            raise FailureError(f"--picture needs Pillow; {how_to_install('demo')}")
        console.print(f"no picture, which needs Pillow: {how_to_install('demo')}")
        return
    pictures = result.pictures
    captions = []
    for i, answer in enumerate(result.answers):
        right = result.is_right(i)
        known = "" if right is not False or pictures.labels is None else f", is {pictures.names[pictures.labels[i]]}"
        captions.append((f"{pictures.names[answer]}{known}", right))
    pairs = [(pictures.drawn(pictures.images[i]), pictures.drawn(result.run.words[i])) for i in range(len(captions))]
    save_picture(path, pairs, captions)
    if not quiet:
        console.print(f"picture in {path}")
