"""Steps with weights: convolutions of one to three dims with all their attributes, products of matrices, attention.

A step gets the drawing, the newest tensor of its choice, another one, and a number that says which form it takes. It
fits the tensor to what the operator wants, and never fails.
"""

from __future__ import annotations

import math

from onnxq.strategies.drawing import Drawing, Shape, Tensor
from onnxq.strategies.fitting import as_matrix, as_tokens, with_spatial_dims


def conv(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Conv over 1 to 3 spatial dims: kernel, stride, dilation, groups, bias, explicit or automatic padding."""
    x = with_spatial_dims(d, x)
    spatial, channels = x.rank - 2, x.shape[1]
    kernel, stride, dilation = (1, 3, 3, 5)[form % 4], 1 + (form >> 2) % 2, 1 + (form >> 3) % 2
    group = (1, 1, channels, 2)[(form >> 4) % 4]
    group = group if channels % group == 0 else 1
    out = channels if group > 1 else (16, channels, 24)[form % 3]
    reach = dilation * (kernel - 1)
    attributes: dict[str, object] = {"strides": [stride] * spatial, "dilations": [dilation] * spatial, "group": group}
    shape = tuple(-(-length // stride) for length in x.shape[2:])
    if form & 1:
        attributes["kernel_shape"] = [kernel] * spatial
    if (form >> 6) % 3 or min(x.shape[2:]) <= reach:
        attributes["pads"] = [reach // 2] * (2 * spatial)
        shape = tuple((length + 2 * (reach // 2) - reach - 1) // stride + 1 for length in x.shape[2:])
    elif dilation == 1:
        attributes["auto_pad"] = ("SAME_UPPER", "SAME_LOWER")[form & 1]
    else:
        attributes["auto_pad"] = "VALID"
        shape = tuple((length - reach - 1) // stride + 1 for length in x.shape[2:])
    weight = d.weight(
        out, channels // group, *[kernel] * spatial, scale=_deviation(channels // group * kernel**spatial)
    )
    bias = [d.weight(out)] if form & 2 else []
    return d.apply("Conv", [x, weight, *bias], (x.shape[0], out, *shape), **attributes)


def conv_transpose(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """ConvTranspose: stride, groups, output padding."""
    x = with_spatial_dims(d, x)
    spatial, channels = x.rank - 2, x.shape[1]
    stride, group = 1 + form % 2, (1, 2)[(form >> 1) % 2] if channels % 2 == 0 else 1
    if max(x.shape[2:]) > 16:
        stride = 1
    extra = 1 if stride == 2 and form & 4 else 0
    weight = d.weight(channels, 16 // group, *[3] * spatial, scale=_deviation(channels * 3**spatial // group))
    shape = tuple((length - 1) * stride + 3 - 2 + extra for length in x.shape[2:])
    return d.apply(
        "ConvTranspose",
        [x, weight],
        (x.shape[0], 16, *shape),
        strides=[stride] * spatial,
        pads=[1] * (2 * spatial),
        output_padding=[extra] * spatial,
        group=group,
    )


def gemm(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """Gemm: either operand transposed, alpha and beta, with a bias that is a row or left out."""
    x = as_matrix(d, x)
    rows, terms = x.shape
    attributes: dict[str, object] = {}
    if form & 1:
        x = d.apply("Transpose", [x], (terms, rows), perm=[1, 0])
        attributes["transA"] = 1
    if form & 2:
        attributes["transB"] = 1
    if form & 4:
        attributes |= {"alpha": 0.5, "beta": 2.0}
    shape: Shape = (16, terms) if form & 2 else (terms, 16)
    weight = d.weight(*shape, scale=_deviation(terms), is_shared=bool(form & 8))
    bias = [d.weight(16)] if form & 16 else []
    return d.apply("Gemm", [x, weight, *bias], (rows, 16), **attributes)


def matmul(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """MatMul with a constant on the right, on the left, of three dims, a vector, or with another computed tensor."""
    x = as_tokens(d, x)
    batch, length, width = x.shape
    match form % 5:
        case 1:
            return d.apply("MatMul", [d.weight(16, length, scale=_deviation(length)), x], (batch, 16, width))
        case 2:
            weight = d.weight(batch, width, 16, scale=_deviation(width))
            return d.apply("MatMul", [x, weight], (batch, length, 16))
        case 3:
            return d.apply("MatMul", [x, d.weight(width, scale=_deviation(width))], (batch, length))
        case 4:
            other = d.apply("Transpose", [x], (batch, width, length), perm=[0, 2, 1])
            product = d.apply("MatMul", [x, other], (batch, length, length))
            return d.apply("Mul", [product, d.number(1.0 / width)], product.shape)
        case _:
            weight = d.weight(width, 16, scale=_deviation(width), is_shared=bool(form & 8))
            product = d.apply("MatMul", [x, weight], (batch, length, 16))
            return d.apply("Add", [product, d.weight(16)], product.shape) if form & 16 else product


def attention(d: Drawing, x: Tensor, _: Tensor, form: int) -> Tensor:
    """A head of attention, with a factor, and with or without a mask that is added.

    x -+- MatMul(q) - factor - MatMul - [mask] - Softmax - MatMul - MatMul
       |- MatMul(k) - Transpose ---'                          |
       '- MatMul(v) ------------------------------------------'
    """
    x = as_tokens(d, x)
    batch, length, width = x.shape
    q, k, v = (
        d.apply("MatMul", [x, d.weight(width, 16, scale=_deviation(width))], (batch, length, 16)) for _ in range(3)
    )
    q = d.apply(("Div", "Mul")[form & 1], [q, d.number((4.0, 0.25)[form & 1])], q.shape)
    k = d.apply("Transpose", [k], (batch, 16, length), perm=[0, 2, 1])
    scores = d.apply("MatMul", [q, k], (batch, length, length))
    if form & 2:
        scores = d.apply("Add", [scores, d.weight(length, length)], scores.shape)
    weights = d.apply("Softmax", [scores], scores.shape, axis=-1 if d.opset >= 13 else 2)
    mixed = d.apply("MatMul", [weights, v], (batch, length, 16))
    return d.apply("MatMul", [mixed, d.weight(16, width, scale=_deviation(16))], x.shape)


def _deviation(terms: int) -> float:
    """Of weights, so that a sum of so many products is about as large as what goes in."""
    return 1 / math.sqrt(max(terms, 1))
