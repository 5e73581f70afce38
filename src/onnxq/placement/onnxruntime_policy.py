"""Policy `onnxruntime`: Q/DQ where onnxruntime's CPU makes integer kernels of them (rules O1 to O6).

    x -> Conv -> Relu -> MaxPool -> Conv -> Add -> Relu -> GlobalAveragePool -> Gemm -> y
      q          |       q  |   q        q  / |    q                         q     float
                 no pair    `--------------'  no pair

First the linear ops are judged, each for itself. Then the others follow: an op between integer ones becomes one. One
walk over the nodes finds what has integers before it, one walk backward what has them behind it. What a kernel stores
as integers is read by nobody as float, or its result would have two readers and the kernel wouldn't be used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from onnxq.graph import ABSENT, MAIN_GRAPH, Edge, GraphIndex, Use
from onnxq.placement.absorbed import stored_by
from onnxq.placement.backbone import Backbones
from onnxq.placement.integer_kernels import (
    LINEAR_KERNELS,
    LinearKernel,
    follower_inputs,
    linear_kernel,
    results,
    why_no_integers,
    why_stays_float,
)
from onnxq.placement.kernel_edges import EdgeWriter
from onnxq.placement.never import Unseen
from onnxq.placement.placement import Decision, Reason
from onnxq.placement.residual import ResidualAdd, why_broadcast, why_no_candidate
from onnxq.placement.rules import Rule
from onnxq.placement.selection import Selection
from onnxq.protos import is_default_domain


@dataclass(frozen=True)
class KernelRequest:
    """What is to be placed.

    Attributes:
        index: The model.
        selection: What may be quantized.
        unseen: What can't be quantized because calibration saw no value of it.
        activation_type: "uint8" or "int8".
        asked_for: By node that the user named: what its inputs get if it has no integer kernel.
        outputs: Graph outputs that are quantized where an integer kernel yields them.
    """

    index: GraphIndex
    selection: Selection
    unseen: Unseen
    activation_type: str
    asked_for: Mapping[int, Mapping[int, Decision]]
    outputs: frozenset[int] = frozenset()


def place_kernels(
    request: KernelRequest, residuals: Iterable[ResidualAdd], backbones: Backbones
) -> tuple[dict[Edge, Decision], dict[Use, Decision]]:
    """Decide the edges of a model for onnxruntime's CPU.

    Args:
        request: The model, and what may be quantized in it.
        residuals: All Adds.
        backbones: The convolution that each tensor comes from.

    Returns:
        Edge -> decision, for every edge that a rule speaks about; and graph output -> decision, for those that integer
        kernels store.
    """
    index = without_dead_readers(request.index)
    request = replace(request, index=index)
    linear, refused = _linear_kernels(request)
    joins = _joins(request, residuals, backbones, linear)
    followers = _followers(request, linear, joins)
    writer = EdgeWriter(index, request.selection, request.activation_type, request.outputs)
    for kernel in linear.values():
        writer.read_linear(kernel)
    for node in joins:
        writer.read(node, (0, 1), Reason(Rule.O5))
    for node, slots in followers.items():
        writer.read(node, slots, Reason(Rule.O3))
    for node, asked in request.asked_for.items():
        if node not in linear and node not in followers and node not in joins:
            writer.read_as_asked(node, asked)
    writer.store(linear.values(), followers)
    for node, why in refused.items():
        writer.keep(node, Reason(Rule.O6, detail=why))
    for node in sorted(request.selection.quantize - refused.keys() - followers.keys()):
        writer.keep(node, _why_no_follower(request, node))
    return writer.decisions, writer.outputs


def unfolded_normalizations(index: GraphIndex) -> list[int]:
    """BatchNormalization nodes behind a convolution. Each costs a rounding and a float op, and could cost nothing.

    int8 Conv -> Q -> DQ -> BatchNormalization -> Q        what its kernel stores is widened, scaled, and rounded again
    """
    return [
        node
        for node, proto in enumerate(index.nodes)
        if proto.op_type == "BatchNormalization"
        and is_default_domain(proto)
        and (producer := index.producers[index.inputs[node][0]]) != ABSENT
        and index.nodes[producer].op_type == "Conv"
    ]


def without_dead_readers(index: GraphIndex) -> GraphIndex:
    """The index without reads by nodes that no output depends on: the runtime drops these before it fuses anything."""
    is_live = [False] * len(index.nodes)
    for node in reversed(range(len(index.nodes))):
        outputs = [t for t in index.outputs[node] if t != ABSENT]
        is_live[node] = any(index.is_output[t] or any(is_live[e.node] for e in index.consumers[t]) for t in outputs)
    return replace(index, consumers=[[edge for edge in edges if is_live[edge.node]] for edges in index.consumers])


def _linear_kernels(request: KernelRequest) -> tuple[dict[int, LinearKernel], dict[int, str]]:
    """O1 and O6: the linear ops that run as integer kernels, and the others with the reason.

    x -> Conv -> y (graph output)        float: QLinearConv yields integers, and y must be float
    x -> Gemm -> y (graph output)        QGemm yields float as well
    x -> Conv -> y (quantized output)    integers, and a DequantizeLinear before the caller
    """
    index, selection = request.index, request.selection
    judged = {
        node: linear_kernel(index, node, selection.exclude, request.unseen)
        for node in sorted(selection.quantize)
        if index.nodes[node].op_type in LINEAR_KERNELS and is_default_domain(index.nodes[node])
    }
    refused = {node: why for node, why in judged.items() if isinstance(why, str)}
    found = {node: kernel for node, kernel in judged.items() if isinstance(kernel, LinearKernel)}
    for node, kernel in found.items():
        why = why_stays_float(index, kernel.result, request.outputs) or request.unseen.get(
            _use(index, node, kernel.result), ""
        )
        if not why or node in selection.by_name:
            continue
        if not kernel.may_be_float:
            refused[node] = f"its result {why}, and the kernel of {index.nodes[node].op_type} stores integers only"
        elif any(_may_read_integers(request, edge, found) for edge in index.consumers[kernel.result]):
            refused[node] = f"its result {why}, and is read in integers as well"
    return {node: kernel for node, kernel in found.items() if node not in refused}, refused


def _may_read_integers(request: KernelRequest, edge: Edge, linear: Collection[int]) -> bool:
    if edge.node in linear:
        return edge.input < 2
    return edge.node in request.selection.quantize and edge.input in follower_inputs(request.index, edge.node)


def _joins(
    request: KernelRequest, residuals: Iterable[ResidualAdd], backbones: Backbones, linear: Collection[int]
) -> list[int]:
    """O5: residual Adds of an integer convolution. Both inputs are quantized, whatever reads the result.

    int8 Conv -> BatchNormalization --> Add        the Add of a residual stream of MatMuls isn't one: it stays float
    skip ------------------------------'
    """
    index = request.index
    return [
        add.node
        for add in residuals
        if add.node in request.selection.quantize
        and index.nodes[add.node].op_type == "Add"
        and not (why_no_candidate(index, add.node) or why_broadcast(index, add.node))
        and any(backbones.of_tensor[t] in linear for t in index.inputs[add.node])
        and not any(why_no_integers(index, index.use(Edge(add.node, slot)), request.unseen) for slot in (0, 1))
    ]


def _followers(
    request: KernelRequest, linear: Mapping[int, LinearKernel], joins: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """O3: ops that run as integer kernels because what stands before them and behind them does.

    int8 Conv -> Sigmoid -> Mul -> int8 Conv        both
    int8 Conv -> Sigmoid -> y (quantized output)    yes
    int8 Conv -> Mul -> LayerNormalization          no: nothing wants the result in integers
    x -> MaxPool -> int8 Conv                       no: the data come in float

    An op that the user named needs no neighbours.

    Returns:
        Node -> input positions that are quantized, in node order.
    """
    index, selection = request.index, request.selection
    biased = {kernel.bias.node for kernel in linear.values() if kernel.bias is not None}
    possible = {
        node: slots
        for node in sorted(selection.quantize - biased - linear.keys())
        if (slots := follower_inputs(index, node, request.unseen))
        and not any(why_stays_float(index, tensor, request.outputs) for tensor in results(index, node))
    }
    stored = {node: _stored(index, node, results(index, node), selection) for node in possible}
    wanted = {index.use(Edge(node, slot)) for node in (*linear, *joins) for slot in (0, 1)}
    wanted |= {Use(MAIN_GRAPH, tensor) for tensor in request.outputs}
    integers = wanted.union(*(_stored(index, node, (k.result,), selection) for node, k in linear.items()))
    before, behind = set[int](), set[int]()
    for node, slots in possible.items():
        if node in selection.by_name or any(index.use(Edge(node, slot)) in integers for slot in slots):
            before.add(node)
            integers |= stored[node]
    for node in reversed(possible):
        if node in selection.by_name or wanted & stored[node]:
            behind.add(node)
            wanted.update(index.use(Edge(node, slot)) for slot in possible[node])
    return {node: slots for node, slots in possible.items() if node in before and node in behind}


def _why_no_follower(request: KernelRequest, node: int) -> Reason | None:
    """O3 and O6: why an op stays float that has an integer kernel; None for one that has none."""
    index = request.index
    if not follower_inputs(index, node):
        return None
    stays = next((why for t in results(index, node) if (why := why_stays_float(index, t, request.outputs))), "")
    if stays:
        return Reason(Rule.O6, detail=f"its result {stays}, and its kernel stores integers only")
    return Reason(Rule.O3, detail="not between ops that work in integers")


def _stored(index: GraphIndex, node: int, tensors: Iterable[int], selection: Selection) -> set[Use]:
    """What a kernel may store, for each of its results: the result, or that of the activation behind it."""
    return {_use(index, node, t) for result in tensors for t in stored_by(index, result, selection.exclude)}


def _use(index: GraphIndex, node: int, tensor: int) -> Use:
    return Use(index.node_scope[node], tensor)
