"""How a tensor is stored as integers: decided with the placement, made numbers of after calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxq.graph import Edge


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one tensor is stored.

    Attributes:
        dtype: Name of the integer type: "int8", "uint8", or "int32" for a bias.
        axis: Axis along which each position has a scale; None for one scale in all.
        symmetric: Whether the zero point is 0 and the range the same on both sides of it.
        product_of: For a bias: the edges that carry data and weight of its op. The product of their scales is its
            scale, so that the kernel can add it to its sums as it is.
    """

    dtype: str = "int8"
    axis: int | None = None
    symmetric: bool = True
    product_of: tuple[Edge, Edge] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QuantizationParameters:
    """The numbers of one Q/DQ pair: real = (integer - zero point) * scale.

    Attributes:
        scale: Positive, of the type of the real numbers: [] or [n].
        zero_point: Of the integer type, same shape.
        stored: The integers themselves, if they are stored instead of computed by a QuantizeLinear; else None.
    """

    scale: NDArray[Any]
    zero_point: NDArray[Any]
    stored: NDArray[Any] | None = None


def symmetric_parameters(scale: NDArray[Any], dtype: str = "int8") -> QuantizationParameters:
    """Parameters with zero point 0."""
    return QuantizationParameters(scale, np.zeros(scale.shape, np.dtype(dtype)))
