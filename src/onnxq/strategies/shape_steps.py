"""Steps that move data: they join, cut, pad, reorder and resize."""

from __future__ import annotations

import math

import numpy as np

from onnxq.strategies.drawing import Drawing, Tensor
from onnxq.strategies.fitting import MOST, WIDTH, as_tokens, filled, like


def concat(d: Drawing, x: Tensor, y: Tensor, form: int) -> Tensor:
    """Two tensors of one shape, or one with a constant, along any axis."""
    if not x.rank or math.prod(x.shape) > MOST:
        return d.apply("Identity", [x], x.shape)
    axis = form % x.rank
    other: Tensor | str = like(d, y, x)
    if isinstance(other, Tensor) and other.shape != x.shape:
        other = d.weight(*x.shape, is_shared=True)
    shape = (*x.shape[:axis], 2 * x.shape[axis], *x.shape[axis + 1 :])
    parts = [x, other] if form & 8 else [other, x]
    return d.apply("Concat", parts, shape, axis=axis - x.rank if form & 16 and d.opset >= 11 else axis)


def split(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Two halves, of which one is used, or both change places."""
    axis = next((a for a in range(x.rank) if x.shape[a] >= 2 and x.shape[a] % 2 == 0), None)
    if axis is None:
        return d.apply("Identity", [x], x.shape)
    half = (*x.shape[:axis], x.shape[axis] // 2, *x.shape[axis + 1 :])
    sizes = [x.shape[axis] // 2] * 2
    inputs: list[Tensor | str] = [x] if d.opset < 13 else [x, d.constant(np.array(sizes))]
    attributes = {"split": sizes} if d.opset < 13 else {}
    first, second = d.apply_many("Split", inputs, [(half, x.elem_type)] * 2, axis=axis, **attributes)
    return second if form & 1 else d.apply("Concat", [second, first], x.shape, axis=axis)


def cut(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Slice: a part of an axis, forwards or backwards; or of nothing, put back behind the whole."""
    axis = next((a for a in range(x.rank) if x.shape[a] >= 2), None)
    if axis is None:
        return d.apply("Identity", [x], x.shape)
    length = x.shape[axis]
    start, end, step = ((0, length // 2, 1), (length - 1, -length - 1, -1), (0, length, 2), (0, 0, 1))[form % 4]
    taken = len(range(length)[slice(start, None if end < 0 else end, step)])
    bounds = [d.constant(np.array([n])) for n in (start, end, axis, step)]
    part = d.apply("Slice", [x, *bounds], (*x.shape[:axis], taken, *x.shape[axis + 1 :]))
    return part if taken else d.apply("Concat", [x, part], x.shape, axis=axis)


def pad(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """A border of zeros, of the edge, or mirrored."""
    if not x.rank or not math.prod(x.shape) or math.prod(x.shape) > MOST:
        return d.apply("Identity", [x], x.shape)
    mode = ("constant", "edge", "reflect")[form % 3 if x.shape[-1] > 1 else form % 2]
    widths = np.zeros(2 * x.rank, np.int64)
    widths[[x.rank - 1, -1]] = 1
    return d.apply("Pad", [x, d.constant(widths)], (*x.shape[:-1], x.shape[-1] + 2), mode=mode)


def resize(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Resize by constant scales, or to sizes that are computed from the shape."""
    if x.rank != 4 or not math.prod(x.shape) or math.prod(x.shape) > MOST:
        return transpose(d, x, x, form)
    shape = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    roi = d.constant(np.zeros(0, d.dtype)) if form & 1 or d.opset < 13 else ""
    mode = ("nearest", "linear")[(form >> 1) % 2]
    if form & 4:
        sizes = d.apply_many("Shape", [x], [((4,), 7)])[0]
        doubled = d.apply_many("Mul", [sizes, d.constant(np.array([1, 1, 2, 2]))], [((4,), 7)])[0]
        none = d.constant(np.zeros(0, np.float32)) if d.opset < 13 else ""
        return d.apply("Resize", [x, roi, none, doubled], shape, mode=mode)
    return d.apply("Resize", [x, roi, d.constant(np.array([1, 1, 2, 2], np.float32))], shape, mode=mode)


def transpose(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Axes in another order: reversed, turned, or the last two swapped."""
    order = list(range(x.rank))
    order = (order[::-1], order[1:] + order[:1], [*order[:-2], *order[:-3:-1]])[form % 3]
    return d.apply("Transpose", [x], tuple(x.shape[a] for a in order), perm=order)


def reshape(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Reshape with a length left open, Flatten, Unsqueeze and Squeeze, a channel shuffle, or a scalar and back."""
    if not x.rank or not math.prod(x.shape):
        return filled(d, x, (1, WIDTH, WIDTH))
    size = math.prod(x.shape)
    match form % 5:
        case 0:
            lead = WIDTH if size % WIDTH == 0 else 1
            return d.apply("Reshape", [x, d.constant(np.array([lead, -1]))], (lead, size // lead))
        case 1:
            return d.apply("Flatten", [x], (x.shape[0], size // x.shape[0]))
        case 2:
            return _there_and_back(d, x)
        case 3:
            if x.rank < 3 or x.shape[1] % 4:
                return as_tokens(d, x)
            batch, channels, *rest = x.shape
            grouped = (batch, 4, channels // 4, *rest)
            y = d.apply("Reshape", [x, d.constant(np.array(grouped))], grouped)
            order = [0, 2, 1, *range(3, len(grouped))]
            y = d.apply("Transpose", [y], tuple(grouped[a] for a in order), perm=order)
            return d.apply("Reshape", [y, d.constant(np.array(x.shape))], x.shape)
        case _:
            return filled(d, x, x.shape)


def _there_and_back(d: Drawing, x: Tensor) -> Tensor:
    shape = (1, *x.shape)
    if d.opset < 13:
        y = d.apply("Unsqueeze", [x], shape, axes=[0])
        return d.apply("Squeeze", [y], x.shape, axes=[0])
    axis = d.constant(np.array([0]))
    return d.apply("Squeeze", [d.apply("Unsqueeze", [x, axis], shape), axis], x.shape)
