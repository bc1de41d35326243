"""Batches of encrypted samples: samples a second of both ways, client's and server's part, and whether every score is the integers' in clear.

python tests/benchmarks/batch_scoring.py [SAMPLES] [DEVICE] [THREADS]
python tests/benchmarks/batch_scoring.py --rates (what models/batches/costs.py counts with)
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.forecast import LevelledForecast
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.server import Session
from cloakwork.models.batches.client import slots_of
from cloakwork.models.batches.plan import slot_moduli
from cloakwork.training.batch_compiler import generate_keys

_SINGLE = 50  # samples of the other way, which takes longer


def models() -> Iterator[tuple[str, Any, np.ndarray, np.ndarray]]:
    """Name, estimator, samples, labels or values."""
    digits, cancer, diabetes = (load(return_X_y=True) for load in (load_digits, load_breast_cancer, load_diabetes))
    yield "logistic regression, digits", LogisticRegression(max_iter=3000), *digits
    yield "logistic regression, breast cancer", make_pipeline(StandardScaler(), LogisticRegression()), *cancer
    yield "PCA(20) and logistic regression, digits", make_pipeline(PCA(20), LogisticRegression(max_iter=3000)), *digits
    yield "ridge, diabetes", Ridge(), *diabetes
    yield (
        "SVC of degree 2, breast cancer",
        make_pipeline(StandardScaler(), SVC(kernel="poly", degree=2, coef0=1)),
        *cancer,
    )
    yield "PCA(8) and SVC of degree 3, digits", make_pipeline(PCA(8), SVC(kernel="poly", degree=3)), *digits
    yield "SVC of radial kernel, breast cancer", make_pipeline(StandardScaler(), SVC()), *cancer
    yield "SVC of radial kernel, digits", SVC(gamma=0.001), *digits
    yield "SVR of degree 2, diabetes", make_pipeline(StandardScaler(), SVR(kernel="poly", degree=2, C=10)), *diabetes


def main(samples: int = 5000, device: str = "cpu", threads: int = 1) -> None:
    for name, model, x, y in models():
        model.fit(x, y)
        rows = np.resize(np.arange(len(x)), samples)
        for packing in ("slots", "ciphertexts"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = cw.compile(model, x, batch=samples if packing == "slots" else _SINGLE, packing=packing)
            chosen = made.report()["considered"][0]
            found = {
                "model": name,
                "packing": chosen["packing"],
                "kind": chosen["kind"],
                "agreement": chosen["agreement"],
                "estimated_ms": {part: chosen[f"{part}_ms"] for part in ("server", "client", "transfer")},
                "bytes_a_sample": [chosen["up_bytes"], chosen["down_bytes"]],
            }
            keys = generate_keys(made)
            if made.single is not None:
                assert isinstance(keys[0], ClientKey)
                few = x[rows[:_SINGLE]]
                session = Session(keys[0].evaluation_keys(), device=device, threads=threads)
                made.scores(few, "encrypted", key=keys, session=session)  # the first call prepares
                start = time.perf_counter()
                scores = made.scores(few, "encrypted", key=keys, session=session)
                found |= {"client_and_server_ms": 1000 * (time.perf_counter() - start) / _SINGLE, "samples": _SINGLE}
                found["exact"] = bool(np.array_equal(scores, made.scores(few)))
            else:
                count = samples if packing == "slots" else _SINGLE
                found |= _levelled(made, keys, x[rows[:count]], device, threads)
            print(json.dumps(found), flush=True)


def _levelled(made: Any, keys: Any, x: np.ndarray, device: str, threads: int) -> dict[str, Any]:
    scorer = made.scorer(made.client.evaluation_keys(keys), threads, device)
    integers, at_once = made.client.integers(x), made.client.samples_at_once
    parts = [integers[i : i + at_once] for i in range(0, len(integers), at_once)]
    scorer.score(made.client.encrypt_integers(keys, parts[0]))  # the first call prepares
    start = time.perf_counter()
    queries = [made.client.encrypt_integers(keys, part) for part in parts]
    encrypted = time.perf_counter()
    answers = [scorer.score(query) for query in queries]
    scored = time.perf_counter()
    outputs = [made.client.outputs(keys, each, len(part)) for each, part in zip(answers, parts, strict=True)]
    decrypted = time.perf_counter()
    return {
        "client_ms": 1000 * (encrypted - start + decrypted - scored) / len(x),
        "server_ms": 1000 * (scored - encrypted) / len(x),
        "samples_a_second_of_the_server": len(x) / (scored - encrypted),
        "samples": len(x),
        "exact": bool(np.array_equal(np.concatenate(outputs), made.outputs(integers))),
        "device": device,
        "threads": threads,
    }


def best_ns(work: Callable[[], Any], count: float, times: int = 7) -> float:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken) / count * 1e9


def rates(name: str, level: int) -> dict[str, Any]:
    """Nanoseconds on one thread; sums of products three ways."""
    size = LevelledParameters.of(name).polynomial_size
    parameters = LevelledParameters.of(name, slot_moduli(size, 1)[0])
    key, rng, logs = LevelledClientKey.generate(parameters), np.random.default_rng(1), math.log2(size)
    server = LevelledEvaluator(parameters, key.evaluation_keys(), p_fail_log2=0.0)
    messages = rng.integers(-100, 100, (64, size))
    weights = rng.integers(-100, 100, (10, 64))
    x = key.encrypt(messages, level)
    words = np.ascontiguousarray(x.words[:, 0])
    constants = np.zeros((10, 64, size), dtype=np.int64)
    constants[..., 0] = weights
    table, products = server.table(constants, level), 10 * 64 * 2 * level * size

    def by_sums() -> None:
        for row in weights:
            total = server.scale(server.take(x, slice(0, 1)), int(row[0]))
            for k in range(1, 64):
                total = server.add(total, server.scale(server.take(x, slice(k, k + 1)), int(row[k])))

    few, forecast = server.take(x, slice(0, 8)), LevelledForecast(parameters, p_fail_log2=0.0)
    forecast.multiply(forecast.fresh(8, level), forecast.fresh(8, level))
    found = {
        "set": name,
        "level": level,
        "transform": best_ns(lambda: parameters.engine.transform(words, False, 1), 64 * level * size * logs),
        "combine, a word": best_ns(lambda: server.combine(x, weights), products),
        "table of constants, a word": best_ns(lambda: server.multiply_table(x, table), products),
        "scale and add, a word": best_ns(by_sums, products, 2),
        "encrypted, a word": best_ns(lambda: key.encrypt_seeded(messages, level), 64 * level * size),
        "expanded, a word": best_ns(lambda: key.encrypt_seeded(messages, level).expand(), 64 * level * size),
        "decrypted, a word": best_ns(lambda: key.decrypt(x), 64 * level * size),
        "slots, a value by log2 N": best_ns(lambda: slots_of(parameters).encode(messages), 64 * size * logs),
        "products, ms": best_ns(lambda: server.multiply(few, few), 8) / 1e6,
        "transforms of a product": forecast.work.transforms / 8,
        "words of a product": forecast.work.products / 8,
    }
    return {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in found.items()}


if __name__ == "__main__":
    if sys.argv[1:] == ["--rates"]:
        for ring in (("bgv12", 2), ("bgv13", 4), ("bgv14", 6)):
            print(json.dumps(rates(*ring)), flush=True)
    else:
        given = dict(zip(("samples", "device", "threads"), sys.argv[1:], strict=False))
        main(int(given.get("samples", 5000)), given.get("device", "cpu"), int(given.get("threads", 1)))
