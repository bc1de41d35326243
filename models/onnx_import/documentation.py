"""docs/reference/operators.md from the registry: `python -m cloakwork.models.onnx_import.documentation docs/reference/operators.md`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from cloakwork.models.graph.last_steps import MOST_FUNCTIONS, MOST_NUMBERS, MOST_STEPS
from cloakwork.models.onnx_import import importer, reductions
from cloakwork.models.onnx_import.context import FOLDED, FREE, LINEAR, LOOKUP, MICROSOFT, OPERATORS, Entry
from cloakwork.models.onnx_import.ends import CLIENT_OPERATORS, MOST_PARTS
from cloakwork.models.passes.separate_levels import WEIGHTS_PER_BOOTSTRAP

_HEAD = """# Operators

Written by `python -m cloakwork.models.onnx_import.documentation docs/reference/operators.md` from the registry of the importer; a test compares them.

The compiler takes ONNX opset {opset} and newer.
Costs are bootstraps per sample: a "number" is one element of the result.
*Shared*: every other function of the same number uses the same bootstrap.
Nodes that read only constants are computed at import.
Everything unsupported is reported at once, with the node's name in the model.
`{microsoft}:` stands before operators of ONNX Runtime's own domain.

A model may have at most {parts} inputs and {parts} outputs, each with the batch as its first dimension.
An output may be an inner layer, or an input.
"""


_LAST = """## Last, by the client

{last}: after decryption, along any axis but the batch; free.
`Softmax` and `LogSoftmax` whose values later nodes read are computed encrypted: `Softmax` takes {softmax} values, `LogSoftmax` {log_softmax} values,
at most {most}.
`LpNormalization` (p = 2) also stands for `x / |x|` at the end however it is written.

The client also computes functions of single numbers at the model's end: `Sigmoid`, `Tanh`, `1 / (1 + exp(-x))`,
a comparison and `Cast` after them.
A quantiser may stand before them, `ArgMax` behind.
At most {functions} different ones of {steps} steps with {numbers} constants together, so that no weights go
to the client; with more they are look-ups.

## Wide layers behind average pools

A pool and the linear layer behind it are done at once, which makes the layer's rows wider.
If that takes more than {weights} multiplications for each number of the pool, a look-up refreshes each of the pool's numbers instead.
Examples are a 3x3 convolution of more than some 130 channels (behind 2x2 pools), and a dense layer of R rows behind a global pool over n
numbers with n R above {weights}.
Any linear layer on another one follows the same rule.
"""


def operators_markdown() -> str:
    sections: dict[str, Callable[[Entry], bool]] = {
        "Linear layers": lambda e: e.cost == LINEAR,
        "Folded into linear layers": lambda e: e.cost.startswith(FOLDED),
        "Moving elements": lambda e: e.cost.startswith(FREE),
        "Look-ups": lambda e: e.cost == LOOKUP,
        "Several look-ups": lambda _: True,
    }
    rest = dict(OPERATORS)
    parts = [_HEAD.format(opset=importer.MINIMUM_OPSET, microsoft=MICROSOFT.rstrip(":"), parts=MOST_PARTS)]
    for title, chosen in sections.items():
        rows = {name: entry for name, entry in rest.items() if chosen(entry)}
        rest = {name: entry for name, entry in rest.items() if name not in rows}
        parts.append(
            f"## {title}\n\n| operator | bootstraps | restrictions |\n|---|---|---|\n" + "\n".join(_rows(rows)) + "\n"
        )
    last = ", ".join(f"`{name}`" for name in CLIENT_OPERATORS)
    parts.append(
        _LAST.format(
            last=last,
            softmax=reductions.COST,
            log_softmax=reductions.LOG_COST,
            weights=f"{WEIGHTS_PER_BOOTSTRAP:,}",
            most=reductions.MOST_VALUES,
            functions=MOST_FUNCTIONS,
            numbers=MOST_NUMBERS,
            steps=MOST_STEPS,
        )
    )
    return "\n".join(parts)


def _rows(entries: dict[str, Entry]) -> Iterator[str]:
    """Yields one line for all operators of the same cost and restrictions."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, entry in entries.items():
        alike.setdefault((entry.cost, entry.restrictions), []).append(name)
    for (cost, restrictions), names in sorted(alike.items(), key=lambda item: min(item[1])):
        yield f"| {', '.join(f'`{name}`' for name in sorted(names))} | {cost} | {restrictions or 'none'} |"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(operators_markdown(), encoding="utf-8")
