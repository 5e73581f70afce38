"""Tensors that must share one scale, since quantization moves across copy ops (rule P5).

    t (int8) --> Transpose --> u (int8)              t and u: the copy runs in int8 without a new rounding
    a (int8) --.
    b (int8) ---> Concat ----> u (int8)              a, b and u: each part is written where it belongs, as it is
    a, b (int8) -> Concat that was asked for         a and b, whatever reads the result
    t (float) -> Split -> u (int8), v (int8)         u and v don't share: nothing above them is int8
    t (int8) --> MaxPool ----> u (int8)              t and u: the greatest value before rounding is so behind it

A tensor shares the scale of the nearest quantized tensors that it is copied from, through any number of copy ops and
max pools of its own graph: a body reads the original of what it captures, and quantizes that for itself. Every member
has a range of its own, from calibration, and the group's is their union: no member is clipped, and a constant that a
Concat puts in is within the range of the Concat's result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onnxq.graph import ABSENT, GraphIndex, Use
from onnxq.placement.ops import PICKING, copy_sources, is_copy
from onnxq.protos import is_default_domain


def find_scale_groups(index: GraphIndex, quantized: set[Use], readers: Iterable[int] = ()) -> list[list[Use]]:
    """Group quantized activations by the scale that they must share.

    Args:
        index: The model.
        quantized: The activations that get Q/DQ, each as the graph sees it whose nodes read it.
        readers: Numbers of the nodes that read quantized activations: a Concat among them works in int8 itself.

    Returns:
        The groups of two or more, each ascending, ordered by their first. Linear in the size of the graph.
    """
    nodes = enumerate(index.node_scope)
    copies = [(node, scope) for node, scope in nodes if is_copy(index, node) or _picks(index, node)]
    wanted = _wanted(index, copies, quantized)
    parent = {use: use for use in quantized}
    holds = dict(parent)  # a graph's tensor -> the group whose values it carries, if any
    for node, scope in copies:
        carried = [holds[use] for use in _sources(index, node, scope) if use in holds]
        for result in _results(index, node, scope):
            if carried and result in quantized:
                _unite(parent, [*carried, result])
            elif carried and result in wanted:
                holds[result] = _unite(parent, carried)
    for node in readers:
        inputs = _sources(index, node, index.node_scope[node]) if is_copy(index, node) else ()
        members = [use for use in inputs if use in quantized]
        if members:
            _unite(parent, members)
    groups: dict[Use, list[Use]] = {}
    for use in sorted(quantized):
        groups.setdefault(_root(parent, use), []).append(use)
    return [group for group in groups.values() if len(group) > 1]


def _wanted(index: GraphIndex, copies: list[tuple[int, int]], quantized: set[Use]) -> set[Use]:
    """Tensors from which copy ops alone lead to a quantized one, and these themselves."""
    wanted = set(quantized)
    for node, scope in reversed(copies):
        if any(result in wanted for result in _results(index, node, scope)):
            wanted.update(_sources(index, node, scope))
    return wanted


def _sources(index: GraphIndex, node: int, scope: int) -> Iterator[Use]:
    """What a copy op or max pool takes its values from."""
    return (Use(scope, tensor) for tensor in copy_sources(index, node) if tensor != ABSENT)


def _results(index: GraphIndex, node: int, scope: int) -> Iterator[Use]:
    """What holds these values then; the mask of a Dropout doesn't, nor do indices."""
    results = index.outputs[node] if index.nodes[node].op_type == "Split" else index.outputs[node][:1]
    return (Use(scope, tensor) for tensor in results if tensor != ABSENT)


def _picks(index: GraphIndex, node: int) -> bool:
    """Whether the node is a max pool. Rounding keeps the order, so with equal scales it may round before or behind."""
    proto = index.nodes[node]
    return proto.op_type in PICKING and is_default_domain(proto)


def _unite(parent: dict[Use, Use], members: list[Use]) -> Use:
    """Join the groups of all members; the smallest stands for the group."""
    roots = [_root(parent, member) for member in members]
    first = min(roots)
    for root in roots:
        parent[root] = first
    return first


def _root(parent: dict[Use, Use], member: Use) -> Use:
    while parent[member] != member:
        parent[member] = parent[parent[member]]
        member = parent[member]
    return member
