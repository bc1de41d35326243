"""`cloakwork simulate`: what the noise of encryption does to a model's answers, in clear, before any key is made."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from cloakwork.app.cli.shared.console import JsonOption, WrongCallError, progress
from cloakwork.app.cli.shared.data_sets import (
    DATA_SETS,
    classes_of,
    count_of,
    load_samples,
    shaped_for,
    share_right,
    some_of,
)
from cloakwork.app.cli.shared.failures import of_file
from cloakwork.app.cli.shared.model_files import ModelArgument, find_any_model
from cloakwork.app.cli.shared.tables import emit
from cloakwork.models.client_steps import joined
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.model import Model
from cloakwork.models.runtime.interpreter import simulate as simulate_phases

_SAMPLES_AT_ONCE = 500
_NOISE_SAMPLES = 1000  # that the noise is measured on: with ten scores each, within a per cent


def simulate(
    model_name: ModelArgument,
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="NAME|FILE",
            help=f"Use {', '.join(DATA_SETS)}, or a .npy or .csv file of samples (.npz for several inputs, by name).",
        ),
    ],
    labels_path: Annotated[
        Path | None, typer.Option("--labels", help="Read the true classes of a file's samples from this .npy file.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--samples", min=1, help="Use only the first N samples (default: all).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Draw the noise from this seed.")] = 0,
    json_path: JsonOption = None,
) -> None:
    """Measure a model's accuracy under encryption, without keys.

    The model runs in clear, with the noise that encryption would add; models for batches and indices are exact.
    """
    model = find_any_model(model_name)
    samples, labels = load_samples(data, labels_path)
    samples = some_of(shaped_for(model.client, samples, data), slice(limit))
    compiled = model if isinstance(model, CompiledModel) else None
    with progress("in clear"), of_file(data, "samples"), of_file(data, "input"):
        clear = (
            model.predict(samples)
            if compiled is None or compiled.float_graph is None
            else compiled.predict_float(samples)
        )
    simulated = _simulated(model, samples, seed)
    record: dict[str, Any] = {"model": model_name, "data": data, "samples": count_of(samples)}
    if isinstance(clear, dict):
        if labels is not None:
            raise WrongCallError("--labels: the model has several outputs; leave the option out")
        record["agreement"] = {name: _agreement(simulated[name], array) for name, array in clear.items()}
    else:
        if labels is not None:
            record["accuracy_clear"] = share_right(classes_of(clear), labels[:limit])
            record["accuracy_simulated"] = share_right(classes_of(simulated), labels[:limit])
        record["agreement"] = _agreement(simulated, clear)
    if compiled is not None:  # nothing of the others is approximate
        with progress("noise"):
            record |= _noise(compiled, some_of(samples, slice(_NOISE_SAMPLES)), seed)
    emit({**record, "seed": seed}, json_path, f"Simulation of {model_name}")


def _agreement(simulated: NDArray[Any], clear: NDArray[Any]) -> float:
    return float((classes_of(simulated) == classes_of(clear)).mean())


def _simulated(model: Model, samples: Any, seed: int) -> Any:
    parts, count = [], count_of(samples)
    seeds = np.random.SeedSequence(seed).generate_state(-(-count // _SAMPLES_AT_ONCE))
    with progress("simulation") as update:
        for i, part_seed in enumerate(seeds):
            part = some_of(samples, slice(i * _SAMPLES_AT_ONCE, (i + 1) * _SAMPLES_AT_ONCE))
            seeded: dict[str, Any] = {"seed": int(part_seed)} if isinstance(model, CompiledModel) else {}
            parts.append(model.predict(part, how="simulate", **seeded))
            update(min((i + 1) * _SAMPLES_AT_ONCE, count), count)
    return joined(parts)


def _noise(model: CompiledModel, samples: Any, seed: int) -> dict[str, float]:
    """Returns standard deviation that the noise adds to an output, in the model's units and as part of the outputs' own."""
    phases = model.client.phases(samples, refuse=True)
    exact, noisy = (simulate_phases(model.program, phases, seed, noisy=noise) for noise in (False, True))
    difference = noisy - exact
    # A phase that went around the torus counts as such: it is an error of a whole turn.
    scale = model.client.output_scale.reshape(-1)
    spread = float((exact / scale).std())
    noise_sd = float((difference / scale).std())
    return {"noise_sd": noise_sd, "noise_relative": noise_sd / spread if spread else 0.0}
