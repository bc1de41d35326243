"""Operators that move elements: index arithmetic on wire numbers, free at run time."""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.ir import ZERO_WIRE, Lookup
from cloakwork.models.onnx_import.context import FREE, Context, Encrypted, OnnxNode, bounded, operator

# Rows of a constant table by an encrypted index: embeddings of categories, one-hot vectors.
#
# With the bits b_k = [i > k - 1/2], k = 1 .. V - 1, of an index i the row is t_0 + sum of b_k (t_k - t_(k-1)). The bits are functions of one number:
# passes/fuse_functions.py makes one look-up of each number of the row instead where that takes fewer.

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
    off, on = (float(value) for value in node.constant(2).reshape(-1))
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


@operator("Identity", cost=FREE)
def identity(_context: Context, node: OnnxNode) -> Encrypted:
    return Encrypted(node.encrypted())


@operator("Dropout", cost=FREE, restrictions="not in training mode")
def dropout(_context: Context, node: OnnxNode) -> Encrypted:
    training = node.optional_constant(2)
    if training is not None and training.any():
        raise UnsupportedNode("is in training mode; export the model in evaluation mode")
    return Encrypted(node.encrypted())


@operator("Flatten", cost=FREE)
def flatten(_context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    axis = node.attributes.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return Encrypted(x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), -1))


