"""Residual Adds: which input is the skip, the one that gets Q/DQ (rules R1 to R8).

    fork ----------------------------- skip --> Add        the kernel of the last Conv adds the skip to its result,
        `--> Conv -> Relu -> Conv ---- trunk ----'         if the skip is int8 and the trunk never leaves the kernel

A kernel can only fold the Add into a convolution that runs last, when the other operand is there. So the convolution of
one input (its backbone) must not be needed to compute the other input. This is one test for all shapes of residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from onnxq.graph import ABSENT, Dominators, Fingerprints, GraphIndex, build_fingerprints
from onnxq.placement.backbone import Backbones
from onnxq.placement.branches import (
    Branch,
    Length,
    cost,
    find_branches,
    is_ancestor,
    length_from,
    longest_paths,
    sources,
    weight_digests,
)
from onnxq.placement.ops import RESIDUAL
from onnxq.placement.rules import Rule
from onnxq.protos import is_default_domain
from onnxq.tensor_types import Dim


@dataclass(frozen=True, slots=True)
class ResidualAdd:
    """What the rules found out about one Add (or Sum of two).

    Attributes:
        node: Number of the Add.
        trunk: Position of the input that is fused with its convolution, None if the Add is not residual.
        skip: Position of the input that gets Q/DQ, None if the Add is not residual.
        backbone: Number of the trunk's convolution, None if the Add is not residual.
        fork: Number of the nearest node that dominates the Add, `ROOT` if there is none.
        rule: The rule that decided.
        looked_at: Nodes that the rule looked at.
        why: What it saw, for a person.
    """

    node: int
    trunk: int | None
    skip: int | None
    backbone: int | None
    fork: int
    rule: Rule
    looked_at: tuple[int, ...]
    why: str

    @property
    def is_residual(self) -> bool:
        """Whether one input is the skip."""
        return self.skip is not None


def find_residuals(index: GraphIndex, dominators: Dominators, backbones: Backbones) -> list[ResidualAdd]:
    """Judge every Add, and every Sum of two, in node order."""
    finder = _Finder(index, dominators, backbones)
    return [
        finder.judge(number)
        for number, node in enumerate(index.nodes)
        if node.op_type in RESIDUAL and is_default_domain(node)
    ]


class _Finder:
    """Judges Adds. Holds what is computed for the whole graph, once and only if an Add asks for it."""

    def __init__(self, index: GraphIndex, dominators: Dominators, backbones: Backbones) -> None:
        self._index = index
        self._dominators = dominators
        self._backbones = backbones

    @cached_property
    def _longest(self) -> list[Length]:
        return longest_paths(self._index)

    @cached_property
    def _fingerprints(self) -> Fingerprints:
        return build_fingerprints(self._index)

    def judge(self, add: int) -> ResidualAdd:
        fork = self._dominators.immediate[add]
        why_not = not_a_candidate(self._index, add)
        if why_not:
            return ResidualAdd(add, None, None, None, fork, Rule.R1, (), why_not)
        inputs = self._index.inputs[add]
        backbone = [self._backbone(t, add) for t in inputs]
        fusible = [slot for slot in (0, 1) if self._is_fusible(backbone[slot], inputs[1 - slot], add, fork)]
        looked_at = tuple(b for b in backbone if b != ABSENT)
        said = [self._say(backbone, slot, runs_last=slot in fusible) for slot in (0, 1)]
        if not fusible:
            why = "; ".join(said) if looked_at else "neither input has a backbone"
            return ResidualAdd(add, None, None, None, fork, Rule.R4, looked_at, why)
        trunk, rule, why = fusible[0], Rule.R5, "; ".join(said)
        if len(fusible) == 2:
            trunk, rule, compared = self._longer(add, fork)
            why = f"{why}; {compared}"
        return ResidualAdd(add, trunk, 1 - trunk, backbone[trunk], fork, rule, looked_at, why)

    def _backbone(self, tensor: int, add: int) -> int:
        """The backbone, if it stands in the graph of the Add itself: a kernel can't reach into another one."""
        found = self._backbones.of_tensor[tensor]
        return found if self._index.local_producer(tensor, add) != ABSENT else ABSENT

    def _is_fusible(self, backbone: int, other: int, add: int, fork: int) -> bool:
        """R4: there is a backbone, and computing the other input doesn't need it."""
        return backbone != ABSENT and not is_ancestor(self._index, self._dominators, backbone, other, add, fork)

    def _say(self, backbone: Sequence[int], slot: int, *, runs_last: bool) -> str:
        if backbone[slot] == ABSENT:
            return f"input {slot} has no backbone"
        name = self._index.nodes[backbone[slot]].name
        judged = "can run last" if runs_last else f"input {1 - slot} needs"
        return f'input {slot} has backbone "{name}", which {judged}'

    def _longer(self, add: int, fork: int) -> tuple[int, Rule, str]:
        """R6 and R7: the input whose branch is longer, then heavier, then first by what it computes."""
        index = self._index
        left, right = (length_from(index, self._longest, fork, tensor, add) for tensor in index.inputs[add])
        if left != right:
            return self._larger(Rule.R6, "longer, in (linear ops, nodes)", left, right)
        one, two = find_branches(index, self._dominators, add)
        left, right = cost(index, one), cost(index, two)
        if left != right:
            return self._larger(Rule.R7, "heavier, in (multiply-accumulates, weights)", left, right)
        first: list[tuple[str, Callable[[Branch], Any]]] = [
            ("its weights", lambda b: weight_digests(index, b)),
            ("what computes it", lambda b: self._fingerprints.computed_by[b.tensor]),
            ("the graph inputs it reads", lambda b: sources(index, b)),
            ("what reads it", lambda b: self._fingerprints.read_by[b.tensor]),
            ("node order, the branches being interchangeable", lambda b: b.tensor),
        ]
        what, order = next((what, order) for what, order in first if order(one) != order(two))
        trunk = int(order(two) < order(one))
        return trunk, Rule.R7, f"the branches are equally long and heavy; that of input {trunk} comes first by {what}"

    def _larger(self, rule: Rule, what: str, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, Rule, str]:
        trunk = int(right > left)
        return trunk, rule, f"the branch of input {trunk} is {what}: {left} against {right}"


