"""Tensors that must share one scale, since quantization moves across copy ops (rule P5).

    t (int8) --> Transpose --> u (int8)              t and u: the copy runs in int8 without a new rounding
    a (int8) --.
    b (int8) ---> Concat ----> u (int8)              a, b and u: each part is written where it belongs, as it is
    t (float) -> Split -> u (int8), v (int8)         u and v don't share: nothing above them is int8

A tensor shares the scale of the nearest quantized tensors that it is copied from, through any number of copy ops.
"""

from __future__ import annotations

from onnxq.graph import ABSENT, GraphIndex
from onnxq.placement.ops import copy_sources, is_copy


def find_scale_groups(index: GraphIndex, quantized: set[int]) -> list[list[int]]:
    """Group quantized activations by the scale that they must share.

    Args:
        index: The model.
        quantized: Numbers of the activations that get Q/DQ.

    Returns:
        The groups of two tensors or more, each ascending, ordered by their first. Linear in the size of the graph.
    """
    wanted = _wanted(index, quantized)
    parent = list(range(len(index.tensor_names)))
    holds: list[int] = [ABSENT] * len(index.tensor_names)  # the group whose values a tensor carries, if any
    for tensor in range(len(index.tensor_names)):
        carried = [holds[t] for t in _sources(index, tensor) if holds[t] != ABSENT]
        if tensor in quantized:
            carried.append(tensor)
        if carried and (wanted[tensor] or tensor in quantized):
            holds[tensor] = _unite(parent, carried)
    groups: dict[int, list[int]] = {}
    for tensor in sorted(quantized):
        groups.setdefault(_root(parent, tensor), []).append(tensor)
    return [group for group in groups.values() if len(group) > 1]


def _wanted(index: GraphIndex, quantized: set[int]) -> list[bool]:
    """Whether a quantized tensor lies downstream of each tensor through copy ops only."""
    wanted = [False] * len(index.tensor_names)
    for tensor in reversed(range(len(index.tensor_names))):
        if wanted[tensor] or tensor in quantized:
            for source in _sources(index, tensor):
                wanted[source] = True
    return wanted


def _sources(index: GraphIndex, tensor: int) -> tuple[int, ...]:
    """The tensors that `tensor` is a copy of."""
    producer = index.producers[tensor]
    if producer == ABSENT or not is_copy(index, producer):
        return ()
    if index.nodes[producer].op_type != "Split" and tensor != index.outputs[producer][0]:
        return ()  # the mask of a Dropout
    return tuple(t for t in copy_sources(index, producer) if t != ABSENT)


def _unite(parent: list[int], members: list[int]) -> int:
    """Join the groups of all members; the smallest number stands for the group."""
    roots = [_root(parent, member) for member in members]
    first = min(roots)
    for root in roots:
        parent[root] = first
    return first


def _root(parent: list[int], member: int) -> int:
    while parent[member] != member:
        parent[member] = parent[parent[member]]
        member = parent[member]
    return member
