"""Constants that half precision can't hold (rule F3), and scales that it would spoil (rule F4)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, numpy_helper

from onnxq.graph import constant_node_value

Array = NDArray[Any]

SCALE_LOSS = 0.01
"""Greatest relative error that a scale may take on in half precision."""

_DTYPES: dict[int, Any] = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}


def to_low(values: Array, low: int) -> Array:
    """Float values in half precision: rounded to nearest even, tiny ones to a zero or subnormal of their own sign."""
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(_DTYPES[low])


def constant_value(node: NodeProto) -> Array | None:
    """The float32 value of a Constant, or the one that a ConstantOfShape repeats; None if there is none stored."""
    if node.op_type == "Constant":
        value = constant_node_value(node)
    else:
        stored = [numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"]
        value = stored[0] if stored else np.zeros(1, np.float32)
    return value if value is not None and value.dtype == np.float32 else None


def overflows(values: Array, low: int) -> bool:
    """Whether a finite value becomes infinite."""
    if not _is_float(values):
        return False
    return bool((np.isfinite(values) & ~np.isfinite(to_low(values, low).astype(np.float32))).any())


def vanishes(values: Array, low: int) -> bool:
    """Whether it is not zero, but becomes zero throughout: a denominator's epsilon, as a rule."""
    return bool(_is_float(values) and values.any() and not to_low(values, low).astype(np.float32).any())


def spoils_scale(scale: Array, low: int) -> bool:
    """Whether a scale underflows, overflows or loses more than `SCALE_LOSS` somewhere."""
    wide = scale.astype(np.float64)
    kept = to_low(scale, low).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return not bool((np.isfinite(kept) & (kept > 0) & (np.abs(kept - wide) <= SCALE_LOSS * wide)).all())


def _is_float(values: Array) -> bool:
    return values.dtype in (np.float32, np.float64)
