"""Fuzz target for everything that reads bytes: refuse with an error of the tree, or read an object that writes back to the same bytes.

    python tests/fuzz/fuzz_wire.py (--inputs 1000 | --seconds 60) [--seed N]

All that is random follows from the seed. With atheris (pip install atheris) the fuzzer is guided by coverage; without it, the same
mutations are drawn at random. The mutators know the format: half of the inputs get their total and checksum mended, so that the checks
behind those are reached.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import os
import random
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["CLOAKWORK_ALLOW_TOY"] = "1"

import numpy as np

try:
    import atheris
except ImportError:
    atheris = None

from cloakwork.fhe_core import _engine, wire
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import FheError, KeyMismatchError
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts, load_ciphertexts
from cloakwork.fhe_core.threshold.party import Party, joint_public_key
from cloakwork.fhe_core.threshold.shares import EvaluationShare, PartialDecryption, PublicShare
from cloakwork.fhe_core.wire import keystore

READERS: list[Any] = [
    Ciphertexts,
    SeededCiphertexts,
    PackedCiphertexts,
    SeededPackedCiphertexts,
    SwitchedCiphertexts,
    PublicKey,
    EvaluationKeys,
    PublicShare,
    EvaluationShare,
    PartialDecryption,
]
MAX_BYTES = 1 << 20
# Of the process, as the kernel counts what it writes. libFuzzer's own limit reads the peak of resident memory, which Linux hands on from the
# process that started this one: below pytest it is the peak of the whole test run.
MAX_MEMORY = 2 << 30
TOTAL, SHAPE, CHECKSUM = 8, 112, 32


def corpus() -> list[bytes]:
    """Small valid objects of every kind."""
    objects: list[bytes] = []
    for name in ("toy", "toy_two_limb"):
        key = ClientKey.generate(name)
        seeded, packed = key.encrypt([1, 2], seeded=True), key.encrypt_packed([[1], [2]])
        objects += [thing.to_bytes() for thing in (seeded, seeded.expand(), packed, packed.expand(), key.public_key())]
        switched = SwitchedCiphertexts.switch(seeded.expand(), 13)
        objects.append(switched.to_bytes())
        objects += [
            thing.to_bytes() for thing in (seeded.expand() * -2, packed.with_message_bound(0, 1))
        ]  # with a message bound
        objects += [thing.with_purpose(bytes(32)).to_bytes() for thing in (seeded, packed.expand(), switched)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "key"
            keystore.save_secret(
                path, key.parameters, key._secret_key.export(), key.key_id, "x", keystore.ScryptCost(10)
            )
            objects.append(path.read_bytes())
    return objects + joint_corpus()


def joint_corpus() -> list[bytes]:
    """What the parties of a joint key send, and a key file of one; no share of evaluation keys, which is larger than MAX_BYTES."""
    parties = [Party.generate("toy_2p", index) for index in range(2)]
    commitments, contributions = [party.commitment for party in parties], [party.contribution for party in parties]
    shares = [party.public_share(commitments, contributions) for party in parties]
    joint = joint_public_key(shares, [share.commitment for share in shares])
    partial = PartialDecryption(joint.parameters, 0, bytes(32), joint.key_id, np.arange(2, dtype=np.uint64))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "key"
        secret = parties[0]._key.export() + bytes(20)
        kind = wire.Kind.PARTY_KEY
        keystore.save_secret(path, joint.parameters, secret, joint.key_id, "x", keystore.ScryptCost(10), kind=kind)
        return [shares[1].to_bytes(), partial.to_bytes(), path.read_bytes()]


def mend(data: bytes) -> bytes:
    """The same object with its total and checksum made right."""
    if len(data) < SHAPE + CHECKSUM:
        return data
    body = bytearray(data[:-CHECKSUM])
    struct.pack_into("<Q", body, TOTAL, len(data))
    return bytes(body) + hashlib.sha256(body).digest()


def mutate(data: bytes, generator: random.Random) -> bytes:
    """One to four changes, mostly in the header."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        position = (
            generator.randrange(min(len(changed), SHAPE + 64) if generator.random() < 0.8 else len(changed))
            if changed
            else 0
        )
        match generator.randrange(6):
            case 0 if changed:
                changed[position] ^= 1 << generator.randrange(8)
            case 1 if changed:
                changed[position] = generator.choice([0, 1, 2, 4, 5, 8, 127, 128, 255])
            case 2:
                field = generator.choice([0, 1, 2**31, 2**32, 2**40, 2**63, 2**64 - 1, len(changed)])
                changed[position : position + 8] = struct.pack("<Q", field)
            case 3:
                del changed[position : position + generator.choice([1, 4, 8, 32, len(changed)])]
            case 4:
                changed[position:position] = generator.randbytes(generator.choice([1, 4, 8, 32, 257]))
            case _:
                changed += changed[position : position + generator.choice([8, 32, 1028])]
    return mend(bytes(changed)) if generator.random() < 0.5 else bytes(changed)


