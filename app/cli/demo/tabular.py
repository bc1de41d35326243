"""`cloakwork demo iris|breast-cancer|wine|digits`: small tables scored by a server that cannot read them.

Models and held-out samples come from the zoo, so that neither scikit-learn nor data is needed; training/tabular_zoo.py makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from cloakwork.app.cli.demo.encrypted_run import EncryptedRun, client_line, costs, run_encrypted
from cloakwork.app.cli.shared.console import JsonOption, standard_output, write_json
from cloakwork.app.cli.shared.device_options import DeviceOption, ThreadsOption, checked_device
from cloakwork.app.cli.shared.tables import Column, print_rows
from cloakwork.models import zoo
from cloakwork.models.compiled import CompiledModel

# Demonstration -> its model in the zoo, and how many samples it takes by default.
MODELS: Final[dict[str, tuple[str, int]]] = {
    "iris": ("iris-tree", 50),
    "breast-cancer": ("breast-cancer-forest", 5),
    "wine": ("wine-boosting", 5),
    "digits": ("digits-logistic", 50),
}
LINES: Final = {
    "iris": "Classify encrypted flowers with a decision tree.",
    "breast-cancer": "Classify encrypted cell samples with a random forest.",
    "wine": "Classify encrypted wines with gradient boosting.",
    "digits": "Read encrypted digits with logistic regression.",
}
_SHOWN_COLUMNS = 2

ShowOption = Annotated[int, typer.Option("--show", min=0, help="Show N samples in the terminal.")]


def register(app: typer.Typer) -> None:
    """Registers one command for each data set."""
    for name, (_, samples) in MODELS.items():
        app.command(name, help=LINES[name])(_command(name, samples))


def _command(name: str, samples: int) -> Callable[..., None]:
    def run(
        count: Annotated[int, typer.Option("--samples", min=1, help="Encrypt N samples.")] = samples,
        device: DeviceOption = "cpu",
        threads: ThreadsOption = 1,
        shown: ShowOption = 5,
        json_path: JsonOption = None,
    ) -> None:
        demonstrate(name, count, device, threads, shown, json_path)

    return run


def demonstrate(name: str, count: int, device: str, threads: int, shown: int, json_path: str | None) -> None:
    """Encrypt held-out samples, let a server without the key score them, decrypt its answers, compare."""
    checked_device(device)
    model_name = MODELS[name][0]
    card, model, samples = zoo.card(model_name), zoo.load_model(model_name), _first(zoo.held_out(model_name), count)
    quantised = np.asarray(model.predict(samples.x))
    run = run_encrypted(model, samples.x, device, threads)
    record = _record(model_name, name, model, run, samples, quantised, device, threads)
    if json_path != "-":
        console = standard_output()
        console.print(f"{len(samples.x)} samples of {name}; model {model_name}: {card.description}")
        _show(console, card, samples, run, quantised, shown)
        _summarise(console, run, record)
    if json_path is not None:
        write_json(record, json_path)


def _first(held_out: zoo.HeldOut, count: int) -> zoo.HeldOut:
    """Returns the first samples, from the start again where there are fewer."""
    index = np.arange(count) % len(held_out.x)
    return zoo.HeldOut(held_out.x[index], held_out.y[index], held_out.clear[index])


def _record(
    model_name: str, data: str, model: CompiledModel, run: EncryptedRun, samples: zoo.HeldOut, quantised: NDArray[Any],
    device: str, threads: int,
) -> dict[str, Any]:  # fmt: skip
    """By the names of docs/reference/command-line.md; `agreement` is with the quantised model in clear."""
    return {
        "model": model_name,
        "samples": len(samples.x),
        "device": device,
        "threads": threads,
        "data": data,
        "accuracy_clear": float((samples.clear == samples.y).mean()),
        "accuracy_quantised": float((quantised == samples.y).mean()),
        "accuracy_encrypted": float((run.outputs == samples.y).mean()),
        "agreement": float((run.outputs == quantised).mean()),
        **costs(model, run, "sample"),
    }


def _show(
    console: Console, card: zoo.Card, samples: zoo.HeldOut, run: EncryptedRun, quantised: NDArray[Any], shown: int
) -> None:
    names = card.facts["feature_names"]
    columns = min(_SHOWN_COLUMNS, len(names))
    headings = (
        *(Column(name, whole=False, right=True, least=8) for name in names[:columns]),
        Column("the server sees"),
    )
    rows = []
    for i in range(min(shown, len(samples.x))):
        values = [f"{value:g}" for value in samples.x[i, :columns]]
        hidden = f"{run.words[i, 0]:.8f} .."
        answers = [str(answer) for answer in (run.outputs[i], quantised[i], samples.y[i])]
        rows.append((*values, hidden, *answers))
    if rows:
        print_rows(
            "", (*headings, *(Column(each) for each in ("encrypted", "in clear", "truth"))), rows, console=console
        )


def _summarise(console: Console, run: EncryptedRun, record: dict[str, Any]) -> None:
    console.print(client_line(run, "a sample"))
    console.print(
        f"server  keys expanded in {run.seconds_expand:.2f} s; first sample in {run.seconds_first_sample:.4f} s, "
        f"{run.seconds_per_sample:.4f} s each in batches, {record['bootstraps_per_sample']} bootstraps ({record['device']})"
    )
    console.print(
        f"client  decrypted: {100 * record['accuracy_encrypted']:.1f} % right, {100 * record['accuracy_clear']:.1f} % by the model in clear; "
        f"{100 * record['agreement']:.1f} % of the answers are those of the compiled model in clear"
    )
