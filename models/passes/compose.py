"""One linear node for a chain of them: rows of the later on rows of the earlier, every wire once in a row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import ZERO_WIRE, Linear


def composed(node: Linear, sources: list[Linear]) -> tuple[Linear, Indices]:
    """Returns node after sources, and the wire (from the node's first) that each of its rows has in the result.

    Rows that read the same wires become rows of one position, as those of a convolution are.
    """
    rows = node.weights.shape[1]
    gather = np.repeat(node.gather, rows, axis=0)  # [P R, K]
    weights = node.weights[node.block].reshape(-1, node.weights.shape[2]).copy()
    bias = node.bias[node.block].reshape(-1).copy()
    wider = [gather]
    factors = [weights]
    for source in sources:
        inside = (gather >= source.first_wire) & (gather < source.first_wire + source.size)
        local = np.where(inside, gather - source.first_wire, 0)
        position, row = np.divmod(local, source.weights.shape[1])
        block = source.block[position]
        share = np.where(inside, weights, 0.0)
        bias += (share * source.bias[block, row]).sum(axis=1)
        expanded = np.where(inside[..., None], source.gather[position], ZERO_WIRE)
        wider.append(expanded.reshape(len(gather), -1))
        factors.append((share[..., None] * source.weights[block, row]).reshape(len(gather), -1))
        weights = np.where(inside, 0.0, weights)
        gather = np.where(inside, ZERO_WIRE, gather)
        wider[0], factors[0] = gather, weights
    names, sums = _merged(np.concatenate(wider, axis=1), np.concatenate(factors, axis=1))
    return _grouped(node, names, sums, bias)


def _merged(gather: Indices, weights: Reals) -> tuple[Indices, Reals]:
    """Returns every wire at most once in a row, in ascending order, weights added; zeros last, rows as wide as the widest."""
    order = np.argsort(gather, axis=1, kind="stable")
    gather, weights = np.take_along_axis(gather, order, axis=1), np.take_along_axis(weights, order, axis=1)
    fresh = np.ones(gather.shape, dtype=bool)
    fresh[:, 1:] = gather[:, 1:] != gather[:, :-1]
    slot = np.cumsum(fresh, axis=1) - 1
    line = np.broadcast_to(np.arange(len(gather))[:, None], gather.shape)
    sums = np.zeros(gather.shape)
    np.add.at(sums, (line, slot), weights)
    names = np.full(gather.shape, ZERO_WIRE, dtype=np.int64)
    names[line, slot] = gather
    return _compact(names, np.where(names >= 0, sums, 0.0), names >= 0)


def _compact(names: Indices, sums: Reals, used: np.ndarray) -> tuple[Indices, Reals]:
    """Returns used columns of every row first. Args: sums [rows, K] or [rows, R, K]."""
    width = max(1, int(used.sum(axis=1).max()))
    order = np.argsort(~used, axis=1, kind="stable")[:, :width]
    kept = np.take_along_axis(used, order, axis=1)
    names = np.where(kept, np.take_along_axis(names, order, axis=1), ZERO_WIRE)
    if sums.ndim == 3:
        order, kept = order[:, None, :], kept[:, None, :]
    return names, np.where(kept, np.take_along_axis(sums, order, axis=-1), 0.0)


def _grouped(node: Linear, names: Indices, sums: Reals, bias: Reals) -> tuple[Linear, Indices]:
    """Returns positions of as many rows as read the same wires; of one row when that differs."""
    windows, group = np.unique(names, axis=0, return_inverse=True)
    group = group.reshape(-1)
    counts = np.bincount(group, minlength=len(windows))
    place = np.arange(len(names), dtype=np.int64)
    if len(windows) < len(names) and int(counts.min()) == int(counts.max()):
        order = np.argsort(group, kind="stable")
        place[order] = np.arange(len(names))
        names = windows
        sums, bias = sums[order].reshape(len(windows), -1, sums.shape[1]), bias[order].reshape(len(windows), -1)
    else:
        sums, bias = sums[:, None, :], bias[:, None]
    names, sums = _compact(names, sums, (names >= 0) & (sums != 0).any(axis=1))
    flat = np.concatenate([sums.reshape(len(sums), -1), bias], axis=1)
    _, first, block = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    result = replace(
        node,
        gather=names,
        block=block.reshape(-1).astype(np.int64),
        weights=np.ascontiguousarray(sums[first]),
        bias=np.ascontiguousarray(bias[first]),
    )
    return result, place
