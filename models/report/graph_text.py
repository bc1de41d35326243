"""A graph in lines of text, for people who watch it being compiled."""

from __future__ import annotations

from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, source_nodes, wires
from cloakwork.models.graph.steps import formula


def graph_text(graph: Graph) -> list[str]:
    """Returns one line for each node: what it reads, its shape, its functions, and the range of its values where it is known."""
    owner = graph.owners()
    lines = []
    for number, node in enumerate(graph.nodes):
        sources = ", ".join(str(source) for source in source_nodes(graph, node.gather, owner))
        read = f" of {sources}" if sources else ""
        lines.append(f"{number:>3} {_node(node)}{read}{_range(graph, node)}")
    outputs = ", ".join(str(source) for source in source_nodes(graph, graph.output, owner))
    after = [step.title for step in graph.client_steps]
    lines.append(
        f"    output {list(graph.output.shape)} of {outputs}"
        + (f"; the client does {', '.join(after)}" if after else "")
    )
    return lines


def _node(node: Node) -> str:
    if isinstance(node, Input):
        return f"input '{node.origin}' {list(node.shape)}"
    if isinstance(node, Linear):
        blocks, rows, columns = node.weights.shape
        kind = "integer" if node.weights.dtype.kind == "i" else "real"
        shared = f", {blocks} blocks of weights" if blocks > 1 else ""
        return f"linear '{node.origin}' {len(node.gather)} x {rows} x {columns}, {kind}{shared}"
    if isinstance(node, Lookup):
        return f"look-up '{node.origin}' {node.bootstraps} x {formula(node.steps)}"
    return f"{node.operator.lower()} '{node.origin}' {node.size}"


def _range(graph: Graph, node: Node) -> str:
    if graph.lower is None or graph.upper is None:
        return ""
    node_wires = wires(node)
    return f" in [{float(graph.lower[node_wires].min()):.3g}, {float(graph.upper[node_wires].max()):.3g}]"


def summary(graph: Graph) -> str:
    """Returns "3 linear nodes of 25,450 weights, 2 look-ups, 40 bootstraps"."""
    weights = sum(node.weights.size for node in graph.linears)
    return f"{len(graph.linears)} linear nodes of {weights:,} weights, {len(graph.lookups)} look-ups, {graph.bootstraps:,} bootstraps"
