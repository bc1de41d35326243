"""`cloakwork.compile`: one way from a trained model to an encrypted one."""

from __future__ import annotations

import io
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import how_to_install
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.compile.pipeline import OnStep
from cloakwork.models.compiler import compile_file
from cloakwork.models.errors import CompileError, ImportFaultError
from cloakwork.models.options import Options, on_device
from cloakwork.models.original.agreement import difference
from cloakwork.models.original.onnx_file import answers_of

if TYPE_CHECKING:
    from cloakwork.models.batches.model import BatchModel
    from cloakwork.models.compiled import CompiledModel
    from cloakwork.models.neighbours.index import NeighbourIndex

_OPSET: Final = 17
_TRIED: Final = 8  # samples with which an exported module is tried, other than the one that it was exported with


@overload
def compile(
    model: onnx.ModelProto | str | Path | bytes,
    samples: Any = None,
    options: Options | None = None,
    *,
    on_step: OnStep | None = None,
    **named: Any,
) -> CompiledModel: ...
@overload
def compile(
    model: Any, samples: Any = None, options: Options | None = None, *, on_step: OnStep | None = None, **named: Any
) -> Any: ...
def compile(
    model: Any, samples: Any = None, options: Options | None = None, *, on_step: OnStep | None = None, **named: Any
) -> CompiledModel | BatchModel | NeighbourIndex:
    """Compile a trained model for encrypted samples.

    Args:
        model: a fitted estimator or pipeline of scikit-learn, XGBoost, LightGBM or CatBoost; a PyTorch module; or an ONNX model as a path, the
            bytes of a file or a proto.
        samples: a few hundred typical inputs [samples, ..], such as training data: they set the ranges of values, and the compiled model is
            compared with yours on them. Models with several inputs take a dict of arrays by name or a tuple in the model's order. Quantised
            ONNX models need none.
        options: what is asked for; or the fields of `cloakwork.Options` by name, such as `accuracy=0.99` or `tell="labels"`.
        on_step: called with the name of each step of the compiler, and the graph after it.

    Returns:
        A `cloakwork.Model`; of nearest neighbours an index. With `batch=`, and of kernel machines, a model for many samples at once.

    Raises:
        UnsupportedOperatorError: a part of the model has no encrypted counterpart; names it.
        AccuracyError: no program reaches the accuracy.
        NoParameterSetError, PrecisionOverflowError: no parameter set has room for it.
        CompileError: another kind of model, an option that this kind does not have, samples of another shape.

    Warns:
        AccuracyWarning: the samples are too few to show the accuracy, or with `allow_loss` it is not reached.
    """
    chosen = Options.of(options, named)
    return on_device(_compiled(model, samples, chosen, on_step), chosen)


def _compiled(
    model: Any, samples: Any, chosen: Options, on_step: OnStep | None
) -> CompiledModel | BatchModel | NeighbourIndex:
    if isinstance(model, onnx.ModelProto | str | Path | bytes):
        return compile_file(model, samples, chosen, on_step)
    torch = sys.modules.get("torch")  # whoever has a module has imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        return compile_file(exported(model, samples), _numbers(samples), _for_module(model, chosen), on_step)
    if _is_neighbours(model):
        from cloakwork import estimators

        index: NeighbourIndex = getattr(estimators, type(model).__name__).from_sklearn(model).compile(samples, chosen)
        return index
    if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "predict")):
        raise CompileError(
            f"model: expected a fitted estimator, a PyTorch module or an ONNX model (path, bytes or proto), got {_what(model)}"
        )
    if chosen.batch is not None or _is_kernel_machine(model):
        from cloakwork.training.batch_compiler import compile_estimator_batch

        return compile_estimator_batch(model, samples, chosen)
    from cloakwork.training.sklearn_compiler import compile_estimator

    return compile_estimator(model, samples, chosen, on_step)


def _what(model: Any) -> str:
    name = type(model).__name__
    if isinstance(model, type):
        return f"the class {model.__name__}; make one, {model.__name__}(..), and train it"
    if name == "Booster":
        return f"{name}; train XGBClassifier, LGBMClassifier or their regressors, which keep the labels"
    if name in ("dict", "OrderedDict"):
        return f"{name}; load a state_dict into its module"
    return name


# --- scikit-learn ---


def _named(model: Any, *names: str) -> bool:
    """Whether it is an estimator of scikit-learn with one of these names, or of a class that extends one."""
    return any(cls.__name__ in names and cls.__module__.startswith("sklearn.") for cls in type(model).__mro__)


def _is_neighbours(model: Any) -> bool:
    return _named(model, "KNeighborsClassifier", "KNeighborsRegressor")


def _is_kernel_machine(model: Any) -> bool:
    last = model.steps[-1][1] if _named(model, "Pipeline") and model.steps else model
    return _named(last, "SVC", "NuSVC", "SVR", "NuSVR")


# --- PyTorch ---


