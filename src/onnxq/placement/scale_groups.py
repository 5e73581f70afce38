"""Tensors that must share one scale, since quantization moves across copy ops (rule P5).

    t (int8) --> Transpose --> u (int8)              t and u: the copy runs in int8 without a new rounding
    a (int8) --.
    b (int8) ---> Concat ----> u (int8)              a, b and u: each part is written where it belongs, as it is
    t (float) -> Split -> u (int8), v (int8)         u and v don't share: nothing above them is int8

A tensor shares the scale of the nearest quantized tensors that it is copied from, through any number of copy ops of its
own graph: a body reads the original of what it captures, and quantizes that for itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.graph import ABSENT, GraphIndex, Use
from onnxq.placement.ops import copy_sources, is_copy


def find_scale_groups(index: GraphIndex, quantized: set[Use]) -> list[list[Use]]:
    """Group quantized activations by the scale that they must share.

    Args:
        index: The model.
        quantized: The activations that get Q/DQ, each as the graph sees it whose nodes read it.

    Returns:
        The groups of two or more, each ascending, ordered by their first. Linear in the size of the graph.
    """
    copies = [(node, scope) for node, scope in enumerate(index.node_scope) if is_copy(index, node)]
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
    """What a copy op copies."""
    return (Use(scope, tensor) for tensor in copy_sources(index, node) if tensor != ABSENT)


def _results(index: GraphIndex, node: int, scope: int) -> Iterator[Use]:
    """The copies that it yields; the mask of a Dropout is none."""
    results = index.outputs[node] if index.nodes[node].op_type == "Split" else index.outputs[node][:1]
    return (Use(scope, tensor) for tensor in results if tensor != ABSENT)


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
