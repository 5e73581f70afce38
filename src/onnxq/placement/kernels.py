"""Which tensors come out of int8 kernels: the question of every rule that follows its neighbours.

    int8 Conv -> BatchNormalization -> Relu -> Reshape -> t      t is stored by the convolution's kernel, in int8
    int8 Conv -> Add(int8 skip) -> Relu -> t                     likewise: the Add is part of the kernel
    a, b (each stored by a kernel) -> Concat -> t                likewise: each kernel writes its part of t
    int8 Conv -> Softmax -> t                                    no: Softmax is a kernel of its own

One pass over the nodes answers it for all tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from onnxq.graph import ABSENT, Edge, GraphIndex
from onnxq.placement.backbone import Backbones
from onnxq.placement.ops import copy_sources, is_copy, is_linear
from onnxq.placement.placement import Decision
from onnxq.placement.residual import ResidualAdd
from onnxq.protos import is_default_domain

Decisions = Mapping[Edge, Decision]
"""The decisions so far."""


def is_int8(decisions: Decisions, node: int) -> bool:
    """Whether a linear op has both operands quantized, so that an int8 kernel runs it."""
    edges = (Edge(node, slot) for slot in (0, 1))  # one is missing where its tensor's type is unknown
    return all(edge in decisions and decisions[edge].quantize for edge in edges)


def kernel_results(
    index: GraphIndex, decisions: Decisions, residuals: Iterable[ResidualAdd], backbones: Backbones
) -> list[int]:
    """The int8 kernel that stores each tensor.

    Args:
        index: The model.
        decisions: Of the linear ops and residual Adds, at least.
        residuals: All Adds.
        backbones: What passes on what, as epilogue or copy.

    Returns:
        By tensor: the number of the linear op or residual Add whose kernel it comes from, `ABSENT` if from none.
    """
    kernels = {n for n in range(len(index.nodes)) if is_linear(index, n) and is_int8(decisions, n)}
    folded = (r for r in residuals if r.skip is not None and r.backbone is not None and is_int8(decisions, r.backbone))
    skips = (Edge(residual.node, residual.skip) for residual in folded if residual.skip is not None)
    kernels |= {edge.node for edge in skips if edge in decisions and decisions[edge].quantize}
    return results_of(index, kernels.__contains__, backbones.passed_on.__getitem__)


def results_of(
    index: GraphIndex, is_start: Callable[[int], bool], passed_on: Callable[[int], Sequence[int]]
) -> list[int]:
    """The node that each tensor comes from, if only nodes that pass their data on stand between.

    Args:
        index: The model.
        is_start: Whether the walk may begin at a node, by node number.
        passed_on: The tensors that a node passes on, by node number.

    Returns:
        By tensor: the number of the first node at which it begins, `ABSENT` if a part of it begins elsewhere.
    """
    found = [ABSENT] * len(index.tensor_names)
    for node in range(len(index.nodes)):
        origin = node if is_start(node) else common_origin(index, node, passed_on(node), found)
        for tensor in index.outputs[node]:
            if tensor != ABSENT:
                found[tensor] = origin
    return found


def common_origin(index: GraphIndex, node: int, sources: Sequence[int], found: Sequence[int]) -> int:
    """What the first source of the node has been found to come from, if every source that is no constant has one."""
    variable = [t for t in sources if index.is_variable(t)]
    local = all(index.local_producer(t, node) != ABSENT for t in variable)
    if not variable or not local or any(found[t] == ABSENT for t in variable):
        return ABSENT
    return found[variable[0]]


def moved(index: GraphIndex, node: int) -> tuple[int, ...]:
    """Tensors that the node only moves: those of a copy op, and of a Cast from one float type to another."""
    if is_copy(index, node):
        return copy_sources(index, node)
    proto = index.nodes[node]
    if proto.op_type == "Cast" and is_default_domain(proto):
        both = (*index.inputs[node], *index.outputs[node])
        return index.inputs[node] if all(t != ABSENT and index.tensor_types[t].is_float for t in both) else ()
    return ()
