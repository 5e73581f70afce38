"""Models around one residual pattern each, for testing where a quantizer puts Q/DQ at an Add.

What all have in common:

- The input is "x", float32 [batch, channels, size, size], and the output "y", unless a docstring says otherwise.
- A node is named like the tensor it yields. Units are called conv1, bn1, relu1; with `batch_norm=False` the
  BatchNormalization is folded into the convolution, which then yields what bn1 did: read "conv2" for "bn2" below. With
  another activation read the first word of its name for "relu": "hardswish_clip" yields "hardswish1".
- `swap` exchanges the operands of the Adds. It changes neither weights nor results, and no right answer.
- `prefix` is put before every name, those of inputs and outputs included.

Each docstring says which input of each Add is the **skip**: the one that gets Q/DQ where a kernel can fold the Add into
the convolution of the other input, the trunk. "Both float" means that no convolution can take the Add in. The drawings
run from left to right; `BN` is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto

from onnxq_builders._blocks import basic_block, begin, bottleneck_block, end, with_op
from onnxq_builders._graph import Graph, renamed
from onnxq_builders._layers import activate, add, conv, conv_transpose, conv_unit, normalize


def convtranspose_conv_residual(
    *,
    channels: int = 32,
    in_channels: int | None = None,
    size: int = 16,
    swap: bool = False,
    final_relu: bool = True,
    activation: str = "relu",
    batch_norm: bool = True,
    prefix: str = "",
    names: Mapping[str, str] | None = None,
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A ConvTranspose and a Conv backbone meet in one Add, as in the decoder of a segmentation network.

        x -> upsample (ConvTranspose) -> skip (Relu) -+-> conv1 -> relu1 -> conv2 -> add -> relu -> y
                                                      +------------------------------^

    "add": skip is "skip", trunk is "bn2". The ConvTranspose feeds the trunk, so only conv2 can run last. The input is
    [batch, in_channels, size / 2, size / 2].

    Args:
        channels: Channels from the ConvTranspose on.
        in_channels: Channels of the input; `channels` unless given.
        size: Height and width of the output.
        swap: Write Add(skip, bn2) instead of Add(bn2, skip).
        final_relu: End with a Relu; otherwise the Add yields "y".
        activation: Activation after the first convolution.
        batch_norm: Keep BatchNormalization nodes.
        prefix: Put before every name.
        names: New names of nodes and tensors, by the names above.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    g = Graph("convtranspose_conv_residual", seed=seed, opset=opset)
    x = g.input("x", (batch, in_channels or channels, size // 2, size // 2))
    skip = g.node("Relu", [conv_transpose(g, x, channels, "upsample")], "skip")
    y = conv_unit(g, skip, channels, "", "1", act=activation, batch_norm=batch_norm)
    y = conv_unit(g, y, channels, "", "2", act="none", batch_norm=batch_norm)
    y = add(g, y, skip, "add", swap=swap)
    if final_relu:
        y = g.node("Relu", [y], "relu")
    return renamed(g.model({"y": y}), prefix=prefix, names=names)


def identity_block(
    *,
    channels: int = 32,
    size: int = 16,
    activation: str = "relu",
    batch_norm: bool = True,
    op: str = "Add",
    skip_op: str = "",
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """The basic block of ResNet behind a stem.

        x -> stem_conv -> stem_relu -+-> conv1 -> relu1 -> conv2 -> add -> relu -> y
                                     +---------- (skip_op) ----------^

    "add": skip is "stem_relu", trunk is "bn2". With `skip_op` (Identity, MaxPool, Dropout, Exp, Tanh) the skip is
    "skip_op". With `op="Sum"` the same holds of the Sum; with `op="Sub"` both are float.
    """
    g, x = begin("identity_block", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", act=activation, batch_norm=batch_norm)
    y = conv_unit(g, s, channels, "", "1", act=activation, batch_norm=batch_norm)
    y = conv_unit(g, y, channels, "", "2", act="none", batch_norm=batch_norm)
    y = add(g, y, with_op(g, s, skip_op), "add", swap=swap, op=op)
    return end(g, activate(g, y, activation, ""), prefix)


def projection_block(
    *,
    channels: int = 32,
    out_channels: int = 64,
    stride: int = 2,
    size: int = 16,
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A block whose shortcut is a 1x1 convolution.

        x -> stem_relu -+-> conv1 -> relu1 -> conv2 -> add -> relu -> y
                        +------ shortcut_conv ----------^

    "add": both convolutions could take the Add in. The trunk is "bn2", with two convolutions to the fork against one;
    the skip is "shortcut_bn".
    """
    g, x = begin("projection_block", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", act=activation, batch_norm=batch_norm)
    y = basic_block(g, s, out_channels, "", stride=stride, act=activation, batch_norm=batch_norm, swap=swap)
    return end(g, y, prefix)


def preactivation_block(
    *,
    channels: int = 32,
    size: int = 16,
    blocks: int = 1,
    activation: str = "relu",
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """Blocks of ResNet V2: BatchNormalization and activation come before each convolution.

        stem_conv -+-> bn1 -> relu1 -> conv1 -> bn2 -> relu2 -> conv2 -> add -> bn -> relu -> y
                   +------------------------------------------------------^

    Blocks are named "block1" and so on. "block1_add": skip is "stem_conv", trunk "block1_conv2". "block<n>_add": skip
    is "block<n-1>_add", trunk "block<n>_conv2".
    """
    g, x = begin("preactivation_block", channels, size, batch, opset, seed)
    y = conv(g, x, channels, "stem_conv")
    for block in (f"block{i}" for i in range(1, blocks + 1)):
        branch = y
        for tag in ("1", "2"):
            branch = activate(g, normalize(g, branch, f"{block}_bn{tag}"), activation, block, tag)
            branch = conv(g, branch, channels, f"{block}_conv{tag}")
        y = add(g, branch, y, f"{block}_add", swap=swap)
    return end(g, activate(g, normalize(g, y, "bn"), activation, ""), prefix)


def bottleneck(
    *,
    channels: int = 64,
    width: int = 16,
    projection: bool = False,
    size: int = 16,
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """The bottleneck block of ResNet-50: 1x1, 3x3, 1x1.

    "add": trunk is "bn3"; skip is "stem_relu", or "shortcut_bn" with `projection`, which also doubles the channels.
    """
    g, x = begin("bottleneck", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", act=activation, batch_norm=batch_norm)
    out = channels * 2 if projection else channels
    y = bottleneck_block(g, s, out, "", width=width, act=activation, batch_norm=batch_norm, swap=swap)
    return end(g, y, prefix)


def two_sources(
    *,
    channels: int = 32,
    size: int = 16,
    conv_layers: int = 2,
    transpose_layers: int = 1,
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A Conv branch and a ConvTranspose branch that start from different graph inputs.

        image    -> conv1 -> relu1 -> conv2 -> relu2 -> add -> relu -> y
        features -> up1 (ConvTranspose) -> up_relu1 -----^

    "image" is [batch, channels, size, size]; "features" is smaller by 2 ** transpose_layers. The branches meet only at
    the virtual root, and both could take the Add in. More layers make the trunk: by default "relu2", the skip is
    "up_relu1". With fewer Conv than ConvTranspose layers it is the other way round. With equally many the Conv branch
    is the trunk: it has the BatchNormalization, and more multiply-accumulates. The names end in the number of the
    branch's last layer.
    """
    g = Graph("two_sources", seed=seed, opset=opset)
    image = g.input("image", (batch, channels, size, size))
    small = size // 2**transpose_layers
    up = g.input("features", (batch, channels, small, small))
    y = image
    for i in range(1, conv_layers + 1):
        y = conv_unit(g, y, channels, "", str(i), act=activation, batch_norm=batch_norm)
    for i in range(1, transpose_layers + 1):
        up = activate(g, conv_transpose(g, up, channels, f"up{i}"), activation, "up", str(i))
    return end(g, activate(g, add(g, y, up, "add", swap=swap), activation, ""), prefix)


def silu_block(
    *,
    channels: int = 32,
    size: int = 16,
    layers: int = 1,
    activation: str = "silu",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A branch that ends in its activation, as in YOLO; nothing is activated after the Add.

        x -> stem_relu -+-> conv1 -> sigmoid -> Mul = silu1 -> add -> out_conv -> y
                        |      +-----------------^              ^
                        +---------------------------------------+

    "add": skip is "stem_relu", trunk is "silu<layers>": the written-out activation counts as one epilogue op. The same
    holds of every activation, as one operator or written out, with BatchNormalization or folded.
    """
    g, x = begin("silu_block", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", act="relu", batch_norm=batch_norm)
    y = s
    for i in range(1, layers + 1):
        y = conv_unit(g, y, channels, "", str(i), act=activation, batch_norm=batch_norm)
    y = add(g, y, s, "add", swap=swap)
    return end(g, conv(g, y, channels, "out_conv", kernel=1), prefix)


def graph_input_skip(
    *,
    channels: int = 32,
    size: int = 16,
    skip_op: str = "",
    batch_norm: bool = False,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """The skip is the graph's input.

        x -+-> conv1 -> add -> relu -> conv2 -> y
           +-- (skip_op) -^

    "add": skip is "x", or "skip_op" with `skip_op` (Identity, MaxPool, Dropout, Exp, Tanh); trunk is "conv1".
    """
    g, x = begin("graph_input_skip", channels, size, batch, opset, seed)
    y = conv_unit(g, x, channels, "", "1", act="none", batch_norm=batch_norm)
    y = g.node("Relu", [add(g, y, with_op(g, x, skip_op), "add", swap=swap)], "relu")
    return end(g, conv_unit(g, y, channels, "", "2", act="none", batch_norm=batch_norm), prefix)


def chained_blocks(
    *,
    channels: int = 32,
    size: int = 16,
    blocks: int = 3,
    shared_weights: bool = False,
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """Basic blocks one after another: the output of each is the next one's skip.

    "block1_add": skip is "stem_relu"; "block<n>_add": skip is "block<n-1>_relu". Trunks are "block<n>_bn2". With
    `shared_weights` all blocks use one weight initializer, "shared_weight", for all their convolutions, as recurrent
    networks do; the answer is the same.
    """
    g, x = begin("chained_blocks", channels, size, batch, opset, seed)
    shared = g.weight("shared_weight", (channels, channels, 3, 3), channels * 9) if shared_weights else None
    y = conv_unit(g, x, channels, "stem", act=activation, batch_norm=batch_norm)
    for block in (f"block{i}" for i in range(1, blocks + 1)):
        branch = conv_unit(g, y, channels, block, "1", act=activation, batch_norm=batch_norm, weight=shared)
        branch = conv_unit(g, branch, channels, block, "2", act="none", batch_norm=batch_norm, weight=shared)
        y = activate(g, add(g, branch, y, f"{block}_add", swap=swap), activation, block)
    return end(g, y, prefix)


def nested_blocks(
    *,
    channels: int = 32,
    size: int = 16,
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A residual block inside the branch of another: one tensor is the skip of two Adds.

        x -> stem_relu -+-> conv1 -> inner_add -> inner_relu -> conv2 -> outer_add -> relu -> y
                        +------------^----------------------------------^

    "inner_add": skip is "stem_relu", trunk "bn1". "outer_add": skip is "stem_relu", trunk "bn2".
    """
    g, x = begin("nested_blocks", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    y = conv_unit(g, s, channels, "", "1", act="none", batch_norm=batch_norm)
    y = g.node("Relu", [add(g, y, s, "inner_add", swap=swap)], "inner_relu")
    y = conv_unit(g, y, channels, "", "2", act="none", batch_norm=batch_norm)
    return end(g, g.node("Relu", [add(g, y, s, "outer_add", swap=swap)], "relu"), prefix)


def layer_scale_block(
    *,
    channels: int = 32,
    size: int = 16,
    activation: str = "gelu",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A branch scaled by a constant per channel before the Add.

        stem_relu -+-> conv1 (7x7 depthwise) -> conv2 (1x1) -> gelu2 -> conv3 (1x1) -> Mul = layer_scale -> add -> y
                   +----------------------------------------------------------------------------------------^

    "add": skip is "stem_relu", trunk is "layer_scale": a Mul by a constant is an epilogue of conv3.
    """
    g, x = begin("layer_scale_block", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    y = conv_unit(g, s, channels, "", "1", kernel=7, groups=channels, act="none", batch_norm=batch_norm)
    y = conv_unit(g, y, channels * 2, "", "2", kernel=1, act=activation, batch_norm=batch_norm)
    y = conv(g, y, channels, "conv3", kernel=1, bias=True)
    y = g.node("Mul", [y, g.constant("layer_scale_gamma", g.uniform((channels, 1, 1), 0.2, 0.8))], "layer_scale")
    return end(g, add(g, y, s, "add", swap=swap), prefix)
