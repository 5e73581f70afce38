"""What a person wants to know about a model at a glance: its interface, its Adds, its Q/DQ, what is stale in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx

from onnxq.graph import Edge, GraphIndex
from onnxq.invariants import ModelPair
from onnxq.invariants.quantized_graph import Quantization
from onnxq.pipeline import find_quantization
from onnxq.placement import ResidualAdd
from onnxq.protos import opset_version, walk_tensors
from onnxq.rewrite import strip_pairs
from onnxq.scopes import tensor_key
from onnxq.shapes import Change
from onnxq.tensor_types import value_type


@dataclass(frozen=True, slots=True)
class AddReport:
    """One Add, or Sum of two, of two tensors that the model computes.

    Attributes:
        node: Its name, after preparation; in a body with the path before it.
        inputs: The tensors that it adds.
        skip: The input that belongs in int8; None if the Add is not residual.
        quantized: Inputs that are quantized in this model.
        why: What the rules saw.
    """

    node: str
    inputs: tuple[str, ...]
    skip: str | None
    quantized: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model at a glance. Where it holds Q/DQ, they don't count as nodes of it.

    Attributes:
        producer: What wrote it, as far as it says so.
        ir_version: Of the file format.
        opset: Version of the default operator set.
        domains: Other operator sets -> version.
        inputs: Name -> declared type; without inputs that have a stored value.
        outputs: Name -> declared type.
        stored: Number of stored values: elements of all initializers and constants.
        nodes: Op type -> number of nodes in the main graph and the bodies.
        quantized: Op type -> number of nodes with a quantized input.
        planned: Op type -> number of nodes with an input that onnxq's rules would quantize.
        scales: Kind of quantized tensor, such as "weights int8 per channel" -> number of them.
        adds: The Adds of two computed tensors.
        constant_adds: Number of Adds of a constant, such as a bias.
        unnamed: Number of nodes without a name of their own: preparation gives them one.
        changes: What else preparation would change: stale declarations, order, opset.
        warnings: What preparation couldn't find out.
    """

    producer: str
    ir_version: int
    opset: int
    domains: dict[str, int]
    inputs: dict[str, str]
    outputs: dict[str, str]
    stored: int
    nodes: dict[str, int]
    quantized: dict[str, int]
    planned: dict[str, int]
    scales: dict[str, int]
    adds: tuple[AddReport, ...]
    constant_adds: int
    unnamed: int
    changes: tuple[str, ...]
    warnings: tuple[str, ...]


def inspect(model: onnx.ModelProto) -> Inspection:
    """Look at a float or a quantized model.

    Args:
        model: Any model; it isn't changed.

    Returns:
        What there is to see.

    Raises:
        InvalidModelError: The model is no usable model.
    """
    float_model = strip_pairs(model) if find_quantization(model) is not None else model
    pair = ModelPair(float_model, model)
    index, placement, prepared = pair.plan.index, pair.plan.placement, pair.plan.prepared
    readers, scales = _quantized_edges(pair)
    adds = [r for r in placement.residuals if all(index.is_variable(t) for t in index.inputs[r.node])]
    initializers = {tensor.name for tensor in model.graph.initializer}
    return Inspection(
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opset=opset_version(model),
        domains={o.domain: o.version for o in model.opset_import if o.domain not in ("", "ai.onnx")},
        inputs={v.name: str(value_type(v.type)) for v in model.graph.input if v.name not in initializers},
        outputs={v.name: str(value_type(v.type)) for v in model.graph.output},
        stored=sum(math.prod(tensor.dims) for tensor in walk_tensors(model)),
        nodes=_counted(node.op_type for node in index.nodes),
        quantized=_counted(index.nodes[node].op_type for node in readers),
        planned=_counted(index.nodes[node].op_type for node in {edge.node for edge in placement.quantized}),
        scales=_counted(scales.values()),
        adds=tuple(_report(index, residual, readers.get(residual.node, ())) for residual in adds),
        constant_adds=len(placement.residuals) - len(adds),
        unnamed=sum(map(_is_naming, prepared.changes)),
        changes=tuple(f"{change.where}: {change.what}" for change in prepared.changes if not _is_naming(change)),
        warnings=prepared.warnings,
    )


def _is_naming(change: Change) -> bool:
    return change.rule == "S8" and change.what.startswith("named ")


def _quantized_edges(pair: ModelPair) -> tuple[dict[int, list[str]], dict[str, str]]:
    """Which tensors each node reads quantized, and of which kind each such tensor is."""
    index = pair.plan.index
    readers: dict[int, list[str]] = {}
    kinds: dict[str, str] = {}
    for node, slot, tensor, quantization in pair.edges():
        if quantization is not None:
            readers.setdefault(node, []).append(tensor)
            kinds[index.key(index.use(Edge(node, slot)))] = _kind(
                quantization, constant=index.is_constant(index.inputs[node][slot])
            )
    return readers, kinds


def _kind(found: Quantization, *, constant: bool) -> str:
    zero_point = found.zero_point
    dtype = "uint8" if zero_point is None else zero_point.dtype.name  # what Q yields where no zero point is given
    shifted = "" if zero_point is None or not zero_point.any() else " with zero point"
    return f"{'weights' if constant else 'activations'} {dtype}{shifted}{'' if found.axis is None else ' per channel'}"


def _report(index: GraphIndex, residual: ResidualAdd, quantized: Sequence[str]) -> AddReport:
    names = tuple(index.tensor_names[t] for t in index.inputs[residual.node])
    skip = names[residual.skip] if residual.skip is not None else None
    node = tensor_key(index.scopes[index.node_scope[residual.node]].path, index.nodes[residual.node].name)
    return AddReport(node, names, skip, tuple(quantized), residual.why)


def _counted(items: Iterable[str]) -> dict[str, int]:
    """How often each occurs, the most frequent first."""
    return dict(sorted(Counter(items).items(), key=lambda item: (-item[1], item[0])))
