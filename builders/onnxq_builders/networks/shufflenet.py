"""ShuffleNetV2."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import concat, conv_unit, gemm, max_pool, reshape, transpose


def shufflenet_v2(
    *,
    width: int = 32,
    units: int = 3,
    batch_norm: bool = True,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """ShuffleNetV2: half of the channels passes each unit untouched, then all are shuffled. "y" is [batch, classes].

        x -> Split -+-> left -----------------------------------> Concat -> Reshape -> Transpose -> Reshape
                    +-> right -> 1x1 -> depthwise -> 1x1 ---------^

    The first unit of a stage halves the size: both branches read all of x and have a strided depthwise convolution.
    There are no Adds. The head takes its mean over height and width as one ReduceMean, as exporters write `mean`.

    Args:
        width: Channels of a branch in the first stage; the second has twice as many.
        units: Number of units of each stage.
        batch_norm: Keep BatchNormalization nodes.
        size: Height and width of the input, divisible by 16.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set; below 18, whose ReduceMean takes its axes as an input.
        seed: Seed of the weights.
    """
    if opset >= 18:
        raise ValueError(f"opset is {opset}; it can be up to 17")
    g, x = begin("shufflenet_v2", 3, size, batch, opset, seed)
    y = max_pool(g, conv_unit(g, x, width, "stem", stride=2, batch_norm=batch_norm), "stem_pool", kernel=3)
    for stage, half in enumerate((width, width * 2), start=1):
        for number in range(1, units + 1):
            scope = f"stage{stage}_unit{number}"
            if number == 1:
                left = _depthwise_unit(g, y, half, f"{scope}_left", 2, batch_norm)
                right = _branch(g, y, half, f"{scope}_right", 2, batch_norm)
            else:
                left, right = _halves(g, y, half, scope)
                right = _branch(g, right, half, f"{scope}_right", 1, batch_norm)
            y = _shuffle(g, concat(g, [left, right], f"{scope}_concat"), half, size // (4 * 2**stage), scope)
    y = conv_unit(g, y, width * 8, "head", kernel=1, batch_norm=batch_norm)
    features = g.node("ReduceMean", [y], "head_mean", axes=[2, 3], keepdims=0)
    return end(g, gemm(g, features, width * 8, classes, "head_gemm"))


def _halves(g: Graph, x: str, half: int, scope: str) -> list[str]:
    sizes = g.constant(f"{scope}_split_sizes", [half, half])
    names = [f"{scope}_left", f"{scope}_right"]
    return g.node_with_outputs("Split", [x, sizes], names, name=f"{scope}_split", channels=half, axis=1)


def _branch(g: Graph, x: str, out: int, scope: str, stride: int, batch_norm: bool) -> str:
    y = conv_unit(g, x, out, f"{scope}_in", kernel=1, batch_norm=batch_norm)
    return _depthwise_unit(g, y, out, scope, stride, batch_norm)


def _depthwise_unit(g: Graph, x: str, out: int, scope: str, stride: int, batch_norm: bool) -> str:
    """A depthwise convolution without activation, then a 1x1 convolution with one."""
    channels = g.channels[x]
    depthwise = f"{scope}_depthwise"
    y = conv_unit(g, x, channels, depthwise, stride=stride, groups=channels, act="none", batch_norm=batch_norm)
    return conv_unit(g, y, out, f"{scope}_out", kernel=1, batch_norm=batch_norm)


def _shuffle(g: Graph, x: str, half: int, size: int, scope: str) -> str:
    """Interleave the channels of the two halves."""
    y = reshape(g, x, (0, 2, half, size, size), f"{scope}_grouped")
    return reshape(
        g,
        transpose(g, y, (0, 2, 1, 3, 4), f"{scope}_exchanged"),
        (0, half * 2, size, size),
        f"{scope}_shuffled",
        half * 2,
    )
