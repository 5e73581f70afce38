"""What a person wants to know about a model at a glance: its interface, its Adds, its Q/DQ, what is stale in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from onnxq.graph import MAIN_GRAPH, Edge, GraphIndex
from onnxq.invariants import ModelPair
from onnxq.invariants.quantized_graph import Quantization
from onnxq.pipeline import find_quantization
from onnxq.placement import Placement, ResidualAdd, activation_type_of, is_linear, never_quantized
from onnxq.protos import opset_version, walk_tensors
from onnxq.rewrite import strip_pairs
from onnxq.scopes import tensor_key
from onnxq.shapes import Change
from onnxq.tensor_types import value_type

_Slots: TypeAlias = dict[int, set[int]]
"""Node number -> positions of its quantized inputs."""


@dataclass(frozen=True, slots=True)
class AddReport:
    """One Add, or Sum of two, of two tensors that the model computes.

    Attributes:
        node: Its name, after preparation; in a body with the path before it.
        inputs: The tensors that it adds.
        skip: The input that belongs in int8; None if the Add is not residual.
        quantized: Inputs that are quantized in this model.
        planned: Inputs that `onnxq quantize` would quantize: none where the trunk's convolution stays float.
        why: What the rules saw.
    """

    node: str
    inputs: tuple[str, ...]
    skip: str | None
    quantized: tuple[str, ...]
    planned: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Tally:
    """How many nodes read what in int8.

    Attributes:
        quantized: Nodes all of whose data inputs are quantized: of a linear op data and weight, else what is computed.
        partly: Nodes some of whose data inputs are quantized, such as a residual Add with its skip.
        floats: All others.
    """

    quantized: int
    partly: int
    floats: int


@dataclass(frozen=True, slots=True)
class OpTypeReport:
    """All nodes of one op type, in the main graph and the bodies.

    Attributes:
        nodes: How many there are.
        found: How they are in this model.
        planned: How `onnxq quantize` would make them.
    """

    nodes: int
    found: Tally
    planned: Tally


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model at a glance. Where it holds Q/DQ, they don't count as nodes of it.

    Attributes:
        is_quantized: Whether it holds Q/DQ.
        producer: What wrote it, as far as it says so.
        ir_version: Of the file format.
        opset: Version of the default operator set.
        domains: Other operator sets -> version.
        inputs: Name -> declared type; without inputs that have a stored value.
        outputs: Name -> declared type.
        stored: Number of stored values: elements of all initializers and constants.
        bodies: Number of graphs inside of If, Loop and Scan.
        body_nodes: Number of nodes in them.
        op_types: Op type -> its nodes, the most frequent first.
        scales: Kind of quantized tensor, such as "weights int8 per channel" -> number of them.
        planned_scales: The same of what `onnxq quantize` would make.
        adds: The Adds of two computed tensors.
        constant_adds: Number of Adds of a constant, such as a bias.
        unnamed: Number of nodes without a name of their own: preparation gives them one.
        changes: What else preparation would change: stale declarations, order, opset.
        warnings: What preparation couldn't find out.
    """

    is_quantized: bool
    producer: str
    ir_version: int
    opset: int
    domains: dict[str, int]
    inputs: dict[str, str]
    outputs: dict[str, str]
    stored: int
    bodies: int
    body_nodes: int
    op_types: dict[str, OpTypeReport]
    scales: dict[str, int]
    planned_scales: dict[str, int]
    adds: tuple[AddReport, ...]
    constant_adds: int
    unnamed: int
    changes: tuple[str, ...]
    warnings: tuple[str, ...]


def inspect(model: onnx.ModelProto, *, policy: str = "tensorrt", activation_type: str | None = None) -> Inspection:
    """Look at a float or a quantized model.

    Args:
        model: Any model; it isn't changed.
        policy: Whose rules say what would be quantized.
        activation_type: Integer type that activations would have; None for the default of the policy.

    Returns:
        What there is to see.

    Raises:
        UsageError: The policy is unknown, or has no such type.
        InvalidModelError: The model is no usable model.
    """
    integers = activation_type_of(policy, activation_type)
    is_quantized = find_quantization(model) is not None
    pair = ModelPair(strip_pairs(model) if is_quantized else model, model, policy, activation_type=integers)
    index, placement, prepared = pair.plan.index, pair.plan.placement, pair.plan.prepared
    found, scales = _found(pair) if is_quantized else ({}, {})
    planned, planned_scales = _planned(placement)
    adds = [r for r in placement.residuals if all(index.is_variable(t) for t in index.inputs[r.node])]
    initializers = {tensor.name for tensor in model.graph.initializer}
    return Inspection(
        is_quantized=is_quantized,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opset=opset_version(model),
        domains={o.domain: o.version for o in model.opset_import if o.domain not in ("", "ai.onnx")},
        inputs={v.name: str(value_type(v.type)) for v in model.graph.input if v.name not in initializers},
        outputs={v.name: str(value_type(v.type)) for v in model.graph.output},
        stored=sum(math.prod(tensor.dims) for tensor in walk_tensors(model)),
        bodies=len(index.scopes) - 1,
        body_nodes=sum(scope != MAIN_GRAPH for scope in index.node_scope),
        op_types=_op_types(index, found, planned),
        scales=scales,
        planned_scales=planned_scales,
        adds=tuple(_report(index, r, found.get(r.node, set()), planned.get(r.node, set())) for r in adds),
        constant_adds=len(placement.residuals) - len(adds),
        unnamed=sum(map(_is_naming, prepared.changes)),
        changes=tuple(f"{change.where}: {change.what}" for change in prepared.changes if not _is_naming(change)),
        warnings=prepared.warnings,
    )


