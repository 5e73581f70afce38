"""YOLO as it is exported for detection: C2f, SPPF, a neck, heads, and the boxes decoded inside the model."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import activate, concat, conv, max_pool, reshape, transpose, upsample
from onnxq_builders.networks.yolo import Style, c2f, unit

BINS = 16
"""Each side of a box is a distribution over so many distances."""


def yolo_detector(
    *,
    width: int = 32,
    activation: str = "silu",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """YOLOv8 with two levels. The output "y" is [batch, 4 + classes, anchors]: boxes in pixels and class scores.

        stem -> c2f1 ------------------------> Concat -> c2f3 -+-----------------> small heads
                 +-> c2f2 -> SPPF -+-> Resize --^              +-> down3 -> Concat -> c2f4 -> large heads
                                   +---------------------------------------^

        SPPF: in (1x1) -+-> MaxPool -+-> MaxPool -+-> MaxPool --> Concat -> out (1x1)
                        +------------+------------+---------------^

        heads: box and class maps, joined over all levels; box: Softmax over the bins, then a 1x1 convolution with the
        weights 0 .. 15 ("dfl_conv"): the expected distance of each side from the anchor. No rounding belongs there.

    Adds, for p in c2f1, c2f2: "<p>_m1_add" has the skip "<p>_b", the trunk "<p>_m1_silu2". The Adds of the decoder are
    none: "right_bottom" adds a constant, "center_sum" joins two results of "dfl_conv".

    Args:
        width: Channels of the stem; the levels have as many and twice as many.
        activation: Activation of the convolutions.
        batch_norm: Keep BatchNormalization nodes.
        swap: Exchange the operands of the residual Adds.
        size: Height and width of the input, divisible by 8.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g, x = begin("yolo_detector", 3, size, batch, opset, seed)
    style = Style(activation, batch_norm, swap)
    y = unit(g, x, width, "stem", style, stride=2)
    small = c2f(g, unit(g, y, width, "down1", style, stride=2), width, "c2f1", style, 1, shortcut=True)
    large = c2f(g, unit(g, small, width * 2, "down2", style, stride=2), width * 2, "c2f2", style, 1, shortcut=True)
    large = _sppf(g, large, "sppf", style)
    joined = concat(g, [upsample(g, large, 2, "neck_upsample"), small], "neck_concat1")
    small = c2f(g, joined, width, "c2f3", style, 1, shortcut=False)
    joined = concat(g, [unit(g, small, width, "down3", style, stride=2), large], "neck_concat2")
    large = c2f(g, joined, width * 2, "c2f4", style, 1, shortcut=False)
    maps = [_heads(g, level, classes, scope, style) for level, scope in ((small, "small"), (large, "large"))]
    rows = g.node("Concat", maps, "all_levels", axis=2)
    return end(g, _decode(g, rows, classes, [(size // step, step) for step in (4, 8)]))


def _sppf(g: Graph, x: str, scope: str, style: Style) -> str:
    channels = g.channels[x]
    parts = [unit(g, x, channels // 2, f"{scope}_in", style, kernel=1)]
    parts += [max_pool(g, parts[-1], f"{scope}_pool1", kernel=5, stride=1)]
    parts += [max_pool(g, parts[-1], f"{scope}_pool2", kernel=5, stride=1)]
    parts += [max_pool(g, parts[-1], f"{scope}_pool3", kernel=5, stride=1)]
    return unit(g, concat(g, parts, f"{scope}_concat"), channels, f"{scope}_out", style, kernel=1)


def _heads(g: Graph, x: str, classes: int, scope: str, style: Style) -> str:
    """Box distributions and class logits of one level: [N, 4 * BINS + classes, positions]."""
    maps = []
    for part, out in (("box", 4 * BINS), ("class", classes)):
        y = unit(g, x, g.channels[x], f"{scope}_{part}", style, "1")
        y = unit(g, y, g.channels[x], f"{scope}_{part}", style, "2")
        maps.append(conv(g, y, out, f"{scope}_{part}", kernel=1, bias=True, gain=1.0))
    joined = concat(g, maps, f"{scope}_maps")
    return reshape(g, joined, (0, 4 * BINS + classes, -1), f"{scope}_rows")


def _decode(g: Graph, rows: str, classes: int, levels: list[tuple[int, int]]) -> str:
    """Turn the rows of all levels into boxes (center, width and height, in pixels) and scores."""
    anchors, strides = _anchors(levels)
    box, score = _split(g, rows, [4 * BINS, classes], ["box_rows", "class_rows"], "rows_split")
    bins = transpose(g, reshape(g, box, (0, 4, BINS, strides.size), "box_bins"), (0, 2, 1, 3), "box_bins_first", BINS)
    share = g.node("Softmax", [bins], "box_softmax", axis=1)
    weight = g.constant("dfl_weight", np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
    distance = reshape(g, g.node("Conv", [share, weight], "dfl_conv"), (0, 4, strides.size), "distances", 4)
    before, behind = _split(g, distance, [2, 2], ["distance_before", "distance_behind"], "distances_split")
    anchor = g.constant("anchors", anchors[None])
    low = g.node("Sub", [anchor, before], "left_top")
    high = g.node("Add", [anchor, behind], "right_bottom")
    center = g.node("Div", [g.node("Add", [low, high], "center_sum"), g.constant("two", 2.0)], "center")
    boxes = g.node("Concat", [center, g.node("Sub", [high, low], "extent")], "boxes", axis=1)
    pixels = g.node("Mul", [boxes, g.constant("anchor_strides", strides[None, None])], "boxes_in_pixels")
    return g.node("Concat", [pixels, activate(g, score, "sigmoid", "scores")], "detections", axis=1)


def _split(g: Graph, x: str, sizes: list[int], names: list[str], name: str) -> list[str]:
    return g.node_with_outputs("Split", [x, g.constant(f"{name}_sizes", sizes)], names, name=name, axis=1)


def _anchors(levels: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Centers of all positions in units of their level's stride [2, A], and the strides [A]."""
    grids = [np.stack(np.meshgrid(*[np.arange(n, dtype=np.float32) + 0.5] * 2)).reshape(2, -1) for n, _ in levels]
    strides = [np.full(n * n, step, np.float32) for n, step in levels]
    return np.concatenate(grids, axis=1), np.concatenate(strides)
