"""Half precision for a whole model: what the quantizer does with what it doesn't quantize, and the same alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from onnxq.calibration import CalibrationData, Range, Setup, collect_max, evaluate_constants, make_feeds
from onnxq.errors import UsageError, VerificationError
from onnxq.graph import GraphIndex, Use, build_index
from onnxq.model_io import PathLike, check_writable, load_model, model_files, save_model, why_invalid
from onnxq.placement.selection import matching_nodes, nodes_of_types
from onnxq.precision import (
    Assignment,
    Kept,
    Operators,
    assign,
    computed_constants,
    float_activations,
    overflows,
    simplify_casts,
    unsuited_nodes,
    write_precision,
)
from onnxq.protos import describe, raise_ir_version, walk_graphs
from onnxq.shapes import Prepared, infer_types, prepare

HALF_TYPES: Mapping[str, int] = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
"""The half-precision types by the names that options give them."""

HALF_SCALE_OPSET = 19
"""First opset whose QuantizeLinear and DequantizeLinear take half-precision scales."""

BFLOAT16_OPSET = 22
"""First opset whose Conv takes bfloat16; earlier ones would leave most of a network in float32."""


@dataclass(frozen=True, slots=True)
class KeptFloat:
    """A node that stays float32.

    Attributes:
        node: How messages name it.
        why: Why.
    """

    node: str
    why: Kept


@dataclass(frozen=True)
class Lowered:
    """A model in half precision.

    Attributes:
        model: The model.
        kept: The nodes that stay float32, and why.
    """

    model: onnx.ModelProto
    kept: tuple[KeptFloat, ...]


def least_opset(half: str, *, quantized: bool) -> int:
    """The opset that a half-precision type needs; 1 if any does."""
    if half == "bf16":
        return BFLOAT16_OPSET
    return HALF_SCALE_OPSET if half == "fp16" and quantized else 1


def lower(
    prepared: Prepared,
    half: str,
    *,
    keep_io_types: bool = True,
    op_types_to_exclude: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    also_excluded: Set[int] = frozenset(),
    seen: Mapping[str, Range] = MappingProxyType({}),
) -> Lowered:
    """Lower a prepared model, which is used up by that.

    Args:
        prepared: The model and its types; its opset must be high enough already.
        half: "fp16" or "bf16".
        keep_io_types: Whether float32 inputs and outputs stay float32, with Casts at the boundary.
        op_types_to_exclude: Op types that stay float32.
        nodes_to_exclude: Regular expressions; nodes whose whole name matches one stay float32.
        also_excluded: Numbers of further nodes that stay float32.
        seen: Key of a tensor -> the least and the greatest value that calibration saw of it. What holds values beyond
            the range of the type stays float32.

    Returns:
        The lowered model, and what stayed float32.

    Raises:
        UsageError: A pattern matches nothing, or an op type is unknown.
    """
    model, low = prepared.model, HALF_TYPES[half]
    raise_ir_version(model)
    index = build_index(model, prepared.types)
    excluded = nodes_of_types(index, "op_types_to_exclude_fp16", op_types_to_exclude)
    excluded |= matching_nodes(index, "nodes_to_exclude_fp16", nodes_to_exclude)
    excluded |= also_excluded
    assignment = assign(
        Operators(model, low),
        index,
        low,
        excluded=excluded,
        beyond=_beyond(index, low, seen),
        computed=_computed(model, index),
    )
    kept = _kept(index, assignment)
    write_precision(model, index, assignment, low, keep_io_types=keep_io_types)
    simplify_casts(model, infer_types(model)[0])
    return Lowered(model, kept)


def convert(
    model: PathLike | onnx.ModelProto,
    *,
    keep_io_types: bool = True,
    low_precision_type: str = "fp16",
    op_types_to_exclude: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    output_path: PathLike | None = None,
) -> Lowered:
    """Convert a model to half precision, without quantizing it, and tell what stayed float32.

    Args:
        model: An ONNX file or a model in memory; neither is changed.
        keep_io_types: Whether float32 inputs and outputs stay float32, with Casts at the boundary.
        low_precision_type: "fp16" or "bf16".
        op_types_to_exclude: Op types that stay float32.
        nodes_to_exclude: Regular expressions; nodes whose whole name matches one stay float32.
        output_path: Where to save the result; None doesn't save.

    Returns:
        The converted model, and what stayed float32.

    Raises:
        UsageError: An argument has an unknown value, or a pattern matches nothing.
        InvalidModelError: The model is no usable model.
    """
    lowered = lower(
        _prepare(model, low_precision_type, output_path),
        low_precision_type,
        keep_io_types=keep_io_types,
        op_types_to_exclude=op_types_to_exclude,
        nodes_to_exclude=nodes_to_exclude,
    )
    return _finish(lowered, model, output_path)


def convert_to_f16(model: PathLike | onnx.ModelProto, *, keep_io_types: bool = True, **options: Any) -> onnx.ModelProto:
    """Like `convert`, for who wants the model only.

    Args:
        model: An ONNX file or a model in memory; neither is changed.
        keep_io_types: Whether float32 inputs and outputs stay float32.
        **options: As in `convert`.

    Returns:
        The converted model.
    """
    return convert(model, keep_io_types=keep_io_types, **options).model


def convert_to_mixed_precision(
    model: PathLike | onnx.ModelProto,
    *,
    keep_io_types: bool = False,
    low_precision_type: str = "fp16",
    op_types_to_exclude: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    data_max: float = 512.0,
    init_max: float = 65504.0,
    max_depth_of_reduction: int | None = None,
    calibration_data: CalibrationData | None = None,
    calibration_shapes: Mapping[str, Sequence[int]] | None = None,
    output_path: PathLike | None = None,
) -> onnx.ModelProto:
    """Convert those nodes to half precision whose values suit it, as a reference run shows.

    Args:
        model: An ONNX file or a model in memory; neither is changed.
        keep_io_types: Whether float32 inputs and outputs stay float32.
        low_precision_type: "fp16" or "bf16".
        op_types_to_exclude: Op types that stay float32.
        nodes_to_exclude: Regular expressions; nodes whose whole name matches one stay float32.
        data_max: A node stays float32 if an activation that it reads or yields exceeds this in magnitude.
        init_max: A node stays float32 if a constant that it reads exceeds this in magnitude.
        max_depth_of_reduction: A linear node stays float32 if it sums up more products than this; None for no limit.
        calibration_data: Samples for the reference run, as in `onnxq.quantize`.
        calibration_shapes: Shapes of the made-up sample where there are no data.
        output_path: Where to save the result; None doesn't save.

    Returns:
        The converted model.

    Raises:
        UsageError: An argument has an unknown value, or a pattern matches nothing.
        InvalidModelError: The model is no usable model.
        CalibrationError: The model doesn't run on the samples.
    """
    prepared = _prepare(model, low_precision_type, output_path)
    feeds = make_feeds(prepared.model, calibration_data, shapes=calibration_shapes)
    index = build_index(prepared.model, prepared.types)
    tensors = [index.tensor_names[t] for t in float_activations(index)]
    ranges = collect_max(prepared.model, tensors, feeds, setup=Setup(types=prepared.types))
    unsuited = unsuited_nodes(
        index, ranges, data_max=data_max, init_max=init_max, max_depth_of_reduction=max_depth_of_reduction
    )
    lowered = lower(
        prepared,
        low_precision_type,
        keep_io_types=keep_io_types,
        op_types_to_exclude=op_types_to_exclude,
        nodes_to_exclude=nodes_to_exclude,
        also_excluded=unsuited,
    )
    return _finish(lowered, model, output_path).model


def _prepare(model: PathLike | onnx.ModelProto, half: str, output_path: PathLike | None) -> Prepared:
    if half not in HALF_TYPES:
        raise UsageError(f"low_precision_type={half!r} is unknown, it can be: {', '.join(map(repr, HALF_TYPES))}")
    if output_path is not None:
        check_writable(output_path, inputs=_input_files(model))
    owned = not isinstance(model, onnx.ModelProto)
    loaded = model if isinstance(model, onnx.ModelProto) else load_model(model)
    quantized = any(
        node.op_type in ("QuantizeLinear", "DequantizeLinear")
        for graph in walk_graphs(loaded.graph)
        for node in graph.node
    )
    return prepare(loaded, min_opset=least_opset(half, quantized=quantized), copy=not owned)


def _finish(lowered: Lowered, source: PathLike | onnx.ModelProto, output_path: PathLike | None) -> Lowered:
    problem = why_invalid(lowered.model)
    if problem and not why_invalid(source if isinstance(source, onnx.ModelProto) else load_model(source)):
        raise VerificationError(f"the converted model is invalid, please report this: {problem}")
    if output_path is not None:
        save_model(lowered.model, output_path, inputs=_input_files(source))
    return lowered


def _input_files(model: PathLike | onnx.ModelProto) -> list[Path]:
    return [] if isinstance(model, onnx.ModelProto) else model_files(model)


def _computed(model: onnx.ModelProto, index: GraphIndex) -> Callable[[int], NDArray[Any] | None]:
    """Values of computed constants, those in bodies included."""
    keys = {tensor: index.key(Use(index.tensor_scope[tensor], tensor)) for tensor in computed_constants(index)}
    values = evaluate_constants(model, list(keys.values()))
    return lambda tensor: values[keys[tensor]] if tensor in keys else None


def _beyond(index: GraphIndex, low: int, seen: Mapping[str, Range]) -> set[int]:
    """The tensors at which there were values beyond the range of a half-precision type."""
    wide = {key for key, found in seen.items() if overflows(np.array([found.low, found.high]), low)}
    return {t for t, scope in enumerate(index.tensor_scope) if wide and index.key(Use(scope, t)) in wide}


def _kept(index: GraphIndex, assignment: Assignment) -> tuple[KeptFloat, ...]:
    return tuple(KeptFloat(describe(index.nodes[node]), why) for node, why in assignment.kept.items())
