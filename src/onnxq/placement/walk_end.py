"""Why the walk back from a tensor to its backbone stopped where it did, for a person (rule R2).

The walk itself notes only where it stopped, see `onnxq.placement.backbone`. The reason is read off that place when
somebody asks, so that it costs nothing where there is a backbone.
"""

from __future__ import annotations

from onnxq.graph import ABSENT, GraphIndex
from onnxq.placement.ops import ACTIVATIONS, ARITHMETIC, GATE_ONLY, RESIDUAL, is_copy, is_linear
from onnxq.protos import describe, is_default_domain


def why_walk_ended(index: GraphIndex, end: int, reader: int) -> str:
    """Where a walk ended, and why.

    Args:
        index: The model.
        end: Number of the tensor at which it ended.
        reader: Number of the node whose input it came from.

    Returns:
        The object of "the walk stops at": `Add "add2", a second Add`.
    """
    name = index.tensor_names[end]
    if index.is_constant(end):
        return f'the constant "{name}"'
    node = index.local_producer(end, reader)
    if node != ABSENT:
        return f"{describe(index.nodes[node])}, {_why_node_ends_it(index, node)}"
    if index.tensor_scope[end] != index.node_scope[reader]:
        return f'"{name}", which the body takes from outside'
    return f'the input "{name}" of the graph'


def _why_node_ends_it(index: GraphIndex, node: int) -> str:
    proto = index.nodes[node]
    op_type = proto.op_type
    if not is_default_domain(proto):
        return f'an operator of the domain "{proto.domain}"'
    if is_linear(index, node):
        return "which is no convolution"
    if op_type == "MaxPool":
        return "which follows no activation"
    if op_type == "Concat":
        return "whose inputs lead to different convolutions"
    if op_type == "BatchNormalization":
        return "whose parameters are computed"
    if op_type in ACTIVATIONS | ARITHMETIC | GATE_ONLY and not is_copy(index, node):
        return _why_pointwise_ends_it(index, node)
    return "which is neither an epilogue nor a copy"


def _why_pointwise_ends_it(index: GraphIndex, node: int) -> str:
    op_type = index.nodes[node].op_type
    operands = sum(map(index.is_variable, index.inputs[node]))
    if operands > 1:
        return f"a second {op_type}" if op_type in RESIDUAL else f"which combines {operands} computed tensors"
    if op_type in GATE_ONLY:
        return "which no kernel applies to its result"
    if op_type == "Div" and index.is_constant(index.inputs[node][0]):
        return "which divides a constant by it"
    return "whose constant operand widens it"
