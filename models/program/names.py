"""Names of features and classes in a program whose training data had none: what clients check, and what they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cloakwork.models.client_steps import Categories, Columns, Labels, Pick
from cloakwork.models.errors import CompileError
from cloakwork.models.program.program import Program


def named(program: Program, features: Sequence[str] | None = None, classes: Sequence[str] | None = None) -> Program:
    """Returns another program that does the same: its clients refuse tables with other names, and answer with the classes' names.

    Raises:
        CompileError: another number of features or classes than the program has, or a program of neither.
    """
    steps = {"input_steps": program.input_steps, "output_steps": program.output_steps}
    if features is not None:
        first = steps["input_steps"][0] if steps["input_steps"] else None
        if not isinstance(first, Columns | Categories) or first.count != len(features):
            raise CompileError(f"features: expected as many names as the table has columns, got {len(features)}")
        steps["input_steps"] = (replace(first, names=tuple(features)), *steps["input_steps"][1:])
    if classes is not None:
        last = steps["output_steps"][-1] if steps["output_steps"] else None
        if not isinstance(last, Labels | Pick) or len(last.labels) != len(classes):
            raise CompileError(f"classes: expected as many names as the model has labels, got {len(classes)}")
        steps["output_steps"] = (*steps["output_steps"][:-1], replace(last, labels=np.array(classes)))
    return replace(program, **steps)  # type: ignore[arg-type]
