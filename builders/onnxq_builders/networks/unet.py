"""U-Net."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import add, concat, conv, conv_transpose, conv_unit, max_pool


def unet(
    *,
    width: int = 16,
    depth: int = 2,
    add_skips: bool = False,
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """U-Net with upsampling by ConvTranspose. The output "y" is [batch, classes, size, size].

        enc1 ------------------------> merge -> dec1 -> head (1x1 Conv) -> y
          +-> pool1 -> enc2 .. up1 -----^

    By default the merges are Concats ("dec<level>_concat") and there are no Adds. With `add_skips` they are Adds, as in
    LinkNet: "dec<level>_add" has the skip "enc<level>_relu2" and the trunk "dec<level>_up" (a ConvTranspose; the
    encoder's convolution feeds it, so only the ConvTranspose can run last).

    Args:
        width: Channels of the first level; each further level has twice as many.
        depth: Number of levels below the first.
        add_skips: Merge by Add instead of Concat.
        activation: Activation of the convolutions.
        batch_norm: Keep BatchNormalization nodes.
        swap: Exchange the operands of the Adds.
        size: Height and width of input and output, divisible by 2 ** depth.
        classes: Channels of the output.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g, y = begin("unet", 3, size, batch, opset, seed)
    skips = []
    for level in range(1, depth + 1):
        y = _double_conv(g, y, width * 2 ** (level - 1), f"enc{level}", activation, batch_norm)
        skips.append(y)
        y = max_pool(g, y, f"pool{level}")
    y = _double_conv(g, y, width * 2**depth, "bottom", activation, batch_norm)
    for level in range(depth, 0, -1):
        skip = skips[level - 1]
        y = conv_transpose(g, y, g.channels[skip], f"dec{level}_up", gain=1.0)
        merged = (
            add(g, y, skip, f"dec{level}_add", swap=swap) if add_skips else concat(g, [skip, y], f"dec{level}_concat")
        )
        y = _double_conv(g, merged, g.channels[skip], f"dec{level}", activation, batch_norm)
    return end(g, conv(g, y, classes, "head", kernel=1, bias=True, gain=1.0))


def _double_conv(g: Graph, x: str, out: int, scope: str, act: str, batch_norm: bool) -> str:
    y = conv_unit(g, x, out, scope, "1", act=act, batch_norm=batch_norm)
    return conv_unit(g, y, out, scope, "2", act=act, batch_norm=batch_norm)