@operator("Reshape", cost=FREE)
def reshape(_context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    shape = node.vector(1)
    if not node.attributes.get("allowzero", 0):
        shape = [x.shape[i] if extent == 0 else extent for i, extent in enumerate(shape)]
    return Encrypted(x.reshape(shape))


@operator("Transpose", cost=FREE)
def transpose(_context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    return Encrypted(x.transpose(node.attributes.get("perm", tuple(range(x.ndim))[::-1])))


@operator("Concat", cost=FREE)
def concat(context: Context, node: OnnxNode) -> Encrypted:
    parts = [context.constant(v) if isinstance(v, np.ndarray) else node.encrypted(i) for i, v in enumerate(node.inputs)]
    bounded(sum(part.size for part in parts))
    return Encrypted(np.concatenate(parts, axis=node.attributes["axis"]))


@operator("Slice", cost=FREE)
def slice_(_context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    starts, ends = (np.atleast_1d(node.constant(i)).astype(np.int64) for i in (1, 2))
    axes = node.optional_constant(3)
    steps = node.optional_constant(4)
    cut = [slice(None)] * x.ndim
    for i, start in enumerate(starts):
        axis = int(axes[i]) if axes is not None else i
        step = int(steps[i]) if steps is not None else 1
        size, end = x.shape[axis], int(ends[i])
        stop: int | None = end
        if step < 0 and end < -size:
            stop = None  # "before the first" has no number in Python
        cut[axis] = slice(int(start), stop, step)
    return Encrypted(x[tuple(cut)])


@operator("Split", cost=FREE)
def split(_context: Context, node: OnnxNode) -> list[Encrypted]:
    x = node.encrypted()
    axis = node.attributes.get("axis", 0)
    sizes = node.integers(1, "split")
    if sizes is None:
        parts = int(node.attributes.get("num_outputs", node.attributes["output_count"]))
        if not 1 <= parts <= x.shape[axis]:
            raise UnsupportedNode(f"into {parts} parts, of {x.shape[axis]}")
        size = -(-x.shape[axis] // parts)
        sizes = [size] * (x.shape[axis] // size) + ([x.shape[axis] % size] if x.shape[axis] % size else [])
    if min(sizes, default=0) < 1 or sum(sizes) != x.shape[axis]:
        raise UnsupportedNode(f"into parts of {sizes}, which are not {x.shape[axis]} together")
    return [Encrypted(part) for part in np.split(x, np.cumsum(sizes)[:-1], axis=axis)]


@operator("Squeeze", cost=FREE)
def squeeze(_context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    axes = node.integers(1, "axes")
    return Encrypted(np.squeeze(x, tuple(axes) if axes is not None else None))


@operator("Unsqueeze", cost=FREE)
def unsqueeze(_context: Context, node: OnnxNode) -> Encrypted:
    axes = node.integers(1, "axes")
    if axes is None:
        raise UnsupportedNode("names no axes")
    return Encrypted(np.expand_dims(node.encrypted(), tuple(axes)))


@operator("Expand", cost=FREE)
def expand(_context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    shape = np.broadcast_shapes(x.shape, tuple(node.vector(1)))
    bounded(*shape)
    return Encrypted(np.array(np.broadcast_to(x, shape)))


@operator("Pad", cost=FREE, restrictions="modes constant, edge, reflect and wrap")
def pad(context: Context, node: OnnxNode) -> Encrypted:
    x = node.encrypted()
    mode = node.attributes.get("mode", b"constant")
    mode = mode.decode() if isinstance(mode, bytes) else mode
    value = node.optional_constant(2)
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise UnsupportedNode(f"mode '{mode}' is not supported; use constant, edge, reflect or wrap")
    filler = ZERO_WIRE if value is None else int(context.constant(value).reshape(-1)[0])
    amounts = node.vector(1)
    axes = node.integers(3, "axes")
    chosen = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in axes]
    pairs = [(0, 0)] * x.ndim
    for i, axis in enumerate(chosen):
        pairs[axis] = (amounts[i], amounts[len(chosen) + i])
    cut = tuple(
        slice(max(-before, 0), size - max(-after, 0)) for (before, after), size in zip(pairs, x.shape, strict=True)
    )
    bounded(*(max(size + before + after, 1) for (before, after), size in zip(pairs, x.shape, strict=True)))
    grown = [(max(before, 0), max(after, 0)) for before, after in pairs]
    return Encrypted(_padded(x[cut], grown, mode, filler))


def _padded(x: Indices, pairs: list[tuple[int, int]], mode: str, filler: int) -> Indices:
    if mode == "constant":
        return np.pad(x, pairs, constant_values=filler)
    if mode == "wrap":
        return np.pad(x, pairs, mode="wrap")
    return np.pad(x, pairs, mode="edge" if mode == "edge" else "reflect")


@operator(
    "Gather",
    cost=FREE + "; of a constant table by encrypted indices 1 for each number, or for each row but one of the table",
    restrictions=f"indices constant; or encrypted whole numbers, for rows of a constant table of at most {MOST_ROWS}",
)
def gather(context: Context, node: OnnxNode) -> Encrypted:
    if isinstance(node.inputs[0], np.ndarray):
        return rows_of_table(context, node)
    x, index, axis = node.encrypted(0), node.constant(1).astype(np.int64), node.attributes.get("axis", 0)
    bounded(x.size // max(x.shape[axis], 1), index.size)
    return Encrypted(np.take(x, index, axis=axis))


@operator("Shape", cost=FREE, restrictions="the batch counts as 1")
def shape(_context: Context, node: OnnxNode) -> np.ndarray:
    """Returns the shape as known at import; the batch counts as 1."""
    extents = np.array(node.encrypted().shape, dtype=np.int64)
    return extents[node.attributes.get("start", 0) : node.attributes.get("end", len(extents))]


@operator("Size", cost=FREE, restrictions="the batch counts as 1")
def size(_context: Context, node: OnnxNode) -> np.ndarray:
    return np.array(node.encrypted().size, dtype=np.int64)


@operator("Tile", cost=FREE, restrictions="repeats constant")
def tile(_context: Context, node: OnnxNode) -> Encrypted:
    x, repeats = node.encrypted(0), node.vector(1)
    if len(repeats) != x.ndim or min(repeats) < 1:
        raise UnsupportedNode(f"repeats {repeats} do not fit the shape {list(x.shape)}")
    bounded(x.size, *repeats)
    return Encrypted(np.tile(x, repeats))


@operator("GatherElements", cost=FREE, restrictions="indices constant")
def gather_elements(_context: Context, node: OnnxNode) -> Encrypted:
    x, index = node.encrypted(0), node.constant(1).astype(np.int64)
    bounded(*(max(pair) for pair in zip(x.shape, index.shape, strict=True)))
    places: list[Indices] = list(np.indices(index.shape, sparse=True))  # along the other axes an index may be shorter
    places[node.attributes.get("axis", 0)] = index
    return Encrypted(x[tuple(places)])


@operator("GatherND", cost=FREE, restrictions="indices constant")
def gather_nd(_context: Context, node: OnnxNode) -> Encrypted:
    """Returns indices [.., k] into the first k axes, behind batch_dims that both have."""
    x, index, shared = node.encrypted(0), node.constant(1).astype(np.int64), int(node.attributes.get("batch_dims", 0))
    if not 0 <= shared < min(x.ndim, index.ndim) or x.shape[:shared] != index.shape[:shared]:
        raise UnsupportedNode(f"has {shared} batch dimensions of shapes {list(x.shape)} and {list(index.shape)}")
    depth = index.shape[-1]
    bounded(*index.shape[:-1], *x.shape[shared + depth :])
    before = np.indices(index.shape[:-1], sparse=True)[:shared]
    return Encrypted(x[(*before, *np.moveaxis(index, -1, 0))])


@operator("Trilu", cost=FREE)
def trilu(_context: Context, node: OnnxNode) -> Encrypted:
    x, diagonal = node.encrypted(0), node.optional_constant(1)
    k = 0 if diagonal is None else int(diagonal.reshape(-1)[0])
    inside = np.ones(x.shape[-2:], dtype=bool)
    kept = np.triu(inside, k) if node.attributes.get("upper", 1) else np.tril(inside, k)
    return Encrypted(np.where(kept, x, ZERO_WIRE))


@operator("DepthToSpace", "SpaceToDepth", cost=FREE)
def depth_space(_context: Context, node: OnnxNode) -> Encrypted:
    x, size = node.encrypted(), int(node.attributes["blocksize"])
    if size < 1:
        raise UnsupportedNode(f"has blocks of {size}")
    batch, channels, height, width = x.shape
    if node.operator == "SpaceToDepth":
        channels_first = node.attributes.get("mode", b"DCR") in (b"CRD", "CRD")
        order = (0, 1, 3, 5, 2, 4) if channels_first else (0, 3, 5, 1, 2, 4)
        parts = x.reshape(batch, channels, height // size, size, width // size, size).transpose(order)
        return Encrypted(parts.reshape(batch, channels * size * size, height // size, width // size))
    if node.attributes.get("mode", b"DCR") in (b"CRD", "CRD"):
        parts = x.reshape(batch, -1, size, size, height, width).transpose(0, 1, 4, 2, 5, 3)
    else:
        parts = x.reshape(batch, size, size, -1, height, width).transpose(0, 3, 4, 1, 5, 2)
    return Encrypted(parts.reshape(batch, -1, height * size, width * size))
