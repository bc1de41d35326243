"""The blame for an import that fails unforeseen: ONNX Runtime is asked whether the file is valid."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import onnx

from cloakwork.models.errors import CompileError, ImportFaultError, Problem, fault_report, unsupported

UNFORESEEN: Final = (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError, ArithmeticError)
"""What a function raises at constants and attributes that are not as ONNX has them, and at what its author did not think of."""

_LARGEST: Final = 1 << 28  # bytes of a file that others are asked about
_SECONDS: Final = 30
_LONGEST: Final = 200
# What ONNX Runtime writes before a reason: its name, numbers, source files and the signatures of its functions.
_PLACES: Final = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : |\S+/onnxruntime/\S+ .*?\) (?=\S)")
_STARTED: Final = "started"
# In a process of its own, with bounded memory (where the system has a bound): a file that nobody should have written may end it. Prints a line when
# it has what it needs, and the reason if the file is refused.
_ASKED: Final = f"""
import contextlib, sys
import numpy, onnx, onnx.reference
from onnx.helper import tensor_dtype_to_np_dtype
with contextlib.suppress(ImportError, OSError, ValueError):
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
print("{_STARTED}", flush=True)
data = sys.stdin.buffer.read()
try:
    proto = onnx.load_from_string(data)
    inputs = dict()
    for each in proto.graph.input:
        if each.name not in [tensor.name for tensor in proto.graph.initializer]:
            kind = each.type.tensor_type
            inputs[each.name] = numpy.zeros([d.dim_value or 1 for d in kind.shape.dim], tensor_dtype_to_np_dtype(kind.elem_type))
    try:
        import onnxruntime
        from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, inputs)
    except ImportError:
        onnx.reference.ReferenceEvaluator(proto).run(None, inputs)
    except NotImplemented:
        onnx.reference.ReferenceEvaluator(proto).run(None, inputs)
except Exception as error:
    print(" ".join(str(error).split()) or "it is refused")
"""


def refusal(model: onnx.ModelProto) -> str | None:
    """Returns why ONNX Runtime (onnx's reference, without a kernel) refuses a model or a run on zeros; None: it does not, or cannot be asked."""
    if model.ByteSize() > _LARGEST:
        return None
    try:
        done = subprocess.run(
            [sys.executable or "", "-P", "-c", _ASKED],  # -P: no module of the folder in which the user is
            input=model.SerializeToString(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        return f"ONNX Runtime has not read it after {_SECONDS} s"
    started, _, reason = done.stdout.decode(errors="replace").partition("\n")
    if started.strip() != _STARTED:
        return None
    if done.returncode:
        return "ONNX Runtime ends at it"
    text = _PLACES.sub("", reason).strip()
    return f"ONNX Runtime says: {text[:_LONGEST]}" if text else None


def failed_nodes(
    model: onnx.ModelProto, opset: int, failures: Sequence[tuple[str, str, Exception]], problems: Sequence[Problem]
) -> CompileError:
    """Returns the error for nodes at which an operator's function raised something unforeseen.

    Args:
        failures: label, operator and error of each.
        problems: those of other nodes, which the error names too.
    """
    reason = refusal(model)
    if reason is not None:
        invalid = [
            Problem(label, operator, f"is not valid ONNX of opset {opset} ({' '.join(str(error).split())}; {reason})")
            for label, operator, error in failures
        ]
        return unsupported([*problems, *invalid])
    label, operator, error = failures[0]
    return _fault(
        f"node '{label}' ({operator}) is not refused by ONNX Runtime", error, [f"{operator} of opset {opset}"]
    )


def failed_file(model: onnx.ModelProto, error: Exception) -> CompileError:
    """Returns the error for a file at which something outside of single nodes raised what nobody foresaw."""
    reason = refusal(model)
    if reason is not None:
        return CompileError(f"model: it is not valid ONNX ({reason}); export it again")
    return _fault("ONNX Runtime does not refuse it", error, sorted({node.op_type for node in model.graph.node}))


def _fault(what: str, error: Exception, facts: Sequence[str]) -> ImportFaultError:
    return ImportFaultError(
        f"model: {what}, but the import failed: a fault of cloakwork, not of your model; please report it with the file "
        f"{fault_report(error, facts)}, which holds no data of yours"
    )