def not_a_candidate(index: GraphIndex, node: int) -> str:
    """R1: why the node can be no residual Add; empty if it can.

    Both inputs must be there, float, variable, and of equal shape as far as shapes are known.
    """
    inputs = index.inputs[node]
    if len(inputs) != 2:
        return f"it has {len(inputs)} inputs, a residual Add has two"
    for slot, tensor in enumerate(inputs):
        if not index.is_variable(tensor):
            return f"input {slot} is a constant"
        if not index.tensor_types[tensor].is_float:
            return f"input {slot} is no float tensor"
    left, right = (index.tensor_types[t].shape for t in inputs)
    if left is not None and right is not None and not _equal_shapes(left, right):
        types = " and ".join(str(index.tensor_types[t]) for t in inputs)
        return f"it broadcasts: its inputs are {types}"
    return ""


def _equal_shapes(left: tuple[Dim, ...], right: tuple[Dim, ...]) -> bool:
    return len(left) == len(right) and all(
        _may_be_equal(a, b, is_batch=position == 0) for position, (a, b) in enumerate(zip(left, right, strict=True))
    )


def _may_be_equal(left: Dim, right: Dim, *, is_batch: bool) -> bool:
    """Whether two dims can be the same number.

    A 1 against a symbol is taken for a broadcast, and against an unknown dim too, as in gates of pooled data; not so in
    the batch, which is 1 in many models whose other shapes got lost.
    """
    if left == right:
        return True
    if 1 in (left, right):
        return is_batch and None in (left, right)
    return not (isinstance(left, int) and isinstance(right, int))
