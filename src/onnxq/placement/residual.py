"""Residual Adds: which input is the skip, the one that gets Q/DQ (rules R1 to R8).

    fork ----------------------------- skip --> Add        the kernel of the last Conv adds the skip to its result,
        `--> Conv -> Relu -> Conv ---- trunk ----'         if the skip is int8 and the trunk never leaves the kernel

A kernel can only fold the Add into a convolution that runs last, when the other operand is there. So the convolution of
one input (its backbone) must not be needed to compute the other input. This is one test for all shapes of residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from onnxq.graph import ABSENT, ROOT, Dominators, Fingerprints, GraphIndex, build_fingerprints
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
from onnxq.placement.walk_end import why_walk_ended
from onnxq.protos import describe, is_default_domain
from onnxq.tensor_types import Dim


@dataclass(frozen=True, slots=True)
class AddInput:
    """What the rules found out about one input of an Add.

    Attributes:
        backbone: Number of its backbone, None if it has none.
        stop: Where the walk back to a backbone stopped, and why, for a person; "" if there is a backbone.
        is_needed: Whether computing the other input needs the backbone, so that it can't run last.
        length: Linear ops and nodes from the fork to the input; None if the branches weren't compared.
    """

    backbone: int | None
    stop: str = ""
    is_needed: bool = False
    length: Length | None = None

    @property
    def is_fusible(self) -> bool:
        """Whether the Add could be folded into its backbone (R4)."""
        return self.backbone is not None and not self.is_needed


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
        inputs: What was found out about either input; empty if neither was looked at.
        is_tie: Whether the branches are equally long and heavy: then either input could as well be the skip.
    """

    node: int
    trunk: int | None
    skip: int | None
    backbone: int | None
    fork: int
    rule: Rule
    looked_at: tuple[int, ...]
    why: str
    inputs: tuple[AddInput, ...] = ()
    is_tie: bool = False

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


