"""EfficientViT: MBConv and multi-scale linear attention."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end, inverted_residual
from onnxq_builders._graph import Graph
from onnxq_builders._layers import activate, add, classifier, concat, conv, conv_unit, reshape


def efficientvit(
    *,
    width: int = 16,
    head_dim: int = 16,
    blocks: int = 2,
    activation: str = "hardswish",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """EfficientViT: MBConv blocks, then blocks of linear attention and MBConv. The output "y" is [batch, classes].

    | Add | skip | trunk |
    |---|---|---|
    | block1_add | stem_hardswish | block1_project_bn |
    | att<n>_add | the input: block2_project_bn, then att<n-1>_local_add | att<n>_project_bn |
    | att<n>_local_add | att<n>_add | att<n>_local_project_bn |

    "att<n>_guard" adds a constant to a divisor and is no residual Add.

    Args:
        width: Channels of the stem; the attention blocks have three times as many.
        head_dim: Channels of an attention head, a divisor of `3 * width`.
        blocks: Number of attention blocks.
        activation: Activation of the convolutions.
        batch_norm: Keep BatchNormalization nodes.
        swap: Exchange the operands of the Adds.
        size: Height and width of the input.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g, y = begin("efficientvit", 3, size, batch, opset, seed)
    y = conv_unit(g, y, width, "stem", stride=2, act=activation, batch_norm=batch_norm)
    y = inverted_residual(g, y, width, "block1", expand=1, act=activation, batch_norm=batch_norm, swap=swap)
    y = inverted_residual(g, y, width * 3, "block2", expand=4, stride=2, act=activation, batch_norm=batch_norm)
    for scope in (f"att{i}" for i in range(1, blocks + 1)):
        y = add(g, _attention(g, y, scope, head_dim, size // 4, batch_norm), y, f"{scope}_add", swap=swap)
        y = inverted_residual(
            g, y, g.channels[y], f"{scope}_local", expand=4, act=activation, batch_norm=batch_norm, swap=swap
        )
    y = conv_unit(g, y, width * 8, "head", kernel=1, act=activation, batch_norm=batch_norm)
    return end(g, classifier(g, y, classes))


def _attention(g: Graph, x: str, scope: str, dim: int, side: int, batch_norm: bool) -> str:
    """Multi-scale linear attention: relu(Q) (relu(K)^T V), divided by relu(Q) times the sum of relu(K)^T.

    qkv (1x1 Conv) -+-> Concat -> [N, heads, 3 * dim, H * W] -> Split q, k, v -> attention -> project (1x1 Conv)
                    +-> 5x5 depthwise -> grouped 1x1 -^
    """
    channels = g.channels[x]
    qkv = conv(g, x, channels * 3, f"{scope}_qkv", kernel=1, gain=1.0)
    wide = conv(g, qkv, channels * 3, f"{scope}_scale_depthwise", kernel=5, groups=channels * 3, gain=1.0)
    wide = conv(g, wide, channels * 3, f"{scope}_scale_group", kernel=1, groups=3 * channels // dim, gain=1.0)
    both = concat(g, [qkv, wide], f"{scope}_scales")
    heads = reshape(g, both, (0, -1, 3 * dim, side * side), f"{scope}_heads")
    sizes = g.constant(f"{scope}_split_sizes", [dim] * 3)
    parts = [f"{scope}_{part}" for part in "qkv"]
    q, k, v = g.node_with_outputs("Split", [heads, sizes], parts, name=f"{scope}_split", axis=2)
    q = activate(g, q, "relu", f"{scope}_q")
    k = activate(g, k, "relu", f"{scope}_k")
    # A row of ones below V makes the same product yield the divisor.
    pads = g.constant(f"{scope}_pads", [0, 0, 0, 0, 0, 0, 1, 0])
    v = g.node("Pad", [v, pads, g.constant(f"{scope}_pad_value", 1.0)], f"{scope}_v_ones", mode="constant")
    k = g.node("Transpose", [k], f"{scope}_k_transposed", perm=[0, 1, 3, 2])
    y = g.node("MatMul", [g.node("MatMul", [v, k], f"{scope}_vk"), q], f"{scope}_vkq")
    sizes = g.constant(f"{scope}_parts", [dim, 1])
    names = [f"{scope}_weighted", f"{scope}_divisor"]
    weighted, divisor = g.node_with_outputs("Split", [y, sizes], names, name=f"{scope}_parted", axis=2)
    divisor = g.node("Add", [divisor, g.constant(f"{scope}_epsilon", 1e-6)], f"{scope}_guard")
    y = g.node("Div", [weighted, divisor], f"{scope}_attended")
    y = reshape(g, y, (0, channels * 2, side, side), f"{scope}_merged", channels=channels * 2)
    return conv_unit(g, y, channels, f"{scope}_project", kernel=1, act="none", batch_norm=batch_norm, gain=1.0)
