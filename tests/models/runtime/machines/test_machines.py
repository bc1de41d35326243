"""All machines agree on the same programs: in clear, on phases, encrypted on the host, and on devices."""

from __future__ import annotations

import numpy as np
import pytest
from odd_programs import ODD, program
from sessions import Sessions

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.arrays import Reals
from cloakwork.models.forecast.measure import probe_input
from cloakwork.models.graph.ir import Graph, Linear, Lookup, wires
from cloakwork.models.program import Program
from cloakwork.models.runtime import Runtime
from cloakwork.models.runtime.interpreter import interpret, simulate

SETS = ("toy", "toy_two_limb")


def inputs(graph: Graph, samples: int) -> Reals:
    return np.random.default_rng(3).uniform(-4, 4, (samples, graph.input.size))


def phases(made: Program, values: Reals) -> Reals:
    """Of the output [samples, numbers]."""
    scale = made.graph.scale
    assert scale is not None
    return values * np.append(scale, 0.0)[made.graph.output]


def rounding(made: Program) -> Reals:
    """Of the output's phases [numbers]: what tables of 2N entries may be off by, added up along the graph."""
    error, step = np.zeros(made.graph.wire_count + 1), 1 / (4 * made.parameters.polynomial_size)
    for node in made.graph.nodes:
        if isinstance(node, Linear):
            weights = np.abs(node.weights.astype(np.float64))[node.block]
            error[wires(node)] = (weights @ error[node.gather][:, :, None]).reshape(-1)
        elif isinstance(node, Lookup):
            error[wires(node)] = np.repeat(error[node.gather] + step, node.size // len(node.gather))
    return error[made.graph.output]


def apart(x: Reals, y: Reals) -> Reals:
    """On the torus."""
    difference = x - y
    return np.asarray(np.abs(difference - np.rint(difference)))


@pytest.mark.parametrize("params", SETS)
@pytest.mark.parametrize("name", list(ODD))
def test_clear_equals_simulation_without_noise_up_to_the_rounding_of_tables(name: str, params: str) -> None:
    made = program(name, parameter_set(params))
    x = inputs(made.graph, 40)
    quiet = simulate(made, x * made.graph.scale[: made.graph.input.size], noisy=False)  # type: ignore[index]
    assert (apart(phases(made, interpret(made.graph, x)), quiet) <= rounding(made) + 1e-6).all()


@pytest.mark.parametrize("params", SETS)
@pytest.mark.parametrize("name", list(ODD))
def test_encrypted_equals_simulation_within_the_noise(sessions: Sessions, name: str, params: str) -> None:
    made, (secret, session) = program(name, parameter_set(params)), sessions(params)
    x = inputs(made.graph, 4) * made.graph.scale[: made.graph.input.size]  # type: ignore[index]
    packed = secret.encrypt_packed(x, encoding=Encoding.TORUS).with_purpose(made.digest)
    found = np.asarray(secret.decrypt(Runtime(made, session).run(packed)), dtype=np.float64)
    quiet = simulate(made, x, noisy=False)
    deviation = np.sqrt(np.square([apart(simulate(made, x, seed), quiet) for seed in range(60)]).mean(axis=0))
    assert (apart(found, quiet) <= 7 * deviation + 2 * rounding(made) + 1e-6).all()


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(ODD))
def test_devices_give_the_words_of_the_host(sessions: Sessions, name: str) -> None:
    params = parameter_set("toy")
    made, (_, host) = program(name, params), sessions("toy")
    devices = ["cuda", "cuda:0,1"] if _engine.cuda_device_count() > 1 else ["cuda"]
    for samples in (1, 3):
        x = probe_input(made, host, samples)
        expected = Runtime(made, host).run(x).words
        for device in devices:
            np.testing.assert_array_equal(Runtime(made, sessions("toy", device)[1]).run(x).words, expected)
