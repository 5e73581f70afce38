"""Models around merges that look like residual blocks and often are none: a quantizer must tell them apart.

Names, arguments and what docstrings say about each Add are as in `onnxq_builders.residual`.
"""

from __future__ import annotations

from onnx import ModelProto

from onnxq_builders._blocks import begin, end
from onnxq_builders._layers import activate, add, conv, conv_unit, squeeze_excite


def add_of_one_conv(
    *,
    channels: int = 32,
    size: int = 16,
    activation: str = "sigmoid",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """Both inputs of the Add come from one convolution.

        x -> stem_relu -> conv1 -+-> sigmoid -> add -> conv2 -> y
                                 +---------------^

    "add": both float, since conv1 can't run last.
    """
    g, x = begin("add_of_one_conv", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    c = conv_unit(g, s, channels, "", "1", act="none", batch_norm=batch_norm)
    y = add(g, activate(g, c, activation, ""), c, "add", swap=swap)
    return end(g, conv_unit(g, y, channels, "", "2", act="none", batch_norm=batch_norm), prefix)


def squeeze_excite_block(
    *,
    channels: int = 32,
    reduced: int = 8,
    gate: str = "last",
    gate_activation: str = "sigmoid",
    size: int = 16,
    activation: str = "relu",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A residual block with a squeeze-excite gate.

        stem_relu -+-> conv1 -> relu1 -> conv2 -+-> Mul = se_scale -> add -> relu -> y
                   |                            +-> pool .. gate -^    ^
                   +---------------------------------------------------+

    `gate="last"` (SENet, drawn): the Mul of two variable tensors parts the Add from conv2, so "add" has no trunk: both
    float. `gate="inside"` (MBConv): the gate stands between relu1 and conv2; skip is "stem_relu", trunk is "bn2".
    """
    if gate not in ("last", "inside"):
        raise ValueError(f"gate is {gate!r}; it can be 'last' or 'inside'")
    g, x = begin("squeeze_excite_block", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", act=activation, batch_norm=batch_norm)
    y = conv_unit(g, s, channels, "", "1", act=activation, batch_norm=batch_norm)
    if gate == "inside":
        y = squeeze_excite(g, y, "se", reduced=reduced, act=activation, gate=gate_activation)
    y = conv_unit(g, y, channels, "", "2", act="none", batch_norm=batch_norm)
    if gate == "last":
        y = squeeze_excite(g, y, "se", reduced=reduced, act=activation, gate=gate_activation)
    return end(g, activate(g, add(g, y, s, "add", swap=swap), activation, ""), prefix)


def broadcast_gate(
    *,
    channels: int = 32,
    size: int = 16,
    op: str = "Add",
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A convolution's result is joined with a summary of itself, [N, C, 1, 1].

        x -> conv1 -+-------------------------> add -> conv2 -> y
                    +-> gate_pool -> gate_conv --^

    "add": both float, because it broadcasts. `op="Mul"` is the plain squeeze-excite gate without its activation.
    """
    g, x = begin("broadcast_gate", channels, size, batch, opset, seed)
    c = conv_unit(g, x, channels, "", "1", batch_norm=batch_norm)
    gate = conv(g, g.node("GlobalAveragePool", [c], "gate_pool"), channels, "gate_conv", kernel=1, bias=True)
    y = add(g, c, gate, "add", swap=swap, op=op)
    return end(g, conv_unit(g, y, channels, "", "2", act="none", batch_norm=batch_norm), prefix)


def sum_block(
    *,
    terms: int = 2,
    op: str = "Sum",
    channels: int = 32,
    size: int = 16,
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A merge by Sum of `terms` inputs: the stem, and terms - 1 branches of two convolutions each.

        x -> stem_relu -+-> branch1_conv1 -> relu -> branch1_conv2 -> add -> relu -> y
                        +---------------------------------------------^

    "add" (the node's name, whatever its operator): for a Sum of two the skip is "stem_relu", the trunk "branch1_bn2".
    A Sum of more is never residual: all inputs float. `op` can be any operator of that many inputs: Add, Sub, Mul, Max.
    With `swap` the inputs come in reversed order.
    """
    g, x = begin("sum_block", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    inputs = []
    for scope in (f"branch{i}" for i in range(1, terms)):
        y = conv_unit(g, s, channels, scope, "1", batch_norm=batch_norm)
        inputs.append(conv_unit(g, y, channels, scope, "2", act="none", batch_norm=batch_norm))
    inputs.append(s)
    y = g.node(op, inputs[::-1] if swap else inputs, "add")
    return end(g, g.node("Relu", [y], "relu"), prefix)


def equal_branches(
    *,
    weights: str = "different",
    kernels: tuple[int, int] = (3, 3),
    channels: int = 32,
    size: int = 16,
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """Two branches of one convolution each, equally long.

        x -> stem_relu -+-> left_conv --> add -> relu -> y
                        +-> right_conv ---^

    "add": exactly one input is the skip, and it is the same one under `swap`. With unequal `kernels` the trunk is the
    branch of the larger kernel. With equal ones it depends on the bytes of the weights; where those are equal too, the
    branches are interchangeable.

    Args:
        weights: "different"; "equal" for two initializers of one value; "shared" for one initializer. The latter two
            also share the BatchNormalization statistics, and need equal kernels.
        kernels: Kernel of the left and of the right branch.
        channels: Channels everywhere.
        size: Height and width.
        batch_norm: Keep BatchNormalization nodes.
        swap: Write Add(right, left).
        prefix: Put before every name.
        batch: First dim, a number or a symbol.
        opset: Version of the default operator set.
        seed: Seed of the weights.
    """
    if weights not in ("different", "equal", "shared"):
        raise ValueError(f"weights is {weights!r}; it can be 'different', 'equal' or 'shared'")
    left_kernel, right_kernel = kernels
    if weights != "different" and left_kernel != right_kernel:
        raise ValueError(f"weights={weights!r} needs equal kernels, not {left_kernel} and {right_kernel}")
    g, x = begin("equal_branches", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    state = g.rng.bit_generator.state
    left = conv_unit(g, s, channels, "left", kernel=left_kernel, act="none", batch_norm=batch_norm)
    if weights != "different":
        g.rng.bit_generator.state = state  # The right branch draws the same numbers again.
    shared = "left_conv_weight" if weights == "shared" else None
    right = conv_unit(g, s, channels, "right", kernel=right_kernel, act="none", batch_norm=batch_norm, weight=shared)
    return end(g, g.node("Relu", [add(g, left, right, "add", swap=swap)], "relu"), prefix)


def repvgg_block(
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
    """RepVGG in its training form: the sum of a 3x3 convolution, a 1x1 convolution and the input.

        stem_relu -+-> dense_conv -> inner_add -> outer_add -> relu -> y
                   +-> point_conv ----^              ^
                   +---------------------------------+

    "inner_add": both convolutions could take it in, at equal length; the trunk is "dense_bn" (3x3, more
    multiply-accumulates), the skip "point_bn" (1x1). "outer_add": both float; behind its branch stands another Add,
    and the stem feeds that branch.
    """
    g, x = begin("repvgg_block", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    dense = conv_unit(g, s, channels, "dense", act="none", batch_norm=batch_norm)
    point = conv_unit(g, s, channels, "point", kernel=1, act="none", batch_norm=batch_norm, gain=1.0)
    y = add(g, add(g, dense, point, "inner_add", swap=swap), s, "outer_add", swap=swap)
    return end(g, g.node("Relu", [y], "relu"), prefix)


def reused_trunk(
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
    """One convolution's result goes into two Adds in a row.

        stem_relu -+-> conv1 -+-> add1 -> relu1 -> add2 -> relu2 -> y
                   |          +-----^---------------^
                   +----------------+

    "add1": skip is "stem_relu", trunk "bn1". "add2": both float; conv1 feeds its other input, and can't run last.
    """
    g, x = begin("reused_trunk", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    c = conv_unit(g, s, channels, "", "1", act="none", batch_norm=batch_norm)
    y = activate(g, add(g, c, s, "add1", swap=swap), "relu", "", "1")
    return end(g, activate(g, add(g, c, y, "add2", swap=swap), "relu", "", "2"), prefix)


def concat_branch(
    *,
    whole: bool = True,
    channels: int = 32,
    size: int = 16,
    batch_norm: bool = True,
    swap: bool = False,
    prefix: str = "",
    batch: int | str = "batch",
    opset: int = 17,
    seed: int = 0,
) -> ModelProto:
    """A branch that ends in a Concat.

        stem_relu -+-> left ---> concat -> add -> relu -> y
                   +-> right ----^          ^
                   +------------------------+

    With `whole` the two halves are the parts of one convolution, "conv1", split and put together in reversed order:
    the Concat leads to one backbone; skip is "stem_relu", trunk "concat". Without it the halves come from two
    convolutions, "left_conv" and "right_conv": no backbone, both float.
    """
    g, x = begin("concat_branch", channels, size, batch, opset, seed)
    s = conv_unit(g, x, channels, "stem", batch_norm=batch_norm)
    half = channels // 2
    if whole:
        c = conv_unit(g, s, channels, "", "1", act="none", batch_norm=batch_norm)
        sizes = g.constant("split_sizes", [half, channels - half])
        left, right = g.node_with_outputs("Split", [c, sizes], ["left", "right"], name="split", channels=half, axis=1)
    else:
        left, right = (conv_unit(g, s, half, side, act="none", batch_norm=batch_norm) for side in ("left", "right"))
    y = g.node("Concat", [right, left], "concat", channels=channels, axis=1)
    return end(g, g.node("Relu", [add(g, y, s, "add", swap=swap)], "relu"), prefix)
