"""HRNet: parallel streams of different resolution that exchange what they have."""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import basic_block, begin, end
from onnxq_builders._graph import Graph
from onnxq_builders._layers import add, concat, conv, conv_unit, upsample


def hrnet(
    *,
    width: int = 16,
    streams: int = 3,
    blocks: int = 1,
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """HRNet with two or three streams. The output "y" is [batch, classes, size / 2, size / 2].

        stream1 -> block -+--------------------> fuse_1 -> Relu
                          +-> strided 3x3 ---+
        stream2 -> block -+-> 1x1, Resize ---|--^
                          +----------------> fuse_2 -> Relu

    Stage s (2 .. streams) has s streams. Stream i of stage s holds blocks "s<s>_stream<i>_block<b>" and is the sum of
    what all streams j give it, in the order of j: itself, "s<s>_up<j>to<i>" (1x1 convolution, Resize nearest) or
    "s<s>_down<j>to<i>" (j to i: i - j strided convolutions, the last without activation). The sum's Adds are
    "s<s>_fuse<i>_add<n>", n = 1, 2.

    Skips; write R(s, i) for the stream's own tensor, "s<s>_stream<i>_block<last>_relu":

    | Add | skip | trunk |
    |---|---|---|
    | block's own, "..._block<b>_add" | the block's input | "..._block<b>_bn2" |
    | s2_fuse1_add1 | R(2, 1) | s2_up2to1 |
    | s2_fuse2_add1 | R(2, 2) | s2_down1to2_bn1 |
    | s3_fuse1_add1 | R(3, 1) | s3_up2to1 |
    | s3_fuse1_add2 | s3_fuse1_add1 | s3_up3to1 |
    | s3_fuse2_add1 | R(3, 2) | s3_down1to2_bn1 |
    | s3_fuse2_add2 | s3_fuse2_add1 | s3_up3to2 |
    | s3_fuse3_add1 | s3_down2to3_bn1 | s3_down1to3_bn2 |
    | s3_fuse3_add2 | R(3, 3) or s3_fuse3_add1: both float | none |

    A stream's own tensor stands behind an Add, so it has no backbone. In s3_fuse3_add1 both convolutions could take the
    Add in; the branch through two of them is longer. In s3_fuse3_add2 no input has one. Inputs of the first blocks:
    "stem_relu", "s2_new_relu" (streams 1 and 2 of stage 2), "s2_fuse1_relu", "s2_fuse2_relu", "s3_new_relu".

    Args:
        width: Channels of the first stream; each further stream has twice as many.
        streams: 2 or 3.
        blocks: Number of basic blocks of each stream in a stage, at least 1.
        batch_norm: Keep BatchNormalization nodes.
        swap: Exchange the operands of the Adds.
        size: Height and width of the input, divisible by 8.
        classes: Channels of the output.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    if streams not in (2, 3):
        raise ValueError(f"streams is {streams}; it can be 2 or 3")
    g, x = begin("hrnet", 3, size, batch, opset, seed)
    tensors = [conv_unit(g, x, width, "stem", stride=2, batch_norm=batch_norm)]
    for count in range(2, streams + 1):
        stage = f"s{count}"
        new = conv_unit(g, tensors[-1], width * 2 ** (count - 1), f"{stage}_new", stride=2, batch_norm=batch_norm)
        tensors.append(new)
        for i, y in enumerate(tensors):
            for block in range(1, blocks + 1):
                scope = f"{stage}_stream{i + 1}_block{block}"
                y = basic_block(g, y, g.channels[y], scope, batch_norm=batch_norm, swap=swap)
            tensors[i] = y
        tensors = [_fuse(g, tensors, i, stage, batch_norm, swap) for i in range(count)]
    wide = [y if i == 0 else upsample(g, y, 2**i, f"head_upsample{i + 1}") for i, y in enumerate(tensors)]
    return end(g, conv(g, concat(g, wide, "head_concat"), classes, "head", kernel=1, bias=True, gain=1.0))


def _fuse(g: Graph, tensors: list[str], i: int, stage: str, batch_norm: bool, swap: bool) -> str:
    """Sum what every stream gives to stream i, then Relu."""
    out = g.channels[tensors[i]]
    total = ""
    for j, x in enumerate(tensors):
        if j > i:
            scope = f"{stage}_up{j + 1}to{i + 1}"
            y = conv_unit(g, x, out, scope, kernel=1, act="none", batch_norm=batch_norm, gain=1.0)
            y = upsample(g, y, 2 ** (j - i), scope)
        elif j < i:
            y = x
            for step in range(1, i - j + 1):
                last = step == i - j
                y = conv_unit(
                    g,
                    y,
                    out if last else g.channels[y],
                    f"{stage}_down{j + 1}to{i + 1}",
                    str(step),
                    stride=2,
                    act="none" if last else "relu",
                    batch_norm=batch_norm,
                )
        else:
            y = x
        total = add(g, total, y, f"{stage}_fuse{i + 1}_add{j}", swap=swap) if j else y
    return g.node("Relu", [total], f"{stage}_fuse{i + 1}_relu")
