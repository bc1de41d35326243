"""The graph as a picture (SVG): linear nodes with shapes and noise, look-ups with functions and bootstraps, from top to bottom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

import numpy as np

from cloakwork.fhe_core.files import PathLike, atomic_writer
from cloakwork.models.graph.ir import Input, Linear, Lookup, Node, source_nodes
from cloakwork.models.graph.steps import formula, is_chain
from cloakwork.models.program import Program
from cloakwork.models.report.layers import Layer, layers_of

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE, _TITLE = 250, 64, 30, 40, 24, 40
_BOW: Final = 60  # of edges that pass rows
_LETTERS: Final = 34  # that fit a line of a box
_FILL: Final = {"Input": "#e8eef7", "Linear": "#eef6ea", "Lookup": "#fbf0dc", "output": "#efe8f5"}
_STYLE: Final = (
    "text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}.name{font-weight:600}.fact{fill:#555;font-size:11px}"
    ".edge{fill:none;stroke:#888;stroke-width:1.2}rect{stroke:#999;stroke-width:1}"
)


@dataclass(frozen=True)
class _Box:
    kind: str
    lines: tuple[str, ...]
    x: float
    y: float


def save_picture(path: PathLike, program: Program) -> None:
    """`picture_svg` into a file."""
    with atomic_writer(path) as stream:
        stream.write(picture_svg(program).encode())


def picture_svg(program: Program) -> str:
    """An SVG of one box for each node, one row for each depth."""
    graph = program.graph
    edges = _edges(program)
    rows = _rows(len(graph.nodes) + 1, edges)
    widest = max(map(len, rows))
    layers = iter(layers_of(program))
    labels = [_label(node, next(layers) if isinstance(node, Linear) else None) for node in graph.nodes]
    steps = " then ".join(step.title for step in graph.client_steps)
    labels.append(("output", ("client", f"{graph.output.size} numbers" + (f", {steps}" if steps else ""))))
    total = widest * (_WIDTH + _ACROSS) - _ACROSS + 2 * _EDGE + 2 * _BOW
    boxes: dict[int, _Box] = {}
    for depth, row in enumerate(rows):
        left = (total - len(row) * (_WIDTH + _ACROSS) + _ACROSS) / 2
        for place, node in enumerate(row):
            kind, lines = labels[node]
            boxes[node] = _Box(
                kind, lines, left + place * (_WIDTH + _ACROSS), _TITLE + _EDGE + depth * (_HEIGHT + _DOWN)
            )
    height = _TITLE + 2 * _EDGE + len(rows) * (_HEIGHT + _DOWN) - _DOWN
    title = f"{program.parameters.name}, {program.bootstraps} bootstraps, program {program.digest.hex()[:16]}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}" viewBox="0 0 {total} {height}">',
        f"<style>{_STYLE}</style>",
        f'<text class="name" x="{_EDGE}" y="{_EDGE + 6}">{escape(title)}</text>',
        *(_curve(boxes[a], boxes[b]) for a, b in edges),
        *map(_drawn, boxes.values()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _edges(program: Program) -> list[tuple[int, int]]:
    graph = program.graph
    owner = graph.owners()
    edges = [(source, i) for i, node in enumerate(graph.nodes) for source in source_nodes(graph, node.gather, owner)]
    return edges + [(source, len(graph.nodes)) for source in source_nodes(graph, graph.output.reshape(-1), owner)]


def _rows(count: int, edges: list[tuple[int, int]]) -> list[list[int]]:
    """Nodes by the length of the longest way to them."""
    depth = np.zeros(count, dtype=np.int64)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        depth[target] = max(depth[target], depth[source] + 1)
    return [np.flatnonzero(depth == level).tolist() for level in range(int(depth.max()) + 1)]


def _label(node: Node, layer: Layer | None) -> tuple[str, tuple[str, ...]]:
    if isinstance(node, Input):
        return "Input", (node.origin, f"input {' x '.join(map(str, node.shape)) or '1'}", "encrypted by the client")
    if isinstance(node, Lookup):
        chain = ", ".join(step.operator for step in node.steps) or "refresh"
        functions = chain if is_chain(node.steps) else formula(node.steps)
        return "Lookup", (node.origin, functions, f"{node.bootstraps} bootstraps")
    assert isinstance(node, Linear) and layer is not None
    positions, width = node.gather.shape
    shape = f"linear {node.weights.shape[1]} x {width}" + (f", {positions} positions" if positions > 1 else "")
    return "Linear", (
        node.origin,
        shape,
        f"noise {layer.noise_percent:.2f} %, weights of {layer.weight_bits} bits",
    )


def _drawn(box: _Box) -> str:
    lines = [
        f'<text class="{"name" if i == 0 else "fact"}" x="{box.x + 10:g}" y="{box.y + 18 + 17 * i:g}">{escape(_short(line))}</text>'
        for i, line in enumerate(box.lines)
    ]
    whole = escape("; ".join(box.lines))
    return (
        f'<g><title>{whole}</title><rect x="{box.x:g}" y="{box.y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="8" fill="{_FILL[box.kind]}"/>'
        + "".join(lines)
        + "</g>"
    )


def _short(line: str) -> str:
    return line if len(line) <= _LETTERS else line[: _LETTERS - 1] + "…"


def _curve(start: _Box, end: _Box) -> str:
    """Straight to the next row; past several rows in a bow on the right of the boxes between."""
    x0, y0, x1, y1 = start.x + _WIDTH / 2, start.y + _HEIGHT, end.x + _WIDTH / 2, end.y
    bend = (y1 - y0) / 2
    if y1 - y0 > _DOWN:
        x0, x1 = x0 + _WIDTH / 3, x1 + _WIDTH / 3
        aside = max(x0, x1) + _WIDTH / 6 + _BOW
        return (
            f'<path class="edge" d="M{x0:g},{y0:g} C{aside:g},{y0 + _DOWN:g} {aside:g},{y1 - _DOWN:g} {x1:g},{y1:g}"/>'
        )
    return f'<path class="edge" d="M{x0:g},{y0:g} C{x0:g},{y0 + bend:g} {x1:g},{y1 - bend:g} {x1:g},{y1:g}"/>'
