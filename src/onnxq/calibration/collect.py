"""Ranges of activations: run the float model on the calibration data and look.

The looking is done inside the graph. Every tensor asked for gets three reductions, and only their scalars leave the
runtime, so memory doesn't grow with the number of tensors or of samples:

              +-> ReduceMin -> low
    tensor ---+-> ReduceMax -> high
              +-> ReduceSum -> not finite if an element is NaN or infinite (the other two may miss a NaN)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxq.calibration.extract import extract
from onnxq.calibration.ranges import Range, Ranges
from onnxq.calibration.runtime import open_session, run, serialize
from onnxq.errors import CalibrationError
from onnxq.protos import NameSource, describe, opset_version
from onnxq.tensor_types import FLOAT_TYPES, value_type

_Probe = Callable[[str, Callable[[str], str]], tuple[list[NodeProto], list[str]]]
"""(tensor, source of new names) -> nodes that look at the tensor, and their scalar outputs."""


def collect_max(
    model: ModelProto,
    tensors: Sequence[str],
    feeds: Iterable[Mapping[str, Any]],
    *,
    progress: Callable[[int], None] | None = None,
    optimize: bool = False,
) -> Ranges:
    """Least and greatest value of each tensor over all samples ("max" calibration).

    Only the ancestors of the tensors are run: a part of the model behind them that the runtime refuses does no harm.
    The feeds are walked once, holding one at a time; their shapes may differ. The runtime computes float16 in float32,
    so bounds of float16 tensors may be those before rounding.

    Args:
        model: The float model, prepared: topologically sorted, types known. It isn't modified.
        tensors: Float tensors of the main graph; graph inputs and outputs may be among them.
        feeds: One mapping of input name to array a run; inputs that the tensors don't need are ignored.
        progress: Called after each run with the number of runs so far.
        optimize: Whether the runtime may rewrite the graph. Off, the ranges are those of the model as written.

    Returns:
        A range for each tensor that had an element in some sample; the others are in `never_finite`.

    Raises:
        ValueError: A name is no tensor of the main graph, or known to be no float tensor.
        CalibrationError: There are no samples, the model doesn't load or run, or an element is NaN or infinite.
        UnsupportedError: The model is too large for the runtime to take as one message.
    """
    names = list(dict.fromkeys(tensors))
    session = open_session(serialize(_probing(model, names, _bounds)), optimize=optimize) if names else None
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    number = 0
    for feed in feeds:
        if session is not None:
            where = f"calibration sample {number}"
            least, greatest, total = _scalars(run(session, feed, where), 3)
            empty = least > greatest
            doubtful = ~np.isfinite(total) | ~(empty | (np.isfinite(least) & np.isfinite(greatest)))
            if doubtful.any():
                _refuse_non_finite(model, [names[i] for i in np.flatnonzero(doubtful)], feed, where)
            np.minimum(low, least, out=low)
            np.maximum(high, greatest, out=high)
        del feed  # not to keep it alive while the next one is made
        number += 1
        if progress is not None:
            progress(number)
    if not number:
        raise CalibrationError("calibration data: no samples")
    seen = low <= high
    return Ranges(
        {name: Range(float(low[i]), float(high[i])) for i, name in enumerate(names) if seen[i]},
        tuple(name for i, name in enumerate(names) if not seen[i]),
    )


def _bounds(tensor: str, fresh: Callable[[str], str]) -> tuple[list[NodeProto], list[str]]:
    outputs = [fresh(f"{tensor}_{what}") for what in ("low", "high", "sum")]
    ops = ("ReduceMin", "ReduceMax", "ReduceSum")
    return [helper.make_node(op, [tensor], [o], keepdims=0) for op, o in zip(ops, outputs, strict=True)], outputs


def _finite(tensor: str, fresh: Callable[[str], str]) -> tuple[list[NodeProto], list[str]]:
    """A finite x minus itself is 0, any other is NaN: the sum of that tells, and can't overflow as the sum of x can."""
    zero, total = fresh(f"{tensor}_zero"), fresh(f"{tensor}_total")
    nodes = [
        helper.make_node("Sub", [tensor, tensor], [zero]),
        helper.make_node("ReduceSum", [zero], [total], keepdims=0),
    ]
    return nodes, [total]


