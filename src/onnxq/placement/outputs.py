"""Graph outputs that get Q/DQ because the user asked for it (`quantize_outputs`; by rule P6 none does).

    int8 Conv -> Relu -> Reshape -> y        yes: the kernel can store int8, and the copy moves it as it is
    int8 Conv -> Add(int8 skip) -> y         likewise
    int8 Conv -> Softmax -> y                no: Softmax is a kernel of its own, and computes in float
    int8 Conv -> t -> Relu (excluded) -> y   no: what is excluded stays float on both sides
    If -> y, x = y, weight = y               no: no int8 kernel yields it

An output is an edge of its own: whether it is quantized says nothing of the nodes that read the same tensor, and they
say nothing of it. Where both are, they share one pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnxq.graph import ABSENT, MAIN_GRAPH, Edge, GraphIndex, Use
from onnxq.placement.backbone import Backbones
from onnxq.placement.integer_kernels import why_no_integers
from onnxq.placement.kernels import is_int8, results_of
from onnxq.placement.never import Unseen, why_no_pair
from onnxq.placement.ops import is_linear
from onnxq.placement.placement import Decision, OutputDecision, Reason
from onnxq.placement.rules import Rule

NO_KERNEL = Decision(False, Reason(Rule.P6, detail="it isn't what an integer kernel yields"))
"""Of every graph output that no integer kernel stores."""


def output_decisions(
    index: GraphIndex, decisions: Mapping[Edge, Decision], exclude: frozenset[int], backbones: Backbones, unseen: Unseen
) -> tuple[OutputDecision, ...]:
    """Decide the float outputs of the main graph: those that come out of int8 kernels are quantized.

    Args:
        index: The model.
        decisions: Of all its edges.
        exclude: Nodes that the user wants untouched.
        backbones: What passes on what, as epilogue or copy.
        unseen: What calibration saw no value of.
    """
    readers = {e.node for e, d in decisions.items() if d.quantize and index.is_variable(index.inputs[e.node][e.input])}
    kernels = {node for node in readers if not is_linear(index, node) or is_int8(decisions, node)}
    origins = results_of(index, kernels.__contains__, lambda node: () if node in exclude else backbones.passed_on[node])

    def decide(use: Use) -> Decision:
        origin = origins[use.tensor]
        if origin == ABSENT:
            return NO_KERNEL
        why = why_no_pair(index, use, unseen)
        if why:
            return Decision(False, Reason(Rule.P6, detail=f"it {why}"))
        return Decision(True, Reason(Rule.OUTPUT, (origin,), f'stored by the kernel of "{index.nodes[origin].name}"'))

    return decide_outputs(index, decide)


def integer_outputs(index: GraphIndex, unseen: Unseen) -> frozenset[int]:
    """Policy onnxruntime: the outputs of the main graph that an integer kernel could store."""
    return frozenset(
        tensor
        for tensor, is_output in enumerate(index.is_output)
        if is_output
        and index.tensor_scope[tensor] == MAIN_GRAPH
        and index.producers[tensor] != ABSENT
        and not why_no_integers(index, Use(MAIN_GRAPH, tensor), unseen)
    )


def decide_outputs(index: GraphIndex, decide: Callable[[Use], Decision]) -> tuple[OutputDecision, ...]:
    """The decisions on the float outputs of the main graph, in their order."""
    outputs = {
        index.tensor_names[t]: Use(MAIN_GRAPH, t)
        for t, is_output in enumerate(index.is_output)
        if is_output and index.tensor_scope[t] == MAIN_GRAPH and index.tensor_types[t].is_float
    }
    names = dict.fromkeys(value.name for value in index.scopes[MAIN_GRAPH].graph.output)
    return tuple(
        OutputDecision(use, name, index.producers[use.tensor], decide(use))
        for name in names
        if (use := outputs.get(name)) is not None
    )
