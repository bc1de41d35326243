"""Rows of a constant table by an encrypted index: embeddings of categories, one-hot vectors.

With the bits b_k = [i > k - 1/2], k = 1 .. V - 1, of an index i the row is t_0 + sum of b_k (t_k - t_(k-1)). The bits are functions of one number:
passes/fuse_functions.py makes one look-up of each number of the row instead where that takes fewer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.ir import Lookup
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode, bounded
from cloakwork.models.onnx_import.registry import operator

MOST_ROWS: Final = 256
_REMEDY: Final = (
    "look it up before encryption, at the client, and pass its rows as an input, or the index as one-hot columns"
)


def rows_of_table(context: Context, node: OnnxNode) -> Encrypted:
    """Gather of a constant by an encrypted index [1, ..], a whole number that counts from the end if it is below 0; beyond the table its first or
    last row."""
    table, index = np.asarray(node.constant(0), dtype=np.float64), node.encrypted(1)
    if table.ndim == 0 or node.attributes.get("axis", 0) % table.ndim:
        raise UnsupportedNode(f"takes an encrypted index along another axis than the first of a table; {_REMEDY}")
    if not 1 <= len(table) <= MOST_ROWS:
        raise UnsupportedNode(
            f"reads a table of {len(table)} rows by an encrypted index, of at most {MOST_ROWS}; {_REMEDY}"
        )
    rows = _rows(context, _from_start(context, index, len(table)), table.reshape(len(table), -1))
    return Encrypted(rows.reshape((*index.shape, *table.shape[1:])))


@operator(
    "OneHot",
    cost="1 for each category",
    restrictions=f"depth and values constant, at most {MOST_ROWS} categories",
)
def one_hot(context: Context, node: OnnxNode) -> Encrypted:
    index, count = node.encrypted(0), int(node.constant(1).reshape(-1)[0])
    off, on = (float(value) for value in node.constant(2))
    axis = int(node.attributes.get("axis", -1)) % (index.ndim + 1)
    if axis == 0:
        raise UnsupportedNode("puts its categories before the batch; use another axis")
    if not 1 <= count <= MOST_ROWS:
        raise UnsupportedNode(f"has {count} categories; expected 1 to {MOST_ROWS}: {_REMEDY}")
    chosen = np.zeros(
        (2 * count + 2, count), dtype=bool
    )  # by indices from -count - 1 on: those below 0 count from the end, those beyond are none
    chosen[1:-1] = np.tile(np.eye(count, dtype=bool), (2, 1))
    rows = _rows(context, _before_rounding(context, index), np.where(chosen, on, off), -count - 1)
    return Encrypted(np.moveaxis(rows.reshape((*index.shape, count)), -1, axis))


def _rows(context: Context, index: Indices, table: Reals, first: int = 0) -> Indices:
    """Returns wires [indices, D] for a table [V, D]. Args: first: index of its first row."""
    count, width = table.shape
    bounded(index.size, max(count, width))
    if count == 1:
        return context.constant(np.broadcast_to(table, (index.size, width)))
    read = np.broadcast_to(index.reshape(-1, 1), (index.size, count - 1))
    bits = context.lookup(read, "Greater", first + np.arange(1, count) - 0.5)
    return context.linear(bits, np.diff(table, axis=0).T[None], table[:1])


def _from_start(context: Context, index: Indices, count: int) -> Indices:
    """Returns the index, plus the number of rows if it is below 0. All bits of it stay functions of one number."""
    if count == 1:
        return index
    read = _before_rounding(context, index).reshape(-1)
    below = context.lookup(read, "Less", -0.5)
    return context.linear(np.stack([read, below], axis=1), np.array([[[1.0, count]]])).reshape(index.shape)


def _before_rounding(context: Context, index: Indices) -> Indices:
    """Returns what was cast to an integer. Categories are whole numbers before, and to the nearest one they stay so under a little noise; towards
    zero they would not."""
    cast = context.only_owner(index)
    if not isinstance(cast, Lookup) or [step.operator for step in cast.steps] != ["Truncate"]:
        return index
    return cast.gather[index - cast.first_wire]
