"""ConvNeXt."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import activate, add, conv, gemm, layer_norm, linear, transpose

TO_NHWC = (0, 2, 3, 1)
TO_NCHW = (0, 3, 1, 2)


def convnext(
    *,
    width: int = 32,
    blocks: int = 2,
    conv_mlp: bool = False,
    gelu: str = "gelu",
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """ConvNeXt: two stages of `blocks` blocks each. The output "y" is [batch, classes].

        x -+-> dwconv (7x7) -> Transpose -> LayerNorm -> MatMul -> Gelu -> MatMul -> Mul scale -> Transpose -> Add
           +---------------------------------------------------------------------------------------------------^

    Adds: "stage<s>_block<b>_add".

    - By default both float: the branch ends in a MatMul, and the block's input is an ancestor of it.
    - With `conv_mlp` the MLP is made of 1x1 convolutions, in NCHW: the trunk is "stage<s>_block<b>_scale" (a Mul by a
      constant, an epilogue of "..._fc2"), the skip the block's input: "stem_norm_nchw" and "downsample" for the first
      block of a stage, else "stage<s>_block<b-1>_add".

    Args:
        width: Channels of the first stage; the second has twice as many.
        blocks: Number of blocks of each stage.
        conv_mlp: 1x1 convolutions instead of MatMul.
        gelu: "gelu" (by Erf) or "gelu_op" (needs opset 20).
        swap: Exchange the operands of the Adds.
        size: Height and width of the input.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set, 17 at least.
        seed: Seed of the weights.
    """
    g, y = begin("convnext", 3, size, batch, opset, seed)
    y = conv(g, y, width, "stem_conv", kernel=4, stride=4, bias=True, gain=1.0)
    y = _channel_norm(g, y, "stem_norm")
    for stage in (1, 2):
        if stage == 2:
            y = _channel_norm(g, y, "downsample_norm")
            y = conv(g, y, width * 2, "downsample", kernel=2, stride=2, bias=True, gain=1.0)
        for scope in (f"stage{stage}_block{number}" for number in range(1, blocks + 1)):
            branch = conv(g, y, g.channels[y], f"{scope}_dwconv", kernel=7, groups=g.channels[y], bias=True, gain=1.0)
            branch = _conv_mlp(g, branch, scope, gelu) if conv_mlp else _mlp(g, branch, scope, gelu)
            y = add(g, branch, y, f"{scope}_add", swap=swap)
    features = g.channels[y]
    y = g.node("Flatten", [g.node("GlobalAveragePool", [y], "head_pool")], "head_flatten", axis=1)
    return end(g, gemm(g, layer_norm(g, y, features, "head_norm"), features, classes, "head_gemm"))


def _channel_norm(g: Graph, x: str, name: str) -> str:
    """LayerNorm over the channels of an NCHW tensor, between two Transposes."""
    channels = g.channels[x]
    y = layer_norm(g, transpose(g, x, TO_NHWC, f"{name}_nhwc"), channels, name)
    return transpose(g, y, TO_NCHW, f"{name}_nchw", channels)


def _mlp(g: Graph, x: str, scope: str, gelu: str) -> str:
    channels = g.channels[x]
    y = layer_norm(g, transpose(g, x, TO_NHWC, f"{scope}_nhwc"), channels, f"{scope}_norm")
    y = activate(g, linear(g, y, channels, channels * 4, f"{scope}_fc1"), gelu, scope)
    y = linear(g, y, channels * 4, channels, f"{scope}_fc2")
    y = g.node("Mul", [y, g.constant(f"{scope}_gamma", g.uniform((channels,), 0.2, 0.8))], f"{scope}_scale")
    return transpose(g, y, TO_NCHW, f"{scope}_nchw", channels)


def _conv_mlp(g: Graph, x: str, scope: str, gelu: str) -> str:
    channels = g.channels[x]
    y = conv(g, _channel_norm(g, x, f"{scope}_norm"), channels * 4, f"{scope}_fc1", kernel=1, bias=True, gain=1.0)
    y = conv(g, activate(g, y, gelu, scope), channels, f"{scope}_fc2", kernel=1, bias=True)
    return g.node("Mul", [y, g.constant(f"{scope}_gamma", g.uniform((channels, 1, 1), 0.2, 0.8))], f"{scope}_scale")
