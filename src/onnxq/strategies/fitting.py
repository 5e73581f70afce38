"""Fitting a tensor to what an operator wants: its rank, its size, the shape of another tensor."""

from __future__ import annotations

import math

import numpy as np

from onnxq.strategies.drawing import Drawing, Shape, Tensor

WIDTH = 16
"""Least that int8 kernels serve, so most channels are so many."""

MOST = 4096
"""Elements that a tensor may have before steps stop making it larger."""


def reshaped(d: Drawing, x: Tensor, shape: Shape) -> Tensor:
    """X in another shape of as many elements."""
    if shape == x.shape:
        return x
    return d.apply("Reshape", [x, d.constant(np.array(shape, np.int64))], shape)


def with_spatial_dims(d: Drawing, x: Tensor) -> Tensor:
    """A tensor of 3 to 5 dims with something in each; x itself where it is one."""
    if 3 <= x.rank <= 5 and math.prod(x.shape) > 0:
        return x
    return as_tokens(d, x)


def as_tokens(d: Drawing, x: Tensor) -> Tensor:
    """[batch, length, width], of 16 tokens of 16 where the number of elements doesn't tell better."""
    if x.rank == 3 and math.prod(x.shape) > 0:
        return x
    size = math.prod(x.shape)
    if not size:
        return filled(d, x, (1, WIDTH, WIDTH))
    if size % WIDTH == 0:
        return reshaped(d, x, (1, size // WIDTH, WIDTH))
    return filled(d, mean(d, x), (1, WIDTH, WIDTH))


def as_matrix(d: Drawing, x: Tensor) -> Tensor:
    """Two dims, the second of 16."""
    x = as_tokens(d, x)
    return reshaped(d, x, (x.shape[0] * x.shape[1], x.shape[2]))


def mean(d: Drawing, x: Tensor) -> Tensor:
    """A scalar: the mean of all, or 0 of nothing."""
    if not math.prod(x.shape):
        return d.apply("ReduceSum", [x], (), keepdims=0)
    return d.apply("ReduceMean", [x], (), keepdims=0)


def filled(d: Drawing, x: Tensor, shape: Shape) -> Tensor:
    """Weights of a shape, plus a scalar that is computed from x."""
    total = x if not x.rank else mean(d, x)
    return d.apply("Add", [d.weight(*shape), total], shape)


def like(d: Drawing, y: Tensor, x: Tensor) -> Tensor:
    """Y itself where it has the shape of x; else its mean, which broadcasts."""
    return y if y.shape == x.shape else mean(d, y)
