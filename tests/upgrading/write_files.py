"""How files_of_0.1/ was written: by the code of commit 45b5309 (24 November 2026, version 0.1.0), run once.

    git worktree add OLD 45b5309     # then its engine, and a folder where Python finds it as cloakwork (`make emulated` says how)
    PYTHONPATH=TREE:OLD/tests/api:OLD/tests/models python tests/upgrading/write_files.py tests/upgrading/files_of_0.1

Not for today's code, whose files would show nothing. The sets are toys and the keys protect nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np

os.environ["CLOAKWORK_ALLOW_TOY"] = "1"
os.environ["CLOAKWORK_PASSPHRASE"] = PASSPHRASE = "files of 0.1"

from scoring_server import new_tenant, running, toy_model

from cloakwork.app.client import Client
from cloakwork.app.client.keyring import Keyring

SET = "toy_two_limb"


def write(folder: Path) -> None:
    """A key ring, a model, what the client of it holds, an input and its result, and the data folder of a service that computed it."""
    shutil.rmtree(folder, ignore_errors=True)
    keys, data = folder / "keys", folder / "data"
    model = toy_model(set_name=SET)
    (data / "models" / "toy").mkdir(parents=True)
    model.save(data / "models" / "toy" / "1.clkm")
    shutil.copy(data / "models" / "toy" / "1.clkm", folder / "program.clkm")
    (folder / "client.json").write_text(model.client.to_json(), encoding="utf-8")
    samples = np.random.default_rng(7).uniform(-0.7, 0.7, (4, *model.client.input_shape))
    token = new_tenant(data, "first", "score", "models")
    with running(data, insecure=False) as server:
        ring = Keyring(keys)
        with Client(server.url, api_key=token, keyring=ring) as client:
            answers = np.asarray(client.predict("toy", samples))
        key = ring.key(SET)
    packed = model.client.encrypt(key, samples)
    (folder / "input.clkw").write_bytes(packed.to_bytes())
    expected = {"samples": samples.tolist(), "answers": answers.tolist(), "token": token, "passphrase": PASSPHRASE}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    ring.evaluation_keys(SET).unlink()  # the same bytes are in the service's objects/keys
    for name in ("reserve", "node", "log.jsonl"):
        (data / name).unlink(missing_ok=True)
    with tarfile.open(folder / "data.tar.xz", "w:xz") as archive:
        archive.add(data, "data")
    shutil.rmtree(data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
