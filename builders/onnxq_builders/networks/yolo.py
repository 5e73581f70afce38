"""YOLO: the C2f block in a backbone with a small neck."""

from __future__ import annotations

from dataclasses import dataclass

from onnx import ModelProto

from onnxq_builders._blocks import begin
from onnxq_builders._graph import Graph
from onnxq_builders._layers import add, concat, conv, conv_unit, upsample


def yolo_c2f(
    *,
    width: int = 16,
    blocks: int = 2,
    activation: str = "silu",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """YOLOv8's C2f blocks: two in the backbone with shortcuts, one in the neck without, two detection maps.

        in (1x1) -> Split -+- a ----------------------------------> Concat -> out (1x1)
                           +- b -+-> m1 (3x3, 3x3) -> m1_add -+-----^ ^ ^
                                 |                  ^         |       | |
                                 +------------------+---------|-------+ |
                                                              +-> m2 .. m2_add

    Adds, for p in c2f1, c2f2 (the neck's block "c2f3" has none): "<p>_m1_add" has the skip "<p>_b" (an output of the
    Split), the trunk "<p>_m1_silu2"; "<p>_m<n>_add" the skip "<p>_m<n-1>_add", the trunk "<p>_m<n>_silu2". The
    written-out SiLU is an epilogue of its convolution.

    Outputs: "small" [batch, 64 + classes, size / 4, size / 4] and "large" [batch, 64 + classes, size / 8, size / 8].

    Args:
        width: Channels of the stem; the stages have twice and four times as many.
        blocks: Number of bottlenecks in a C2f block.
        activation: Activation of the convolutions.
        batch_norm: Keep BatchNormalization nodes.
        swap: Exchange the operands of the Adds.
        size: Height and width of the input, divisible by 8.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g, x = begin("yolo_c2f", 3, size, batch, opset, seed)

    style = Style(activation, batch_norm, swap)
    y = unit(g, x, width, "stem", style, stride=2)
    small = c2f(g, unit(g, y, width * 2, "down1", style, stride=2), width * 2, "c2f1", style, blocks, shortcut=True)
    large = c2f(g, unit(g, small, width * 4, "down2", style, stride=2), width * 4, "c2f2", style, blocks, shortcut=True)
    joined = concat(g, [upsample(g, large, 2, "neck_upsample"), small], "neck_concat")
    small = c2f(g, joined, width * 2, "c2f3", style, blocks, shortcut=False)
    return g.model(
        {"small": _detect(g, small, classes, "small_head"), "large": _detect(g, large, classes, "large_head")}
    )


@dataclass(frozen=True, slots=True)
class Style:
    """What is the same all over a YOLO: the activation, whether BatchNormalization is kept, the operand order."""

    activation: str
    batch_norm: bool
    swap: bool


def unit(
    g: Graph, x: str, out: int, scope: str, style: Style, tag: str = "", *, kernel: int = 3, stride: int = 1
) -> str:
    """Convolve, normalize, activate."""
    return conv_unit(
        g, x, out, scope, tag, kernel=kernel, stride=stride, act=style.activation, batch_norm=style.batch_norm
    )


def c2f(g: Graph, x: str, out: int, scope: str, style: Style, blocks: int, *, shortcut: bool) -> str:
    """A C2f block, see `yolo_c2f`. Bottlenecks have residual Adds if they have a shortcut."""
    half = out // 2
    y = unit(g, x, out, f"{scope}_in", style, kernel=1)
    sizes = g.constant(f"{scope}_split_sizes", [half, half])
    parts = g.node_with_outputs(
        "Split", [y, sizes], [f"{scope}_a", f"{scope}_b"], name=f"{scope}_split", channels=half, axis=1
    )
    for bottleneck in (f"{scope}_m{number}" for number in range(1, blocks + 1)):
        y = unit(g, unit(g, parts[-1], half, bottleneck, style, "1"), half, bottleneck, style, "2")
        parts.append(add(g, y, parts[-1], f"{bottleneck}_add", swap=style.swap) if shortcut else y)
    return unit(g, concat(g, parts, f"{scope}_concat"), out, f"{scope}_out", style, kernel=1)


def _detect(g: Graph, x: str, classes: int, scope: str) -> str:
    """Box distribution (64 channels) and class scores of each position, joined."""
    box = conv(g, x, 64, f"{scope}_box", kernel=1, bias=True, gain=1.0)
    score = g.node("Sigmoid", [conv(g, x, classes, f"{scope}_class", kernel=1, bias=True, gain=1.0)], f"{scope}_score")
    return concat(g, [box, score], f"{scope}_concat")
