"""Quantisers beside what integers pass through unchanged, as ONNX Runtime moves them: `rounding="onnxruntime"`.

    DequantizeLinear - MaxPool - Conv            is    DequantizeLinear - MaxPool - (QuantizeLinear - DequantizeLinear) - Conv
    Conv - Reshape - QuantizeLinear              is    Conv - (QuantizeLinear - DequantizeLinear) - Reshape - QuantizeLinear

The pairs in brackets change no number, and behind them (before them) an integer kernel fits. `quantize_static` writes such pairs itself,
PyTorch's exporter does not. Flatten is none of these operators: a layer behind one computes in floats. Of a function that has no integer
kernel it makes no difference, and exact programs want its results on the model's grid:

    Tanh - MaxPool - Flatten - QuantizeLinear    is    Tanh - (QuantizeLinear - DequantizeLinear) - MaxPool - Flatten - QuantizeLinear
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray
from onnx import NodeProto, helper

_FUNCTIONS: Final = (
    "Celu", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Mish", "Selu", "Softplus", "Softsign", "Tanh", "ThresholdedRelu",
)  # fmt: skip
_PASSED: Final = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")

Constants = Mapping[str, NDArray[Any]]
Edge = tuple[NodeProto, int]  # a node and the number of one of its inputs


def with_moved_quantisers(nodes: Sequence[NodeProto], constants: Constants, outputs: Iterable[str]) -> list[NodeProto]:
    """Returns nodes, in order, with these pairs."""
    graph = _Graph([NodeProto.FromString(node.SerializeToString()) for node in nodes], constants, frozenset(outputs))
    for node in [*graph.nodes]:
        if node.op_type == "DequantizeLinear" and graph.has_one_scale(node):
            graph.forward(node)
    for node in [*graph.nodes]:
        if node.op_type == "QuantizeLinear" and graph.has_one_scale(node):
            graph.backward(node)
    return graph.nodes


class _Graph:
    def __init__(self, nodes: list[NodeProto], constants: Constants, outputs: frozenset[str]) -> None:
        self.nodes, self._constants, self._outputs = nodes, constants, outputs
        self._producer = {name: node for node in nodes for name in node.output}
        self._readers: defaultdict[str, list[NodeProto]] = defaultdict(list)  # once for every input
        for node in nodes:
            for name in filter(None, node.input):
                self._readers[name].append(node)

    def has_one_scale(self, node: NodeProto) -> bool:
        parameters = [self._constants.get(name) for name in node.input[1:3] if name]
        return bool(parameters) and all(value is not None and value.size == 1 for value in parameters)

    def forward(self, dequantiser: NodeProto) -> None:
        """Moves pairs behind every operator that the dequantiser's integers pass through, on all ways that do not end in a quantiser.

        It may have other readers: ONNX Runtime gives each one a dequantiser of its own first.
        """
        waiting = [dequantiser.output[0]]
        while waiting:
            name = waiting.pop()
            for passed in list(self._readers[name]):
                if not self._passes(passed, name) or passed.output[0] in self._outputs:
                    continue
                result = passed.output[0]
                readers = [node for node in self._readers[result] if node.op_type != "QuantizeLinear"]
                if readers:
                    waiting.append(self._insert(passed, result, readers, dequantiser.input[1:3]))

    def backward(self, quantiser: NodeProto) -> None:
        """Moves pairs before every operator that leads to the quantiser and nowhere else."""
        name = quantiser.input[0]
        while self._only_reader(name) is not None:
            passed = self._producer.get(name)
            if passed is None or not self._passes(passed, passed.input[0] if passed.input else ""):
                self._behind_function(name, quantiser)
                return
            name = passed.input[0]
            source = self._producer.get(name)
            if source is None or source.op_type == "DequantizeLinear" or self._only_reader(name) is None:
                return
            self._insert(source, name, [passed], quantiser.input[1:3])

    def _behind_function(self, name: str, quantiser: NodeProto) -> None:
        """A pair behind a function without an integer kernel, from which a Flatten and more leads to the quantiser and nowhere else."""
        reader = quantiser
        while (passed := self._producer.get(name)) is not None and self._only_reader(name) is not None:
            if passed.op_type in _FUNCTIONS:
                if reader is not quantiser:
                    self._insert(passed, name, [reader], quantiser.input[1:3])
                return
            if passed.op_type != "Flatten" and not self._passes(passed, passed.input[0] if passed.input else ""):
                return
            name, reader = passed.input[0], passed

    def _passes(self, node: NodeProto, name: str) -> bool:
        """Whether integers of that name pass through unchanged, to one result."""
        standard = node.domain in ("", "ai.onnx") and node.op_type in _PASSED
        return standard and len(node.output) == 1 and bool(name) and list(node.input).index(name) == 0

    def _only_reader(self, name: str) -> NodeProto | None:
        readers = self._readers[name]
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def _insert(self, source: NodeProto, name: str, readers: Sequence[NodeProto], scale: Sequence[str]) -> str:
        """Returns a pair between a result of `source` and those readers, who see its name: that is returned."""
        integers, values = self._free(f"{name}/integers"), self._free(f"{name}/values")
        pair = [
            helper.make_node("QuantizeLinear", [name, *scale], [integers], integers),
            helper.make_node("DequantizeLinear", [integers, *scale], [values], values),
        ]
        place = next(i for i, node in enumerate(self.nodes) if node is source) + 1
        self.nodes[place:place] = pair
        self._producer |= {integers: pair[0], values: pair[1]}
        for reader in readers:
            for i, read in enumerate(reader.input):
                if read == name:
                    reader.input[i] = values
            self._readers[values].append(reader)
        moved = {id(reader) for reader in readers}
        self._readers[name] = [node for node in self._readers[name] if id(node) not in moved] + [pair[0]]
        self._readers[integers].append(pair[1])
        return values

    def _free(self, name: str) -> str:
        while name in self._producer or name in self._constants or name in self._outputs:
            name += "_"
        return name
