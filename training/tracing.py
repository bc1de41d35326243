"""Tracing of a module's forward, each step of which is tried: layers, functions of one number, sums and moves, max-pools.

The forward is recorded with torch.fx. A step counts as affine when it takes the middle of two inputs to the middle of its results, and as a
function of single numbers when a change of some numbers changes the results at these places alone; so no list of activations is needed, and
functions written out (`x * sigmoid(x)`) are as good as modules.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, cast

from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from cloakwork.models.errors import UnsupportedModuleError
from cloakwork.training.pytorch import Tensor, functional, torch

nn = torch.nn

LAYERS: Final = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
POOLS: Final = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_DROPOUTS: Final = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
_POOL_FUNCTIONS: Final[Mapping[Any, type[nn.Module]]] = {
    functional.max_pool1d: nn.MaxPool1d, torch.max_pool1d: nn.MaxPool1d, functional.max_pool2d: nn.MaxPool2d,
    torch.max_pool2d: nn.MaxPool2d, functional.max_pool3d: nn.MaxPool3d, torch.max_pool3d: nn.MaxPool3d,
}  # fmt: skip
_IN_PLACE: Final = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul, operator.itruediv: operator.truediv,
}  # fmt: skip
_CLIENTS: Final = frozenset({"Softmax", "LogSoftmax", "softmax", "log_softmax", "argmax", "ArgMax"})
_SEED: Final = 20261122
_TOLERANCE: Final = 1e-4
_REACH: Final = 30.0  # either way: where a function is tried for falling
_ADVICE: Final = {
    "LayerNorm": "costs 3 n + 1 look-ups for n numbers; use BatchNorm",
    "GroupNorm": "costs 3 n + 1 look-ups for n numbers; use BatchNorm",
    "InstanceNorm1d": "costs 3 n + 1 look-ups for n numbers; use BatchNorm",
    "InstanceNorm2d": "costs 3 n + 1 look-ups for n numbers; use BatchNorm",
    "LSTM": "is not simulated; unroll it with layers of one step",
    "GRU": "is not simulated; unroll it with layers of one step",
    "RNN": "is not simulated; unroll it with layers of one step",
    "MultiheadAttention": "multiplies encrypted values; use layers without products",
    "AdaptiveMaxPool2d": "is not simulated; use MaxPool2d with a kernel of its own",
    "AdaptiveMaxPool1d": "is not simulated; use MaxPool1d with a kernel of its own",
}  # fmt: skip


class Role(Enum):
    INPUT = "the input"
    NUMBER = "no encrypted value: shapes, parameters, constants"
    LAYER = "weights that are rounded"
    LINEAR = "sums and moves of values"
    FUNCTION = "a function of single numbers"
    POOL = "a max-pool"
    CLIENT = "what the client computes from the decrypted output"
    OUTPUT = "the output"


@dataclass(frozen=True)
class TracedStep:
    """A step of a traced network.

    `wire` is the node whose numbers it is a function of, one by one: of everything but functions the node itself. `curved`: not affine in them.
    """

    role: Role
    wire: fx.Node
    curved: bool = False
    shape: tuple[int, ...] = ()


Steps = dict[fx.Node, TracedStep]


class FixedNorm(nn.Module):
    """BatchNorm in evaluation, if no layer before it takes it in: x scale + shift, by channel (axis 1)."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        scale = (norm.running_var.detach() + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight.detach()
        shift = -norm.running_mean.detach() * scale
        if norm.bias is not None:
            shift = shift + norm.bias.detach()
        self.scale, self.shift = nn.Parameter(scale), nn.Parameter(shift)

    def forward(self, x: Tensor) -> Tensor:
        by_channel = (1, -1, *[1] * (x.ndim - 2))
        return x * self.scale.view(by_channel) + self.shift.view(by_channel)


