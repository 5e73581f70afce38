"""Steps that keep a shape or join two tensors: activations, arithmetic, norms, pooling, gates, masks."""

from __future__ import annotations

import numpy as np

from onnxq.strategies.drawing import FIRST_WITH_BFLOAT16, Drawing, Tensor
from onnxq.strategies.fitting import as_tokens, like, with_spatial_dims

_ACTIVATIONS: tuple[tuple[str, int, dict[str, float]], ...] = (
    ("Relu", 1, {}),
    ("Sigmoid", 1, {}),
    ("Tanh", 1, {}),
    ("LeakyRelu", 1, {"alpha": 0.1}),
    ("Elu", 1, {}),
    ("HardSigmoid", 1, {}),
    ("Softsign", 1, {}),
    ("HardSwish", 14, {}),
    ("Mish", 18, {}),
    ("Gelu", 20, {}),
)
"""Operator, the first opset that has it, attributes."""


def activation(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """An activation as one operator, or Clip with bounds."""
    known = [entry for entry in _ACTIVATIONS if entry[1] <= d.opset]
    if form % (len(known) + 1) == len(known):
        return d.apply("Clip", [x, d.number(0), d.number(6)], x.shape)
    op_type, _since, attributes = known[form % (len(known) + 1)]
    return d.apply(op_type, [x], x.shape, **attributes)


def written_out(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """SiLU, GELU by Erf, hard swish by Clip, Mish: an activation of several nodes."""
    match form % 4:
        case 1:
            inner = d.apply("Erf", [d.apply("Div", [x, d.number(2**0.5)], x.shape)], x.shape)
            gate = d.apply("Add", [inner, d.number(1)], x.shape)
            return d.apply("Mul", [d.apply("Mul", [x, gate], x.shape), d.number(0.5)], x.shape)
        case 2:
            shifted = d.apply("Add", [x, d.number(3)], x.shape)
            gate = d.apply("Clip", [shifted, d.number(0), d.number(6)], x.shape)
            return d.apply("Div", [d.apply("Mul", [x, gate], x.shape), d.number(6)], x.shape)
        case 3:
            return d.apply("Mul", [x, d.apply("Tanh", [d.apply("Softplus", [x], x.shape)], x.shape)], x.shape)
        case _:
            return d.apply("Mul", [x, d.apply("Sigmoid", [x], x.shape)], x.shape)


def arithmetic(d: Drawing, x: Tensor, y: Tensor, form: int) -> Tensor:
    """Two tensors, or a tensor and a constant of one number for each channel; operands in either order."""
    op_type = ("Add", "Mul", "Sub", "Max", "Min", "Add")[form % 6]
    other: Tensor | str = like(d, y, x)
    if form & 8:
        shape = (x.shape[1], *[1] * (x.rank - 2)) if x.rank > 1 else x.shape
        other = d.weight(*shape, scale=0.5, is_shared=bool(form & 16))
    elif op_type == "Mul":  # a product of products would grow beyond all bounds
        other = d.apply("Tanh", [other], other.shape) if isinstance(other, Tensor) else other
    operands = [other, x] if form & 32 else [x, other]
    return d.apply(op_type, operands, x.shape)


def sums(d: Drawing, x: Tensor, y: Tensor, form: int) -> Tensor:
    """Sum of two or three, one of them twice."""
    operands = [x, like(d, y, x), x][: 2 + form % 2]
    return d.apply("Sum", operands, x.shape)


def norm(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """BatchNormalization, InstanceNormalization, LayerNormalization as operator and written out, LRN."""
    x = with_spatial_dims(d, x)
    channels = x.shape[1]
    match form % 4:
        case 0:
            ones = [d.constant(np.full(channels, value, d.dtype)) for value in (1, 0, 0, 1)]
            return d.apply("BatchNormalization", [x, *ones], x.shape)
        case 1:
            ones = [d.constant(np.full(channels, value, d.dtype)) for value in (1, 0)]
            return d.apply("InstanceNormalization", [x, *ones], x.shape, epsilon=0.01)
        case 3 if x.rank == 4:
            return d.apply("LRN", [x], x.shape, size=3)
        case _:
            return _layer_norm(d, as_tokens(d, x), is_operator=d.opset >= 17 and not form & 4)


def _layer_norm(d: Drawing, x: Tensor, *, is_operator: bool) -> Tensor:
    width = x.shape[-1]
    scale = d.constant(np.ones(width, d.dtype))
    if is_operator:
        return d.apply("LayerNormalization", [x, scale], x.shape, axis=-1, epsilon=0.01)
    axes = {"axes": [-1]} if d.opset < 18 else {}
    given = [] if d.opset < 18 else [d.constant(np.array([-1]))]
    mean = d.apply("ReduceMean", [x, *given], (*x.shape[:-1], 1), keepdims=1, **axes)
    centred = d.apply("Sub", [x, mean], x.shape)
    square = d.apply("Mul", [centred, centred], x.shape)
    variance = d.apply("ReduceMean", [square, *given], mean.shape, keepdims=1, **axes)
    root = d.apply("Sqrt", [d.apply("Add", [variance, d.number(0.01)], mean.shape)], mean.shape)
    return d.apply("Mul", [d.apply("Div", [centred, root], x.shape), scale], x.shape)


def pool(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Max, average and global pools over 1 to 3 spatial dims; a MaxPool may yield indices as well."""
    x = with_spatial_dims(d, x)
    spatial = x.rank - 2
    if form % 4 == 3 or min(x.shape[2:]) < 2:
        op_type = ("GlobalAveragePool", "GlobalMaxPool")[(form >> 2) % 2]
        return d.apply(op_type, [x], (*x.shape[:2], *[1] * spatial))
    stride = 1 + (form >> 2) % 2
    window = {"kernel_shape": [2] * spatial, "strides": [stride] * spatial}
    shape = (*x.shape[:2], *((length - 2) // stride + 1 for length in x.shape[2:]))
    if form % 4 == 2:
        return d.apply_many("MaxPool", [x], [(shape, x.elem_type), (shape, 7)], **window)[0]
    return d.apply(("MaxPool", "AveragePool")[form % 4], [x], shape, **window)


def squeeze_excite(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """X times a gate that is computed from its mean: a number for each channel."""
    if x.rank != 4 or not min(x.shape):
        return activation(d, x, x, form)
    channels = x.shape[1]
    pooled = d.apply("GlobalAveragePool", [x], (x.shape[0], channels, 1, 1))
    hidden = d.apply("Conv", [pooled, d.weight(16, channels, 1, 1, scale=0.25)], (x.shape[0], 16, 1, 1))
    back = d.apply(
        "Conv",
        [d.apply("Relu", [hidden], hidden.shape), d.weight(channels, 16, 1, 1, scale=0.25)],
        (x.shape[0], channels, 1, 1),
    )
    gate = d.apply(("Sigmoid", "HardSigmoid")[form & 1], [back], back.shape)
    return d.apply("Mul", [x, gate] if form & 2 else [gate, x], x.shape)


def mask(d: Drawing, x: Tensor, y: Tensor, form: int) -> Tensor:
    """Where a comparison holds one tensor, else another: bools in between."""
    other = like(d, y, x)
    is_greater = d.apply_many("Greater", [x, other], [(x.shape, 9)])[0]
    if form & 1:
        is_greater = d.apply_many("Not", [is_greater], [(x.shape, 9)])[0]
    return d.apply("Where", [is_greater, x, other], x.shape)


def precision(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Casts to another float type and back, Identity, Dropout."""
    match form % 4:
        case 0:
            return d.apply("Identity", [x], x.shape)
        case 1:
            return d.apply("Dropout", [x], x.shape)
        case _:
            to = (1, 11, 16 if d.opset >= FIRST_WITH_BFLOAT16 else 10)[form % 3]
            there = d.apply_many("Cast", [x], [(x.shape, to)], to=to)[0]
            return d.apply("Cast", [there], x.shape, to=d.elem_type)
