"""A program as a picture (SVG), level by level: sums with their weights and noise, look-ups with their functions, and what each costs."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from cloakwork.fhe_core.wire.files import PathLike, atomic_writer
from cloakwork.models.errors import printable
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, source_nodes
from cloakwork.models.graph.steps import formula
from cloakwork.models.program import Program
from cloakwork.models.report.costs import Report
from cloakwork.models.report.layers import Layer, own_steps
from cloakwork.models.report.picture_layout import BOX_HEIGHT, BOX_WIDTH, Band, PictureLayout

_TOP: Final = 92  # of the first band
_INSIDE: Final = 14  # from a box's edge to its text
_MOST_TOLD: Final = 40  # boxes that the description names
_STYLE: Final = """
.cw-page{fill:#f6f8fa}.cw-band{fill:#ffffff;stroke:#d0d7de}.cw-line{fill:none;stroke:#57606a;stroke-width:1.4}.cw-head{fill:#57606a}
.cw-client{fill:#ffe8e0;stroke:#b3391b}.cw-linear{fill:#e1efff;stroke:#1f5fa8}.cw-lookup{fill:#fff1cf;stroke:#8a6100}
.cw-cost{fill:#8a6100}.cw-rest{fill:#57606a;opacity:.18}
.cw-program text{fill:#1f2328;font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
.cw-program .cw-title{font-size:17px;font-weight:600}.cw-program .cw-name{font-size:14px;font-weight:600}.cw-program .cw-note{fill:#57606a}
@media (prefers-color-scheme: dark){
.cw-page{fill:#0d1117}.cw-band{fill:#161b22;stroke:#30363d}.cw-line{stroke:#9da7b1}.cw-head{fill:#9da7b1}
.cw-client{fill:#4a2018;stroke:#f08c6c}.cw-linear{fill:#12314f;stroke:#6cb0f5}.cw-lookup{fill:#3d2f0a;stroke:#e3b341}
.cw-cost{fill:#e3b341}.cw-rest{fill:#9da7b1}
.cw-program text{fill:#e6edf3}.cw-program .cw-note{fill:#9da7b1}}
"""


@dataclass(frozen=True)
class _Box:
    kind: str  # client, linear or lookup
    name: str
    facts: tuple[str, str]
    seconds: float | None  # of a sample; None: not the server's


def save_picture(path: PathLike, program: Program) -> None:
    """Writes `picture_svg` into a file."""
    with atomic_writer(path) as stream:
        stream.write(picture_svg(program).encode())


def picture_svg(program: Program) -> str:
    """Returns an SVG of one box for each node and one for the answer, in light and dark colours, with a description that is read aloud."""
    report = Report.of(program)
    graph = program.graph
    boxes = _boxes(report)
    edges = _edges(graph)
    layout = PictureLayout(_bands(graph, edges), edges, _TOP)
    titles = _titles(report)
    key = program.digest.hex()[:12]
    total = sum(box.seconds or 0 for box in boxes)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="cw-program" width="{layout.width:g}" height="{layout.height:g}" '
            f'viewBox="0 0 {layout.width:g} {layout.height:g}" role="img" aria-labelledby="cw-{key}-t cw-{key}-d">'
        ),
        f'<title id="cw-{key}-t">{escape(titles[0])}</title>',
        f'<desc id="cw-{key}-d">{escape(_description(boxes, edges))}</desc>',
        f"<style>{_STYLE}</style>",
        (
            f'<defs><marker id="cw-{key}-m" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="cw-head" d="M0 0L10 5L0 10z"/></marker></defs>'
        ),
        f'<rect class="cw-page" width="{layout.width:g}" height="{layout.height:g}" rx="10"/>',
        *_heading(titles, layout),
        *(_band(layout, i) for i in range(len(layout.bands))),
        *(f'<path class="cw-line" d="{layout.line(a, b)}" marker-end="url(#cw-{key}-m)"/>' for a, b in edges),
        *(_drawn(box, *layout.corner(i), total) for i, box in enumerate(boxes)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _edges(graph: Graph) -> list[tuple[int, int]]:
    """Returns pairs of numbers of nodes, the answer's the last."""
    owner = graph.owners()
    edges = [(source, i) for i, node in enumerate(graph.nodes) for source in source_nodes(graph, node.gather, owner)]
    return edges + [(source, len(graph.nodes)) for source in source_nodes(graph, graph.output.reshape(-1), owner)]


def _bands(graph: Graph, edges: Sequence[tuple[int, int]]) -> list[Band]:
    """Returns the inputs; for each level its sums and the look-ups that read them; what comes behind the last look-ups, and the answer."""
    levels = [0] * (len(graph.nodes) + 1)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        deeper = target < len(graph.nodes) and isinstance(graph.nodes[target], Lookup)
        levels[target] = max(levels[target], levels[source] + deeper)
    last = max(levels) + 1
    columns: list[tuple[list[int], list[int]]] = [([], []) for _ in range(last + 1)]
    for i, node in enumerate(graph.nodes):
        if isinstance(node, Lookup):
            columns[levels[i]][1].append(i)
        else:
            columns[0 if isinstance(node, Input) else levels[i] + 1][0].append(i)
    columns[last][1].append(len(graph.nodes))
    names = [
        "client",
        *(f"level {level}" for level in range(1, last)),
        "after the levels" if last > 1 else "server",
    ]
    return [Band(name, (tuple(left), tuple(right))) for name, (left, right) in zip(names, columns, strict=True)]


def _boxes(report: Report) -> list[_Box]:
    program, graph = report.program, report.program.graph
    name = _names(graph.nodes)
    layers = iter(report.layers)
    seconds = _seconds(report)
    boxes = []
    for node in graph.nodes:
        if isinstance(node, Linear):
            layer = next(layers)
            boxes.append(_Box("linear", next(name), _linear(node, layer), seconds[0] * layer.multiplications))
        elif isinstance(node, Lookup):
            cost = seconds[1] * node.bootstraps
            function = formula(own_steps(node)) if node.steps else "refresh"
            boxes.append(
                _Box("lookup", next(name), (function, f"{_count(node.bootstraps, 'bootstrap')}, {_time(cost)}"), cost)
            )
        else:
            shape = " x ".join(map(str, node.shape)) if isinstance(node, Input) else str(node.size)
            sent = f"encrypted by the client, {_bytes(report.input_bytes)}"
            boxes.append(_Box("client", next(name), (f"{shape} numbers" if node.size != 1 else "1 number", sent), None))
    steps = " then ".join(step.title for step in graph.client_steps)
    back = f"decrypted by the client, {_bytes(report.to_fields()['output_ciphertext_bytes'])}"
    boxes.append(
        _Box(
            "client",
            "answer",
            (_count(program.graph.output.size, "number") + (f", {steps}" if steps else ""), back),
            None,
        )
    )
    return boxes


def _names(nodes: Sequence[Node]) -> Iterator[str]:
    """Yields the names of the user's model; several boxes of one kind that it has one name for are numbered."""
    counts = Counter((type(node), node.origin) for node in nodes)
    seen: Counter[tuple[type, str]] = Counter()
    for node in nodes:
        key = (type(node), node.origin)
        seen[key] += 1
        name = printable(node.origin)
        yield name if counts[key] == 1 else f"{name}, {seen[key]} of {counts[key]}"


def _linear(node: Linear, layer: Layer) -> tuple[str, str]:
    positions, width = node.gather.shape
    shape = f"{node.weights.shape[1]} x {width} weights" + (f" at {positions:,} positions" if positions > 1 else "")
    noise = f"noise {layer.noise_percent:.2g}" + (
        f" of {layer.noise_limit_percent:.2g}" if layer.noise_limit_percent > 0 else ""
    )
    return shape, f"{_count(layer.weight_bits, 'bit')}, {noise} %"


def _seconds(report: Report) -> tuple[float, float]:
    """Returns the seconds of a multiplication and of a bootstrap of one sample, on the device that the report forecasts first."""
    estimate = next(iter(report.seconds.values()))["parts_one_sample"]
    products = sum(layer.multiplications for layer in report.layers)
    return estimate["linear layers"] / max(products, 1), estimate["look-ups"] / max(report.program.bootstraps, 1)


def _titles(report: Report) -> tuple[str, str]:
    program, params = report.program, report.program.parameters
    device, estimate = next(iter(report.seconds.items()))
    work = f"{_count(program.bootstraps, 'bootstrap')} in {_count(len(report.bootstraps_per_level), 'level')}"
    first = f"{work if program.bootstraps else 'no bootstraps'}, about {_time(estimate['seconds_one_sample'])} a sample on {device}"
    return first[0].upper() + first[
        1:
    ], f"set {params.name}, {params.security_bits} bits of security; program {program.digest.hex()[:16]}"


def _heading(titles: tuple[str, str], layout: PictureLayout) -> Iterator[str]:
    x, width = 22, layout.width - 44
    yield f'<text class="cw-title" x="{x}" y="34">{escape(_fitted(titles[0], 17, width))}</text>'
    yield f'<text class="cw-note" x="{x}" y="54">{escape(_fitted(titles[1], 13, width))}</text>'
    for kind, words in (
        ("client", "client"),
        ("linear", "sums on the server"),
        ("lookup", "look-ups; the bar is their part of the time"),
    ):
        yield f'<rect class="cw-{kind}" x="{x}" y="66" width="14" height="14" rx="3"/><text class="cw-note" x="{x + 20}" y="78">{words}</text>'
        x += 42 + round(_width(words, 13))


def _band(layout: PictureLayout, band: int) -> str:
    x, y, width, height = layout.band_rectangle(band)
    return (
        f'<rect class="cw-band" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>'
        f'<text class="cw-note" x="{layout.left:g}" y="{y + 24:g}">{escape(layout.bands[band].title)}</text>'
    )


def _drawn(box: _Box, x: float, y: float, total: float) -> str:
    inside = BOX_WIDTH - 2 * _INSIDE
    whole = "; ".join((box.name, *box.facts))
    texts = [
        f'<text class="cw-name" x="{x + _INSIDE:g}" y="{y + 22:g}">{escape(_fitted(box.name, 14, inside, bold=True))}</text>',
        *(
            f'<text class="cw-note" x="{x + _INSIDE:g}" y="{y + 41 + 18 * i:g}">{escape(_fitted(fact, 13, inside))}</text>'
            for i, fact in enumerate(box.facts)
        ),
    ]
    bar = ""
    if box.seconds is not None and total > 0:
        long = max(1.0, round(inside * box.seconds / total, 1))
        place = f'x="{x + _INSIDE:g}" y="{y + BOX_HEIGHT - 9:g}" height="3" rx="1.5"'
        bar = f'<rect class="cw-rest" {place} width="{inside:g}"/><rect class="cw-cost" {place} width="{long:g}"/>'
    return (
        f'<g><title>{escape(whole)}</title><rect class="cw-{box.kind}" x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        + "".join(texts)
        + bar
        + "</g>"
    )


def _description(boxes: Sequence[_Box], edges: Sequence[tuple[int, int]]) -> str:
    """Returns a sentence for each box: what it reads, what it is."""
    sentences = []
    for i, box in enumerate(boxes[:_MOST_TOLD]):
        reads = [boxes[a].name for a, b in edges if b == i]
        sentences.append(f"{box.name}{f' of {_joined(reads)}' if reads else ''}: {box.facts[0]}; {box.facts[1]}.")
    return " ".join(sentences) + (f" And {len(boxes) - _MOST_TOLD} more." if len(boxes) > _MOST_TOLD else "")


def _joined(names: Sequence[str]) -> str:
    return " and ".join(dict.fromkeys(names))


def _fitted(text: str, size: float, width: float, bold: bool = False) -> str:
    """Cut where it would be wider than `width` pixels."""
    if _width(text, size, bold) <= width:
        return text
    while text and _width(text + "…", size, bold) > width:
        text = text[:-1]
    return text.rstrip() + "…"


def _width(text: str, size: float, bold: bool = False) -> float:
    """At most, in the fonts of the style: the widest of them is DejaVu Sans."""
    return sum(map(_advance, text)) * size * (1.1 if bold else 1.0)


def _advance(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF" or ord(letter) > 0x2FFF:
        return 1.05
    if letter in "ijl.,:;'|!()[]/ frtI":
        return 0.42
    return 1.0 if letter in "mwMW@%…" else 0.78 if letter.isupper() or not letter.isascii() else 0.645


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}" + ("" if number == 1 else "s")


def _time(seconds: float) -> str:
    if seconds >= 99.5:
        return f"{seconds:,.0f} s"
    return f"{seconds:.2g} s" if seconds >= 0.0995 else f"{1000 * seconds:.2g} ms"


def _bytes(number: int) -> str:
    return (
        f"{number / 1e6:.2g} MB" if number >= 1e6 else f"{number / 1e3:.3g} KB" if number >= 1000 else f"{number} bytes"
    )
