"""DenseNet."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import average_pool, classifier, concat, conv, conv_unit, max_pool, normalize


def densenet(
    *,
    layers: Sequence[int] = (2, 2),
    growth: int = 16,
    width: int = 32,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """DenseNet: each layer reads the Concat of all layers before it. The output "y" is [batch, classes].

        x -+-> bn1 -> Relu -> conv1 (1x1) -> bn2 -> Relu -> conv2 (3x3) -> concat
           +----------------------------------------------------------------^

    There are no Adds. Behind each block but the last stands a transition: BatchNormalization, Relu, 1x1 convolution to
    half the channels ("transition<b>_conv"), AveragePool ("transition<b>_pool"). The stem's MaxPool closes its
    convolution's pattern. The first BatchNormalization of a layer stands behind a Concat and can't be folded.

    Args:
        layers: Number of layers of each block.
        growth: Channels that a layer adds.
        width: Channels of the stem.
        size: Height and width of the input.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g, y = begin("densenet", 3, size, batch, opset, seed)
    y = max_pool(g, conv_unit(g, y, width, "stem", stride=2), "stem_pool", kernel=3)
    for block, count in enumerate(layers, start=1):
        for scope in (f"block{block}_layer{number}" for number in range(1, count + 1)):
            y = concat(g, [y, _layer(g, y, growth, scope)], f"{scope}_concat")
        if block < len(layers):
            y = _preactivated(g, y, g.channels[y] // 2, f"transition{block}", kernel=1)
            y = average_pool(g, y, f"transition{block}_pool")
    y = g.node("Relu", [normalize(g, y, "head_bn")], "head_relu")
    return end(g, classifier(g, y, classes))


def _layer(g: Graph, x: str, growth: int, scope: str) -> str:
    y = _preactivated(g, x, growth * 4, scope, "1", kernel=1)
    return _preactivated(g, y, growth, scope, "2")


def _preactivated(g: Graph, x: str, out: int, scope: str, tag: str = "", kernel: int = 3) -> str:
    y = g.node("Relu", [normalize(g, x, f"{scope}_bn{tag}")], f"{scope}_relu{tag}")
    return conv(g, y, out, f"{scope}_conv{tag}", kernel=kernel)
