"""Scale and zero point of asymmetric 8-bit integers, all 256 of which are in use.

    real      low ............ 0 ............... high
    integer   -128 (uint8: 0)  zero point        127 (255)

Zero is always one of the integers: padding and the results of Relu stay exact. So the range is widened to hold it. A
range that begins at 0, as behind a Relu, has the least integer for its zero point: no integer then means a negative
number, and a runtime can see from the zero point alone that the Relu has nothing left to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from onnxq.calibration.ranges import Range
from onnxq.encoding import QuantizationParameters
from onnxq.errors import CalibrationError


def asymmetric_parameters(
    found: Range, integer: DTypeLike = np.uint8, *, dtype: DTypeLike = np.float32
) -> QuantizationParameters:
    """Scale and zero point of a whole tensor.

    Args:
        found: What calibration saw.
        integer: uint8 or int8.
        dtype: Of the scale: float32 or float16.

    Returns:
        Scale and zero point of shape []. The scale is a positive normal number of `dtype`, that of a tensor which was
        zero throughout 1/255: any scale maps zero to zero, and this one leaves room for ordinary values.
    """
    limits, floats = np.iinfo(np.dtype(integer)), np.finfo(np.dtype(dtype))
    low, high = min(found.low, 0.0), max(found.high, 0.0)
    steps = limits.max - limits.min
    width = high / steps - low / steps  # divided first: the difference of two large numbers may overflow
    scale = np.clip(width or 1 / steps, float(floats.smallest_normal), float(floats.max)).astype(dtype)
    zero_point = np.clip(limits.min - np.rint(low / float(scale)), limits.min, limits.max)
    return QuantizationParameters(np.asarray(scale), np.asarray(zero_point).astype(integer))


def asymmetric_constant(
    values: NDArray[Any], integer: DTypeLike = np.uint8, *, name: str = "constant", dtype: DTypeLike = np.float32
) -> QuantizationParameters:
    """The same for a constant, whose range is that of its values.

    Raises:
        CalibrationError: A value is NaN or infinite.
    """
    wide = values.astype(np.float64)
    if not np.isfinite(wide).all():
        raise CalibrationError(
            f'constant "{name}" holds NaN or infinity, so it has no scale: '
            "repair the model, or exclude the nodes that read it"
        )
    found = Range(float(wide.min(initial=0)), float(wide.max(initial=0)))
    return asymmetric_parameters(found, integer, dtype=dtype)
