"""Whether `simulate` says what encryption does: the same samples really encrypted, under one or more keys, and simulated with several seeds.

PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m strangers.encrypted digits-cnn-max --samples 100 --keys 2 --json result.json
PYTHONPATH=tests/benchmarks:$PYTHONPATH python -m strangers.encrypted mnist-cnn-tutorial --samples 500 --device cuda

Errors are of the model's numbers against the quantised model in clear, in deviations of those numbers over all samples, per cent. Intervals are
of 95 %, by resampling samples: numbers of one sample are not independent. A number is "turned" when it is more than half a turn of the torus off:
one such number in 10,000 can be most of the variance, which is why the deviation is given without them too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.server import Session
from cloakwork.models.arrays import Reals
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.runtime import Runtime, samples_at_once
from cloakwork.models.runtime.interpreter import interpret, simulate

from .evaluate import Settings, option, prepare
from .recipes import STRANGERS
from .train import CACHE

Record = dict[str, Any]
Flags = NDArray[np.bool_]
Statistic = Callable[[NDArray[Any]], float]  # of errors [samples, numbers]

_RESAMPLED: Final = 2_000
_QUANTILES: Final = (50, 90, 99, 99.9)


def encrypted_values(compiled: CompiledModel, phases: Reals, key: ClientKey, device: str, threads: int) -> Reals:
    """The numbers [samples, numbers] that the client decrypts, before its final steps."""
    program, client = compiled.program, compiled.client
    keys = key.evaluation_keys()
    session = Session(keys, device=device, threads=threads) if device == "cpu" else Session(keys, device=device)
    runtime = Runtime(program, session)
    size, parts = samples_at_once(program, session), []
    size = min(size, 8) if device == "cpu" else size  # on a CPU for the sake of progress
    for start in range(0, len(phases), size):
        began = time.monotonic()
        answer = runtime.answer(client.encrypt_phases(key, phases[start : start + size]))
        parts.append(np.asarray(key.decrypt(answer), dtype=np.float64))
        took = time.monotonic() - began
        print(
            f"{start + len(parts[-1])}/{len(phases)} encrypted, {took / len(parts[-1]):.2f} s each",
            file=sys.stderr,
            flush=True,
        )
    return values(compiled, np.concatenate(parts))


def values(compiled: CompiledModel, phases: Reals) -> Reals:
    """[samples, numbers] of the graph's output."""
    graph = compiled.program.graph
    assert graph.scale is not None and graph.offset is not None
    wanted = graph.output.reshape(-1)
    return phases.reshape(len(phases), -1) / graph.scale[wanted] + graph.offset[wanted]


def quantised_values(compiled: CompiledModel, x: Any) -> Reals:
    """The same in clear: no noise, no resolution of tables."""
    inputs = compiled.client.inputs(x)
    return interpret(compiled.program.graph, inputs).reshape(len(inputs), -1)


def statistics(errors: Sequence[Reals], turned: Sequence[Flags], agreed: Sequence[Flags]) -> Record:
    """Each with its 95 % interval. Args: runs over the same samples, under other keys or seeds; agreed: [samples]."""
    kept = [np.where(out, np.nan, error) for error, out in zip(errors, turned, strict=True)]
    found: Record = {"deviation": _interval(errors, _root_mean_square)}
    found["deviation_without_turned"] = _interval(kept, _root_mean_square)
    found["mean"] = _interval(kept, lambda e: float(np.nanmean(e)))
    for quantile in _QUANTILES:
        found[f"quantile_{quantile}"] = _interval(errors, partial(_absolute_quantile, quantile=quantile))
    found["turned_of_10000"] = _interval([each.astype(np.float64) * 1e4 for each in turned], lambda e: float(e.mean()))
    found["agreement"] = _interval(
        [each[:, None].astype(np.float64) * 100 for each in agreed], lambda e: float(e.mean())
    )
    found["largest"] = {"value": max(float(np.abs(e).max()) for e in errors)}
    return found


def _root_mean_square(errors: NDArray[Any]) -> float:
    return float(np.sqrt(np.nanmean(np.square(errors))))


def _absolute_quantile(errors: NDArray[Any], quantile: float) -> float:
    return float(np.percentile(np.abs(errors), quantile))


