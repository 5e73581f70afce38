"""A bias that an integer kernel adds to its sums before it rounds them: int32, at the product of the other two scales.

    sum over k of (x[k] - zero point) * w[k]     int32, in units of x_scale * w_scale
    + bias                                       so it must be int32 in the same units

The rounding of such a bias doesn't count, at 2^31 steps. Its range does: behind a weight that is tiny throughout, or
zero, the units are so small that the bias needs more than 31 bits. Then the weight gets a larger scale than its values
need: against such a bias its own rounding is nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxq.encoding import QuantizationParameters

LIMIT = 2**30
"""Greatest stored bias. The other half of int32 is left to the sums: room for 33,000 products of greatest size."""


def scale_for_bias(weight_scale: NDArray[Any], data_scale: NDArray[Any], bias: NDArray[Any]) -> NDArray[Any]:
    """The least scale of a weight, at least the one that it has, with which its op's bias fits into int32.

    Args:
        weight_scale: The scale that the weight's values ask for, [] or [n].
        data_scale: That of the data, [].
        bias: The bias in real numbers; n elements, if the weight has n scales.

    Returns:
        Of the shape and type of `weight_scale`, as large or larger, so that the product with the scale of the data is a
        normal number too.
    """
    largest = np.abs(bias.astype(np.float64)).reshape(-1)
    needed = largest if weight_scale.ndim else np.asarray(largest.max(initial=0))
    unit = np.maximum(needed / LIMIT, float(np.finfo(np.float32).smallest_normal))
    least = np.nextafter((unit / data_scale.astype(np.float64)).astype(weight_scale.dtype), np.inf, dtype=np.float32)
    return np.asarray(np.maximum(weight_scale, least.reshape(weight_scale.shape)), weight_scale.dtype)


def bias_parameters(
    bias: NDArray[Any], data_scale: NDArray[Any], weight_scale: NDArray[Any], axis: int | None
) -> QuantizationParameters:
    """The stored bias.

    Args:
        bias: In real numbers.
        data_scale: Scale of the data, [].
        weight_scale: Scale of the weight, [] or [n].
        axis: Axis of `bias` along which the scales run; None for one scale.
    """
    scale = (data_scale.astype(np.float32) * weight_scale.astype(np.float32)).astype(np.float32)
    shape = [1] * bias.ndim
    if axis is not None:
        shape[axis] = -1
    steps = np.rint(bias.astype(np.float64) / scale.astype(np.float64).reshape(shape if axis is not None else ()))
    limits = np.iinfo(np.int32)
    stored = np.clip(steps, limits.min, limits.max).astype(np.int32)
    return QuantizationParameters(scale, np.zeros(scale.shape, np.int32), stored)
