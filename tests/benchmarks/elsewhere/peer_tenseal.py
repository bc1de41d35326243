"""TenSEAL: `python peer_tenseal.py linear FOLDER`, in an environment that has it. CKKS of N = 8192, as its tutorials choose; one thread."""

from __future__ import annotations

import sys
import time

import numpy as np
import tenseal
from task import SAMPLES, load, scored, tell


def main() -> None:
    task = load(sys.argv[2])
    weights, bias = task["weights"].tolist(), task["bias"].tolist()
    start = time.perf_counter()
    client = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 40, 60], n_threads=1
    )
    client.global_scale = 2**40
    client.generate_galois_keys()
    public = client.copy()
    public.make_context_public()
    upload = public.serialize()
    made = time.perf_counter()
    server = tenseal.context_from(upload, n_threads=1)
    sizes = {}

    def encrypt(sample: np.ndarray) -> bytes:
        sent: bytes = tenseal.ckks_vector(client, sample.tolist()).serialize()
        sizes["request_bytes"] = len(sent)
        return sent

    def evaluate(sent: bytes) -> bytes:
        answer: bytes = (tenseal.ckks_vector_from(server, sent).dot(weights) + bias).serialize()
        sizes["answer_bytes"] = len(answer)
        return answer

    def decrypt(answer: bytes) -> float:
        return float(tenseal.ckks_vector_from(client, answer).decrypt()[0])

    times, scores = scored(encrypt, evaluate, decrypt, task["test"])
    same = int(((np.array(scores) > 0) == task["expected"][:SAMPLES]).sum())
    tell(set="N = 8192, 200 bits", keys_s=made - start, upload_bytes=len(upload), same_labels=same, **times, **sizes)


if __name__ == "__main__":
    main()
