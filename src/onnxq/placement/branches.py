"""Comparing the two branches that meet in an Add: which one is longer, heavier, or at least different (R6, R7).

    fork ---> Conv -> Relu -> Conv --.
        `---> Conv ------------------ Add         two linear ops above, one below: the upper branch is longer

The fork is the nearest node that dominates the Add. What lies before it is the same for both inputs, so lengths are
counted from the graph's inputs in one pass over all nodes, and only shown from the fork. For all else a branch is what
one input depends on and the other one doesn't. That is found without walking up to the fork.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from math import prod

from onnxq.graph import ABSENT, ROOT, Dominators, GraphIndex
from onnxq.graph.fingerprint import constant_digest
from onnxq.placement.ops import is_linear
from onnxq.protos import attribute

Length = tuple[int, int]
"""Linear ops, then nodes."""


@dataclass(frozen=True, slots=True)
class Branch:
    """What one input of an Add depends on and the other one doesn't.

    Attributes:
        tensor: The input of the Add.
        nodes: Numbers of the branch's nodes, ascending.
    """

    tensor: int
    nodes: tuple[int, ...]


def find_branches(index: GraphIndex, dominators: Dominators, add: int) -> tuple[Branch, Branch]:
    """The branches that meet in a node with two inputs.

    Walks back from both inputs, deepest nodes first, so that all readers of a node come before it; ends where only
    shared nodes are left.
    """
    sides: dict[int, int] = {}  # node -> 1, 2, or 3 for both
    heap: list[tuple[int, int]] = []
    branches: dict[int, list[int]] = {1: [], 2: [], 3: []}

    def reach(tensor: int, reader: int, side: int) -> int:
        """How the number of nodes that wait and belong to one side changes."""
        node = index.local_producer(tensor, reader)
        if node == ABSENT:
            return 0
        before = sides.get(node, 0)
        if not before:
            heappush(heap, (-dominators.level[node], node))
        sides[node] = before | side
        return int(sides[node] != 3) - int(before in (1, 2))

    one, two = index.inputs[add]
    waiting = reach(one, add, 1) + reach(two, add, 2)
    while waiting:
        _, node = heappop(heap)
        side = sides[node]
        waiting -= int(side != 3)
        branches[side].append(node)
        waiting += sum(reach(source, node, side) for source in index.data_inputs(node))
    return Branch(one, tuple(sorted(branches[1]))), Branch(two, tuple(sorted(branches[2])))


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


def longest_paths(index: GraphIndex) -> list[Length]:
    """Length of the longest path from the inputs of its graph to each node, by node number, itself included.

    Identity is no step: putting one in changes nothing. The longest path is taken, not the first one found, so that
    swapping operands inside a branch changes nothing either.
    """
    longest: list[Length] = []
    for node, proto in enumerate(index.nodes):
        producers = (index.local_producer(t, node) for t in index.data_inputs(node))
        linear, steps = max((longest[p] for p in producers if p != ABSENT), default=(0, 0))
        longest.append((linear + is_linear(index, node), steps + (proto.op_type != "Identity")))
    return longest


def length_from(index: GraphIndex, longest: list[Length], fork: int, tensor: int, reader: int) -> Length:
    """Length of the branch between `fork` and `tensor`, an input of node `reader`."""
    start = (0, 0) if fork == ROOT else longest[fork]
    producer = index.local_producer(tensor, reader)
    end = start if producer == ABSENT else longest[producer]
    return end[0] - start[0], end[1] - start[1]


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