def exported(module: Any, samples: Any) -> onnx.ModelProto:
    """Exports a module as an ONNX model, in evaluation mode; the module stays as it is.

    Args:
        samples: typical inputs [samples, ..] as arrays or tensors; of several inputs a tuple in the order of the module's forward.

    Raises:
        CompileError: no samples, or PyTorch cannot export it; names its reason.
        ImportFaultError: the exported model says something else than the module.
    """
    import torch

    if samples is None or isinstance(samples, dict):
        raise CompileError("samples: expected typical inputs of the module, an array or a tuple of arrays, got none")
    if _is_prepared(module):
        return module.to_onnx()  # type: ignore[no-any-return]
    parts = samples if isinstance(samples, tuple) else (samples,)
    kind = next((each.dtype for each in module.parameters() if each.is_floating_point()), torch.float32)
    device = next((each.device for each in module.parameters()), torch.device("cpu"))
    tensors = tuple(_tensor(part, kind).to(device) for part in parts)
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        example = tuple(each[:1] for each in tensors)
        _check_takes(module, example)
        proto = _export(module, example)
        _check_export(module, proto, tuple(each[1 : 1 + _TRIED] for each in tensors))
    finally:
        for part, training in modes:
            part.training = training
    return proto


def _tensor(samples: Any, kind: Any) -> Any:
    import torch

    try:
        tensor = torch.as_tensor(samples if isinstance(samples, torch.Tensor) else np.asarray(samples)).detach()
    except (TypeError, ValueError) as error:
        raise CompileError(
            f"samples: expected typical inputs of the module, an array or a tensor [samples, ..], got {type(samples).__name__}"
        ) from error
    return tensor.to(kind) if tensor.is_floating_point() else tensor


def _check_takes(module: Any, example: tuple[Any, ...]) -> None:
    """Checks that the module itself takes a sample; PyTorch's exporter says it less clearly."""
    import torch

    try:
        with torch.no_grad():
            module(*example)
    except Exception as error:
        shapes = ", ".join(f"{list(each.shape)} of {str(each.dtype).removeprefix('torch.')}" for each in example)
        raise CompileError(
            f"samples: {type(module).__name__} itself refuses the first one, {shapes} ({str(error).partition(chr(10))[0][:300]}); give samples "
            "[samples, ..] as it was trained on"
        ) from error


def _export(module: Any, example: tuple[Any, ...]) -> onnx.ModelProto:
    """By tracing; by PyTorch's newer exporter where that fails."""
    import torch

    inputs = ["input"] if len(example) == 1 else [f"input_{number}" for number in range(len(example))]
    buffer, reasons = io.BytesIO(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the older exporter, that there is a newer one
        try:
            axes = {name: {0: "batch"} for name in inputs}
            torch.onnx.export(
                module,
                example,
                buffer,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=_OPSET,
                input_names=inputs,
                dynamic_axes=axes,
            )
            return onnx.load_from_string(buffer.getvalue())
        except Exception as error:
            reasons.append(error)
        try:
            batch = torch.export.Dim("batch")
            shapes = tuple({0: batch} for _ in example)
            two = tuple(torch.cat([each, each]) for each in example)  # of one the exporter makes a constant
            program = torch.onnx.export(
                module, two, dynamo=True, input_names=inputs, dynamic_shapes=shapes, verbose=False
            )
            return program.model_proto  # type: ignore[union-attr]
        except ModuleNotFoundError as error:
            if error.name and error.name.startswith("onnxscript"):
                reasons.append(CompileError(f"the newer exporter needs onnxscript: {how_to_install('train')}"))
            else:
                reasons.append(error)
        except Exception as error:
            reasons.append(error)
    lines = "; ".join(str(each).strip().partition("\n")[0][:300] for each in reasons)
    raise CompileError(f"model: PyTorch cannot export {type(module).__name__} as ONNX ({lines})")


def _check_export(module: Any, proto: onnx.ModelProto, tensors: tuple[Any, ...]) -> None:
    """Tries samples other than the one that was traced: a branch on values would be frozen in the file."""
    import torch

    if not len(tensors[0]):
        return
    with torch.no_grad():
        returned = module(*tensors)
    outputs = (
        [returned]
        if isinstance(returned, torch.Tensor)
        else list(returned.values() if isinstance(returned, dict) else returned)
    )
    names = [each.name for each in proto.graph.output]
    given = {each.name: tensor.cpu().numpy() for each, tensor in zip(proto.graph.input, tensors, strict=False)}
    answers = answers_of(proto, names, given)
    if answers is None:
        return
    for name, expected in zip(names, outputs, strict=False):
        wrong = difference(expected.detach().cpu().numpy()[: answers.samples], answers.outputs[name])
        if wrong is not None:
            raise ImportFaultError(
                f"{type(module).__name__}: as exported to ONNX it {wrong.text} at output '{name}'; a branch on values "
                "of the input is frozen in an exported model"
            )


def _numbers(samples: Any) -> Any:
    """Returns tensors as arrays."""
    if isinstance(samples, tuple):
        return tuple(_numbers(each) for each in samples)
    numbers: NDArray[Any] = samples.detach().cpu().numpy() if hasattr(samples, "detach") else np.asarray(samples)
    return numbers


def _is_prepared(module: Any) -> bool:
    """Whether it is of `prepare`, which exports itself."""
    from cloakwork.training.preparation import Prepared

    return isinstance(module, Prepared)


def _for_module(module: Any, options: Options) -> Options:
    """With the parameter set that a prepared module was trained for."""
    if options.sets is not None or not _is_prepared(module):
        return options
    name = str(module.parameter_set)
    return replace(options, sets=(name,), structured=options.structured or parameter_set(name).structured_secret)
