"""Inception."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import average_pool, classifier, concat, conv_unit, max_pool


def inception(
    *,
    width: int = 16,
    batch_norm: bool = True,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """Inception: blocks of parallel branches, with pools among them. The output "y" is [batch, classes].

        x -+-> 1x1 -----------------------> concat
           +-> 1x1 -> 3x3 ------------------^
           +-> 1x1 -> 3x3 -> 3x3 -----------^
           +-> AveragePool -> 1x1 ----------^

    Two such blocks, "block1" and "block2", and between them "reduction", which halves the size: a strided 3x3, then
    1x1 - 3x3 - strided 3x3, and a MaxPool ("reduction_pool") in parallel. Every convolution is followed by a Relu.
    There are no Adds.

    Args:
        width: Channels of the narrowest branches.
        batch_norm: Keep BatchNormalization nodes.
        size: Height and width of the input.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g, x = begin("inception", 3, size, batch, opset, seed)
    y = max_pool(g, conv_unit(g, x, width * 2, "stem", stride=2, batch_norm=batch_norm), "stem_pool", kernel=3)
    y = _block(g, y, width, "block1", batch_norm)
    y = _reduction(g, y, width, "reduction", batch_norm)
    y = _block(g, y, width * 2, "block2", batch_norm)
    return end(g, classifier(g, y, classes))


def _block(g: Graph, x: str, width: int, scope: str, batch_norm: bool) -> str:
    one = conv_unit(g, x, width, f"{scope}_one", kernel=1, batch_norm=batch_norm)
    pooled = average_pool(g, x, f"{scope}_pool", kernel=3, stride=1)
    pooled = conv_unit(g, pooled, width, f"{scope}_project", kernel=1, batch_norm=batch_norm)
    branches = [one, *(_stack(g, x, width, f"{scope}_{name}", n, 1, batch_norm) for name, n in _STACKS), pooled]
    return concat(g, branches, f"{scope}_concat")


def _reduction(g: Graph, x: str, width: int, scope: str, batch_norm: bool) -> str:
    strided = conv_unit(g, x, width * 2, f"{scope}_one", stride=2, batch_norm=batch_norm)
    stack = _stack(g, x, width, f"{scope}_three", 2, 2, batch_norm)
    return concat(g, [strided, stack, max_pool(g, x, f"{scope}_pool", kernel=3)], f"{scope}_concat")


_STACKS = (("two", 1), ("three", 2))


def _stack(g: Graph, x: str, width: int, scope: str, count: int, stride: int, batch_norm: bool) -> str:
    """A 1x1 convolution, then `count` 3x3, the last of them with the stride."""
    y = conv_unit(g, x, width, scope, "1", kernel=1, batch_norm=batch_norm)
    for number in range(1, count + 1):
        step = stride if number == count else 1
        y = conv_unit(g, y, width * 2, scope, str(number + 1), stride=step, batch_norm=batch_norm)
    return y
