"""Block kinds: what each decision of a topology appends to a model.

A block gets the source x and the other tensor y (both [1, channels, size, size]) and returns its output. It never
fails: what doesn't fit is matched by a Resize or a 1x1 convolution, or comes back unchanged. In the drawings `act` is
the block's activation, `[ ]` what a flag or a variant leaves out, and data flows to the right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from onnxq.strategies import layers
from onnxq.strategies.ground_truth import Value
from onnxq.strategies.layers import SMALL
from onnxq.strategies.network import Network
from onnxq.strategies.topology import Block


@dataclass(frozen=True, slots=True)
class BlockKind:
    """How a kind is written, and which fields of a `Block` mean something to it.

    Attributes:
        write: Appends the block.
        variants: Number of its forms.
        joins: Whether it reads `Block.other`; such a kind has one form.
        activates: Whether it reads `Block.activation`.
        flags: Whether it reads `Block.norm` and `Block.swap`.
    """

    write: Callable[[Network, Block, Value, Value], Value]
    variants: int = 1
    joins: bool = False
    activates: bool = False
    flags: bool = True


def write_block(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Append one block and return its output, which is x itself if there was nothing to do."""
    return BLOCK_KINDS[block.kind].write(net, block, x, y)


def _activation(net: Network, block: Block, x: Value, y: Value) -> Value:
    return layers.activation(net, x, block.activation)