def _probing(model: ModelProto, tensors: Sequence[str], probe: _Probe) -> ModelProto:
    """The part of the model that computes the tensors, with a probe on each and the probes' results as its outputs."""
    types = _element_types(model)
    part = extract(model, tensors)
    graph = part.graph
    del graph.output[:]
    for value in graph.input:
        _open_dims(value)
    if not opset_version(part):
        part.opset_import.append(helper.make_opsetid("", 13))
    fresh = NameSource(part).fresh
    for tensor in tensors:
        source, kind = tensor, types.get(tensor, TensorProto.UNDEFINED)
        if kind not in FLOAT_TYPES and kind != TensorProto.UNDEFINED:
            raise ValueError(
                f'"{tensor}" is {TensorProto.DataType.Name(kind).lower()}, only float tensors have a range'
            )
        if kind not in (TensorProto.FLOAT, TensorProto.DOUBLE):  # the runtime reduces no 16-bit floats
            source = fresh(f"{tensor}_wide")
            wide = TensorProto.DOUBLE if kind == TensorProto.UNDEFINED else TensorProto.FLOAT
            graph.node.append(helper.make_node("Cast", [tensor], [source], to=wide))
        nodes, outputs = probe(source, fresh)
        graph.node.extend(nodes)
        graph.output.extend(onnx.ValueInfoProto(name=o) for o in outputs)
    return part


def _element_types(model: ModelProto) -> dict[str, int]:
    graph = model.graph
    declared = {v.name: value_type(v.type).elem_type for v in (*graph.value_info, *graph.output, *graph.input)}
    return {**declared, **{t.name: t.data_type for t in graph.initializer}}


def _open_dims(value: onnx.ValueInfoProto) -> None:
    """Forget dims declared 0 or negative, as the check of the feeds does; the runtime takes a 0 at its word."""
    for dim in value.type.tensor_type.shape.dim:
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value <= 0:
            dim.Clear()


def _scalars(values: Sequence[NDArray[Any]], columns: int) -> NDArray[np.float64]:
    """Results of the probes in float64, shape [columns, tensors]."""
    return np.array(values, dtype=np.float64).reshape(-1, columns).T


def _refuse_non_finite(model: ModelProto, tensors: Sequence[str], feed: Mapping[str, Any], where: str) -> None:
    """Raise if one of the tensors really holds NaN or infinity: a sum may just have overflowed."""
    totals = run(open_session(serialize(_probing(model, tensors, _finite))), feed, where)
    broken = {name for name, total in zip(tensors, totals, strict=True) if not np.isfinite(total)}
    if not broken:
        return
    for value in extract(model, sorted(broken)).graph.input:
        array = feed.get(value.name)
        if isinstance(array, np.ndarray) and array.dtype.kind in "fV" and not np.isfinite(array).all():
            raise CalibrationError(
                f'{where} holds NaN or infinity in input "{value.name}", so tensor "{_first(model, broken)[0]}" has no '
                "range: drop or repair the sample"
            )
    tensor, producer = _first(model, broken)
    raise CalibrationError(
        f'tensor "{tensor}" ({producer}) holds NaN or infinity on {where}: '
        "drop the sample, or exclude the nodes that read the tensor"
    )


def _first(model: ModelProto, tensors: set[str]) -> tuple[str, str]:
    """Of some tensors the first that the model computes, and what it is."""
    for value in model.graph.input:
        if value.name in tensors:
            return value.name, "graph input"
    outputs = ((name, node) for node in model.graph.node for name in node.output if name in tensors)
    tensor, node = next(outputs, (min(tensors), None))
    return tensor, "initializer" if node is None else f"output of {describe(node)}"
