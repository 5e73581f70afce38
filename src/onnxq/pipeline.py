"""The quantizer: load, prepare, index, place, calibrate, write Q/DQ, verify, save.

Each step is a function of the earlier steps' results. The placement is complete before anything is written, so it can
be printed, compared and explained (`plan`) without calibrating at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import chain

import numpy as np
import onnx
from onnx import TensorProto

from onnxq.calibration import (
    METHODS,
    CalibrationData,
    Calibrator,
    Feeds,
    GivenRanges,
    MemoryBound,
    Range,
    Ranges,
    Setup,
    Statistics,
    collect,
    evaluate_constants,
    make_feeds,
    pick_ranges,
    scale_vanishes,
    why_unrunnable,
)
from onnxq.convert import HALF_SCALE_OPSET, HALF_TYPES, KeptFloat, least_opset, lower
from onnxq.encoding import QuantizationParameters
from onnxq.errors import InvalidModelError, UnsupportedError, UsageError, VerificationError
from onnxq.graph import GraphIndex, build_index
from onnxq.model_io import PathLike, check_writable, load_model, model_files, save_model, why_invalid
from onnxq.placement import (
    TOO_SMALL,
    Placement,
    SelectionOptions,
    Unseen,
    activation_type_of,
    place,
    unfolded_normalizations,
    unseen_warnings,
    uses_of,
    why_unseen,
)
from onnxq.policies import CALIBRATION_METHODS, HIGH_PRECISION_DTYPES
from onnxq.protos import describe, opset_version, walk_nodes
from onnxq.rewrite import integer_interface, pair_up, strip_pairs, take_integers, write_pairs
from onnxq.scaling import pair_parameters
from onnxq.shapes import Change, Prepared, infer_types, prepare
from onnxq.storing import store_integers

PER_CHANNEL_OPSET = 13
"""First opset whose QuantizeLinear and DequantizeLinear take an axis."""

Progress = Callable[[str], None]
"""Told in a few words what is being done; called at the start of each step and after each calibration sample."""


@dataclass(frozen=True)
class Plan:
    """A model, prepared, and what would be quantized in it.

    Attributes:
        prepared: The prepared model.
        index: Its index.
        placement: The decision for each edge.
    """

    prepared: Prepared
    index: GraphIndex
    placement: Placement


@dataclass(frozen=True)
class QuantizationResult:
    """What came out of a quantization.

    Attributes:
        model: The quantized model. The heavy weights of a large one that was given by path stay in their files; save it
            with `output_path` or `onnxq.model_io.save_model`.
        placement: The decision for each edge of the prepared float model.
        ranges: Calibrated range of each quantized activation. Tensors that share a scale have their own ranges here.
        changes: What preparation changed in the model beside Q/DQ, and why.
        warnings: What the user should know.
        kept_float: Nodes that stay float32 when the rest becomes half precision, and why.
        integers: Inputs and outputs that are integers by `direct_io_types` -> what these mean:
            real = (integer - zero point) * scale.
    """

    model: onnx.ModelProto
    placement: Placement
    ranges: Ranges
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    kept_float: tuple[KeptFloat, ...] = ()
    integers: Mapping[str, QuantizationParameters] = field(default_factory=dict)


def quantize(
    model: PathLike | onnx.ModelProto,
    *,
    quantize_mode: str = "int8",
    calibration_data: CalibrationData | None = None,
    calibration_method: str | None = None,
    percentile: float = 99.99,
    calibration_shapes: Mapping[str, Sequence[int]] | None = None,
    calibration_cache_path: PathLike | None = None,
    ranges: GivenRanges | None = None,
    memory_limit: int | None = None,
    high_precision_dtype: str | None = None,
    policy: str = "tensorrt",
    activation_type: str | None = None,
    keep_io_types: bool | None = None,
    direct_io_types: bool = False,
    op_types_to_exclude_fp16: Sequence[str] | None = None,
    nodes_to_exclude_fp16: Sequence[str] | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    op_types_to_exclude: Sequence[str] | None = None,
    nodes_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
    quantize_outputs: bool = False,
    dq_only: bool = False,
    on_quantized: str = "error",
    output_path: PathLike | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> QuantizationResult:
    """Quantize a float model to 8-bit integers with explicit Q/DQ, placed as the kernels of the target want them.

    Args:
        model: An ONNX file or a model in memory. Neither is ever changed.
        quantize_mode: "int8".
        calibration_data: Samples to find the ranges of activations with: an .npz or .npy file, a dict of arrays
            (samples along the first axis), one array for a model with one input, an onnxruntime
            CalibrationDataReader, or any iterable of feeds. None makes up one random sample, with a warning.
        calibration_method: How the range of a tensor follows from its values: "entropy", "max", "percentile" or "mse".
            None is "entropy" for TensorRT and "max" for onnxruntime, or what `ranges` were collected for.
        percentile: For "percentile": how many of the values other than zero, in percent, aren't clipped.
        calibration_shapes: Input name -> shape of the made-up sample. Unknown dims are 1 otherwise.
        calibration_cache_path: A TensorRT calibration cache, in place of data.
        ranges: What an earlier calibration found, in place of data: from `onnxq.calibrate`, a file that
            `onnxq calibrate` wrote, or ranges by tensor.
        memory_limit: Bytes that the activations of one sample may take; the model is then run in segments.
        high_precision_dtype: Type of what isn't quantized: "fp16", "bf16", or "fp32", which leaves it as it is. None
            is "fp16" for TensorRT, and "fp32" for onnxruntime, whose CPU has no kernels for half precision.
        policy: Whose kernels the result is for: "tensorrt", or "onnxruntime" for those of its CPU.
        activation_type: Integer type of activations. With policy "tensorrt" it is "int8", symmetric; with
            "onnxruntime" it is "uint8" (the default) or "int8", asymmetric. Weights are symmetric int8.
        keep_io_types: Whether float32 inputs and outputs of the model stay float32 when the rest becomes half. None is
            yes, unless `direct_io_types` is given.
        direct_io_types: Whether inputs and outputs have the type of what stands behind them: integers where that is
            the Q of an input that nothing else reads, or the pair of an output (`quantize_outputs`); else half
            precision, as with `keep_io_types=False`. `integers` of the result says what the numbers mean.
        op_types_to_exclude_fp16: Op types that stay float32 when the rest becomes half.
        nodes_to_exclude_fp16: Regular expressions; nodes whose whole name matches one stay float32, likewise.
        op_types_to_quantize: Only these op types; by default Conv, ConvTranspose, Gemm, MatMul, residual Adds, pooling
            ops whose neighbours work in int8, and LayerNormalization behind a convolution. Of any other op type that
            is named, and of pooling ops and LayerNormalization then, all float data inputs get Q/DQ. With policy
            "onnxruntime" it is by default whatever has integer kernels there.
        op_types_to_exclude: Never these op types.
        nodes_to_quantize: Only nodes whose whole name matches one of these regular expressions.
        nodes_to_exclude: Never nodes whose whole name matches one of these.
        quantize_outputs: Whether outputs of the model that int8 kernels yield get Q/DQ. Names, types and shapes stay.
        dq_only: Whether weights, and constants that are quantized like them, are stored as integers with only a
            DequantizeLinear behind them. The file is smaller, what it computes is the same to the last bit.
        on_quantized: What to do with a model that holds Q/DQ already: "error" refuses it, "keep" keeps its pairs and
            adds none; the rest becomes half precision as ever.
        output_path: Where to save the result; None doesn't save.
        seed: Of the made-up sample.
        progress: Told what is being done.

    Returns:
        The quantized model, with the placement, the ranges, and what else was changed.

    Raises:
        UsageError: An argument has an unknown value or contradicts another, a pattern matches nothing, or the output
            can't be written or is an input.
        UnsupportedError: The arguments ask for what onnxq doesn't do, such as half precision for onnxruntime's CPU.
        InvalidModelError: The model is no usable float model.
        CalibrationError: The data don't fit the model, or it doesn't run on them.
    """
    integers = activation_type_of(policy, activation_type)
    if high_precision_dtype is None:
        high_precision_dtype = HIGH_PRECISION_DTYPES[policy]
    _check_choices(
        quantize_mode=(quantize_mode, ("int8",)),
        high_precision_dtype=(high_precision_dtype, ("fp32", *HALF_TYPES)),
        on_quantized=(on_quantized, ("error", "keep")),
    )
    if policy == "onnxruntime" and high_precision_dtype in HALF_TYPES:
        raise UnsupportedError(
            f"high_precision_dtype={high_precision_dtype!r} with policy={policy!r}: its CPU has no kernels for half "
            "precision, and no integer kernels beside such tensors; use 'fp32', the default of this policy"
        )
    keep_io_types = keeps_io_types(keep_io_types, direct_io_types)
    calibrator = make_calibrator(calibration_method, percentile, policy)
    given = _only_one(calibration_data=calibration_data, calibration_cache_path=calibration_cache_path, ranges=ranges)
    if seed < 0:
        raise UsageError(f"seed={seed} is negative, it can be 0 or more")
    if output_path is not None:
        check_writable(output_path, inputs=input_files(model, calibration_data, given))
    tell = progress or (lambda _: None)
    options = SelectionOptions(
        op_types_to_quantize, op_types_to_exclude, nodes_to_quantize, nodes_to_exclude, quantize_outputs
    )
    tell("preparing and placing")
    plan = make_plan(
        model,
        options,
        on_quantized=on_quantized,
        min_opset=max(PER_CHANNEL_OPSET, least_opset(high_precision_dtype, quantized=True)),
        policy=policy,
        activation_type=integers,
    )
    unrunnable = why_unrunnable(plan.index)
    if unrunnable:
        raise InvalidModelError(unrunnable)
    warnings = _warnings(plan, policy)
    activations = plan.placement.activations
    if given is not None:
        known = {*plan.index.tensor_names, *activations}
        picked = pick_ranges(given, activations, known, None if calibration_method is None else calibrator)
        found, missing = picked.source, picked.missing
        warnings += picked.warnings
    else:
        feeds = make_feeds(plan.prepared.model, calibration_data, shapes=calibration_shapes, seed=seed)
        if feeds.is_random and activations:
            warnings.append("no calibration data: the ranges come from one random sample, fit for tests only")
        found, missing = collect_statistics(plan, feeds, calibrator, memory_limit=memory_limit, tell=tell), ()
    own = found.ranges()
    unseen = why_unseen(plan.index, plan.placement, own.never_finite)
    unseen = {**unseen, **_too_small(plan, found.share(own, plan.placement.scale_groups))}
    warnings += unseen_warnings(plan.index, unseen)
    unseen = {**unseen, **dict.fromkeys(uses_of(plan.index, plan.placement, missing), "has no scale in the cache")}
    while unseen:
        again = place(plan.index, options, unseen=unseen, policy=policy, activation_type=integers)
        plan = replace(plan, placement=again)
        others = [key for key in again.activations if key not in own]  # what is stored elsewhere now
        if not others:
            break
        unseen |= dict.fromkeys(uses_of(plan.index, again, others), "wasn't looked at")
    tell("writing Q/DQ")
    quantized, kept = _write(plan, found.share(own, plan.placement.scale_groups)), tuple[KeptFloat, ...]()
    if high_precision_dtype in HALF_TYPES:
        tell(f"lowering to {high_precision_dtype}")
        lowered = lower(
            replace(plan.prepared, model=quantized, types=infer_types(quantized)[0]),
            high_precision_dtype,
            keep_io_types=keep_io_types,
            op_types_to_exclude=op_types_to_exclude_fp16,
            nodes_to_exclude=nodes_to_exclude_fp16,
            seen={key: Range(seen.low, seen.high) for key, seen in found.items() if seen is not None},
        )
        quantized, kept = lowered.model, lowered.kept
    if dq_only:
        store_integers(quantized)
    if direct_io_types:
        take_integers(quantized)
    warnings += _verify(quantized)
    if output_path is not None:
        save_model(quantized, output_path, inputs=input_files(model, calibration_data, given))
    integers_outside = integer_interface(quantized) if direct_io_types else {}
    return QuantizationResult(
        quantized, plan.placement, own, plan.prepared.changes, tuple(warnings), kept, integers_outside
    )


def keeps_io_types(keep_io_types: bool | None, direct_io_types: bool) -> bool:
    """Whether float32 inputs and outputs stay float32: so they do, unless one of the two options says otherwise.

    Raises:
        UsageError: The options contradict each other.
    """
    if keep_io_types and direct_io_types:
        raise UsageError("keep_io_types and direct_io_types contradict each other: leave one of them out")
    return not direct_io_types if keep_io_types is None else keep_io_types


def make_plan(
    model: PathLike | onnx.ModelProto,
    options: SelectionOptions | None = None,
    *,
    on_quantized: str = "error",
    min_opset: int = PER_CHANNEL_OPSET,
    policy: str = "tensorrt",
    activation_type: str | None = None,
) -> Plan:
    """Prepare a model and decide what to quantize in it, without calibrating or writing anything.

    Args:
        model: An ONNX file or a model in memory; neither is changed.
        options: What to quantize; None for everything that the rules take.
        on_quantized: "error" refuses a model that holds Q/DQ, "keep" plans nothing more for it.
        min_opset: The opset that later steps need.
        policy: Whose kernels the result is for: "tensorrt" or "onnxruntime".
        activation_type: Integer type of activations; None for the default of the policy.

    Returns:
        The prepared model, its index and the placement.

    Raises:
        UsageError: The options name what isn't there.
        UnsupportedError: The options ask for what is never quantized.
        InvalidModelError: The model is no usable float model.
    """
    placer = partial(place, options=options, policy=policy, activation_type=activation_type)
    if isinstance(model, onnx.ModelProto):
        return _plan(model, placer, on_quantized, min_opset, copy=True)
    try:
        return _plan(load_model(model), placer, on_quantized, min_opset, copy=False)
    except InvalidModelError as error:
        file = os.fspath(model)
        raise InvalidModelError(str(error) if str(error).startswith(file) else f"{file}: {error}") from None


def _plan(
    model: onnx.ModelProto, placer: Callable[..., Placement], on_quantized: str, min_opset: int, *, copy: bool
) -> Plan:
    existing = find_quantization(model)
    if existing is not None:
        if on_quantized == "error":
            raise InvalidModelError(
                f"the model is quantized already, it holds {describe(existing)}: "
                'give the float model, or say on_quantized="keep"'
            )
        placer = partial(placer, options=SelectionOptions(op_types_to_quantize=()))
    plan = _place(prepare(model, min_opset=min_opset, copy=copy), placer)
    if opset_version(plan.prepared.model) < HALF_SCALE_OPSET and _quantizes_half(plan):
        raised = prepare(plan.prepared.model, min_opset=HALF_SCALE_OPSET, copy=False)
        plan = _place(replace(raised, changes=(*plan.prepared.changes, *raised.changes)), placer)
    return plan


def collect_statistics(
    plan: Plan,
    feeds: Feeds,
    calibrator: Calibrator,
    *,
    memory_limit: int | None = None,
    threads: int = 0,
    tell: Progress = lambda _: None,
) -> Statistics:
    """Run the model of a plan on samples, and look at the activations that get Q/DQ.

    Args:
        plan: The plan.
        feeds: The samples.
        calibrator: What for.
        memory_limit: Bytes that the activations of one sample may take; None for any number.
        threads: How many the runtime uses; 0 for all cores.
        tell: Told what is being done.

    Raises:
        UsageError: The limit is no positive number.
        UnsupportedError: The limit is too low.
        CalibrationError: The model doesn't run on the samples.
    """
    if memory_limit is not None and memory_limit < 1:
        raise UsageError(f"memory_limit={memory_limit} is no positive number of bytes")
    bound = None if memory_limit is None else MemoryBound(memory_limit, lambda part: infer_types(part)[0])
    activations = plan.placement.activations
    tell(f"calibrating tensors: {len(activations)}")
    return collect(
        plan.prepared.model,
        activations,
        feeds,
        calibrator,
        setup=Setup(threads=threads, types=plan.prepared.types, memory=bound),
        progress=lambda n: tell(f"calibrated samples: {n}"),
    )


def make_calibrator(method: str | None, percentile: float, policy: str = "tensorrt") -> Calibrator:
    """The way to choose ranges; by default that of the policy.

    Raises:
        UsageError: There is no such method, or the percentile is out of range.
    """
    chosen = CALIBRATION_METHODS[policy] if method is None else method
    _check_choices(calibration_method=(chosen, METHODS))
    return Calibrator(chosen, percentile)


def find_quantization(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """The first QuantizeLinear or DequantizeLinear of a model, its bodies and functions; None for a float model."""
    levels = chain([model.graph.node], (function.node for function in model.functions))
    nodes = (node for level in levels for node in walk_nodes(level))
    return next((node for node in nodes if node.op_type in ("QuantizeLinear", "DequantizeLinear")), None)


def _place(prepared: Prepared, placer: Callable[..., Placement]) -> Plan:
    index = build_index(prepared.model, prepared.types)
    if not any(found.is_float for found in index.tensor_types):
        raise InvalidModelError("the model holds no float tensor, so there is nothing to quantize")
    return Plan(prepared, index, placer(index))


def _too_small(plan: Plan, ranges: Ranges) -> Unseen:
    """The float16 tensors that no float16 scale serves, with the reason."""
    index = plan.index
    halves = [
        use
        for use in uses_of(index, plan.placement, ranges)
        if index.tensor_types[use.tensor].elem_type == TensorProto.FLOAT16
    ]
    return {use: TOO_SMALL for use in halves if scale_vanishes(ranges[index.key(use)], np.float16)}


def _quantizes_half(plan: Plan) -> bool:
    index = plan.index
    tensors = (index.inputs[edge.node][edge.input] for edge in plan.placement.quantized)
    return any(index.tensor_types[t].elem_type == TensorProto.FLOAT16 for t in tensors)


def _warnings(plan: Plan, policy: str) -> list[str]:
    """What the user should know about a plan before anything else is known."""
    warnings = list(plan.prepared.warnings)
    if not plan.placement.quantized:
        warnings.append("nothing was quantized; `onnxq explain` says why for each edge")
    unfolded = len(unfolded_normalizations(plan.index)) if policy == "onnxruntime" else 0
    if unfolded:
        warnings.append(
            f"{unfolded} BatchNormalization behind convolutions: each runs in float and costs a rounding; fold them "
            "first, as onnxruntime's basic optimizations do"
        )
    return warnings


def _write(plan: Plan, ranges: Ranges) -> onnx.ModelProto:
    """Write the Q/DQ of a plan into its prepared model, which is used up by that."""
    index, model = plan.index, plan.prepared.model
    placement = plan.placement
    edges = {edge: placement[edge].encoding for edge in placement.quantized}
    pairs = pair_up(index, edges, {output.use: output.decision.encoding for output in placement.quantized_outputs})
    constants = [index.key(pair.use) for pair in pairs if index.is_constant(pair.use.tensor)]
    values = evaluate_constants(model, list(dict.fromkeys(constants)))
    write_pairs(model, index, pairs, pair_parameters(index, placement, pairs, values, ranges))
    return model


def _verify(quantized: onnx.ModelProto) -> list[str]:
    """Ask the checker about the result; a warning where it objects to the float model just as well."""
    problem = why_invalid(quantized)
    if not problem:
        return []
    if not why_invalid(strip_pairs(quantized)):
        raise VerificationError(f"the quantized model is invalid, please report this: {problem}")
    return [f"the ONNX checker objects to the model, before its quantization already: {problem}"]


def input_files(model: PathLike | onnx.ModelProto, *others: object) -> Iterator[PathLike]:
    """The files of a model, if it is one, and those among its other inputs."""
    if not isinstance(model, onnx.ModelProto):
        yield from model_files(model)
    yield from (other for other in others if isinstance(other, str | os.PathLike))


def _only_one(*, calibration_data: object, **ranges: GivenRanges | None) -> GivenRanges | None:
    """Where the ranges come from, if not from data; an error if two sources were given."""
    given = {name: value for name, value in ranges.items() if value is not None}
    named = [*given, *(["calibration_data"] if calibration_data is not None else [])]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are two sources of the same ranges: give one of them")
    return next(iter(given.values()), None)


def _check_choices(**given: tuple[str, tuple[str, ...]]) -> None:
    """Refuse unknown values, each with what can be said instead."""
    for name, (value, allowed) in given.items():
        if value in allowed:
            continue
        near = get_close_matches(str(value), allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"{name}={value!r} is unknown, it can be: {', '.join(map(repr, allowed))}{hint}")
