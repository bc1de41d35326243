"""`cloakwork demo lookup`: one honest round trip on this machine. What passes between client and server are bytes, as over a network."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import numpy as np
import typer

from cloakwork.app.cli.shared.console import MIB, FailureError, JsonOption, standard_output, write_json
from cloakwork.app.cli.shared.device_options import ThreadsOption
from cloakwork.app.cli.shared.parameter_sets import find_set
from cloakwork.fhe_core.arrays.lanes import lane_axis
from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import structure_of
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys

T = TypeVar("T")


def secret_function(x: int, size: int) -> int:
    """Computes the function that the server applies to numbers it cannot read."""
    return (x * x + 1) % size


def server_side(evaluation_keys: bytes, seeded: bytes, threads: int) -> tuple[bytes, float, float]:
    """Evaluates without a secret key, bytes in and bytes out."""
    start = time.perf_counter()
    session = Session(EvaluationKeys.from_bytes(evaluation_keys), threads=threads)
    expanded = time.perf_counter()
    inputs = SeededCiphertexts.from_bytes(seeded).expand()
    size = 1 << session.parameters.message_bits
    outputs = session.bootstrap(inputs, [secret_function(x, size) for x in range(size)])
    return outputs.to_bytes(), expanded - start, time.perf_counter() - expanded


def lookup(
    set_name: Annotated[str, typer.Option("--set", metavar="SET", help="Use this exact parameter set.")] = "lut4",
    threads: ThreadsOption = 1,
    json_path: JsonOption = None,
) -> None:
    """Apply a function to encrypted numbers, step by step."""
    parameters = find_set(set_name)
    if parameters.kind != "exact":
        raise FailureError(
            f"the demonstration looks up integers; '{set_name}' is of kind {parameters.kind}, take one of lut1 .. lut8"
        )
    size = 1 << parameters.message_bits
    numbers = np.arange(size)

    def say(line: str) -> None:
        if json_path != "-":
            standard_output().print(line)

    say(
        f"Parameter set {set_name}: {parameters.security_bits} bits of security, a look-up fails with 2^{parameters.p_fail_log2:.0f}"
    )
    if parameters.structured_secret:
        say(structure_of(parameters))

    key, keygen_seconds = timed(lambda: ClientKey.generate(parameters))
    evaluation_keys, evaluation_seconds = timed(lambda: key.evaluation_keys().to_bytes())
    say(
        f"client  keys made in {keygen_seconds + evaluation_seconds:.2f} s; {len(evaluation_keys) / MIB:.1f} MiB go to the server once"
    )
    values = numbers.reshape(-1, *lane_axis(parameters))
    seeded, encrypt_seconds = timed(lambda: key.encrypt(values, seeded=True).to_bytes())
    say(f"client  {size} numbers encrypted in {encrypt_seconds * 1e3:.1f} ms; {len(seeded)} bytes go to the server")
    results, expand_seconds, bootstrap_seconds = server_side(evaluation_keys, seeded, threads)
    say(
        f"server  key expanded in {expand_seconds:.2f} s; x -> (x * x + 1) mod {size} on every ciphertext in {bootstrap_seconds * 1e3:.0f} ms, "
        f"{bootstrap_seconds / size * 1e3:.1f} ms each"
    )
    decrypted = key.decrypt(Ciphertexts.from_bytes(results)).reshape(-1)
    expected = np.array([secret_function(int(x), size) for x in numbers])
    wrong = int(np.count_nonzero(decrypted != expected))
    say("client  x     " + " ".join(f"{x:2d}" for x in numbers))
    say(
        "client  f(x)  "
        + " ".join(f"{x:2d}" for x in decrypted)
        + ("  all correct" if not wrong else f"  {wrong} wrong")
    )
    if json_path is not None:
        record = {
            "set": set_name,
            "numbers": size,
            "wrong": wrong,
            "keygen_seconds": keygen_seconds + evaluation_seconds,
            "encrypt_seconds": encrypt_seconds,
            "expand_seconds": expand_seconds,
            "seconds_per_look_up": bootstrap_seconds / size,
            "upload_bytes": len(evaluation_keys),
            "ciphertext_bytes": len(seeded),
        }
        write_json(record, json_path)
    if wrong:
        raise FailureError(
            f"{wrong} of {size} results are wrong; please report this with the output of 'cloakwork devices'"
        )


def timed(work: Callable[[], T]) -> tuple[T, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start
