"""cloakwork: `python ours.py linear|tree FOLDER`, one thread."""

from __future__ import annotations

import sys
import time
from typing import Literal

import numpy as np
from sklearn.tree import DecisionTreeClassifier
from task import SAMPLES, load, scored, tell

import cloakwork as cw
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import upload_bytes
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.runtime import Runtime


def linear(task: dict[str, np.ndarray]) -> CompiledModel:
    return compile_linear(LinearModel(task["weights"][None, :], task["bias"], labels=np.arange(2)), task["train"])


def tree(task: dict[str, np.ndarray]) -> CompiledModel:
    fitted = DecisionTreeClassifier(max_depth=3, random_state=1).fit(task["train"], task["labels"])
    compiled: CompiledModel = cw.compile(fitted, task["train"])
    return compiled


def main() -> None:
    task = load(sys.argv[2])
    start = time.perf_counter()
    model = {"linear": linear, "tree": tree}[sys.argv[1]](task)
    compiled = time.perf_counter()
    key = ClientKey.generate(model.program.parameters)
    keys = EvaluationKeys.from_bytes(key.evaluation_keys().to_bytes())
    made = time.perf_counter()
    runtime = Runtime(model.program, Session(keys, threads=1))
    sizes = {}

    def encrypt(sample: np.ndarray) -> bytes:
        sent = model.client.encrypt(key, sample[None]).to_bytes()
        sizes["request_bytes"] = len(sent)
        return sent

    def evaluate(sent: bytes) -> bytes:
        answer = runtime.answer(SeededPackedCiphertexts.from_bytes(sent)).to_bytes()
        sizes["answer_bytes"] = len(answer)
        return answer

    stage: Literal["scores", "labels"] = "scores" if sys.argv[1] == "linear" else "labels"

    def decrypt(answer: bytes) -> float:
        return float(np.ravel(model.client.decrypt(key, answer, output=stage))[-1])

    times, scores = scored(encrypt, evaluate, decrypt, task["test"])
    found = np.array(scores) > 0 if stage == "scores" else np.array(scores)
    tell(
        set=model.program.parameters.name,
        compile_s=compiled - start,
        keys_s=made - compiled,
        upload_bytes=upload_bytes(model.program.parameters),
        same_labels=int((found == task["expected"][:SAMPLES]).sum()),
        **times,
        **sizes,
    )


if __name__ == "__main__":
    main()
