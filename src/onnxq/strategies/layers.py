"""Layers that the blocks are made of, each with what R2 says about walking back through it.

All values are float32 [1, channels, size, size]. Weights keep the variance (He et al., 2015), so that no depth of
layers overflows.
"""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from onnxq.strategies.ground_truth import Value
from onnxq.strategies.network import Network

SMALL, LARGE = 4, 8
"""The two spatial sizes. Strides and upsampling go from one to the other."""


def conv(
    net: Network, x: Value, channels: int, *, kernel: int = 3, stride: int = 1, group: int = 1, bias: bool = True
) -> Value:
    """Conv that keeps the spatial size, or halves it with stride 2."""
    _, depth, size, _ = x.shape
    dims = (channels, depth // group, kernel, kernel)
    shape = (1, channels, size // stride, size // stride)
    return net.apply(
        "Conv",
        [x, *_weights(net, dims, fan_in=prod(dims[1:]), outputs=channels, bias=bias)],
        shape,
        macs=prod(shape) * prod(dims[1:]),
        weights=prod(dims),
        kernel_shape=(kernel, kernel),
        pads=(kernel // 2,) * 4,
        strides=(stride, stride),
        group=group,
    )


def conv_transpose(net: Network, x: Value, channels: int, *, bias: bool = True) -> Value:
    """ConvTranspose that doubles the small size, and keeps the large one."""
    _, depth, size, _ = x.shape
    stride, kernel, pad = (2, 2, 0) if size == SMALL else (1, 3, 1)
    dims = (depth, channels, kernel, kernel)
    shape = (1, channels, size * stride, size * stride)
    return net.apply(
        "ConvTranspose",
        [x, *_weights(net, dims, fan_in=depth * kernel * kernel // stride**2, outputs=channels, bias=bias)],
        shape,
        macs=prod(x.shape) * prod(dims[1:]),
        weights=prod(dims),
        kernel_shape=(kernel, kernel),
        pads=(pad,) * 4,
        strides=(stride, stride),
    )


def matmul(net: Network, x: Value, columns: int, *, gemm: bool = False) -> Value:
    """MatMul of [..., rows, k] by a constant, or Gemm of [rows, k]. No backbone (R3)."""
    shape = (*x.shape[:-1], columns)
    weight = net.parameter(net.normal((x.shape[-1], columns), 1 / sqrt(x.shape[-1])))
    macs, weights = prod(x.shape) * columns, x.shape[-1] * columns
    return net.apply("Gemm" if gemm else "MatMul", [x, weight], shape, macs=macs, weights=weights)


def norm(net: Network, x: Value) -> Value:
    """BatchNormalization: part of an epilogue."""
    channels = (x.shape[1],)
    ranges = ((0.5, 1.5), (-0.1, 0.1), (-0.1, 0.1), (0.5, 1.5))
    return net.apply(
        "BatchNormalization",
        [x, *(net.parameter(net.uniform(channels, low, high)) for low, high in ranges)],
        x.shape,
        through=x,
    )


def activation(net: Network, x: Value, kind: str) -> Value:
    """An activation as an op, or written out: part of an epilogue in both forms.

    An op that the opset doesn't have yet is written out.
    """
    opset = net.topology.opset
    if (kind == "hard_swish" and opset < 14) or (kind == "gelu" and opset < 20) or (kind == "swish" and opset < 24):
        kind = {"hard_swish": "hard_swish_by_sigmoid", "gelu": "gelu_by_erf", "swish": "silu"}[kind]
    match kind:
        case "relu":
            return net.apply("Relu", [x], x.shape, through=x)
        case "relu6":
            return net.apply("Clip", [x, _scalar(net, 0), _scalar(net, 6)], x.shape, through=x)
        case "leaky_relu":
            return net.apply("LeakyRelu", [x], x.shape, through=x, alpha=0.1)
        case "sigmoid":
            return net.apply("Sigmoid", [x], x.shape, through=x)
        case "hard_swish":
            return net.apply("HardSwish", [x], x.shape, through=x)
        case "gelu":
            return net.apply("Gelu", [x], x.shape, through=x)
        case "swish":
            return net.apply("Swish", [x], x.shape, through=x)
        case "silu":
            return _times(net, x, net.apply("Sigmoid", [x], x.shape))
        case "hard_swish_by_sigmoid":
            return _times(net, x, net.apply("HardSigmoid", [x], x.shape, alpha=1 / 6, beta=0.5))
        case "hard_swish_by_clip":
            return _hard_swish_by_clip(net, x)
        case "gelu_by_erf":
            return _gelu_by_erf(net, x)
        case "mish":
            softplus = net.apply("Softplus", [x], x.shape)
            return _times(net, x, net.apply("Tanh", [softplus], x.shape))
        case _:
            return x


def scale(net: Network, x: Value, op_type: str = "Mul") -> Value:
    """Mul or Div by a constant for each channel: layer scale, part of an epilogue."""
    factors = net.parameter(net.uniform((1, x.shape[1], 1, 1), 0.5, 1.5))
    return net.apply(op_type, [x, factors], x.shape, through=x)


def bias(net: Network, x: Value, op_type: str = "Add") -> Value:
    """Add or Sub of a constant along dim 1 (a feature map) or the last dim (rows): part of an epilogue, no residual."""
    shape = (1, x.shape[1], 1, 1) if len(x.shape) == 4 else (x.shape[-1],)
    return net.combine(op_type, [x, net.parameter(net.uniform(shape, -0.1, 0.1))], through=x)


def gate(net: Network, x: Value, *, hard: bool = False) -> Value:
    """[1, channels, 1, 1] between 0 and 1, computed from x: the squeeze and the excitation.

    Its last op is no epilogue for anyone who broadcasts it, so it gets no backbone.
    """
    channels = x.shape[1]
    pooled = net.apply("GlobalAveragePool", [x], (1, channels, 1, 1))
    hidden = activation(net, conv(net, pooled, channels // 4, kernel=1), "relu")
    logits = conv(net, hidden, channels, kernel=1)
    return net.apply("HardSigmoid" if hard else "Sigmoid", [logits], logits.shape)


def squeeze_excite(net: Network, x: Value, *, hard: bool = False) -> Value:
    """Multiply x by its gate. The Mul has two variable paths and is no activation, so a backbone's walk ends here."""
    return net.apply("Mul", [x, gate(net, x, hard=hard)], x.shape)


def max_pool(net: Network, x: Value, *, through: Value | None = None) -> Value:
    """MaxPool that halves the large size, and keeps the small one."""
    size = x.shape[2]
    kernel, stride, pad = (2, 2, 0) if size == LARGE else (3, 1, 1)
    shape = (1, x.shape[1], size // stride, size // stride)
    return net.apply(
        "MaxPool",
        [x],
        shape,
        through=through,
        kernel_shape=(kernel, kernel),
        strides=(stride, stride),
        pads=(pad,) * 4,
    )


def copy(net: Network, x: Value, op_type: str, shape: tuple[int, ...], perm: tuple[int, ...] = ()) -> Value:
    """Identity, Reshape to a shape, or Transpose by `perm`: a copy op, values stay as they are."""
    match op_type:
        case "Reshape":
            return net.apply("Reshape", [x, net.setting(np.array(shape, np.int64))], shape, through=x)
        case "Transpose":
            return net.apply("Transpose", [x], tuple(x.shape[p] for p in perm), through=x, perm=perm)
        case _:
            return net.apply(op_type, [x], shape, through=x)


def concat(net: Network, values: list[Value]) -> Value:
    """Concat of channels: a copy op, which has a backbone only if all its inputs have the same one (R2)."""
    first = values[0]
    shape = (1, sum(v.shape[1] for v in values), *first.shape[2:])
    together = all(v.backbone is first.backbone for v in values)
    return net.apply("Concat", values, shape, through=first if together else None, axis=1)


def half(net: Network, x: Value, *, second: bool) -> Value:
    """One half of the channels by Slice: a copy op."""
    channels = x.shape[1] // 2
    bounds = [channels, 2 * channels] if second else [0, channels]
    settings = [net.setting(np.array([number], np.int64)) for number in (*bounds, 1)]
    return net.apply("Slice", [x, *settings], (1, channels, *x.shape[2:]), through=x)


def resize(net: Network, x: Value) -> Value:
    """Resize nearest by 2: a copy op."""
    scales = net.setting(np.array([1, 1, 2, 2], np.float32))
    shape = (1, x.shape[1], 2 * x.shape[2], 2 * x.shape[3])
    return net.apply(
        "Resize",
        [x, "", scales],
        shape,
        through=x,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def match(net: Network, x: Value, like: Value) -> Value:
    """Bring x to the shape of `like`, by Resize and a 1x1 Conv, as far as it needs them."""
    if x.shape[2] < like.shape[2]:
        x = resize(net, x)
    if x.shape != like.shape:
        x = conv(net, x, like.shape[1], kernel=1, stride=x.shape[2] // like.shape[2])
    return x


def _weights(net: Network, dims: tuple[int, ...], *, fan_in: int, outputs: int, bias: bool) -> list[str]:
    names = [net.parameter(net.normal(dims, 1 / sqrt(fan_in)))]
    return [*names, net.parameter(net.uniform((outputs,), -0.1, 0.1))] if bias else names


def _scalar(net: Network, value: float) -> str:
    return net.parameter(np.array(value, np.float32))


def _times(net: Network, x: Value, factor: Value) -> Value:
    """The Mul that ends a written-out activation of x, which R2 counts as one op."""
    return net.apply("Mul", [x, factor], x.shape, through=x)


def _hard_swish_by_clip(net: Network, x: Value) -> Value:
    shifted = net.combine("Add", [x, _scalar(net, 3)])
    clipped = net.apply("Clip", [shifted, _scalar(net, 0), _scalar(net, 6)], x.shape)
    return net.apply("Div", [_times(net, x, clipped), _scalar(net, 6)], x.shape, through=x)


def _gelu_by_erf(net: Network, x: Value) -> Value:
    erf = net.apply("Erf", [net.apply("Div", [x, _scalar(net, sqrt(2))], x.shape)], x.shape)
    shifted = net.combine("Add", [erf, _scalar(net, 1)])
    return net.apply("Mul", [_times(net, x, shifted), _scalar(net, 0.5)], x.shape, through=x)
