"""Residual blocks that several networks share, and how a small model begins and ends. A block's Add is <scope>_add."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._graph import Graph, renamed
from onnxq_builders._layers import activate, add, conv_unit, max_pool, scoped, squeeze_excite


def basic_block(
    g: Graph,
    x: str,
    out: int,
    scope: str,
    *,
    stride: int = 1,
    act: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    op: str = "Add",
) -> str:
    """Two 3x3 convolutions (ResNet-18). Trunk <scope>_bn2; skip `x`, or <scope>_shortcut_bn where the shape changes."""
    y = conv_unit(g, x, out, scope, "1", stride=stride, act=act, batch_norm=batch_norm)
    y = conv_unit(g, y, out, scope, "2", act="none", batch_norm=batch_norm)
    skip = _shortcut(g, x, out, scope, stride, batch_norm)
    return activate(g, add(g, y, skip, scoped(scope, "add"), swap=swap, op=op), act, scope)


def bottleneck_block(
    g: Graph,
    x: str,
    out: int,
    scope: str,
    *,
    width: int,
    stride: int = 1,
    groups: int = 1,
    act: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
) -> str:
    """1x1, 3x3, 1x1 (ResNet-50). Trunk <scope>_bn3; skip `x`, or <scope>_shortcut_bn where the shape changes."""
    y = conv_unit(g, x, width, scope, "1", kernel=1, act=act, batch_norm=batch_norm)
    y = conv_unit(g, y, width, scope, "2", stride=stride, groups=groups, act=act, batch_norm=batch_norm)
    y = conv_unit(g, y, out, scope, "3", kernel=1, act="none", batch_norm=batch_norm)
    skip = _shortcut(g, x, out, scope, stride, batch_norm)
    return activate(g, add(g, y, skip, scoped(scope, "add"), swap=swap), act, scope)


def inverted_residual(
    g: Graph,
    x: str,
    out: int,
    scope: str,
    *,
    expand: int,
    kernel: int = 3,
    stride: int = 1,
    act: str = "relu6",
    squeeze: int = 0,
    squeeze_act: str = "relu",
    squeeze_gate: str = "sigmoid",
    batch_norm: bool = True,
    swap: bool = False,
) -> str:
    """1x1 expansion, depthwise convolution, optional squeeze-excite, linear 1x1 projection (MobileNetV2, MBConv).

    Where neither size nor channels change, <scope>_add joins the trunk <scope>_project_bn and the skip `x`. The gate
    stands before the projection, so it doesn't part the Add from its convolution.
    """
    inner = g.channels[x] * expand
    y = x
    if expand != 1:
        y = conv_unit(g, y, inner, f"{scope}_expand", kernel=1, act=act, batch_norm=batch_norm)
    depthwise = f"{scope}_depthwise"
    y = conv_unit(g, y, inner, depthwise, kernel=kernel, stride=stride, groups=inner, act=act, batch_norm=batch_norm)
    if squeeze:
        y = squeeze_excite(g, y, f"{scope}_se", reduced=squeeze, act=squeeze_act, gate=squeeze_gate)
    y = conv_unit(g, y, out, f"{scope}_project", kernel=1, act="none", batch_norm=batch_norm, gain=1.0)
    if stride != 1 or g.channels[x] != out:
        return y
    return add(g, y, x, f"{scope}_add", swap=swap)


def _shortcut(g: Graph, x: str, out: int, scope: str, stride: int, batch_norm: bool) -> str:
    if stride == 1 and g.channels[x] == out:
        return x
    shortcut = scoped(scope, "shortcut")
    return conv_unit(g, x, out, shortcut, kernel=1, stride=stride, act="none", batch_norm=batch_norm, gain=1.0)


def begin(name: str, channels: int, size: int, batch: int | str, opset: int, seed: int) -> tuple[Graph, str]:
    """Start a model with one input "x", [batch, channels, size, size]."""
    g = Graph(name, seed=seed, opset=opset)
    return g, g.input("x", (batch, channels, size, size))


def end(g: Graph, y: str, prefix: str = "") -> ModelProto:
    """Finish a model with one output "y"."""
    return renamed(g.model({"y": y}), prefix=prefix)


def with_op(g: Graph, x: str, op: str) -> str:
    """Apply an operator that keeps the shape, as node "skip_op"; an empty name stands for none."""
    if op == "":
        return x
    if op == "MaxPool":
        return max_pool(g, x, "skip_op", kernel=3, stride=1)
    return g.node(op, [x], "skip_op")