def check(data: bytes) -> bool:
    """Whether some reader accepted the bytes. Any error outside the tree, and any change on the way back, is a finding."""
    accepted = False
    for reader in READERS:
        try:
            thing = reader.from_bytes(data, max_bytes=MAX_BYTES)
        except FheError:
            continue
        if thing.to_bytes() != data:
            raise AssertionError(f"{reader.__name__} accepted bytes that it would not write")
        accepted = True
    with contextlib.suppress(FheError):
        load_ciphertexts(data, max_bytes=MAX_BYTES)
    return check_secret(data) or accepted


def check_secret(data: bytes) -> bool:
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        file.write(data)
        file.flush()
        return any(_accepts_secret(file.name, kind) for kind in (wire.Kind.SECRET_KEY, wire.Kind.PARTY_KEY))


def _accepts_secret(path: str, kind: wire.Kind) -> bool:
    try:
        keystore.load_secret(path, "x", kind=kind)
    except KeyMismatchError:
        return True  # everything was read but the seal
    except FheError:
        return False
    return True


def no_derivation(_passphrase: str, _salt: bytes, cost: keystore.ScryptCost) -> bytes:
    """Scrypt is not the target; its costs are checked before it runs."""
    cost.check()
    return bytes(32)


def fix_entropy(seed: int) -> None:
    """Keys, salts and encryptions of the corpus follow from the seed."""
    generator = random.Random(f"entropy of seed {seed}")
    os.urandom = generator.randbytes
    _engine.testing.replace_entropy(generator.randbytes(32))


def run_random(inputs: float, seconds: float, seed: int) -> tuple[int, int]:
    """Tries so many random mutations, or until the time is over: inputs tried, inputs accepted."""
    generator = random.Random(seed)
    pool = corpus()
    tried = accepted = 0
    end = time.monotonic() + seconds
    while tried < inputs and time.monotonic() < end:
        data = mutate(generator.choice(pool), generator)
        tried += 1
        if check(data):
            accepted += 1
            if len(pool) < 200:
                pool.append(data)
    return tried, accepted


def run_guided(inputs: float, seconds: float, seed: int) -> None:
    """Guides mutations by coverage; ends the process."""
    limit = f"-max_total_time={int(seconds)}" if seconds < math.inf else f"-runs={int(inputs)}"
    generator = random.Random(seed)

    def custom_mutator(data: bytes, max_size: int, mutation_seed: int) -> bytes:
        generator.seed(mutation_seed)
        return mutate(data, generator)[:max_size]

    def test_one_input(data: bytes) -> None:
        check(bytes(data))

    _instrument()
    with tempfile.TemporaryDirectory() as folder:
        for i, data in enumerate(corpus()):
            (Path(folder) / str(i)).write_bytes(data)
        options = [
            limit,
            f"-seed={seed}",
            "-max_len=65536",
            "-print_final_stats=1",
            "-verbosity=0",
            "-rss_limit_mb=0",
            folder,
        ]
        atheris.Setup([sys.argv[0], *options], test_one_input, custom_mutator=custom_mutator)
        atheris.Fuzz()


def _instrument() -> None:
    """The parsers alone, so that mutations and hashing stay fast."""
    functions: list[tuple[Any, str]] = [
        (wire, name) for name in ("_read_header", "_check_identity", "_known_parameters", "_check_form")
    ]
    functions += [(wire, name) for name in ("read", "_read_section", "_check_range")]
    functions += [(keystore, "load_secret")]
    for module, name in functions:
        instrumented: Callable[..., Any] = atheris.instrument_func(getattr(module, name))
        setattr(module, name, instrumented)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=float, default=math.inf)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", action="store_true", help="random mutations even where atheris is installed")
    arguments = parser.parse_args()
    if math.isinf(arguments.inputs) and math.isinf(arguments.seconds):
        parser.error("expected --inputs or --seconds")
    keystore._derive = no_derivation
    fix_entropy(arguments.seed)
    if os.environ.get("CLOAKWORK_ENGINE") != "sanitize":  # whose shadow of the address space counts as data
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    if atheris is not None and not arguments.random:
        run_guided(arguments.inputs, arguments.seconds, arguments.seed)
    tried, accepted = run_random(arguments.inputs, arguments.seconds, arguments.seed)
    sys.stdout.write(f"{tried} inputs, {accepted} accepted, seed {arguments.seed}\n")


if __name__ == "__main__":
    main()
