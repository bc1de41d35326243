"""Property: `predict` in clear is the encrypted program without its noise, on values within their ranges and far outside, where tables wrap."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from cases import case, in_tiers
from drawn_graphs import drawn_graph
from sessions import Sessions

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError
from cloakwork.models.runtime.interpreter import simulate, simulate_wires

TOY = "toy_fine"  # next to no noise but the rounding to a slot of its tables
_QUARTER = 0.25  # of the torus, where a table ends


def narrow_program(seed: int) -> tuple[CompiledModel, np.ndarray] | None:
    """A drawn graph whose calibration samples are mostly small, and samples of which most have every number at its end."""
    proto, samples = drawn_graph(seed, steps=4)
    rng = np.random.default_rng(seed)
    calibration = 0.1 * samples
    calibration[0], calibration[1] = 1.0, -1.0
    corners = np.where(rng.random(samples[:6].shape) < 0.5, 1.0, -1.0)
    try:
        made = cw.compile(proto, calibration, sets=[TOY], accuracy=0, margin=0.0)
    except CompileError:
        return None
    return made, np.concatenate([calibration[2:8], corners, 5 * corners])


@pytest.mark.parametrize("seeds", in_tiers([range(5), range(100, 140)], [range(5)]), ids=str)
def test_clear_is_what_is_encrypted_without_noise(sessions: Sessions, seeds: range) -> None:
    key, session = sessions(TOY)
    compared = wrapped = 0
    for seed in seeds:
        if (found := narrow_program(seed)) is None:
            continue
        made, x = found
        with case("seed", seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # values beyond the range
            clear, quiet = made.predict(x), simulate(made.program, made.client.phases(x), noisy=False)
            np.testing.assert_array_equal(made.client.output(quiet), clear)
            wrapped += outside(made, x)
            spread = np.std([made.predict(x, how="simulate", seed=i) for i in range(30)], axis=0)
            few = slice(4, 9)
            encrypted = made.predict(x[few], how="encrypted", key=key, session=session)
            near = np.abs(encrypted - clear[few]) <= 7 * spread[few] + 0.01 * np.ptp(clear)
            assert near.mean() > 0.95
            compared += 1
    assert compared > 0.7 * len(seeds) and wrapped


def outside(made: CompiledModel, x: np.ndarray) -> bool:
    """Whether what a look-up reads lies beyond its table."""
    seen = simulate_wires(made.program, made.client.phases(x), 1)
    read = [lookup.gather for lookup in made.program.distinct.graph.lookups]
    return bool(read) and bool((np.abs(seen[:, np.concatenate(read)]) > _QUARTER).any())
