"""Known-answer vectors: everything below follows from one fixed entropy. `python tests/vectors/generate.py` writes them anew.

Run it when a toy row of the parameter table or a version of the wire format changes; when nothing but the code has changed, new bytes mean
that the code is wrong.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from numpy.typing import ArrayLike, NDArray

os.environ["CLOAKWORK_ALLOW_TOY"] = "1"

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import ParameterSet, parameter_text
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.session.lookup_tables import LookupTables
from cloakwork.fhe_core.wire import keystore

FOLDER = Path(__file__).parent
SETS = ("toy", "toy_two_limb", "toy_block", "toy_lanes", "toy_ntru_lut")
ENTROPY = bytes(range(32))
PASSPHRASE = "cloakwork test vector"
MESSAGES = [0, 1, 2, 3]
PACKED_MESSAGES = np.arange(300) % 4
TABLE = [1, 2, 3, 0]
ANSWER_SEED = bytes(range(255, 223, -1))

WHAT = {
    "parameter_set.txt": "the text under the parameter digest",
    "secret_key.clkw": f"the secret key, passphrase `{PASSPHRASE}`, scrypt n = 2^10, salt and nonce 00 01 02 ..",
    "ciphertexts.clkw": "the messages 0, 1, 2, 3",
    "seeded_ciphertexts.clkw": "the messages 0, 1, 2, 3",
    "packed_ciphertexts.clkw": "300 messages v mod 4, seeded",
    "public_key.clkw": "the public key",
    "bootstrapped.clkw": "`ciphertexts.clkw` through the table 1, 2, 3, 0 under the evaluation keys of digests.json",
    "rerandomised.clkw": "`bootstrapped.clkw`, re-randomised from the seed ff fe fd .. e0",
}


def in_lanes(params: ParameterSet, messages: ArrayLike) -> NDArray[np.int64]:
    """Messages m as they are, or with r lanes [.., r]: lane j has m + j mod 4."""
    lanes = np.arange(params.lane_count) if params.lane_count > 1 else 0
    return (np.asarray(messages)[(...,) if params.lane_count == 1 else (..., None)] + lanes) % 4


def build(name: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files of one parameter set, and digests of what is too large for a file. The order of the client's calls matters."""
    key = ClientKey._from_entropy(name, ENTROPY)
    bodies = key._secret_key.evaluation_keys()
    messages = in_lanes(key.parameters, MESSAGES)
    ciphertexts = key.encrypt(messages)
    files = {
        "parameter_set.txt": parameter_text(key.parameters).encode(),
        "secret_key.clkw": _sealed(key),
        "ciphertexts.clkw": ciphertexts.to_bytes(),
        "seeded_ciphertexts.clkw": key.encrypt(messages, seeded=True).to_bytes(),
        "packed_ciphertexts.clkw": key.encrypt_packed(in_lanes(key.parameters, PACKED_MESSAGES)).to_bytes(),
    }
    public = key.public_key()
    files["public_key.clkw"] = public.to_bytes()
    keys = EvaluationKeys(key.parameters, *bodies, public.seed, public.bodies, key.key_id)
    session = Session(keys)
    tables = LookupTables.of_messages(key.parameters, TABLE)
    bootstrapped = session.bootstrap(ciphertexts, tables)
    files["bootstrapped.clkw"] = bootstrapped.to_bytes()
    files["rerandomised.clkw"] = session.rerandomise(bootstrapped, ANSWER_SEED).to_bytes()
    small = session.keyswitch(ciphertexts)
    switched = session.modulus_switch(small)
    glwe = session.blind_rotate(switched, tables)
    digests = {
        "secret_coefficients": _digest(key._secret_key.export()),
        "evaluation_keys_object": _digest(keys.to_bytes()),
        "table_polynomial": _digest(tables.polynomials),
        "keyswitched": _digest(small),
        "modulus_switched": _digest(switched),
        "blind_rotated": _digest(glwe),
        "extracted_0_1_255": _digest(session.sample_extract(glwe, [0, 1, 255]).words),
    }
    return files, digests


def _sealed(key: ClientKey) -> bytes:
    """The key file with a fixed salt and nonce, which nothing but a vector may have."""
    counter = itertools.count()

    def fixed(count: int) -> bytes:
        return bytes(next(counter) for _ in range(count))

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(keystore.os, "urandom", fixed):
        path = Path(folder) / "key"
        secret = key._secret_key.export()
        keystore.save_secret(path, key.parameters, secret, key.key_id, PASSPHRASE, keystore.ScryptCost(log2_n=10))
        return path.read_bytes()


def _digest(data: bytes | np.ndarray) -> str:
    """SHA-256 of bytes, or of an array's words in C order, little-endian, 4 or 8 bytes each as in memory."""
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data).astype(data.dtype.newbyteorder("<")).tobytes()
    return hashlib.sha256(data).hexdigest()


def readme(files: dict[str, bytes]) -> str:
    rows = [
        f"| `{path}` | {WHAT[path.split(':')[1]]} | {len(data)} | `{hashlib.sha256(data).hexdigest()}` |"
        for path, data in files.items()
    ]
    table = re.sub(r"(toy\w*):", r"\1_", "\n".join(rows))
    return f"""# Known-answer vectors

For other implementations of [docs/reference/specification.md](../../docs/reference/specification.md) and
[docs/reference/wire_format.md](../../docs/reference/wire_format.md),
and to notice when this one changes. The toy sets are insecure. All of it follows from the entropy 00 01 02 .. 1f; `generate.py`
writes files and this page, `test_vectors.py` checks them. A ciphertext of `toy_lanes` holds two values:
m as the table says, and m + 1 modulo 4. `steps/` has the client's steps with their answers: `steps/draw.py` writes them, both clients'
tests read them.

| file | what | bytes | SHA-256 |
|---|---|---|---|
{table}

`digests.json` has the SHA-256 of larger things: the evaluation keys (with that public key) as an object of the wire format, the
secret coefficients as signed bytes (small keys, then large keys), and the words after each stage of the bootstrap of
`ciphertexts.clkw` in C order, little-endian, 4 bytes a word (8 for torus words of two limbs).
"""


def main() -> None:
    everything: dict[str, bytes] = {}
    digests: dict[str, dict[str, str]] = {}
    for name in SETS:
        files, digests[name] = build(name)
        for path, data in files.items():
            (FOLDER / f"{name}_{path}").write_bytes(data)
            everything[f"{name}:{path}"] = data
    (FOLDER / "digests.json").write_text(json.dumps(digests, indent=2) + "\n")
    (FOLDER / "README.md").write_text(readme(everything))


if __name__ == "__main__":
    main()
