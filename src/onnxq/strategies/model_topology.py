"""Topologies of models of any operators, as plain data: a list of decisions that `build_model` turns into a model."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.strategies.topology import short_repr

OLDEST_MODEL_OPSET = 11
"""First version of the default operator set that is drawn."""

DTYPES = ("float32", "float16", "bfloat16")
"""Element types of data and weights. "bfloat16" is that of the weights only, behind Casts: nothing computes in it."""

MODEL_NAMES = ("unique", "unnamed", "colliding")
MODEL_CONSTANTS = ("initializer", "node")
SHAPES = ((1, 16, 8, 8), (1, 16, 16), (1, 16, 8), (1, 16, 4, 4, 4), (16, 16))
"""Shapes that a graph input may have: an image, tokens, a signal, a volume, a matrix."""


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """One decision: what to append, and what to. What doesn't fit is made to fit.

    Attributes:
        kind: One of `onnxq.strategies.models.STEPS`.
        source: The tensor that it reads, counted back from the newest.
        other: The second tensor, counted the same way, for kinds that join two.
        form: Which form of the kind: each makes of it what it can.
    """

    kind: str
    source: int = 0
    other: int = 0
    form: int = 0

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, repr=False)
class ModelTopology:
    """All decisions that make a model.

    Attributes:
        steps: The steps in order; those that would make more nodes than `max_nodes` are left out.
        inputs: Which of `SHAPES` each graph input has.
        side: Whether there is an input of int64 as well.
        symbolic: Whether the first dim of the inputs is a symbol.
        dtype: One of `DTYPES`.
        opset: Version of the default operator set.
        names: One of `MODEL_NAMES`.
        constants: One of `MODEL_CONSTANTS`.
        outputs: How many tensors that are read are outputs too.
        seed: Seed of all weights.
        max_nodes: Most nodes, those of bodies included.
    """

    steps: tuple[Step, ...] = ()
    inputs: tuple[int, ...] = (0,)
    side: bool = False
    symbolic: bool = False
    dtype: str = "float32"
    opset: int = 20
    names: str = "unique"
    constants: str = "initializer"
    outputs: int = 0
    seed: int = 0
    max_nodes: int = 20

    __repr__ = short_repr