def traced(module: nn.Module) -> fx.GraphModule:
    """Returns a copy as a graph, batch normalisation folded, in evaluation mode. UnsupportedModuleError where the forward branches on values."""
    if any(isinstance(each, nn.parameter.UninitializedParameter) for each in module.parameters()):
        raise UnsupportedModuleError("prepare: the module has lazy layers that no sample has passed; train it before")
    copy = deepcopy(module).eval()
    for part in copy.modules():
        if getattr(part, "inplace", False) is True:
            cast(Any, part).inplace = False
    try:
        graph = fx.symbolic_trace(copy)
    except Exception as error:  # whatever a forward of its own runs into
        raise UnsupportedModuleError(
            f"prepare: the forward of {type(module).__name__} cannot be recorded with torch.fx ({error}); it may not branch on values"
        ) from error
    _plain_steps(graph)
    _fold_norms(graph)
    graph.graph.lint()
    graph.recompile()
    return graph


def _plain_steps(module: fx.GraphModule) -> None:
    """Nothing in place, dropouts and max-pools as modules, which follow train() and eval()."""
    for node in list(module.graph.nodes):
        if node.op == "call_method" and node.target.endswith("_") and not node.target.endswith("__"):
            node.target = node.target[:-1]
        elif node.op == "call_function":
            node.target = _IN_PLACE.get(node.target, node.target)
            node.kwargs = {k: v for k, v in node.kwargs.items() if k != "inplace"}
            if node.target in _DROPOUTS:
                p = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
                _as_module(module, node, nn.Dropout(p) if node.target is functional.dropout else nn.Dropout2d(p))
            elif node.target in _POOL_FUNCTIONS:
                _as_module(module, node, _POOL_FUNCTIONS[node.target](*node.args[1:], **_without(node.kwargs, "input")))


def _without(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _as_module(module: fx.GraphModule, node: fx.Node, submodule: nn.Module) -> None:
    source = node.args[0] if node.args else node.kwargs["input"]
    node.op, node.target, node.args, node.kwargs = "call_module", added(module, node.name, submodule), (source,), {}


def added(module: fx.GraphModule, name: str, submodule: nn.Module) -> str:
    """Returns the name under which a new submodule is found."""
    name = name.replace(".", "_")
    submodule.train(module.training)
    while hasattr(module, name):
        name += "_"
    module.add_submodule(name, submodule)
    return name


def _fold_norms(module: fx.GraphModule) -> None:
    calls = [node.target for node in module.graph.nodes if node.op == "call_module"]
    for node in list(module.graph.nodes):
        norm = _module_of(module, node)
        if not isinstance(norm, _NORMS):
            continue
        if norm.running_mean is None:
            raise UnsupportedModuleError(
                f"prepare: {node.target}: BatchNorm without running statistics depends on the batch; track them"
            )
        before = node.args[0]
        layer: Any = _module_of(module, before)
        alone = isinstance(layer, LAYERS) and len(before.users) == 1 and calls.count(before.target) == 1
        if alone and not (isinstance(layer, nn.Linear) and norm.num_features != layer.out_features):
            folded = (fuse_linear_bn_eval if isinstance(layer, nn.Linear) else fuse_conv_bn_eval)(layer, norm)
            folded.bias.requires_grad_(layer.weight.requires_grad)
            _replace_module(module, before.target, folded)
            node.replace_all_uses_with(before)
            module.graph.erase_node(node)
        else:
            node.target = added(module, f"{node.name}_fixed", FixedNorm(norm))
    module.delete_all_unused_submodules()


def _replace_module(module: fx.GraphModule, name: str, submodule: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, submodule)


def _module_of(module: fx.GraphModule, node: Any) -> nn.Module | None:
    return (
        module.get_submodule(cast(str, node.target)) if isinstance(node, fx.Node) and node.op == "call_module" else None
    )


def called(module: nn.Module, node: fx.Node, values: Callable[[fx.Node], Any]) -> Any:
    """Returns the result of a node on values of others."""
    args, kwargs = fx.node.map_arg((node.args, dict(node.kwargs)), values)
    if node.op == "call_function":
        return cast(Callable[..., Any], node.target)(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], cast(str, node.target))(*args[1:], **kwargs)
    return module.get_submodule(cast(str, node.target))(*args, **kwargs)