def _conv(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Conv - [BN] - [act]: 3x3, 1x1, strided and widening, depthwise, narrowing."""
    channels, wide = x.shape[1], net.topology.channels * 2
    match block.variant % 5:
        case 1:
            x = layers.conv(net, x, channels, kernel=1, bias=not block.norm)
        case 2:
            x = layers.conv(net, x, wide, stride=_stride(x), bias=not block.norm)
        case 3:
            x = layers.conv(net, x, channels, group=channels, bias=not block.norm)
        case 4:
            x = layers.conv(net, x, net.topology.channels, kernel=1, bias=not block.norm)
        case _:
            x = layers.conv(net, x, channels, bias=not block.norm)
    return _epilogue(net, block, x)


def _add(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Add(x, y), whatever they are: skips of any length, graph inputs, chained Adds, x + x."""
    return net.add(x, layers.match(net, y, x), swap=block.swap)


def _copy(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Copy ops: an Identity, a pair of Reshapes, a pair of Transposes, a channel shuffle, swapped halves, a Resize."""
    _, channels, size, _ = x.shape
    match block.variant % 6:
        case 1:
            x = layers.copy(net, x, "Reshape", (1, channels, size * size))
            return layers.copy(net, x, "Reshape", (1, channels, size, size))
        case 2:
            x = layers.copy(net, x, "Transpose", (), (0, 2, 3, 1))
            return layers.copy(net, x, "Transpose", (), (0, 3, 1, 2))
        case 3:
            x = layers.copy(net, x, "Reshape", (1, 4, channels // 4, size, size))
            x = layers.copy(net, x, "Transpose", (), (0, 2, 1, 3, 4))
            return layers.copy(net, x, "Reshape", (1, channels, size, size))
        case 4:
            return layers.concat(net, [layers.half(net, x, second=True), layers.half(net, x, second=False)])
        case 5:
            return layers.resize(net, x) if size == SMALL else x
        case _:
            return layers.copy(net, x, "Identity", x.shape)


def _constant(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Mul, Add, Div or Sub of a constant for each channel."""
    match block.variant % 4:
        case 1:
            return layers.bias(net, x)
        case 2:
            return layers.scale(net, x, "Div")
        case 3:
            return layers.bias(net, x, "Sub")
        case _:
            return layers.scale(net, x)


def _sub(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Sub(x, y): never residual."""
    return net.combine("Sub", _ordered(block, x, layers.match(net, y, x)))


def _sum(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Sum(x, y): residual like an Add."""
    return net.add(x, layers.match(net, y, x), swap=block.swap, op_type="Sum")


def _sum_of_three(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Sum(x, y, x * constant): never residual."""
    return net.combine("Sum", [*_ordered(block, x, layers.match(net, y, x)), layers.scale(net, x)])


def _conv_transpose(net: Network, block: Block, x: Value, y: Value) -> Value:
    """ConvTranspose - [BN] - [act]."""
    return _epilogue(net, block, layers.conv_transpose(net, x, net.topology.channels, bias=not block.norm))


def _max_pool(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Conv - [BN] - Relu - MaxPool, or a bare MaxPool.

    The bare form is written only where no backbone lies behind x: a MaxPool behind one either closes the conv pattern
    or not, and R2 states only this pattern.
    """
    if block.variant % 2 and x.backbone is None:
        return layers.max_pool(net, x)
    x = layers.activation(net, _conv_norm(net, block, x, x.shape[1]), "relu")
    return layers.max_pool(net, x, through=x)


def _concat(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Concat(x, y), after 1x1 convolutions where the sum would be too wide."""
    narrow = net.topology.channels
    y = layers.match(net, y, x)
    pair = [v if v.shape[1] == narrow else layers.conv(net, v, narrow, kernel=1) for v in _ordered(block, x, y)]
    return layers.concat(net, pair)


def _self_add(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Both operands come from one convolution: not residual.

    x - Conv - [BN] -+-------- Add
                     +-- act --'
    """
    x = _conv_norm(net, block, x, x.shape[1])
    kind = "sigmoid" if block.activation == "none" else block.activation
    return net.add(x, layers.activation(net, x, kind), swap=block.swap)


def _identity(net: Network, block: Block, x: Value, y: Value) -> Value:
    """The basic block of ResNet, of one to three convolutions.

    x -+- Conv - [BN] - act - Conv - [BN] - [act] -- Add - [act]
       '----------------------------------------------'
    """
    depth, ends = 1 + block.variant % 3, block.variant // 3 % 4
    branch = _chain(net, block, x, x.shape[1], depth)
    if ends & 1:
        branch = layers.activation(net, branch, block.activation)
    total = net.add(branch, x, swap=block.swap)
    return layers.activation(net, total, block.activation) if ends & 2 else total


def _fuse(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Branches from two sources, which may be two graph inputs (HRNet's fuse).

    x - Conv - [BN] - [act - Conv - [BN]] -- Add
    y - Conv - [BN] -------------------------'
    """
    branch = _chain(net, block, x, x.shape[1], 1 if block.activation == "none" else 2)
    other = _conv_norm(net, block, layers.match(net, y, x), x.shape[1], kernel=1)
    return net.add(branch, other, swap=block.swap)


def _crossed(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Branches that both start from two tensors, which are equally far from one end and not from the other.

    So whoever looks for one fork finds two, and takes the one that a set or an operand puts first.

    x - Relu ----+- Tanh -- Mul - Conv - [BN] -- Add
                 '--------- | -- Mul - Conv - [BN] -'
    y - Sigmoid -+- Tanh ---'    |
                 '- 4 x Tanh ----'
    """
    p, q = layers.activation(net, x, "relu"), layers.activation(net, layers.match(net, y, x), "sigmoid")
    near, far = [net.apply("Tanh", [value], x.shape) for value in (p, q)], q
    for _ in range(4):
        far = net.apply("Tanh", [far], x.shape)
    products = (net.apply("Mul", pair, x.shape) for pair in (near, [p, far]))
    short, long = (_conv_norm(net, block, product, x.shape[1]) for product in products)
    return net.add(short, long, swap=block.swap)


def _projection(net: Network, block: Block, x: Value, y: Value) -> Value:
    """A block that changes size or channels, with a 1x1 convolution as shortcut.

    x -+- Conv/s - [BN] - [act - Conv - [BN]] -- Add - act
       '- Conv/s - [BN] --------------------------'
    """
    channels, stride = _other_width(net, x), _stride(x)
    branch = _conv_norm(net, block, x, channels, stride=stride)
    if block.variant % 2:
        branch = _conv_norm(net, block, layers.activation(net, branch, block.activation), channels)
    shortcut = _conv_norm(net, block, x, channels, kernel=1, stride=stride)
    return layers.activation(net, net.add(branch, shortcut, swap=block.swap), block.activation)


def _upsampling(net: Network, block: Block, x: Value, y: Value) -> Value:
    """ConvTranspose as the trunk of a block, as its root, or as its shortcut.

    x -+- [Resize] ------------------- Add - act
       '- ConvTranspose - [BN] - act --'
    x - ConvTranspose - act -+- Conv - [BN] - act - Conv - [BN] -- Add - act
                             '--------------------------------------'
    x -+- Conv - [BN] - act - ConvTranspose - [BN] -- Add - act
       '- ConvTranspose - [BN] -----------------------'
    """
    channels = x.shape[1]
    match block.variant % 3:
        case 1:
            skip = layers.activation(net, layers.conv_transpose(net, x, channels), block.activation)
            branch = _chain(net, block, skip, channels, 2)
        case 2:
            hidden = layers.activation(net, _conv_norm(net, block, x, channels), block.activation)
            branch = _norm(net, block, layers.conv_transpose(net, hidden, channels, bias=not block.norm))
            skip = _norm(net, block, layers.conv_transpose(net, x, channels, bias=not block.norm))
        case _:
            branch = _epilogue(net, block, layers.conv_transpose(net, x, channels, bias=not block.norm))
            skip = layers.match(net, x, branch)
    return layers.activation(net, net.add(branch, skip, swap=block.swap), block.activation)


def _preactivation(net: Network, block: Block, x: Value, y: Value) -> Value:
    """ResNet v2, with the plain skip or a projection of the activated input.

    x -+- [BN] - act -+- Conv - [BN] - act - Conv -- Add
       |              '- [Conv] ----------------------'
       '--------------------------------------[or]----'
    """
    channels = x.shape[1]
    entry = layers.activation(net, _norm(net, block, x), block.activation)
    branch = layers.activation(net, _conv_norm(net, block, entry, channels), block.activation)
    branch = layers.conv(net, branch, channels)
    skip = layers.conv(net, entry, channels, kernel=1) if block.variant % 2 else x
    return net.add(branch, skip, swap=block.swap)


def _multi_branch(net: Network, block: Block, x: Value, y: Value) -> Value:
    """RepVGG while it trains: the second Add reads the first.

    x -+- Conv 3x3 - [BN] -- Add -- Add - act
       |- Conv 1x1 - [BN] ---'      |
       '- [BN] ---------------------'
    """
    dense = _conv_norm(net, block, x, x.shape[1])
    pointwise = _conv_norm(net, block, x, x.shape[1], kernel=1)
    first = net.add(dense, pointwise, swap=block.swap)
    return layers.activation(net, net.add(first, _norm(net, block, x), swap=block.swap), block.activation)


def _squeeze_excite(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Multiply x by a gate computed from it."""
    return layers.squeeze_excite(net, x, hard=bool(block.variant % 2))


def _broadcast_add(net: Network, block: Block, x: Value, y: Value) -> Value:
    """Add to x a gate of one number for each channel: the Add broadcasts, so it is no residual one."""
    return net.combine("Add", _ordered(block, x, layers.gate(net, x, hard=bool(block.variant % 2))))


def _bottleneck(net: Network, block: Block, x: Value, y: Value) -> Value:
    """ResNet's bottleneck, with the plain skip or a projection.

    x -+- Conv 1x1 - [BN] - act - Conv 3x3 - [BN] - act - Conv 1x1 - [BN] -- Add - act
       '- [Conv 1x1 - [BN]] -------------------------------------------------'
    """
    narrow = net.topology.channels
    channels = _other_width(net, x) if block.variant % 2 else x.shape[1]
    branch = x
    for kernel in (1, 3):
        branch = layers.activation(net, _conv_norm(net, block, branch, narrow, kernel=kernel), block.activation)
    branch = _conv_norm(net, block, branch, channels, kernel=1)
    skip = _conv_norm(net, block, x, channels, kernel=1) if block.variant % 2 else x
    return layers.activation(net, net.add(branch, skip, swap=block.swap), block.activation)


def _layer_scale(net: Network, block: Block, x: Value, y: Value) -> Value:
    """ConvNeXt's block: its last op is a Mul by a constant.

    x -+- Conv 5x5 depthwise - [BN] - Conv 1x1 - act - Conv 1x1 - Mul -- Add
       '-----------------------------------------------------------------'
    """
    channels = x.shape[1]
    branch = _norm(net, block, layers.conv(net, x, channels, kernel=5, group=channels))
    branch = layers.activation(net, layers.conv(net, branch, 2 * channels, kernel=1), block.activation)
    branch = layers.scale(net, layers.conv(net, branch, channels, kernel=1))
    return net.add(branch, x, swap=block.swap)


def _mlp(net: Network, block: Block, x: Value, y: Value) -> Value:
    """A transformer's MLP on tokens: both inputs of its Add stay float (R3).

    x - Reshape - Transpose -+- MatMul - Add - act - MatMul - Add -- Add - Transpose - Reshape
                             '---------------------------------------'
    """
    _, channels, size, _ = x.shape
    gemm = bool(block.variant % 2)
    x = layers.copy(net, x, "Reshape", (1, channels, size * size))
    tokens = layers.copy(net, x, "Transpose", (), (0, 2, 1))
    if gemm:
        tokens = layers.copy(net, tokens, "Reshape", (size * size, channels))
    hidden = layers.bias(net, layers.matmul(net, tokens, 2 * channels, gemm=gemm))
    hidden = layers.activation(net, hidden, block.activation)
    hidden = layers.bias(net, layers.matmul(net, hidden, channels, gemm=gemm))
    total = net.add(hidden, tokens, swap=block.swap)
    if gemm:
        total = layers.copy(net, total, "Reshape", (1, size * size, channels))
    total = layers.copy(net, total, "Transpose", (), (0, 2, 1))
    return layers.copy(net, total, "Reshape", (1, channels, size, size))


def _inverted_bottleneck(net: Network, block: Block, x: Value, y: Value) -> Value:
    """MobileNet's block: no gate, one before the last convolution (MBConv), or one that ends the branch.

    x -+- Conv 1x1 - [BN] - act - Conv 3x3 depthwise - [BN] - act - [SE] - Conv 1x1 - [BN] - [SE] -- Add
       '---------------------------------------------------------------------------------------------'
    """
    channels, place, hard = x.shape[1], block.variant % 3, bool(block.variant // 3 % 2)
    wide = 2 * channels
    branch = layers.activation(net, _conv_norm(net, block, x, wide, kernel=1), block.activation)
    branch = layers.conv(net, branch, wide, group=wide, bias=not block.norm)
    branch = _epilogue(net, block, branch)
    if place == 1:
        branch = layers.squeeze_excite(net, branch, hard=hard)
    branch = _conv_norm(net, block, branch, channels, kernel=1)
    if place == 2:
        branch = layers.squeeze_excite(net, branch, hard=hard)
    return net.add(branch, x, swap=block.swap)


def _norm(net: Network, block: Block, x: Value) -> Value:
    return layers.norm(net, x) if block.norm else x


def _epilogue(net: Network, block: Block, x: Value) -> Value:
    return layers.activation(net, _norm(net, block, x), block.activation)


def _conv_norm(net: Network, block: Block, x: Value, channels: int, *, kernel: int = 3, stride: int = 1) -> Value:
    return _norm(net, block, layers.conv(net, x, channels, kernel=kernel, stride=stride, bias=not block.norm))


def _chain(net: Network, block: Block, x: Value, channels: int, depth: int) -> Value:
    """Convolutions with the block's activation between them."""
    x = _conv_norm(net, block, x, channels)
    for _ in range(depth - 1):
        x = _conv_norm(net, block, layers.activation(net, x, block.activation), channels)
    return x


def _stride(x: Value) -> int:
    return 1 if x.shape[2] == SMALL else 2


def _other_width(net: Network, x: Value) -> int:
    """Channels are the topology's or twice as many: the one that x doesn't have."""
    return net.topology.channels * 3 - x.shape[1]


def _ordered(block: Block, x: Value, y: Value) -> list[Value]:
    return [y, x] if block.swap else [x, y]


BLOCK_KINDS: Mapping[str, BlockKind] = MappingProxyType(
    {
        "activation": BlockKind(_activation, activates=True, flags=False),
        "conv": BlockKind(_conv, variants=5, activates=True),
        "add": BlockKind(_add, joins=True),
        "copy": BlockKind(_copy, variants=6, flags=False),
        "constant": BlockKind(_constant, variants=4, flags=False),
        "sub": BlockKind(_sub, joins=True),
        "sum": BlockKind(_sum, joins=True),
        "sum_of_three": BlockKind(_sum_of_three, joins=True),
        "conv_transpose": BlockKind(_conv_transpose, activates=True),
        "max_pool": BlockKind(_max_pool, variants=2),
        "concat": BlockKind(_concat, joins=True),
        "self_add": BlockKind(_self_add, activates=True),
        "identity": BlockKind(_identity, variants=12, activates=True),
        "fuse": BlockKind(_fuse, joins=True, activates=True),
        "crossed": BlockKind(_crossed, joins=True),
        "projection": BlockKind(_projection, variants=2, activates=True),
        "upsampling": BlockKind(_upsampling, variants=3, activates=True),
        "preactivation": BlockKind(_preactivation, variants=2, activates=True),
        "multi_branch": BlockKind(_multi_branch, activates=True),
        "squeeze_excite": BlockKind(_squeeze_excite, variants=2, flags=False),
        "broadcast_add": BlockKind(_broadcast_add, variants=2),
        "bottleneck": BlockKind(_bottleneck, variants=2, activates=True),
        "layer_scale": BlockKind(_layer_scale, activates=True),
        "mlp": BlockKind(_mlp, variants=2, activates=True),
        "inverted_bottleneck": BlockKind(_inverted_bottleneck, variants=6, activates=True),
    }
)
"""All kinds, under the names of `onnxq.strategies.topology.KINDS`."""