def _interval(runs: Sequence[Reals], statistic: Statistic) -> dict[str, Any]:
    """Of all runs together, and of each; samples are drawn again with all that the runs say of them."""
    stacked = np.stack(runs, axis=1).reshape(len(runs[0]), -1)  # [samples, runs numbers]
    rng = np.random.default_rng(1)
    drawn = [statistic(stacked[rng.integers(0, len(stacked), len(stacked))]) for _ in range(_RESAMPLED)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {
        "value": statistic(stacked),
        "low": float(low),
        "high": float(high),
        "runs": [statistic(run) for run in runs],
    }


def compare(
    compiled: CompiledModel, x: Any, keys: Sequence[ClientKey], seeds: int, device: str, threads: int
) -> Record:
    phases = compiled.client.phases(x)
    quantised = quantised_values(compiled, x)
    unit = max(float(quantised.std()), 1e-30) / 100
    graph = compiled.program.graph
    assert graph.scale is not None
    scale = graph.scale[graph.output.reshape(-1)]
    answers = {
        "encrypted": [encrypted_values(compiled, phases, key, device, threads) for key in keys],
        "simulated": [values(compiled, simulate(compiled.program, phases, seed)) for seed in range(seeds)],
    }
    result: Record = {"samples": len(phases), "keys": len(keys), "seeds": seeds, "unit": unit}
    for kind, runs in answers.items():
        errors = [run - quantised for run in runs]
        turned = [np.abs(error) * scale > 0.5 for error in errors]
        agreed = [_decisions(run) == _decisions(quantised) for run in runs]
        result[kind] = statistics([error / unit for error in errors], turned, agreed)
    return result


def _decisions(numbers: Reals) -> NDArray[Any]:
    return numbers.argmax(axis=1) if numbers.shape[1] > 1 else numbers[:, 0] > 0


def markdown(result: Record) -> str:
    """`*` where the intervals do not meet."""
    lines = ["| | encrypted | simulated | |", "|---|---|---|---|"]
    for name, found in result["encrypted"].items():
        other = result["simulated"][name]
        apart = "low" in found and (found["low"] > other["high"] or other["low"] > found["high"])
        lines.append(f"| {name} | {_told(found)} | {_told(other)} | {'*' if apart else ''} |")
    return "\n".join(lines)


def _told(found: Record) -> str:
    if "low" not in found:
        return f"{found['value']:.2f}"
    return f"{found['value']:.2f} ({found['low']:.2f} .. {found['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="strangers.encrypted", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="of a model, see python -m strangers --list")
    parser.add_argument("--samples", type=int, default=100, help="of the test data (100)")
    parser.add_argument("--calibration", type=int, default=400, help="training samples shown to the compiler (400)")
    parser.add_argument("--keys", type=int, default=1, help="secret keys, each of which answers all samples (1)")
    parser.add_argument("--seeds", type=int, default=5, help="simulations of all samples (5)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU (1)")
    parser.add_argument(
        "--option", action="append", default=[], type=option, metavar="NAME=VALUE", help="of the compiler"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the trained networks")
    parser.add_argument("--json", type=Path, help="write everything")
    chosen = parser.parse_args()
    found = [stranger for stranger in STRANGERS if stranger.name == chosen.name]
    if not found:
        sys.exit(f"expected the name of a model, got '{chosen.name}'; python -m strangers --list names them all")
    settings = Settings(calibration=chosen.calibration, options=dict(chosen.option), cache=chosen.cache)
    ready = prepare(found[0], settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values beyond the calibrated range are what is looked for
        compiled = ready.compile()
        keys = [ClientKey.generate(compiled.program.parameters) for _ in range(chosen.keys)]
        x = ready.data.test_x[: chosen.samples]
        result = compare(compiled, x, keys, chosen.seeds, chosen.device, chosen.threads)
    program = compiled.program
    result |= {"name": chosen.name, "parameter_set": program.parameters.name, "lookups": program.bootstraps}
    print(
        f"{chosen.name}: {program.bootstraps} look-ups, {program.parameters.name}, {len(x)} samples, {len(keys)} keys\n"
    )
    print(markdown(result))
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
