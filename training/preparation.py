"""`prepare(module)`: an ordinary `nn.Module` that feels in training what encryption will do to it, to be trained a few epochs and exported."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from torch import fx

from cloakwork.fhe_core.parameters import offered_sets, require_common_mask, require_structured
from cloakwork.fhe_core.parameters import parameter_set as set_of
from cloakwork.models.approximate.choose_parameters import approximate_sets
from cloakwork.models.criteria.choose_set import bootstrap_cost
from cloakwork.models.errors import ImportFaultError, warn_user
from cloakwork.models.original.agreement import difference
from cloakwork.models.original.onnx_file import answers_of
from cloakwork.training.instruments import instrumented
from cloakwork.training.noisy_max_pool import NoisyMaxPool
from cloakwork.training.pytorch import Tensor, torch
from cloakwork.training.simulation import (
    LookupNoise,
    LookupResult,
    RoundedLayer,
    RoundedOnes,
    RowsSeen,
    Simulating,
    range_penalty,
    set_simulated,
    settle,
)
from cloakwork.training.tracing import traced

__all__ = ["Prepared", "prepare", "trained_options"]

_OPSET: Final = 17
_TRIED: Final = 4  # drawn inputs with which a file is tried
_SETTLED_EVERY: Final = 4  # batches
_HOPEFUL: Final = 0.35  # of the output's spread: an error before training that training makes small enough
_SEED: Final = 20261122


class Prepared(torch.nn.Module):
    """A module made by `prepare`. In training, and in evaluation while `simulated` is set, values have the noise of encryption; otherwise it computes
    what the module does in evaluation."""

    def __init__(self, network: fx.GraphModule, noise: LookupNoise, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        self.network, self.noise, self.input_shape = network, noise, input_shape
        self._batches = 0

    @property
    def parameter_set(self) -> str:
        """The name of the set whose noise is simulated."""
        return self.noise.parameter_set

    @property
    def simulated(self) -> bool:
        """Whether look-ups round and are noisy as under encryption; set False for the network in clear."""
        return any(part.simulated for part in _simulating(self))

    @simulated.setter
    def simulated(self, value: bool) -> None:
        if value:
            settle(self)
        set_simulated(self, value)

    def forward(self, x: Tensor) -> Tensor:
        """Computes the network's output; while it is trained, ranges are learnt and noise is drawn."""
        if self.training:
            if self._batches % _SETTLED_EVERY == 0:
                _learn_ranges(self.network, x.detach())
                settle(self)
            self._batches += 1
        return cast(Tensor, self.network(x))

    def range_penalty(self) -> Tensor:
        """Returns a penalty for the loss, with a small factor such as 0.003: half range over standard deviation, mean over what look-ups see of the
        last batch."""
        return range_penalty(self)

    def plain(self) -> fx.GraphModule:
        """Copies the network without noise and rounding, in evaluation mode: what is exported."""
        copy = deepcopy(self.network).eval()
        for node in list(copy.graph.nodes):
            submodule = copy.get_submodule(node.target) if node.op == "call_module" else None
            if isinstance(submodule, RowsSeen | LookupResult | RoundedOnes):
                node.replace_all_uses_with(node.args[0])
                copy.graph.erase_node(node)
            elif isinstance(submodule, RoundedLayer | NoisyMaxPool):
                parent, _, child = node.target.rpartition(".")
                setattr(
                    copy.get_submodule(parent),
                    child,
                    submodule.inner if isinstance(submodule, RoundedLayer) else submodule.plain,
                )
        copy.delete_all_unused_submodules()
        copy.recompile()
        return copy

    def to_onnx(self) -> onnx.ModelProto:
        """Returns float weights, batch normalisation folded; one input of any batch size. ImportFaultError where the file says something else."""
        kind = next((p.dtype for p in self.parameters()), torch.float32)
        plain = self.plain().cpu()
        example = torch.randn(_TRIED, *self.input_shape, dtype=kind, generator=torch.Generator().manual_seed(_SEED))
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter says that it is the old one
            torch.onnx.export(
                plain,
                (example[:2],),
                cast(Any, buffer),
                dynamo=False,
                input_names=["input"],
                output_names=["output"],
                dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
                opset_version=_OPSET,
            )
        model = onnx.load_from_string(buffer.getvalue())
        answers = answers_of(model, ["output"], {"input": example.numpy()})
        if answers is not None:
            _judge(_clear(plain, example[: answers.samples]), answers.outputs["output"], "exported")
        return model

    def export(self, path: str | Path) -> None:
        """Writes the trained network as ONNX, for `cloakwork.compile` or `cloakwork compile`."""
        Path(path).write_bytes(self.to_onnx().SerializeToString())


