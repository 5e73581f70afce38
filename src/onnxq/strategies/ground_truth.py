"""The residual rules a second time: what each tensor knows of its past while a model is being built.

Nothing here looks at a finished graph. A value is told where it comes from when it is made, and an Add is judged from
its two inputs alone, so this shares neither code nor method with the placement that it is the oracle of.

The length of a branch is counted from the fork (R6). No fork is needed for that: the fork dominates both inputs of
the Add, so every path from the graph's inputs to either passes through it, and what lies before it is the same number
in both. Comparing whole lengths is comparing branches. The same holds for sums over a value's ancestors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Count = tuple[int, int, int, int]
"""Linear ops, nodes, multiply-accumulates, weights: in the order in which R6 and R7 compare them."""

NOTHING: Count = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LinearOp:
    """A Conv, ConvTranspose, Gemm or MatMul: its number, and what it costs."""

    number: int
    macs: int
    weights: int


@dataclass(frozen=True, slots=True)
class Value:
    """A variable tensor and its past.

    Attributes:
        name: Tensor name.
        shape: Its dims.
        backbone: The convolution that a walk back through epilogue and copy ops reaches (R2), None if there is none.
        ancestors: The linear ops that it depends on, its own producer included.
        path: The count along the longest path from the graph's inputs, longest in the order of `Count`.
        most: The largest count of each, whatever the path.
    """

    name: str
    shape: tuple[int, ...]
    backbone: LinearOp | None = None
    ancestors: frozenset[LinearOp] = frozenset()
    path: Count = NOTHING
    most: Count = NOTHING


@dataclass(frozen=True, slots=True)
class Verdict:
    """Trunk and skip of an Add, both None if it isn't residual or if either input may be the skip (`tie`)."""

    rule: str
    trunk: Value | None = None
    skip: Value | None = None
    tie: bool = False


def judge(a: Value, b: Value) -> Verdict:
    """Which of two equally shaped operands of an Add is the trunk (R4 to R7)."""
    a_fusible, b_fusible = _fusible(a, b), _fusible(b, a)
    if not a_fusible and not b_fusible:
        return Verdict("R4")
    if not b_fusible:
        return Verdict("R5", trunk=a, skip=b)
    if not a_fusible:
        return Verdict("R5", trunk=b, skip=a)
    return _by_length(a, b)


def longest(inputs: Sequence[Value], step: Count) -> tuple[Count, Count]:
    """`Value.path` and `Value.most` of what a node computes from its variable inputs."""
    path = max((v.path for v in inputs), default=NOTHING)
    most = [max(column) for column in zip(NOTHING, *(v.most for v in inputs), strict=True)]
    return _plus(path, step), _plus((most[0], most[1], most[2], most[3]), step)


def _fusible(a: Value, b: Value) -> bool:
    """R4: `a` has a backbone, and it can run last because `b` doesn't wait for it."""
    return a.backbone is not None and a.backbone not in b.ancestors


def _by_length(a: Value, b: Value) -> Verdict:
    """R6 and R7: the longer branch is the trunk, if every way to read "longer" says the same."""
    pairs = list(zip(_lengths(a), _lengths(b), strict=True))
    signs = {(x > y) - (x < y) for x, y in pairs}
    rule = "R7" if any(x[:2] == y[:2] for x, y in pairs) else "R6"
    if signs == {1}:
        return Verdict(rule, trunk=a, skip=b)
    if signs == {-1}:
        return Verdict(rule, trunk=b, skip=a)
    return Verdict("R7", tie=True)


def _lengths(value: Value) -> tuple[Count, Count, Count]:
    """The readings of R6 and R7: along one path, each count for itself, and work summed over the whole branch."""
    macs = sum(op.macs for op in value.ancestors)
    weights = sum(op.weights for op in value.ancestors)
    return value.path, value.most, (value.most[0], value.most[1], macs, weights)


def _plus(a: Count, b: Count) -> Count:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]
