"""Scales of symmetric int8: 127 steps to each side of zero, zero point 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from onnxq.calibration.ranges import Range
from onnxq.errors import CalibrationError

STEPS = 127
"""Greatest int8 value in use. -128 stays unused, so that -x always has the same precision as x."""

_LEAST_HALF = 50 * 2.0**-24
"""Least float16 scale in use. Runtimes compute with scales in float32, so it needn't be a normal number; but smaller
ones are off by more than 1 % (rule F4)."""


def scale_vanishes(found: Range, dtype: DTypeLike) -> bool:
    """Whether the values of a tensor are so small that no scale of a type serves them.

    Args:
        found: What the calibration saw.
        dtype: Of the tensor, and so of the scale: float32 or float16.
    """
    return 0 < max(abs(found.low), abs(found.high)) / STEPS < _least_scale(dtype)


def activation_scale(found: Range, *, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Scale of a whole tensor: its greatest absolute value over 127.

    Args:
        found: What the calibration saw.
        dtype: Of the scale: float32 or float16.

    Returns:
        Array of shape [], greater than zero. A tensor that was zero throughout gets 1/127: any scale maps zero to zero,
        and this one leaves room for ordinary values. Scales too small or too large for `dtype` become its least normal
        number, for float16 the least that is off by less than 1 %, or its greatest number.
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
        Array of shape [values.shape[axis]], or [] without axis. All are greater than zero, within the limits of
        `activation_scale`; an empty or all-zero channel gets 1/127.

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
    exact = np.clip(np.where(wide > 0, wide, 1.0) / STEPS, _least_scale(dtype), float(np.finfo(np.dtype(dtype)).max))
    scales = exact.astype(dtype)
    if np.dtype(dtype) != np.float16:
        return scales
    # Rounded up: a scale that is rounded down would clip the greatest value, below the normal numbers by up to a step.
    with np.errstate(over="ignore"):  # what follows the greatest number isn't used
        return np.where(scales < exact, np.nextafter(scales, np.float16(np.inf)), scales)


def _least_scale(dtype: DTypeLike) -> float:
    limits = np.finfo(np.dtype(dtype))
    return _LEAST_HALF if np.dtype(dtype) == np.float16 else float(limits.smallest_normal)
