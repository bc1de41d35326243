"""`cloakwork demo mnist`: handwritten digits read by a server that cannot see them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from cloakwork.app.cli.demo.encrypted_run import EncryptedRun, client_line, costs, run_encrypted
from cloakwork.app.cli.demo.picture import has_pillow, save_picture
from cloakwork.app.cli.demo.terminal_image import bar_line, image_lines
from cloakwork.app.cli.shared.console import FailureError, JsonOption, WrongCallError, standard_output, write_json
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.digits import SOURCES, Digits, digits
from cloakwork.app.cli.shared.model_files import ModelOption, find_model
from cloakwork.fhe_core.errors import how_to_install
from cloakwork.models.compiler import CompiledModel
from cloakwork.models.report.timing import cpu_estimate

PICTURE = Path("cloakwork-demo-mnist.png")
SIDE = 28
_BAR = 16
_LISTED = 80  # answers, in rows of 40


def mnist(
    model_name: ModelOption = "mnist-mlp-1x30",
    count: Annotated[int, typer.Option("--images", min=1, help="Images to encrypt.")] = 20,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    source: Annotated[
        str,
        typer.Option(
            "--data", help=f"{' | '.join(SOURCES)}: MNIST, digits of our own, or the first that is to be had."
        ),
    ] = "auto",
    shown: Annotated[int, typer.Option("--show", min=0, help="Images to show in the terminal.")] = 3,
    picture: Annotated[
        Path | None, typer.Option("--picture", help=f"Write a PNG here; default {PICTURE}, with --json - none.")
    ] = None,
    json_path: JsonOption = None,
) -> None:
    """Encrypt handwritten digits, let a server without the key read them, decrypt its answers."""
    checked_device(device)
    model = find_model(model_name)
    if int(np.prod(model.client.input_shape)) != SIDE * SIDE:
        raise WrongCallError(
            f"--model: expected one that reads images of 784 pixels, got input {list(model.client.input_shape)}"
        )
    chosen = _first(digits(source), count)
    quiet = json_path == "-"
    console = standard_output()
    if not quiet:
        console.print(f"{len(chosen.images)} {chosen.source}; model {model_name}, {facts_line(model)}")
        _warn_of_long_runs(console, model, len(chosen.images), device, threads)
    samples = chosen.images.reshape(-1, *model.client.input_shape)
    clear = _answers(model.predict(samples) if model.float_graph is None else model.predict_float(samples))
    run = run_encrypted(model, samples, device, threads)
    answers = _answers(run.outputs)
    record = _record(model_name, model, run, answers, clear, chosen, device, threads)
    if not quiet:
        for i in range(min(shown, len(answers))):
            console.print()
            show_image(console, run, chosen, answers, clear, i)
        _summarise(console, model, run, record, chosen.labels, answers)
    _write_picture(picture if picture is not None or quiet else PICTURE, run, chosen, answers, console, quiet)
    if json_path is not None:
        write_json(record, json_path)


def _first(found: Digits, count: int) -> Digits:
    """The first images, from the start again where there are fewer."""
    index = np.arange(count) % len(found.images)
    return Digits(found.images[index], found.labels[index], found.source, found.data)


def _answers(outputs: NDArray[Any]) -> NDArray[np.int64]:
    """The digit: largest score, or what the model says itself."""
    scores = outputs.reshape(len(outputs), -1)
    return scores[:, 0].astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)


def facts_line(model: CompiledModel) -> str:
    params = model.program.parameters
    return f"parameter set {params.name} ({params.security_bits} bits of security), {model.program.bootstraps} bootstraps each"


def _warn_of_long_runs(console: Console, model: CompiledModel, images: int, device: str, threads: int) -> None:
    """Says so where the CPU will take more than a minute, as the report forecasts."""
    estimate = cpu_estimate(model.report()["estimated_seconds"], threads)
    if device == "cpu" and estimate is not None and (seconds := images * estimate[0]) > 60:
        console.print(
            f"about {seconds / 60:.0f} minutes on a CPU like the one measured; --images 2 shows the same in less",
            style="dim",
        )


def _record(
    name: str, model: CompiledModel, run: EncryptedRun, answers: NDArray[np.int64], clear: NDArray[np.int64], chosen: Digits,
    device: str, threads: int,
) -> dict[str, Any]:  # fmt: skip
    """By the names of docs/command-line.md."""
    return {
        "model": name,
        "images": len(answers),
        "device": device,
        "threads": threads,
        "data": chosen.data,
        "accuracy_clear": float((clear == chosen.labels).mean()),
        "accuracy_encrypted": float((answers == chosen.labels).mean()),
        "agreement": float((answers == clear).mean()),
        **costs(model, run, "image"),
    }


def show_image(
    console: Console, run: EncryptedRun, chosen: Digits, answers: NDArray[np.int64], clear: NDArray[np.int64], i: int
) -> None:
    """Side by side: the digit, the words that the server gets, and the decrypted scores."""
    left = image_lines(chosen.images[i].reshape(SIDE, SIDE), console)
    middle = image_lines(run.words[i].reshape(SIDE, SIDE), console)
    right = _answer_lines(console, run, chosen, answers, clear, i)
    right += [Text()] * (len(left) - len(right))
    console.print(f"image {i + 1:<{SIDE - 4}}what the server sees", style="dim")
    for parts in zip(left, middle, right, strict=True):
        console.print(Text("  ").join(parts))


def _answer_lines(
    console: Console, run: EncryptedRun, chosen: Digits, answers: NDArray[np.int64], clear: NDArray[np.int64], i: int
) -> list[Text]:
    right = answers[i] == chosen.labels[i]
    verdict = "right" if right else f"wrong: it is {chosen.labels[i]}"
    lines = [Text(f"answer {answers[i]}, {verdict}", style="bold green" if right else "bold red")]
    lines.append(Text("same in clear" if clear[i] == answers[i] else f"in clear {clear[i]}", style="dim"))
    scores = np.asarray(run.outputs[i], dtype=np.float64).reshape(-1)
    if len(scores) > 1:
        shares = (scores - scores.min()) / max(float(np.ptp(scores)), 1e-12)
        lines += [
            bar_line(str(digit), float(share), _BAR, "bold green" if digit == answers[i] else "blue", console)
            for digit, share in enumerate(shares)
        ]
    return lines


def _summarise(
    console: Console,
    model: CompiledModel,
    run: EncryptedRun,
    record: dict[str, Any],
    labels: NDArray[np.int64],
    answers: NDArray[np.int64],
) -> None:
    console.print()
    for start in range(0, min(len(answers), _LISTED), 40):
        console.print("labels     " + " ".join(str(x) for x in labels[start : start + 40]))
        console.print("encrypted  " + " ".join(str(x) for x in answers[start : start + 40]))
    console.print(client_line(run, "an image"))
    console.print(
        f"server  keys expanded in {run.seconds_expand:.2f} s; first image in {run.seconds_first_sample:.3f} s, "
        f"{run.seconds_per_sample:.3f} s each in batches ({record['device']})"
    )
    console.print(
        f"client  decrypted: {100 * record['accuracy_encrypted']:.1f} % right, {100 * record['accuracy_clear']:.1f} % in clear; "
        f"{100 * record['agreement']:.1f} % of the answers are the same"
    )


def _write_picture(
    path: Path | None, run: EncryptedRun, chosen: Digits, answers: NDArray[np.int64], console: Console, quiet: bool
) -> None:
    if path is None:
        return
    if not has_pillow():
        if path != PICTURE:
            raise FailureError(f"--picture needs Pillow; {how_to_install('demo')}")
        console.print("no picture, which needs Pillow: pip install pillow")
        return
    save_picture(path, chosen.images, run.words, answers, chosen.labels)
    if not quiet:
        console.print(f"picture in {path}")
