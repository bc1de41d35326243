"""What every side of the comparison is given, and how it says what it took: a file of arrays in, one JSON object out.

Peers import it in environments of their own: it needs NumPy alone.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES = 40  # of the held-out ones, one after the other


def load(folder: str) -> dict[str, Any]:
    with np.load(Path(folder) / "task.npz") as arrays:
        return dict(arrays)


def scored(
    encrypt: Callable[[Any], Any], evaluate: Callable[[Any], Any], decrypt: Callable[[Any], float], x: Any
) -> tuple[dict[str, float], list[float]]:
    """Medians in milliseconds of the three steps, from clear samples to bytes, bytes to bytes, bytes to a score; and all scores."""
    times: dict[str, list[float]] = {"encrypt": [], "evaluate": [], "decrypt": []}
    scores = []
    for sample in x[:SAMPLES]:
        start = time.perf_counter()
        sent = encrypt(sample)
        middle = time.perf_counter()
        answer = evaluate(sent)
        end = time.perf_counter()
        scores.append(decrypt(answer))
        for name, seconds in (
            ("encrypt", middle - start),
            ("evaluate", end - middle),
            ("decrypt", time.perf_counter() - end),
        ):
            times[name].append(seconds)
    return {f"{name}_ms": 1000 * statistics.median(each) for name, each in times.items()}, scores


def tell(**facts: Any) -> None:
    print(json.dumps(facts))
