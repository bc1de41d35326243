"""Challenges for block-binary keys: LWE samples under keys that nobody kept, and a check of solutions.

    python fhe_core/tools/block_key_challenges.py make FOLDER [--seed HEX]    # files block-N.json; without a seed from the operating system's randomness
    python fhe_core/tools/block_key_challenges.py check FILE POSITIONS        # POSITIONS: one number a block, 0 for none or 1 .. 8, as 0,3,8,..

A file has n, q, sigma, the public seed of the matrix A, b = A s + e modulo q, and SHA-256 of the key and of the seed that all of this file follows from.
Row i of A is SHAKE-128 of MATRIX, the public seed and i (4 bytes, little endian), read as n words of 16 bits, little endian.

Source: [LMSS23] the keys.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import secrets
import struct
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

LENGTH, MODULUS, SIGMA = 8, 1 << 16, 7.33  # the noise at which n = 864 has 132 bits
# n: bits by the cheapest attack that we know (meet_in_the_middle.py; of n = 152 halves of the key by themselves)
DIMENSIONS = {152: 30, 248: 40, 304: 49, 376: 60, 440: 69, 512: 79, 648: 99, 864: 132}
MATRIX, SECRET, NOISE = b"cloakwork block key challenge 1 A", b"cloakwork block key challenge 1 s", b"cloakwork block key challenge 1 e"


def stream(label: bytes, seed: bytes, index: int, size: int) -> bytes:
    return hashlib.shake_128(label + seed + struct.pack("<I", index)).digest(size)


def matrix_row(seed: bytes, index: int, dimension: int) -> tuple[int, ...]:
    return struct.unpack(f"<{dimension}H", stream(MATRIX, seed, index, 2 * dimension))


def key_of(positions: list[int]) -> list[int]:
    """Coefficients: of each block the one at this position is 1; none, if it is 0."""
    return [int(place + 1 == position) for position in positions for place in range(LENGTH)]


def key_digest(positions: list[int]) -> str:
    return hashlib.sha256(bytes(positions)).hexdigest()


def instance(dimension: int, seed: bytes) -> tuple[dict[str, Any], list[int]]:
    """A challenge and its solution, which follow from the seed."""
    draws = struct.iter_unpack("<Q", stream(SECRET, seed, 0, dimension))
    positions = [number % (LENGTH + 1) for (number,) in draws]
    public = hashlib.sha256(b"public" + seed).digest()
    key, normal = key_of(positions), NormalDist(0, SIGMA)
    body = []
    for index in range(2 * dimension):
        (number,) = struct.unpack("<Q", stream(NOISE, seed, index, 8))
        error = round(normal.inv_cdf((number + 0.5) / 2**64))
        body.append((sum(a for a, bit in zip(matrix_row(public, index, dimension), key, strict=True) if bit) + error) % MODULUS)
    challenge = {
        "name": f"block-{dimension}",
        "n": dimension,
        "block": LENGTH,
        "q": MODULUS,
        "sigma": SIGMA,
        "bits": DIMENSIONS.get(dimension),
        "matrix_seed": public.hex(),
        "b": base64.b64encode(struct.pack(f"<{len(body)}H", *body)).decode(),
        "key_sha256": key_digest(positions),
        "seed_sha256": hashlib.sha256(seed).hexdigest(),
    }
    return challenge, positions


def check(challenge: dict[str, Any], positions: list[int]) -> tuple[bool, float]:
    """(the key is the one that was drawn, root mean square of b - A s)."""
    dimension, packed = challenge["n"], base64.b64decode(challenge["b"])
    body = struct.unpack(f"<{len(packed) // 2}H", packed)
    if len(positions) * LENGTH != dimension or not all(0 <= position <= LENGTH for position in positions):
        raise ValueError(f"positions: expected {dimension // LENGTH} numbers of 0 to {LENGTH}; got {len(positions)}")
    key, total = key_of(positions), 0
    for index, word in enumerate(body):
        row = matrix_row(bytes.fromhex(challenge["matrix_seed"]), index, dimension)
        error = (word - sum(a for a, bit in zip(row, key, strict=True) if bit) + MODULUS // 2) % MODULUS - MODULUS // 2
        total += error**2
    return key_digest(positions) == challenge["key_sha256"], math.sqrt(total / len(body))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write the files")
    make.add_argument("folder", type=Path)
    make.add_argument("--seed", type=bytes.fromhex, default=None, help="32 bytes that everything follows from")
    checking = commands.add_parser("check", help="check a solution")
    checking.add_argument("file", type=Path)
    checking.add_argument("positions")
    arguments = parser.parse_args()
    if arguments.command == "make":
        master = arguments.seed or secrets.token_bytes(32)
        for dimension in DIMENSIONS:
            challenge, _ = instance(dimension, hashlib.sha256(master + struct.pack("<I", dimension)).digest())
            (arguments.folder / f"{challenge['name']}.json").write_text(json.dumps(challenge, indent=1) + "\n")
        return 0
    right, deviation = check(json.loads(arguments.file.read_text()), [int(part) for part in arguments.positions.split(",")])
    print(f"{'solved' if right else 'not the key'}: b - A s has a root mean square of {deviation:.2f}, {SIGMA} for the key")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
