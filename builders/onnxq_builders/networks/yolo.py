"""YOLO: the C2f block in a backbone with a small neck."""

from __future__ import annotations

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

    def unit(x: str, out: int, scope: str, tag: str = "", kernel: int = 3, stride: int = 1) -> str:
        return conv_unit(g, x, out, scope, tag, kernel=kernel, stride=stride, act=activation, batch_norm=batch_norm)

    def c2f(x: str, out: int, scope: str, shortcut: bool) -> str:
        half = out // 2
        y = unit(x, out, f"{scope}_in", kernel=1)
        sizes = g.constant(f"{scope}_split_sizes", [half, half])
        parts = g.node_with_outputs(
            "Split", [y, sizes], [f"{scope}_a", f"{scope}_b"], name=f"{scope}_split", channels=half, axis=1
        )
        for bottleneck in (f"{scope}_m{number}" for number in range(1, blocks + 1)):
            y = unit(unit(parts[-1], half, bottleneck, "1"), half, bottleneck, "2")
            parts.append(add(g, y, parts[-1], f"{bottleneck}_add", swap=swap) if shortcut else y)
        return unit(concat(g, parts, f"{scope}_concat"), out, f"{scope}_out", kernel=1)

    y = unit(x, width, "stem", stride=2)
    small = c2f(unit(y, width * 2, "down1", stride=2), width * 2, "c2f1", shortcut=True)
    large = c2f(unit(small, width * 4, "down2", stride=2), width * 4, "c2f2", shortcut=True)
    joined = concat(g, [upsample(g, large, 2, "neck_upsample"), small], "neck_concat")
    small = c2f(joined, width * 2, "c2f3", shortcut=False)
    return g.model(
        {"small": _detect(g, small, classes, "small_head"), "large": _detect(g, large, classes, "large_head")}
    )


def _detect(g: Graph, x: str, classes: int, scope: str) -> str:
    """Box distribution (64 channels) and class scores of each position, joined."""
    box = conv(g, x, 64, f"{scope}_box", kernel=1, bias=True, gain=1.0)
    score = g.node("Sigmoid", [conv(g, x, classes, f"{scope}_class", kernel=1, bias=True, gain=1.0)], f"{scope}_score")
    return concat(g, [box, score], f"{scope}_concat")
