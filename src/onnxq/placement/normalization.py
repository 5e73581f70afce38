"""LayerNormalization behind a convolution (rule P4): its data input is quantized.

    int8 Conv -> Transpose -> LayerNormalization       yes: ConvNeXt's blocks and stems, patch embeddings
    int8 Conv -> Add -> LayerNormalization             no: a residual stream, or a position embedding, stays exact
    float Conv -> Transpose -> LayerNormalization      no

The pair isn't there for the normalization, which computes in float whatever it reads. It lets the convolution store
int8: without it the kernel must convert its int8 sums to float, and those kernels are slow. So there is nothing to gain
behind a convolution that is float itself, and a rounding to lose, as with residual Adds (R9).
"""

from __future__ import annotations

from collections.abc import Iterable

from onnxq.graph import ABSENT, Edge, GraphIndex
from onnxq.placement.kernels import Decisions, is_int8, moved, results_of
from onnxq.placement.never import Unseen, why_never
from onnxq.placement.ops import NORMALIZATIONS, is_convolution
from onnxq.placement.placement import Decision, Reason
from onnxq.placement.rules import Rule
from onnxq.protos import is_default_domain

_PARAMETER = Decision(False, Reason(Rule.P6, detail="it is a parameter"))


def normalization_decisions(
    index: GraphIndex, candidates: Iterable[int], decisions: Decisions, unseen: Unseen
) -> dict[Edge, Decision]:
    """Decide the inputs of each LayerNormalization: the data by what yields them, scale and bias stay float.

    Args:
        index: The model.
        candidates: Numbers of the nodes that may be quantized and that no other rule has decided.
        decisions: Of the convolutions, at least.
        unseen: What calibration saw no value of.
    """
    wanted = [n for n in sorted(candidates) if _is_normalization(index, n) and Edge(n, 0) in decisions]
    if not wanted:
        return {}
    convolutions = results_of(
        index, lambda n: is_convolution(index, n) and is_int8(decisions, n), lambda n: moved(index, n)
    )
    decided: dict[Edge, Decision] = {}
    for node in wanted:
        decided[Edge(node, 0)] = _decide(index, node, convolutions, unseen)
        parameters = (Edge(node, slot) for slot in range(1, len(index.inputs[node])))
        decided.update((edge, _PARAMETER) for edge in parameters if edge in decisions)
    return decided


def _is_normalization(index: GraphIndex, node: int) -> bool:
    proto = index.nodes[node]
    return proto.op_type in NORMALIZATIONS and is_default_domain(proto)


def _decide(index: GraphIndex, node: int, convolutions: list[int], unseen: Unseen) -> Decision:
    data, never = index.inputs[node][0], why_never(index, Edge(node, 0), unseen)
    conv = convolutions[data] if index.local_producer(data, node) != ABSENT else ABSENT
    if never:
        return Decision(False, Reason(Rule.P6, detail=f"it {never}"))
    if conv == ABSENT:
        return Decision(False, Reason(Rule.P4, detail="its data come from no int8 convolution"))
    return Decision(True, Reason(Rule.P4, (conv,), f'its data are the result of "{index.nodes[conv].name}"'))
