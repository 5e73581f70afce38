"""Linear ops: which of their inputs get Q/DQ, and along which axis a weight has its scales (rule P1).

A weight has one scale for each output channel, never one along an axis that the op sums over: the kernel could not
take such a scale out of the sum.

    op                       weight              axis of the output channels
    Conv                     [M, C/group, ...]   0
    ConvTranspose            [C, M/group, ...]   1; with groups, one scale serves that channel of every group
    Gemm, B                  [K, N], transB      1, with transB 0
    Gemm, A constant         [M, K], transA      0, with transA 1
    MatMul, B constant       [..., K, N]         the last
    MatMul, A constant       [..., M, K]         the second last
    MatMul, a vector         [K]                 none, one scale in all

The bias stays float.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.graph import ABSENT, Edge, GraphIndex
from onnxq.placement.never import Unseen, why_never
from onnxq.placement.ops import CONVOLUTIONS, group_count
from onnxq.placement.placement import Decision, Reason
from onnxq.placement.rules import Rule
from onnxq.protos import attribute

_BIAS = Decision(False, Reason(Rule.P1, detail="the bias stays float"))
_DATA = Reason(Rule.P1, detail="data")
_WEIGHT = Reason(Rule.P1, detail="weight, one scale an output channel")
_VECTOR = Reason(Rule.P1, detail="weight without output channels, one scale in all")


def linear_decisions(index: GraphIndex, node: int, unseen: Unseen) -> Mapping[int, Decision]:
    """Decide the data and weight inputs of a linear op.

    Args:
        index: The model.
        node: Number of a Conv, ConvTranspose, Gemm or MatMul.
        unseen: What can't be quantized because calibration saw no value of it.

    Returns:
        Input position -> decision. Either both operands are quantized or none is: an int8 kernel needs both.
    """
    operands = index.inputs[node][:2]
    why_not = _why_not(index, node, unseen)
    if why_not:
        return {slot: Decision(False, Reason(why_not[0], detail=why_not[1])) for slot in range(len(operands))}
    return {0: _decide(index, node, 0), 1: _decide(index, node, 1), 2: _BIAS}


def weight_axis(index: GraphIndex, node: int, slot: int) -> int | None:
    """Axis of the output channels of the constant input `slot` of a linear op; None if it has none."""
    proto = index.nodes[node]
    if proto.op_type == "Conv":
        return 0
    if proto.op_type == "ConvTranspose":
        return 1
    if proto.op_type == "Gemm":
        transposed = attribute(proto, "transB" if slot else "transA", 0)
        return slot ^ int(bool(transposed))
    rank = index.tensor_types[index.inputs[node][slot]].rank
    if rank is None or rank < 2:
        return None
    return rank - 1 if slot else rank - 2


def _decide(index: GraphIndex, node: int, slot: int) -> Decision:
    if index.is_variable(index.inputs[node][slot]):
        return Decision(True, _DATA)
    axis = weight_axis(index, node, slot)
    if axis is None:
        return Decision(True, _VECTOR, constant=True)
    groups = group_count(index, node) if index.nodes[node].op_type == "ConvTranspose" else 1
    reason = (
        _WEIGHT if groups == 1 else Reason(Rule.P1, detail=f"weight, one scale for a channel of all {groups} groups")
    )
    return Decision(True, reason, constant=True, axis=axis)


def _why_not(index: GraphIndex, node: int, unseen: Unseen) -> tuple[Rule, str] | None:
    operands = index.inputs[node][:2]
    if len(operands) < 2 or ABSENT in operands:
        return Rule.P1, "an operand is missing"
    if not any(map(index.is_variable, operands)):
        return Rule.P1, "it is computed from constants only"
    if index.nodes[node].op_type in CONVOLUTIONS and not (
        index.is_variable(operands[0]) and index.is_constant(operands[1])
    ):
        return Rule.P1, "its weight is no constant, or its data are"
    for slot in range(len(operands)):
        found = why_never(index, Edge(node, slot), unseen)
        if found:
            return Rule.P6, f"input {slot} {found}"
    return None
