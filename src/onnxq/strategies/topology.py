"""Residual topologies as plain data: a list of decisions that `build` turns into a model.

A topology is the reproducer of a model: its repr evaluates back to it, and the same topology always gives the same
bytes. An index counts back over block outputs and graph inputs (0 is the newest), clamped to the oldest, so a decision
keeps a meaning whatever is deleted around it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from onnxq.errors import UsageError

# fmt: off
KINDS = (
    "activation", "conv", "add", "copy", "constant",
    "sub", "max_pool", "sum", "conv_transpose", "sum_of_three",
    "concat", "self_add", "projection", "upsampling", "identity",
    "squeeze_excite", "fuse", "multi_branch", "preactivation", "layer_scale",
    "broadcast_add", "crossed", "bottleneck", "mlp", "inverted_bottleneck",
)
# fmt: on
"""Block kinds, the simplest first: shrinking moves up and to the left, so a kind stands below simpler ones of its like.
`onnxq.strategies.blocks` draws each."""

ACTIVATIONS = (
    "none",
    "relu",
    "relu6",
    "leaky_relu",
    "sigmoid",
    "hard_swish",
    "gelu",
    "swish",
    "silu",
    "hard_swish_by_sigmoid",
    "hard_swish_by_clip",
    "gelu_by_erf",
    "mish",
)
"""Activations, the simplest first. From "silu" on they are written out in several nodes."""

# fmt: off
PIECES = (
    "relu", "matmul", "shared", "tiny", "wide",
    "cast", "epsilon", "mask", "fill", "empty",
    "resize", "positions", "sequence", "normalization", "output_cast",
    "if", "loop",
)
# fmt: on
"""Pieces of models that are hard to lower to half precision, the simplest first. `onnxq.strategies.pieces` has each."""

NODE_NAMES = ("unique", "unnamed", "repeated")
"""How nodes are named; "repeated" gives all one name, which ONNX allows and onnxruntime refuses to load."""

CONSTANTS = ("initializer", "node", "input")
"""Where constants live: initializers, Constant nodes, or initializers that are listed among the graph's inputs."""

OLDEST_OPSET, NEWEST_OPSET = 13, 24
"""Versions of the default operator set that `build` writes."""

OLDEST_PRECISION_OPSET = 17
"""First version that `build_precision` writes: the first one with LayerNormalization."""


def short_repr(self: Any) -> str:
    """Leave out fields at their defaults; what is shown still evaluates to an equal value."""
    shown = ((f, getattr(self, f.name)) for f in fields(self))
    arguments = (f"{f.name}={value!r}" for f, value in shown if value != f.default)
    return f"{type(self).__name__}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True, repr=False)
class Block:
    """One decision: which block to append, and what to.

    A block ignores the fields that mean nothing for its kind.

    Attributes:
        kind: One of `KINDS`.
        source: The tensor that it reads, counted back from the newest.
        other: The second tensor, counted the same way, for kinds that join two.
        activation: One of `ACTIVATIONS`.
        norm: Whether a BatchNormalization follows each convolution.
        swap: Whether the operands of its Add change places.
        variant: Which form of the kind; taken modulo the number of forms.

    Raises:
        UsageError: A word is unknown or a number negative.
    """

    kind: str
    source: int = 0
    other: int = 0
    activation: str = "none"
    norm: bool = False
    swap: bool = False
    variant: int = 0

    __repr__ = short_repr

    def __post_init__(self) -> None:
        _check_word("kind", self.kind, KINDS)
        _check_word("activation", self.activation, ACTIVATIONS)
        for name in ("source", "other", "variant"):
            _check_range(name, getattr(self, name), 0)


@dataclass(frozen=True, slots=True, repr=False)
class Topology:
    """All decisions that make a model.

    Attributes:
        blocks: The blocks in order.
        inputs: Number of graph inputs, each float32 [1, channels, 8, 8].
        channels: Channels of the graph inputs, a multiple of 16 (below that a target leaves convolutions in float).
        opset: Version of the default operator set.
        node_names: One of `NODE_NAMES`.
        constants: One of `CONSTANTS`.
        seed: Seed of all weights.

    Raises:
        UsageError: A word is unknown or a number out of range.
    """

    blocks: tuple[Block, ...] = ()
    inputs: int = 1
    channels: int = 16
    opset: int = 20
    node_names: str = "unique"
    constants: str = "initializer"
    seed: int = 0

    __repr__ = short_repr

    def __post_init__(self) -> None:
        _check_word("node_names", self.node_names, NODE_NAMES)
        _check_word("constants", self.constants, CONSTANTS)
        _check_range("inputs", self.inputs, 1)
        _check_range("opset", self.opset, OLDEST_OPSET, NEWEST_OPSET)
        _check_range("seed", self.seed, 0)
        if self.channels < 16 or self.channels % 16:
            raise UsageError(f"channels must be a positive multiple of 16, not {self.channels!r}")


@dataclass(frozen=True, slots=True, repr=False)
class Piece:
    """One decision of a `PrecisionTopology`.

    Attributes:
        kind: One of `PIECES`.
        source: The tensor that it reads, counted back from the newest.
        variant: Which form of the kind; taken modulo the number of forms.

    Raises:
        UsageError: A word is unknown or a number negative.
    """

    kind: str
    source: int = 0
    variant: int = 0

    __repr__ = short_repr

    def __post_init__(self) -> None:
        _check_word("kind", self.kind, PIECES)
        _check_range("source", self.source, 0)
        _check_range("variant", self.variant, 0)


@dataclass(frozen=True, slots=True, repr=False)
class PrecisionTopology:
    """All decisions that make a model for half precision.

    Attributes:
        pieces: The pieces in order.
        opset: Version of the default operator set.
        node_names: One of `NODE_NAMES`.
        constants: One of `CONSTANTS`.
        seed: Seed of all weights.

    Raises:
        UsageError: A word is unknown or a number out of range.
    """

    pieces: tuple[Piece, ...] = ()
    opset: int = 20
    node_names: str = "unique"
    constants: str = "initializer"
    seed: int = 0

    __repr__ = short_repr

    def __post_init__(self) -> None:
        _check_word("node_names", self.node_names, NODE_NAMES)
        _check_word("constants", self.constants, CONSTANTS)
        _check_range("opset", self.opset, OLDEST_PRECISION_OPSET, NEWEST_OPSET)
        _check_range("seed", self.seed, 0)


def _check_word(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")


def _check_range(name: str, value: int, least: int, most: int | None = None) -> None:
    if value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} must be {limits}, not {value!r}")