class _Comparison(NamedTuple):
    """Which of two branches is the trunk, by which rule, what was compared, and whether size didn't tell them apart."""

    trunk: int
    rule: Rule
    said: str
    is_tie: bool = False


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
        why_not = why_no_candidate(self._index, add)
        if why_not:
            return ResidualAdd(add, None, None, None, fork, Rule.R1, (), why_not)
        inputs = [self._look_at(slot, add, fork) for slot in (0, 1)]
        looked_at = tuple(i.backbone for i in inputs if i.backbone is not None)
        said = "; ".join(self._say(slot, inputs[slot]) for slot in (0, 1))
        fusible = [slot for slot in (0, 1) if inputs[slot].is_fusible]
        broadcast = why_broadcast(self._index, add)
        if broadcast:
            why = f"it would be residual, but {broadcast}; {said}" if fusible else broadcast
            return ResidualAdd(add, None, None, None, fork, Rule.R1, looked_at, why, tuple(inputs))
        if not fusible:
            return ResidualAdd(add, None, None, None, fork, Rule.R4, looked_at, said, tuple(inputs))
        trunk, rule, is_tie = fusible[0], Rule.R5, False
        if len(fusible) == 2:
            inputs = [replace(one, length=self._length(slot, add, fork)) for slot, one in enumerate(inputs)]
            trunk, rule, compared, is_tie = self._longer(add, inputs, fork)
            said = f"{said}; {compared}"
        why = f"{said}; so the trunk is input {trunk}, the skip is input {1 - trunk}"
        backbone = inputs[trunk].backbone
        return ResidualAdd(add, trunk, 1 - trunk, backbone, fork, rule, looked_at, why, tuple(inputs), is_tie)

    def _look_at(self, slot: int, add: int, fork: int) -> AddInput:
        """R2 and R4: the backbone, and whether computing the other input needs it.

        It must stand in the graph of the Add itself: a kernel can't reach into another one.
        """
        index, tensor, other = self._index, self._index.inputs[add][slot], self._index.inputs[add][1 - slot]
        if index.local_producer(tensor, add) == ABSENT:
            return AddInput(None, why_walk_ended(index, tensor, add))
        found = self._backbones.of_tensor[tensor]
        if found == ABSENT:
            return AddInput(None, why_walk_ended(index, self._backbones.ends[tensor], add))
        return AddInput(found, is_needed=is_ancestor(index, self._dominators, found, other, add, fork))

    def _say(self, slot: int, found: AddInput) -> str:
        if found.backbone is None:
            return f"input {slot} has no backbone, the walk back from it stops at {found.stop}"
        name = self._index.nodes[found.backbone].name
        judged = f"input {1 - slot} needs" if found.is_needed else "can run last"
        return f'input {slot} has backbone "{name}", which {judged}'

    def _length(self, slot: int, add: int, fork: int) -> Length:
        return length_from(self._index, self._longest, fork, self._index.inputs[add][slot], add)

    def _longer(self, add: int, inputs: Sequence[AddInput], fork: int) -> _Comparison:
        """R6 and R7: the input whose branch is longer, then heavier, then first by what it computes."""
        index = self._index
        start = "the graph's inputs" if fork == ROOT else f"the fork {describe(index.nodes[fork])}"
        if inputs[0].length != inputs[1].length:
            units = ("linear ops", "nodes")
            lengths = [i.length for i in inputs if i.length is not None]
            return self._larger(Rule.R6, f"counted from {start}, ", "longer", lengths, units)
        one, two = find_branches(index, self._dominators, add)
        costs = [cost(index, one), cost(index, two)]
        if costs[0] != costs[1]:
            equal = f"counted from {start}, the branches are equally long; "
            return self._larger(Rule.R7, equal, "heavier", costs, ("multiply-accumulates", "weights"))
        first: list[tuple[str, Callable[[Branch], Any]]] = [
            ("its weights", lambda b: weight_digests(index, b)),
            ("what computes it", lambda b: self._fingerprints.computed_by[b.tensor]),
            ("the graph inputs it reads", lambda b: sources(index, b)),
            ("what reads it", lambda b: self._fingerprints.read_by[b.tensor]),
            ("node order, the branches being interchangeable", lambda b: b.tensor),
        ]
        what, order = next((what, order) for what, order in first if order(one) != order(two))
        trunk = int(order(two) < order(one))
        said = f"the branches are equally long and heavy; that of input {trunk} comes first by {what}"
        return _Comparison(trunk, Rule.R7, said, is_tie=True)

    def _larger(
        self, rule: Rule, before: str, what: str, sizes: Sequence[tuple[int, int]], units: tuple[str, str]
    ) -> _Comparison:
        trunk = int(sizes[1] > sizes[0])
        (first, second), (other_first, other_second) = sizes[trunk], sizes[1 - trunk]
        said = f"{first} {units[0]} and {second} {units[1]} against {other_first} and {other_second}"
        return _Comparison(trunk, rule, f"{before}the branch of input {trunk} is {what}: {said}")


def why_no_candidate(index: GraphIndex, node: int) -> str:
    """R1: why the node can be no residual Add, whatever the shapes are; empty if it can.

    Both inputs must be there, float and variable.
    """
    inputs = index.inputs[node]
    if len(inputs) != 2:
        return f"it has {len(inputs)} {'input' if len(inputs) == 1 else 'inputs'}, a residual Add has two"
    for slot, tensor in enumerate(inputs):
        if not index.is_variable(tensor):
            return f"input {slot} is a constant"
        if not index.tensor_types[tensor].is_float:
            return f"input {slot} is no float tensor"
    return ""


def why_broadcast(index: GraphIndex, node: int) -> str:
    """R1: why a node with two inputs is taken for one that broadcasts; empty if the shapes can be equal."""
    left, right = (index.tensor_types[t].shape for t in index.inputs[node])
    if left is None or right is None or _equal_shapes(left, right):
        return ""
    types = " and ".join(str(index.tensor_types[t]) for t in index.inputs[node])
    return f"it broadcasts: its inputs are {types}"


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
