"""Constants that half precision can't hold (rule F3), and scales that it would spoil (rule F4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, numpy_helper

from onnxq.graph import constant_node_value

Array = NDArray[Any]

_PIECE = 2**20
"""Elements that are looked at together."""

SCALE_LOSS = 0.01
"""Greatest relative error that a scale may take on in half precision."""

STEPS = 127
"""Steps of a scale that an 8-bit value counts at least."""

_DTYPES: dict[int, Any] = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}


def to_low(values: Array, low: int) -> Array:
    """Float values in half precision: rounded to nearest even, tiny ones to a zero or subnormal of their own sign."""
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(_DTYPES[low])


def scale_to_low(scales: Array, low: int) -> Array:
    """Scales in half precision, rounded up: one that is rounded down would clip the greatest value by up to a step."""
    kept = np.array(to_low(scales, low))
    is_less = kept.astype(np.float32) < scales.astype(np.float32)
    bits = kept.reshape(-1).view(np.uint16)
    bits[is_less.reshape(-1)] += 1  # the next number away from zero, of either half-precision type
    return bits.view(kept.dtype).reshape(kept.shape)


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
    return any(
        bool((np.isfinite(part) & ~np.isfinite(to_low(part, low).astype(np.float32))).any()) for part in _parts(values)
    )


def vanishes(values: Array, low: int, *, throughout: bool = True) -> bool:
    """Whether what isn't zero becomes zero: everywhere, or (not `throughout`) in some place."""
    some_lost = some_kept = False
    for part in _parts(values):
        kept = to_low(part, low).astype(np.float32) != 0
        some_kept |= bool(kept.any())
        some_lost |= bool(((part != 0) & ~kept).any())
    return some_lost and not (throughout and some_kept)


def spoils_scale(scale: Array, low: int) -> bool:
    """Whether a scale underflows, overflows or loses more than `SCALE_LOSS` somewhere."""
    wide = scale.astype(np.float64)
    if not (wide > 0).all():
        return True
    kept = scale_to_low(scale, low).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return not bool((np.isfinite(kept) & (kept > 0) & (np.abs(kept - wide) <= SCALE_LOSS * wide)).all())


def exceeds(scale: Array, low: int) -> bool:
    """Whether a scale times an 8-bit step count is beyond the range."""
    return overflows(scale.astype(np.float32) * np.float32(STEPS), low)


def _parts(values: Array) -> Iterator[Array]:
    """Float values in pieces, since what is made of them takes more memory than they do; no pieces of other values."""
    if values.dtype in (np.float32, np.float64):
        flat = values.reshape(-1)
        yield from (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
