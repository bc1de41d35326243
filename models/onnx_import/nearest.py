"""Advice for operators that do not run on encrypted data."""

from __future__ import annotations

import difflib
from typing import Final

from cloakwork.models.onnx_import.registry import OPERATORS

_INSTEAD: Final = {
    "Attention": "write the scores with MatMul and leave the softmax out",
    "DynamicQuantizeLinear": "quantise statically: the range of encrypted data is not known",
    "Einsum": "write it with MatMul, Transpose and ReduceSum",
    "If": "export without control flow; choose with Where",
    "Loop": "export with the loop unrolled",
    "NonMaxSuppression": "decrypt the boxes and scores first",
    "NonZero": "decrypt first: the number of results depends on the data",
    "Scan": "export with the loop unrolled",
    "Upsample": "use Resize, which has replaced it",
}


def nearest(name: str) -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    alike = difflib.get_close_matches(name, OPERATORS, n=3, cutoff=0.6)
    return (f"nearest: {', '.join(alike)}; " if alike else "") + "docs/reference/operators.md lists what is"
