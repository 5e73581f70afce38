"""Comparing the two branches that meet in an Add: which one is longer, heavier, or at least different (R6, R7).

    fork ---> Conv -> Relu -> Conv --.
        `---> Conv ------------------ Add         two linear ops above, one below: the upper branch is longer

A branch is all that lies between the fork (the nearest node that dominates the Add) and one input of the Add.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from onnxq.graph import ABSENT, Dominators, GraphIndex
from onnxq.graph.fingerprint import constant_digest
from onnxq.placement.ops import is_linear
from onnxq.protos import attribute


@dataclass(frozen=True, slots=True)
class Branch:
    """All nodes between the fork and one input of an Add.

    Attributes:
        tensor: The input of the Add.
        nodes: Numbers of the branch's nodes, ascending.
        fork: The node where the branch begins (not part of it), or `ROOT`.
    """

    tensor: int
    nodes: tuple[int, ...]
    fork: int


def find_branch(index: GraphIndex, tensor: int, reader: int, fork: int) -> Branch:
    """Collect the branch that ends in `tensor`, an input of node `reader`. Linear in the size of the branch."""
    start = index.local_producer(tensor, reader)
    seen = {start} - {ABSENT, fork}
    stack = list(seen)
    while stack:
        node = stack.pop()
        for source in index.data_inputs(node):
            producer = index.local_producer(source, node)
            if producer not in (ABSENT, fork) and producer not in seen:
                seen.add(producer)
                stack.append(producer)
    return Branch(tensor, tuple(sorted(seen)), fork)


def is_ancestor(index: GraphIndex, dominators: Dominators, node: int, tensor: int, reader: int, fork: int) -> bool:
    """Whether `node` is needed to compute `tensor`, the other input of the Add `reader`.

    `node` lies on a path to the Add, and so does the fork, which every such path passes. So a node at or above the fork
    is an ancestor of everything that meets in the Add; below it only nodes deeper than `node` can lead to it.
    """
    if fork != ABSENT and dominators.level[node] <= dominators.level[fork]:
        return True
    start = index.local_producer(tensor, reader)
    if start == ABSENT:
        return False
    seen, stack = {start}, [start]
    while stack:
        current = stack.pop()
        if current == node:
            return True
        for source in index.data_inputs(current):
            producer = index.local_producer(source, current)
            if producer in (ABSENT, fork) or producer in seen:
                continue
            if dominators.level[producer] >= dominators.level[node]:
                seen.add(producer)
                stack.append(producer)
    return False


def longest_path(index: GraphIndex, branch: Branch) -> tuple[int, int]:
    """Length of the longest path through the branch: linear ops first, then nodes.

    Identity is no step: putting one in changes nothing. The longest path is taken, not the first one found, so that
    swapping operands inside the branch changes nothing either.
    """
    longest: dict[int, tuple[int, int]] = {}
    for node in branch.nodes:
        producers = (index.local_producer(t, node) for t in index.data_inputs(node))
        before = max((longest.get(p, (0, 0)) for p in producers), default=(0, 0))
        step = (int(is_linear(index, node)), int(index.nodes[node].op_type != "Identity"))
        longest[node] = (before[0] + step[0], before[1] + step[1])
    last = index.producers[branch.tensor]
    return longest.get(last, (0, 0))


def cost(index: GraphIndex, branch: Branch) -> tuple[int, int]:
    """Multiply-accumulates and weight elements of the branch's linear ops. An unknown dim counts as 1."""
    linear = [node for node in branch.nodes if is_linear(index, node)]
    weights = sum(_elements(index, t) for node in linear for t in index.inputs[node] if index.is_constant(t))
    return sum(_multiply_accumulates(index, node) for node in linear), weights


def weight_digests(index: GraphIndex, branch: Branch) -> tuple[bytes, ...]:
    """Digests of the stored weights of the branch's linear ops, sorted: what tells trained branches apart."""
    return tuple(
        sorted(
            constant_digest(index, tensor)
            for node in branch.nodes
            if is_linear(index, node)
            for tensor in index.inputs[node]
            if index.is_constant(tensor)
        )
    )


def sources(index: GraphIndex, branch: Branch) -> tuple[int, ...]:
    """Numbers of the graph inputs (or captured tensors) that the branch reads, ascending.

    Numbers grow with the position among the inputs, so comparing two branches by them follows the model's interface.
    """
    read = {t for node in branch.nodes for t in index.data_inputs(node) if index.local_producer(t, node) == ABSENT}
    return tuple(sorted(read or {branch.tensor}))


def _multiply_accumulates(index: GraphIndex, node: int) -> int:
    """Products that a linear op sums up: of a Conv, each output element times the kernel and the input channels."""
    proto = index.nodes[node]
    inputs, output = index.inputs[node], index.outputs[node][0]
    if proto.op_type == "Conv":
        return _elements(index, output) * prod(_dims(index, inputs[1])[1:])
    if proto.op_type == "ConvTranspose":
        return _elements(index, inputs[0]) * prod(_dims(index, inputs[1])[1:])
    left = _dims(index, inputs[0])
    axis = 0 if proto.op_type == "Gemm" and attribute(proto, "transA", 0) else -1
    return _elements(index, output) * (left[axis] if left else 1)


def _elements(index: GraphIndex, tensor: int) -> int:
    return prod(_dims(index, tensor))


def _dims(index: GraphIndex, tensor: int) -> list[int]:
    shape = index.tensor_types[tensor].shape if tensor != ABSENT else None
    return [d if isinstance(d, int) else 1 for d in shape or ()]
