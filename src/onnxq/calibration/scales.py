"""Scales of symmetric int8: 127 steps to each side of zero, zero point 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from onnxq.calibration.ranges import Range
from onnxq.errors import CalibrationError

STEPS = 127
"""Greatest int8 value in use. -128 stays unused, so that -x always has the same precision as x."""


def activation_scale(found: Range, *, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Scale of a whole tensor: its greatest absolute value over 127.

    Args:
        found: What the calibration saw.
        dtype: Of the scale: float32 or float16.

    Returns:
        Array of shape []: a positive normal number of `dtype`. A tensor that was zero throughout gets 1/127: any scale
        maps zero to zero, and this one leaves room for ordinary values. Scales too small or too large for `dtype`
        become its least normal or its greatest number.
    """
    return _scales(np.asarray(max(abs(found.low), abs(found.high))), dtype)


def weight_scales(
    values: NDArray[Any], axis: int | None, *, name: str = "weight", dtype: DTypeLike = np.float32
) -> NDArray[Any]:
    """Scales of a constant, one a channel or one for all of it.

    Args:
        values: The constant, of any float type and shape.
        axis: The channel axis, counted from the end when negative; None for one scale of the whole tensor.
        name: Of the tensor, for messages.
        dtype: Of the scales: float32 or float16.

    Returns:
        Array of shape [values.shape[axis]], or [] without axis. All are positive normal numbers of `dtype`; an empty or
        all-zero channel gets 1/127, see `activation_scale`.

    Raises:
        CalibrationError: A value is NaN or infinite.
    """
    if values.dtype.kind != "f":  # bfloat16 comes as an extension type
        values = values.astype(np.float32)
    others = None if axis is None else tuple(a for a in range(values.ndim) if a != axis % values.ndim)
    largest = np.maximum(values.max(axis=others, initial=0), -values.min(axis=others, initial=0))
    if not np.isfinite(largest).all():
        raise CalibrationError(
            f'constant "{name}" holds NaN or infinity, so it has no scale: '
            "repair the model, or exclude the nodes that read it"
        )
    return _scales(largest, dtype)


def _scales(largest: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    wide = largest.astype(np.float64)
    limits = np.finfo(np.dtype(dtype))
    scales = np.where(wide > 0, wide, 1.0) / STEPS
    return np.clip(scales, float(limits.smallest_normal), float(limits.max)).astype(dtype)
