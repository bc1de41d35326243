"""Time of bridges between levelled arithmetic and look-ups, on one device, a table in Markdown. Every value is compared.

python tests/benchmarks/bridge_timings.py [DEVICE]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.levelled.bridges.client import from_lookups_keys, to_lookups_key
from cloakwork.fhe_core.levelled.bridges.from_lookups import FromLookups
from cloakwork.fhe_core.levelled.bridges.to_lookups import ToLookups
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.parameters import parameter_set

PAIRS = (("bgv12", "lut2"), ("bgv13", "lut4"), ("bgv13", "lut8_64"), ("bgv14", "lut5"))
PACKED = (1, 64, 1024)


def seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def packed_on_host(bridge: FromLookups, values: Ciphertexts) -> LevelledCiphertexts:
    return bridge.pack(values).to_host()


def main(device: str = "cpu") -> None:
    print(
        "| sets | key there, bytes | a polynomial there, ms | keys back, bytes | packed "
        + ", ".join(map(str, PACKED))
        + ", ms | wrong |"
    )
    print("|---|---|---|---|---|---|")
    for name, lookups in PAIRS:
        params = parameter_set(lookups)
        parameters = LevelledParameters.of(name, 2 << params.message_bits)
        levelled, client = LevelledClientKey.generate(parameters), ClientKey.generate(params)
        key, keys = to_lookups_key(levelled, client), from_lookups_keys(levelled, client)
        there, back = ToLookups(key, device=device), FromLookups(keys, params, device=device)
        size = parameters.polynomial_size
        messages = np.random.default_rng(1).integers(0, 1 << params.message_bits, (1, size))
        ciphertexts = levelled.encrypt(messages, 2)
        found = client.decrypt(there.packed(ciphertexts))[:, there.places(np.arange(size))]
        wrong = int(np.count_nonzero(found != messages))
        times = []
        for count in PACKED:
            values = client.encrypt(messages[0, :count])
            packed = back.pack(values)
            wrong += int(np.count_nonzero(levelled.decrypt(packed)[0, back.positions(count)] != messages[0, :count]))
            times.append(1000 * seconds(partial(packed_on_host, back, values)))
        ms = 1000 * seconds(partial(there.packed, ciphertexts))
        print(
            f"| `{name}`, `{lookups}` | {len(key.to_bytes()):,} | {ms:.2f} | {len(keys.to_bytes()):,} | "
            f"{', '.join(f'{each:.1f}' for each in times)} | {wrong} of {size + sum(PACKED)} |"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
