"""Layers as networks use them, each a function from the graph and tensor names to the name of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from onnxq_builders._graph import Graph

BN_EPSILON = 1e-5


def scoped(scope: str, part: str) -> str:
    """Name a part of a block: "block1_conv2", or "conv2" when the scope is empty."""
    return f"{scope}_{part}" if scope else part


def conv(
    g: Graph,
    x: str,
    out: int,
    name: str,
    *,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
    gain: float = 2.0,
) -> str:
    """Convolve [N, C, H, W] to [N, out, H/stride, W/stride]."""
    fan_in = g.channels[x] // groups * kernel * kernel
    inputs = [x, g.weight(f"{name}_weight", (out, g.channels[x] // groups, kernel, kernel), fan_in, gain)]
    if bias:
        inputs.append(g.constant(f"{name}_bias", g.normal((out,), 0.1)))
    return _conv_node(g, inputs, out, name, kernel, stride, groups)


def conv_transpose(g: Graph, x: str, out: int, name: str, *, gain: float = 2.0) -> str:
    """Double height and width by a ConvTranspose with kernel 2 and stride 2, with a bias."""
    fan_in = g.channels[x]
    weight = g.weight(f"{name}_weight", (g.channels[x], out, 2, 2), fan_in, gain)
    inputs = [x, weight, g.constant(f"{name}_bias", g.normal((out,), 0.1))]
    return g.node("ConvTranspose", inputs, name, channels=out, kernel_shape=[2, 2], strides=[2, 2])


def conv_unit(
    g: Graph,
    x: str,
    out: int,
    scope: str,
    tag: str = "",
    *,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: str = "relu",
    batch_norm: bool = True,
    gain: float = 2.0,
    weight: str | None = None,
) -> str:
    """Convolve, normalize, activate: nodes <scope>_conv<tag>, <scope>_bn<tag> and <scope>_<activation><tag>.

    Without `batch_norm` the BatchNormalization is folded into the weights, so that the unit computes the same.

    Args:
        g: The graph.
        x: Input.
        out: Number of output channels.
        scope: Name of the block.
        tag: Which of the block's units this is.
        kernel: Height and width of the kernel.
        stride: Step of the kernel.
        groups: Number of groups.
        act: A name in `ACTIVATIONS`.
        batch_norm: Keep the BatchNormalization as a node.
        gain: Variance gain of the weights.
        weight: An initializer to share; only without folding.
    """
    name = scoped(scope, f"conv{tag}")
    shape = (out, g.channels[x] // groups, kernel, kernel)
    weights = g.normal(shape, (gain / math.prod(shape[1:])) ** 0.5)
    scale, shift, mean, variance = _batch_norm_statistics(g, out)
    if batch_norm:
        inputs = [x, weight or g.constant(f"{name}_weight", weights)]
        y = _conv_node(g, inputs, out, name, kernel, stride, groups)
        y = _batch_norm(g, y, scoped(scope, f"bn{tag}"), (scale, shift, mean, variance))
    else:
        factor = scale / np.sqrt(variance + np.float32(BN_EPSILON))
        inputs = [
            x,
            weight or g.constant(f"{name}_weight", weights * factor[:, None, None, None]),
            g.constant(f"{name}_bias", shift - mean * factor),
        ]
        y = _conv_node(g, inputs, out, name, kernel, stride, groups)
    return activate(g, y, act, scope, tag)


def normalize(g: Graph, x: str, name: str) -> str:
    """Normalize by fixed statistics that are near those of the data, not by identity."""
    return _batch_norm(g, x, name, _batch_norm_statistics(g, g.channels[x]))


def activate(g: Graph, x: str, kind: str, scope: str, tag: str = "") -> str:
    """Apply an activation; the result is named after the first word of its kind: "hardswish_clip" gives hardswish.

    Raises:
        ValueError: No such activation, or the operator needs a later opset.
    """
    if kind not in ACTIVATIONS:
        raise ValueError(f"unknown activation {kind!r}; there are {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[kind](g, x, scoped(scope, kind.split("_")[0] + tag))


def add(g: Graph, trunk: str, skip: str, name: str, *, swap: bool = False, op: str = "Add") -> str:
    """Add the branch and its shortcut, in this order or the other."""
    return g.node(op, [skip, trunk] if swap else [trunk, skip], name)


def squeeze_excite(g: Graph, x: str, scope: str, *, reduced: int, act: str = "relu", gate: str = "sigmoid") -> str:
    """Scale each channel by a gate computed from the channels' means.

    x -> GlobalAveragePool -> Conv 1x1 -> act -> Conv 1x1 -> gate -> Mul(x, gate) = <scope>_scale
    """
    pooled = g.node("GlobalAveragePool", [x], f"{scope}_pool")
    squeezed = activate(g, conv(g, pooled, reduced, f"{scope}_reduce", kernel=1, bias=True), act, scope)
    excited = conv(g, squeezed, g.channels[x], f"{scope}_expand", kernel=1, bias=True)
    return g.node("Mul", [x, activate(g, excited, gate, scope, "_gate")], f"{scope}_scale")


def linear(g: Graph, x: str, inner: int, out: int, name: str, *, gain: float = 1.0) -> str:
    """Multiply the last axis by a weight [inner, out] and add a bias: MatMul, then Add."""
    y = g.node("MatMul", [x, g.weight(f"{name}_weight", (inner, out), inner, gain)], f"{name}_matmul", channels=0)
    return g.node("Add", [y, g.constant(f"{name}_bias", g.normal((out,), 0.1))], f"{name}_bias_add")


def classifier(g: Graph, x: str, classes: int) -> str:
    """GlobalAveragePool, Flatten and Gemm with transB: [N, C, H, W] -> [N, classes]."""
    features = g.channels[x]
    flat = g.node("Flatten", [g.node("GlobalAveragePool", [x], "head_pool")], "head_flatten", axis=1)
    return gemm(g, flat, features, classes, "head_gemm")


def gemm(g: Graph, x: str, inner: int, out: int, name: str) -> str:
    """[N, inner] -> [N, out], with the weight stored as [out, inner]."""
    weight = g.weight(f"{name}_weight", (out, inner), inner, 1.0)
    return g.node("Gemm", [x, weight, g.constant(f"{name}_bias", g.normal((out,), 0.1))], name, channels=out, transB=1)


def layer_norm(g: Graph, x: str, features: int, name: str) -> str:
    """Normalize the last axis."""
    scale = g.constant(f"{name}_weight", g.uniform((features,), 0.8, 1.2))
    return g.node(
        "LayerNormalization", [x, scale, g.constant(f"{name}_bias", g.normal((features,), 0.1))], name, axis=-1
    )


def transpose(g: Graph, x: str, perm: Sequence[int], name: str, channels: int = 0) -> str:
    """Permute the axes."""
    return g.node("Transpose", [x], name, channels=channels, perm=list(perm))


def reshape(g: Graph, x: str, shape: Sequence[int], name: str, channels: int = 0) -> str:
    """Reshape; 0 keeps a dim and -1 is worked out."""
    return g.node("Reshape", [x, g.constant(f"{name}_shape", shape)], name, channels=channels)


def max_pool(g: Graph, x: str, name: str, *, kernel: int = 2, stride: int = 2) -> str:
    """MaxPool with padding that keeps the size at stride 1."""
    pad = (kernel - 1) // 2
    return g.node("MaxPool", [x], name, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)


def average_pool(g: Graph, x: str, name: str, *, kernel: int = 2, stride: int = 2) -> str:
    """AveragePool with padding that keeps the size at stride 1; padded elements count."""
    pad = (kernel - 1) // 2
    return g.node(
        "AveragePool",
        [x],
        name,
        kernel_shape=[kernel] * 2,
        strides=[stride] * 2,
        pads=[pad] * 4,
        count_include_pad=1,
    )


def upsample(g: Graph, x: str, factor: int, name: str) -> str:
    """Enlarge height and width by Resize with nearest neighbours."""
    scales = g.constant(f"{name}_scales", np.array([1, 1, factor, factor], np.float32))
    return g.node(
        "Resize",
        [x, "", scales],
        name,
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


def concat(g: Graph, parts: Sequence[str], name: str) -> str:
    """Join along the channels."""
    return g.node("Concat", parts, name, channels=sum(g.channels[part] for part in parts), axis=1)


def _conv_node(g: Graph, inputs: list[str], out: int, name: str, kernel: int, stride: int, groups: int) -> str:
    # A kernel as wide as its stride is a patch embedding: it takes no padding.
    pad = 0 if kernel == stride else (kernel - 1) // 2
    return g.node(
        "Conv",
        inputs,
        name,
        channels=out,
        kernel_shape=[kernel] * 2,
        strides=[stride] * 2,
        pads=[pad] * 4,
        group=groups,
    )


Statistics = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _batch_norm_statistics(g: Graph, channels: int) -> Statistics:
    shape = (channels,)
    return g.uniform(shape, 0.6, 1.2), g.normal(shape, 0.1), g.normal(shape, 0.2), g.uniform(shape, 0.6, 1.4)


def _batch_norm(g: Graph, x: str, name: str, statistics: Statistics) -> str:
    # Not "scale": some quantizers call the scale of a tensor "<tensor>_scale" without looking whether the name is free.
    parts = zip(("gamma", "beta", "mean", "var"), statistics, strict=True)
    parameters = [g.constant(f"{name}_{part}", value) for part, value in parts]
    return g.node("BatchNormalization", [x, *parameters], name, epsilon=BN_EPSILON)


def _single(op: str, since: int = 1, **attributes: Any) -> Callable[[Graph, str, str], str]:
    def build(g: Graph, x: str, name: str) -> str:
        if g.opset < since:
            raise ValueError(f"operator {op} needs opset {since}, the model has {g.opset}")
        return g.node(op, [x], name, **attributes)

    return build


def _gated(op: str, before: str = "", **attributes: Any) -> Callable[[Graph, str, str], str]:
    """The gate t * op(before(t))."""

    def build(g: Graph, x: str, name: str) -> str:
        inner = g.node(before, [x], f"{name}_{before.lower()}") if before else x
        return g.node("Mul", [x, g.node(op, [inner], f"{name}_{op.lower()}", **attributes)], name)

    return build


def _none(g: Graph, x: str, name: str) -> str:
    return x


def _clip(g: Graph, x: str, name: str, low: float = 0.0, high: float = 6.0) -> str:
    return g.node("Clip", [x, g.constant(f"{name}_min", low), g.constant(f"{name}_max", high)], name)


def _prelu(g: Graph, x: str, name: str) -> str:
    slope = g.constant(f"{name}_slope", g.uniform((g.channels[x], 1, 1), 0.05, 0.3))
    return g.node("PRelu", [x, slope], name)


def _hardswish_clip(g: Graph, x: str, name: str) -> str:
    """HardSwish as Paddle writes it: t * clip(t + 3, 0, 6) / 6."""
    shifted = g.node("Add", [x, g.constant(f"{name}_three", 3.0)], f"{name}_shift")
    product = g.node("Mul", [x, _clip(g, shifted, f"{name}_clip")], f"{name}_product")
    return g.node("Div", [product, g.constant(f"{name}_six", 6.0)], name)


def _gelu_erf(g: Graph, x: str, name: str) -> str:
    """Gelu as PyTorch exports it: t * (1 + erf(t / sqrt(2))) * 0.5."""
    scaled = g.node("Div", [x, g.constant(f"{name}_sqrt2", math.sqrt(2.0))], f"{name}_div")
    shifted = g.node("Add", [g.node("Erf", [scaled], f"{name}_erf"), g.constant(f"{name}_one", 1.0)], f"{name}_shift")
    product = g.node("Mul", [x, shifted], f"{name}_product")
    return g.node("Mul", [product, g.constant(f"{name}_half", 0.5)], name)


ACTIVATIONS: Mapping[str, Callable[[Graph, str, str], str]] = MappingProxyType(
    {
        "none": _none,
        "relu": _single("Relu"),
        "relu6": _clip,
        "leakyrelu": _single("LeakyRelu", alpha=0.1),
        "prelu": _prelu,
        "elu": _single("Elu"),
        "selu": _single("Selu"),
        "softplus": _single("Softplus"),
        "sigmoid": _single("Sigmoid"),
        "tanh": _single("Tanh"),
        "hardsigmoid": _single("HardSigmoid", alpha=1 / 6),
        "silu": _gated("Sigmoid"),
        "hardswish": _single("HardSwish", since=14),
        "hardswish_hardsigmoid": _gated("HardSigmoid", alpha=1 / 6),
        "hardswish_clip": _hardswish_clip,
        "mish": _gated("Tanh", before="Softplus"),
        "mish_op": _single("Mish", since=18),
        "gelu": _gelu_erf,
        "gelu_op": _single("Gelu", since=20),
    }
)
"""Activations by name. A plain name is one operator where the default opset has one, else the form exporters write out;
"hardswish_hardsigmoid" and "hardswish_clip" are HardSwish written out, "mish_op" and "gelu_op" the operators."""