def _is_naming(change: Change) -> bool:
    return change.rule == "S8" and change.what.startswith("named ")


def _found(pair: ModelPair) -> tuple[_Slots, dict[str, int]]:
    """Which inputs each node reads quantized, and how many tensors there are of each kind."""
    index = pair.plan.index
    slots: _Slots = {}
    kinds: dict[str, str] = {}
    for node, slot, _, quantization in pair.edges():
        if quantization is not None:
            slots.setdefault(node, set()).add(slot)
            key = index.key(index.use(Edge(node, slot)))
            kinds[key] = _kind(quantization, constant=index.is_constant(index.inputs[node][slot]))
    for output, quantization in pair.outputs():
        if quantization is not None:
            kinds.setdefault(output, _kind(quantization, constant=False))
    return slots, _counted(kinds.values())


def _planned(placement: Placement) -> tuple[_Slots, dict[str, int]]:
    """The same of what would be quantized."""
    slots: _Slots = {}
    kinds: dict[str, str] = {}
    for edge in placement.quantized:
        slots.setdefault(edge.node, set()).add(edge.input)
        decision = placement[edge]
        kinds[placement.labels[edge].key] = _named_kind(
            decision.dtype, constant=decision.constant, per_channel=decision.axis is not None
        )
    return slots, _counted(kinds.values())


def _op_types(index: GraphIndex, found: _Slots, planned: _Slots) -> dict[str, OpTypeReport]:
    numbers: dict[str, list[int]] = {}
    for number, node in enumerate(index.nodes):
        numbers.setdefault(node.op_type, []).append(number)
    ordered = sorted(numbers.items(), key=lambda item: (-len(item[1]), item[0]))
    return {
        op_type: OpTypeReport(len(nodes), _tally(index, nodes, found), _tally(index, nodes, planned))
        for op_type, nodes in ordered
    }


def _tally(index: GraphIndex, nodes: Sequence[int], slots: _Slots) -> Tally:
    read = [node for node in nodes if slots.get(node)]
    full = sum(_data_slots(index, node) <= slots[node] for node in read)
    return Tally(full, len(read) - full, len(nodes) - len(read))


def _data_slots(index: GraphIndex, node: int) -> set[int]:
    """Inputs that an int8 kernel would want in int8: of a linear op data and weight, else what is computed."""
    if is_linear(index, node):
        return {0, 1}
    return {
        slot
        for slot, tensor in enumerate(index.inputs[node])
        if index.is_variable(tensor) and index.tensor_types[tensor].is_float and not never_quantized(index, node, slot)
    }


def _kind(found: Quantization, *, constant: bool) -> str:
    zero_point = found.zero_point
    dtype = "uint8" if zero_point is None else zero_point.dtype.name  # what Q yields where no zero point is given
    shifted = "" if zero_point is None or not zero_point.any() else " with zero point"
    per_channel = found.axis is not None and (found.scale is None or found.scale.size > 1)
    return _named_kind(f"{dtype}{shifted}", constant=constant, per_channel=per_channel)


def _named_kind(dtype: str, *, constant: bool, per_channel: bool) -> str:
    scales = " per channel" if per_channel else " per tensor" if constant else ""
    what = "biases" if dtype == "int32" else "weights" if constant else "activations"
    return f"{what} {dtype}{scales}"


def _report(index: GraphIndex, residual: ResidualAdd, found: Iterable[int], planned: Iterable[int]) -> AddReport:
    names = tuple(index.tensor_names[t] for t in index.inputs[residual.node])
    return AddReport(
        tensor_key(index.scopes[index.node_scope[residual.node]].path, index.nodes[residual.node].name),
        names,
        names[residual.skip] if residual.skip is not None else None,
        tuple(names[slot] for slot in sorted(found)),
        tuple(names[slot] for slot in sorted(planned)),
        residual.why,
    )


def _counted(items: Iterable[str]) -> dict[str, int]:
    """How often each occurs, the most frequent first."""
    return dict(sorted(Counter(items).items(), key=lambda item: (-item[1], item[0])))