def classified(module: fx.GraphModule, example: Tensor) -> Steps:
    """Classifies every node by trying it on an example input [batch, ..].

    Raises:
        UnsupportedModuleError: names every step that is none of these.
    """
    trial = _Trial(module, example)
    with torch.no_grad():
        for node in module.graph.nodes:
            trial.add(node)
            if trial.refused and not isinstance(trial.value(node), Tensor):
                break  # what follows reads what is none
    if trial.refused:
        raise UnsupportedModuleError("prepare: " + "; ".join(trial.refused))
    return trial.steps


class _Trial:
    def __init__(self, module: fx.GraphModule, example: Tensor) -> None:
        self._module, self._example = module, example
        self._random = torch.Generator().manual_seed(_SEED)
        self._values: dict[fx.Node, Any] = {}
        self.steps: Steps = {}
        self.refused: list[str] = []

    def value(self, node: fx.Node) -> Any:
        return self._values.get(node)

    def add(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self._add_input(node)
        elif node.op == "output":
            self._add_output(node)
        elif node.op == "get_attr":
            self._values[node] = operator.attrgetter(cast(str, node.target))(self._module)
            self.steps[node] = TracedStep(Role.NUMBER, node)
        else:
            self._values[node] = self._result(node)
            self.steps[node] = self._step(node)

    def _result(self, node: fx.Node) -> Any:
        try:
            return called(self._module, node, self._values.__getitem__)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            label = _label(node, _module_of(self._module, node))
            raise ValueError(
                f"prepare: the module fails on example_input of shape {tuple(self._example.shape)} at {label}: {error}"
            ) from error

    def _add_input(self, node: fx.Node) -> None:
        if any(step.role is Role.INPUT for step in self.steps.values()):
            if not node.args:
                self.refused.append(f"a second input '{node.name}': join the inputs to one")
            self._values[node] = node.args[0] if node.args else None
            self.steps[node] = TracedStep(Role.NUMBER, node)
            return
        self._values[node] = self._example
        self.steps[node] = TracedStep(Role.INPUT, node, shape=tuple(self._example.shape))

    def _add_output(self, node: fx.Node) -> None:
        if not isinstance(node.args[0], fx.Node):
            self.refused.append("several outputs: return one tensor")
        self.steps[node] = TracedStep(Role.OUTPUT, node)

    def _step(self, node: fx.Node) -> TracedStep:
        data = [arg for arg in node.all_input_nodes if self.steps[arg].role is not Role.NUMBER]
        value = self._values[node]
        submodule = _module_of(self._module, node)
        if data and isinstance(value, tuple | list | dict) and not all(isinstance(each, int) for each in value):
            self.refused.append(
                _refusal(node, submodule, 1)
                if submodule is not None
                else f"{_label(node, submodule)} gives several tensors; use steps that give one"
            )
        if not data or not isinstance(value, Tensor):
            return TracedStep(Role.NUMBER, node)
        shape = tuple(value.shape)
        if any(self.steps[arg].role is Role.CLIENT for arg in data):
            return TracedStep(Role.CLIENT, node, shape=shape)
        if isinstance(submodule, LAYERS) and len(data) == 1:
            return TracedStep(Role.LAYER, node, shape=shape)
        if isinstance(submodule, POOLS):
            return TracedStep(Role.POOL, node, shape=shape)
        wires = {self.steps[arg].wire for arg in data}
        curved = any(self.steps[arg].curved for arg in data)
        affine = self._is_affine(node, data)
        if len(wires) == 1 and all(self.steps[arg].shape == shape for arg in data) and self._is_pointwise(node, data):
            return TracedStep(Role.FUNCTION, wires.pop(), curved or not affine, shape)
        if affine:
            return TracedStep(Role.LINEAR, node, shape=shape)
        if _name(node, submodule) in _CLIENTS:
            if all(user.op == "output" or _name(user, None) in _CLIENTS for user in node.users):
                return TracedStep(Role.CLIENT, node, shape=shape)
            self.refused.append(
                f"{_label(node, submodule)}: only the last step may be one; inside it costs 3 look-ups a number"
            )
        else:
            self.refused.append(_refusal(node, submodule, len(wires)))
        return TracedStep(Role.LINEAR, node, shape=shape)

    def _on(self, node: fx.Node, data: Iterable[fx.Node], inputs: Iterable[Tensor]) -> Tensor:
        values = {**self._values, **dict(zip(data, inputs, strict=True))}
        return cast(Tensor, called(self._module, node, values.__getitem__))

    def _drawn(self, data: Iterable[fx.Node]) -> list[Tensor]:
        """Returns numbers of all sizes, so that no clip or kink is far away."""
        return [self._like(self._values[arg]) for arg in data]

    def _like(self, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return (torch.rand(value.shape, generator=self._random) < 0.5).to(value)
        size = 10.0 ** torch.randint(-1, 2, value.shape, generator=self._random)
        return (torch.randn(value.shape, generator=self._random) * size).to(value)

    def _is_affine(self, node: fx.Node, data: list[fx.Node]) -> bool:
        if not all(self._values[arg].is_floating_point() for arg in data):
            return False
        first, second = self._drawn(data), self._drawn(data)
        middle = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
        ends = self._on(node, data, first), self._on(node, data, second)
        if not ends[0].is_floating_point():
            return False
        at_middle, size = self._on(node, data, middle), max(float(end.abs().max()) for end in ends)
        return bool(((at_middle - (ends[0] + ends[1]) / 2).abs() <= _TOLERANCE * max(size, 1e-20)).all())

    def _is_pointwise(self, node: fx.Node, data: list[fx.Node]) -> bool:
        first, second = self._drawn(data), self._drawn(data)
        shape = first[0].shape
        chosen = (torch.rand(shape, generator=self._random) < 0.5).to(first[0].device)
        mixed = [torch.where(chosen, b, a) for a, b in zip(first, second, strict=True)]
        before, after = self._on(node, data, first), self._on(node, data, mixed)
        return bool(torch.equal(torch.nan_to_num(before[~chosen]), torch.nan_to_num(after[~chosen])))


def recorded(module: fx.GraphModule, example: Tensor) -> dict[fx.Node, Any]:
    """Returns the values of all nodes for an input, as the module is."""
    values: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = example if not values else node.args[0]
        elif node.op == "get_attr":
            values[node] = operator.attrgetter(cast(str, node.target))(module)
        elif node.op != "output":
            values[node] = called(module, node, values.__getitem__)
    return values


def never_falls(module: nn.Module, node: fx.Node) -> bool:
    """Whether a function of one number never falls, as far as its values at many places say."""
    with torch.no_grad():
        places = torch.linspace(-_REACH, _REACH, 4097)[None]
        y = called(module, node, lambda _: places)
    return bool((y.diff() >= 0).all())


def _name(node: fx.Node, submodule: nn.Module | None) -> str:
    if submodule is not None:
        return type(submodule).__name__
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def _label(node: fx.Node, submodule: nn.Module | None) -> str:
    name = _name(node, submodule)
    return f"'{node.target}' ({name})" if submodule is not None else f"{name} ('{node.name}')"


def _refusal(node: fx.Node, submodule: nn.Module | None, wires: int) -> str:
    name = _name(node, submodule)
    if name in _ADVICE:
        return f"{_label(node, submodule)} {_ADVICE[name]}"
    if wires > 1:
        return f"{_label(node, submodule)} multiplies or compares different encrypted values; use layers, sums and functions of single numbers"
    return (
        f"{_label(node, submodule)} is neither linear nor a function of single numbers; use layers, sums, pools and activations, or compile the "
        "trained network without `prepare`"
    )
