"""From a placement, ranges and constants to the numbers of each Q/DQ pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from onnxq.calibration import (
    Range,
    Ranges,
    activation_scale,
    asymmetric_constant,
    asymmetric_parameters,
    bias_parameters,
    scale_for_bias,
    weight_scales,
)
from onnxq.encoding import QuantizationParameters, symmetric_parameters
from onnxq.graph import GraphIndex
from onnxq.placement import Bounds, Placement, known_bounds
from onnxq.rewrite import Pair

Constants = Mapping[str, NDArray[Any]]


def pair_parameters(
    index: GraphIndex, placement: Placement, pairs: Sequence[Pair], constants: Constants, ranges: Ranges
) -> list[QuantizationParameters]:
    """The numbers of each pair.

    Args:
        index: The model.
        placement: The decisions that the pairs come from.
        pairs: All pairs of the model.
        constants: Values of the constants among their tensors.
        ranges: Calibrated ranges of the others, one for all tensors of a scale group.

    Returns:
        In the order of the pairs. The scale of a weight is larger than its values ask for, where its op's int32 bias
        needs that. An asymmetric range goes no further than the ops let the tensors go.

    Raises:
        CalibrationError: A constant holds NaN or infinity.
    """
    within = _within_bounds(index, placement, pairs, ranges)
    position = {edge: number for number, pair in enumerate(pairs) for edge in pair.readers}
    biases = [
        (number, position[factors[0]], position[factors[1]])
        for number, pair in enumerate(pairs)
        if (factors := pair.encoding.product_of) is not None
    ]
    found = {
        number: _parameters(index, pair, constants, within)
        for number, pair in enumerate(pairs)
        if pair.encoding.product_of is None
    }
    for number, data, weight in biases:
        scale = scale_for_bias(found[weight].scale, found[data].scale, constants[index.key(pairs[number].use)])
        found[weight] = replace(found[weight], scale=scale)
    for number, data, weight in biases:  # only now, since several ops may share a weight
        bias = constants[index.key(pairs[number].use)]
        found[number] = bias_parameters(bias, found[data].scale, found[weight].scale, pairs[number].encoding.axis)
    return [found[number] for number in range(len(pairs))]


def _parameters(
    index: GraphIndex, pair: Pair, constants: Constants, ranges: Mapping[str, Range]
) -> QuantizationParameters:
    key, encoding = index.key(pair.use), pair.encoding
    dtype = np.float16 if index.tensor_types[pair.use.tensor].elem_type == TensorProto.FLOAT16 else np.float32
    if key in constants:
        values = constants[key]
        if not encoding.symmetric:
            return asymmetric_constant(values, np.dtype(encoding.dtype), name=key, dtype=dtype)
        return symmetric_parameters(weight_scales(values, encoding.axis, name=key, dtype=dtype), encoding.dtype)
    if not encoding.symmetric:
        return asymmetric_parameters(ranges[key], np.dtype(encoding.dtype), dtype=dtype)
    return symmetric_parameters(activation_scale(ranges[key], dtype=dtype), encoding.dtype)


def _within_bounds(
    index: GraphIndex, placement: Placement, pairs: Sequence[Pair], ranges: Ranges
) -> Mapping[str, Range]:
    """The ranges, those of asymmetric activations cut to what the ops allow: 0 and more behind a Relu.

    Calibrated ranges are so by themselves. A calibration cache holds symmetric ones, and the zero point that follows
    from such would keep the Relu in the model.
    """
    asymmetric = [pair.use for pair in pairs if not pair.encoding.symmetric and index.key(pair.use) in ranges]
    if not asymmetric:
        return ranges
    known = known_bounds(index)
    bounds = {index.key(use): known[use.tensor] for use in asymmetric}
    for group in placement.scale_groups:
        members = [bounds[key] for key in group if key in bounds]
        if members:
            hull = Bounds(min(b.low for b in members), max(b.high for b in members))
            bounds.update(dict.fromkeys(group, hull))
    return {key: _cut(found, bounds[key]) if key in bounds else found for key, found in ranges.items()}


def _cut(found: Range, bounds: Bounds) -> Range:
    low, high = (min(max(value, bounds.low), bounds.high) for value in (found.low, found.high))
    return Range(low, high)
