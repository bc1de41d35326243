"""Concrete ML: `python peer_concrete_ml.py linear|tree FOLDER`, in an environment that has it; its defaults, deployed as its guide does."""

from __future__ import annotations

import sys
import tempfile
import time

import numpy as np
from concrete import fhe
from concrete.ml.deployment import FHEModelClient, FHEModelDev, FHEModelServer
from concrete.ml.sklearn import DecisionTreeClassifier, LogisticRegression
from task import SAMPLES, load, scored, tell


def main() -> None:
    task = load(sys.argv[2])
    model = (
        LogisticRegression(max_iter=1000)
        if sys.argv[1] == "linear"
        else DecisionTreeClassifier(max_depth=3, random_state=1)
    )
    model.fit(task["train"], task["labels"])
    start = time.perf_counter()
    model.compile(task["train"])
    compiled = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as keys:
        FHEModelDev(folder, model).save()
        client, server = FHEModelClient(folder, key_dir=keys), FHEModelServer(folder)
        server.load()
        saved = time.perf_counter()
        client.generate_private_and_evaluation_keys()
        upload = client.get_serialized_evaluation_keys()
        evaluation_keys = fhe.EvaluationKeys.deserialize(upload)  # once, as ours are expanded once
        made = time.perf_counter()
        sizes = {}

        def encrypt(sample: np.ndarray) -> bytes:
            sent: bytes = client.quantize_encrypt_serialize(sample[None])
            sizes["request_bytes"] = len(sent)
            return sent

        def evaluate(sent: bytes) -> bytes:
            answer: bytes = server.run(sent, evaluation_keys)
            sizes["answer_bytes"] = len(answer)
            return answer

        def decrypt(answer: bytes) -> float:
            return float(np.argmax(client.deserialize_decrypt_dequantize(answer)))

        times, labels = scored(encrypt, evaluate, decrypt, task["test"])
    same = int((np.array(labels) == task["expected"][:SAMPLES]).sum())
    tell(
        set="its choice",
        compile_s=compiled - start,
        keys_s=made - saved,
        upload_bytes=len(upload),
        same_labels=same,
        **times,
        **sizes,
    )


if __name__ == "__main__":
    main()
