"""ResNet and ResNeXt."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from onnxq_builders._blocks import basic_block, begin, bottleneck_block, end
from onnxq_builders._layers import classifier, conv_unit, max_pool


def resnet(
    *,
    block: str = "basic",
    blocks: Sequence[int] = (2, 2),
    width: int = 16,
    groups: int = 1,
    stem: str = "maxpool",
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A ResNet: stem, stages of residual blocks, classifier. The output "y" is [batch, classes].

    Trunk of each Add "stage<s>_block<b>_add": "stage<s>_block<b>_bn2", with bottlenecks "..._bn3". Skip:

    - "stage<s>_block<b>_shortcut_bn" where the block changes size or channels: the first block of every stage but the
      first, with bottlenecks of the first stage too. Both convolutions could take the Add in; the branch with more of
      them is the trunk.
    - else the block's input: "stem_pool" ("stem_relu" with `stem="conv"`) or the Relu of the block before,
      "stage<s>_block<b-1>_relu".

    Args:
        block: "basic" (two 3x3) or "bottleneck" (1x1, 3x3, 1x1, four times as many channels out).
        blocks: Number of blocks of each stage. From the second on a stage halves the size and doubles the channels.
        width: Channels of the stem and of the first stage's 3x3 convolutions.
        groups: Groups of a bottleneck's 3x3 convolution.
        stem: "maxpool" (7x7 convolution and MaxPool, each of stride 2) or "conv" (3x3 of stride 1).
        activation: Activation everywhere.
        batch_norm: Keep BatchNormalization nodes.
        swap: Exchange the operands of the Adds.
        size: Height and width of the input.
        classes: Number of classes.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    if block not in ("basic", "bottleneck"):
        raise ValueError(f"block is {block!r}; it can be 'basic' or 'bottleneck'")
    if stem not in ("maxpool", "conv"):
        raise ValueError(f"stem is {stem!r}; it can be 'maxpool' or 'conv'")
    if block == "basic" and groups != 1:
        raise ValueError("a basic block has no groups; use block='bottleneck'")
    g, y = begin("resnet", 3, size, batch, opset, seed)
    if stem == "maxpool":
        y = conv_unit(g, y, width, "stem", kernel=7, stride=2, act=activation, batch_norm=batch_norm)
        y = max_pool(g, y, "stem_pool", kernel=3)
    else:
        y = conv_unit(g, y, width, "stem", act=activation, batch_norm=batch_norm)
    for stage, count in enumerate(blocks, start=1):
        inner = width * 2 ** (stage - 1)
        for number in range(1, count + 1):
            scope = f"stage{stage}_block{number}"
            stride = 2 if stage > 1 and number == 1 else 1
            if block == "basic":
                y = basic_block(g, y, inner, scope, stride=stride, act=activation, batch_norm=batch_norm, swap=swap)
            else:
                y = bottleneck_block(
                    g,
                    y,
                    inner * 4,
                    scope,
                    width=inner,
                    stride=stride,
                    groups=groups,
                    act=activation,
                    batch_norm=batch_norm,
                    swap=swap,
                )
    return end(g, classifier(g, y, classes))


def resnet_bottleneck(
    *,
    blocks: Sequence[int] = (2, 2),
    width: int = 16,
    stem: str = "maxpool",
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """`resnet` with bottleneck blocks, as ResNet-50."""
    return resnet(
        block="bottleneck",
        blocks=blocks,
        width=width,
        stem=stem,
        activation=activation,
        batch_norm=batch_norm,
        swap=swap,
        size=size,
        classes=classes,
        batch=batch,
        opset=opset,
        seed=seed,
    )


def resnext(
    *,
    blocks: Sequence[int] = (2, 2),
    width: int = 32,
    groups: int = 2,
    stem: str = "maxpool",
    batch_norm: bool = True,
    swap: bool = False,
    size: int = 32,
    classes: int = 16,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """ResNeXt: `resnet` with bottlenecks whose 3x3 convolution has `groups` groups; `width` is divisible by them."""
    return resnet(
        block="bottleneck",
        blocks=blocks,
        width=width,
        groups=groups,
        stem=stem,
        batch_norm=batch_norm,
        swap=swap,
        size=size,
        classes=classes,
        batch=batch,
        opset=opset,
        seed=seed,
    )