def prepare(
    module: torch.nn.Module,
    example_input: Tensor | NDArray[Any],
    *,
    parameter_set: str | None = None,
    structured: bool = False,
) -> Prepared:
    """Copies a module for a few epochs of training under the noise of a parameter set; the module stays as it is.

    Batch normalisation is folded with the statistics that it has, so a network with it is trained before.

    Args:
        module: of linear layers, convolutions, pools, sums and functions of single numbers, as modules or in a forward of its own; one input
            and one output, the batch first.
        example_input: [batch, ..], typical inputs, a tensor or an array; ranges start from them, so a batch or more is better than one sample.
        parameter_set: whose noise it is; one that is cheaper than what the compiler takes for the module saves time, the same one gains
            accuracy. None: the cheapest under which the output's error, before training, is at most a third of its spread.
        structured: sets whose small key is block-binary may be taken (docs/reference/parameters.md).

    Raises:
        UnsupportedModuleError: names every step that cannot be simulated.
        ParameterError: no parameter set has this name, or it has a structured secret and nobody asked for one.
        ImportFaultError: without noise the copy says something else than the module in evaluation.
    """
    given = None if parameter_set is None else LookupNoise.of(parameter_set)
    if parameter_set is not None:
        require_structured(set_of(parameter_set), structured)
        require_common_mask(set_of(parameter_set), False)
    names = _sets_by_cost(structured)
    example = _checked_example(example_input)
    example = example.to(next(module.parameters(), example))
    graph = traced(module)
    _warn_of_untrained(module)
    network = instrumented(graph, example, given or LookupNoise.of(names[-1])).to(example)
    _learn_ranges(network, example)
    prepared = Prepared(network, given or _cheapest_hopeful(network, example, names), tuple(example.shape[1:]))
    _use(network, prepared.noise)
    _judge(_clear(module, example), _clear(prepared.plain(), example), "prepared")
    return prepared.train(module.training)


def trained_options(model: Prepared) -> dict[str, Any]:
    """Return options of `cloakwork.compile`: the parameter set that was trained for."""
    structured = set_of(model.parameter_set).structured_secret
    return {"sets": [model.parameter_set], **({"structured": True} if structured else {})}


def _clear(module: torch.nn.Module, x: Tensor) -> NDArray[Any]:
    """Returns what a module says in evaluation; it stays in the mode in which it is."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            return np.asarray(module(x).detach().cpu().numpy())
    finally:
        for part, training in modes:
            part.training = training


def _judge(expected: NDArray[Any], actual: NDArray[Any], stage: str) -> None:
    wrong = difference(expected, actual)
    if wrong is not None:
        raise ImportFaultError(f"module: as {stage} it {wrong.text}: this is a fault of cloakwork, please report it")


def _checked_example(example: Any) -> Tensor:
    if isinstance(example, np.ndarray) and example.dtype.kind in "biuf":
        example = torch.from_numpy(example.astype(np.float32))
    if not isinstance(example, Tensor) or not example.is_floating_point() or example.ndim < 2 or not len(example):
        raise ValueError(
            "prepare: expected example_input as a tensor or array of real numbers [batch, ..] with at least one sample"
        )
    if not bool(torch.isfinite(example).all()):
        raise ValueError("prepare: example_input has numbers that are not finite")
    return example.detach()


def _warn_of_untrained(module: torch.nn.Module) -> None:
    for name, part in module.named_modules():
        tracked = getattr(part, "num_batches_tracked", None)
        if isinstance(tracked, Tensor) and not int(tracked):
            warn_user(
                f"prepare: '{name}' ({type(part).__name__}) has seen no batch; it is folded as it is, so train the module before"
            )
            return


def _sets_by_cost(structured: bool) -> list[str]:
    """Returns all that the compiler chooses from."""
    return [params.name for params in sorted(approximate_sets(offered_sets(structured)), key=bootstrap_cost)]


def _cheapest_hopeful(network: fx.GraphModule, example: Tensor, names: list[str]) -> LookupNoise:
    network.eval()
    devices = [example.device] if example.device.type == "cuda" else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        clear = network(example)
        spread = float((clear - clear.mean(dim=0)).square().mean())
        for name in names:
            torch.manual_seed(_SEED)
            _use(network, LookupNoise.of(name))
            set_simulated(network, True)
            error = float((network(example) - clear).square().mean())
            set_simulated(network, False)
            if error <= _HOPEFUL**2 * spread:
                break
    return LookupNoise.of(name)


def _use(network: fx.GraphModule, noise: LookupNoise) -> None:
    for part in network.modules():
        if isinstance(part, RowsSeen | LookupResult):
            part.noise = noise
    settle(network)


def _simulating(module: torch.nn.Module) -> Iterator[Simulating]:
    return (part for part in module.modules() if isinstance(part, Simulating))


def _learn_ranges(network: fx.GraphModule, x: Tensor) -> None:
    """A pass in evaluation mode, without noise, from which ranges and scales follow."""
    modes = [(part, part.training) for part in network.modules()]
    network.eval()
    for part in _simulating(network):
        part.training = part.quiet = True
    with torch.no_grad():
        network(x)
    for part in _simulating(network):
        part.quiet = False
    for module, training in modes:
        module.training = training
